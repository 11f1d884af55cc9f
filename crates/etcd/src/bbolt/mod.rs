//! bbolt files (format version 2, as bbolt 1.3 to 1.5 write them) without bbolt: read, check, bulk-load, append.
//!
//! Files are read with `pread` into bounded buffers, never mapped: a truncated file is an error and not a SIGBUS, and
//! memory does not grow with the database. Writing is limited to what restore and compaction need, a bulk load in key
//! order and an append at the right edge, so there is no rebalancing and no freelist to get wrong.

mod check;
mod db;
mod meta;
mod output;
mod page;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

pub use check::{Checked, Finding, Place, check, check_stretch};
pub use db::{Bucket, BucketRoot, Db};
pub use meta::{Meta, MetaFault, NO_FREELIST};
pub use output::Output;
pub use page::{BranchElement, Fault, LeafElement, Page, PageKind};
pub use tree::{Tree, TreeWriter};
pub use walk::Walk;

use std::io;

/// The number of a page; its offset in the file is this times the page size.
pub type PageId = u64;

/// Page runs above this are refused: etcd's largest request is far smaller, so a longer run means a damaged header.
pub const LARGEST_RUN: usize = 128 << 20;

/// bbolt's own limit, generously: a tree of 2^64 pages with two children each is no deeper than this.
const DEEPEST_TREE: usize = 40;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} at offset {offset}")]
    Io { action: &'static str, offset: u64, source: io::Error },
    #[error("not a bbolt file: {0}; is this a snapshot or a member's db file?")]
    NotBbolt(&'static str),
    #[error(
        "both meta pages are invalid (first: {first}, second: {second}); the file cannot be opened, take another copy"
    )]
    NoMeta { first: MetaFault, second: MetaFault },
    #[error("the file ends at {length} bytes but its meta page claims {needed}; it is truncated, fetch it again")]
    Truncated { length: u64, needed: u64 },
    #[error("page {id}: {fault}; the database is damaged, take another copy")]
    Page { id: PageId, fault: Fault },
    #[error("key {key:02x?} does not sort after the one written before it")]
    NotAscending { key: Vec<u8> },
    #[error("a key of {0} bytes does not fit bbolt's limits (1 to 32768)")]
    KeySize(usize),
    #[error("an element of {0} bytes is larger than a page run may be")]
    ElementSize(usize),
    #[error("page size {0} is not a power of two from 1 KiB to 64 KiB")]
    PageSize(u64),
}

impl Error {
    fn page(id: PageId) -> impl FnOnce(Fault) -> Self {
        move |fault| Self::Page { id, fault }
    }
}
