//! `leasepb`: the values of bucket `lease`.

/// A granted lease. `remaining_ttl` is zero unless checkpoints are persisted.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Lease {
    #[prost(int64, tag = "1")]
    pub id: i64,
    #[prost(int64, tag = "2")]
    pub ttl: i64,
    #[prost(int64, tag = "3")]
    pub remaining_ttl: i64,
}
