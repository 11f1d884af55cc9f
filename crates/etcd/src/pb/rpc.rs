//! `etcdserverpb`: requests and responses of etcd's gRPC services, 3.4 to 3.7.
//!
//! Messages of equal shape share one type here ([`Empty`], [`HeaderOnly`], [`cluster::Members`]): on the wire they are
//! the same bytes, and a reader has fewer names to learn.

pub mod auth;
pub mod cluster;
pub mod kv;
pub mod lease;
pub mod maintenance;
pub mod watch;

/// A request without fields.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// Who answered, and where that member stood.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

/// A response that carries nothing but its header.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HeaderOnly {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}
