//! A gRPC client for one etcd member.
//!
//! Each member has a channel of its own: an operator nearly always needs the answer of exactly that member, and a
//! balancer in between would hide which one is ill. Every unary call has a deadline. Nothing is retried: whether a
//! write may be repeated is for the caller to decide.

mod auth;
mod channel;
mod cluster;
mod error;
mod kv;
mod lease;
mod maintenance;
mod snapshot;
mod watch;

pub use channel::{Client, Options, Tls};
pub use error::{ClientError, Code};
pub use kv::{WHOLE_KEYSPACE, prefix_end};
pub use snapshot::SnapshotStream;
pub use watch::{Watch, WatchMessage};
