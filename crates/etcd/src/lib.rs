//! etcd's files and wire format, natively: read, verify, restore and compact without running etcd.

#![forbid(unsafe_code)]

pub mod backup;
pub mod bbolt;
#[cfg(feature = "client")]
pub mod client;
pub mod compact;
mod copy;
pub mod data_dir;
mod direct_io;
mod error;
pub mod events;
pub mod foreign;
pub mod hash;
pub mod history;
mod keep;
pub mod keys;
pub mod membership;
pub mod mvcc;
pub mod pb;
mod readahead;
mod rebuild;
pub mod restore;
pub mod schema;
mod scratch;
pub mod snap;
pub mod snapshot;
pub mod staging;
pub mod validate;
pub mod wal;

pub use copy::CopyError;
pub use rebuild::RebuildError;
pub use scratch::ScratchError;
