//! etcd's files and wire format, natively: read, verify, restore and compact without running etcd.

#![forbid(unsafe_code)]

pub mod bbolt;
pub mod events;
pub mod foreign;
pub mod membership;
pub mod pb;
pub mod snap;
pub mod wal;
