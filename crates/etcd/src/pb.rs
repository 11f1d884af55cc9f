//! The protobuf messages of etcd's files and of its gRPC interface, declared by hand.
//!
//! Field numbers are frozen by every data directory and every client in the world, so a code generator and `protoc`
//! would buy nothing. Messages that etcd declares as proto2 keep explicit presence (`Option`): whether a zero is written
//! or left out changes the bytes of a WAL record, and with them its checksum.

pub mod auth;
pub mod lease;
pub mod mvcc;
pub mod raft;
pub mod rpc;
