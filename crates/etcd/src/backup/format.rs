//! The container's messages, limits and errors; `docs/formats.md` has the bytes.

use std::io;

use jiff::Timestamp;

use super::keyring::SALT_SIZE;
use crate::bbolt::LARGEST_RUN;
use crate::snapshot::{DIGEST_SIZE, Digest256};

/// Not text, and spoilt by whatever takes it for text.
pub(crate) const MAGIC: [u8; 8] = *b"\x89QRB\r\n\x1a\n";
pub(crate) const END_MAGIC: [u8; 8] = *b"QRB-END\n";
pub(crate) const FORMAT: u32 = 1;
pub(crate) const CODEC_ZSTD: u32 = 1;

/// Magic and the header's length.
pub(crate) const PREFIX_SIZE: usize = 12;
pub(crate) const CHECKSUM_SIZE: usize = 4;
pub(crate) const FRAME_HEAD: usize = 9;
pub(crate) const FOOTER_SIZE: usize = 64;
pub(crate) const LARGEST_HEADER: usize = 64 << 10;
/// A block is this large before it is compressed, unless one change alone is larger.
pub(crate) const BLOCK: usize = 1 << 20;
/// What cannot be in a database cannot be in a block either.
pub(crate) const LARGEST_BLOCK: usize = LARGEST_RUN;

pub(crate) const FRAME_BLOCK: u8 = 1;
pub(crate) const FRAME_TRAILER: u8 = 2;

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("the object cannot be read or written")]
    Io(#[from] io::Error),
    #[error("this is no stored backup: it does not begin like one; is it an object of somebody else?")]
    NotAnObject,
    #[error("the object has format {0}, which this release does not know; read it with a newer one")]
    Format(u32),
    #[error("the object ends at byte {offset}, in the middle: it was not uploaded or read whole; fetch it again")]
    Truncated { offset: u64 },
    #[error("the object is damaged at byte {offset}: {reason}; fetch it again or use an older one")]
    Damaged { offset: u64, reason: &'static str },
    #[error("the object is encrypted with key `{id}`, which was not given; add it to the keys")]
    MissingKey { id: String },
    #[error("key `{id}` is not the one the object was encrypted with; look for an older key of that name")]
    WrongKey { id: String },
    #[error("the object is a {found}, not a {wanted}")]
    Kind { wanted: &'static str, found: &'static str },
    #[error("the object does not hold what its name says: {reason}; it was renamed or replaced, do not use it")]
    Name { reason: &'static str },
    #[error("etcd's snapshot stream ended without the SHA-256 of its contents, or with another one: take it again")]
    SnapshotDigest,
    #[error("the snapshot is at revision {found}, but the member had reached {at_least} before it was taken")]
    SnapshotBehind { found: i64, at_least: i64 },
    #[error("the snapshot's revision cannot be found: {0}; take another one, from another member")]
    Revision(&'static str),
    #[error("revision {found} cannot follow {last}: {reason}; take a full backup")]
    Order { last: i64, found: i64, reason: &'static str },
    #[error("a block of {0} bytes is larger than any change can be")]
    TooLarge(usize),
    #[error("the cryptographic library refused to work")]
    Crypto,
}

impl ObjectError {
    pub(crate) fn damaged(offset: u64, reason: &'static str) -> Self {
        Self::Damaged { offset, reason }
    }
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    /// A database as a member sent it.
    Full = 1,
    /// The changes after something.
    Delta = 2,
    /// A database that was made from a full backup and the deltas after it.
    Compacted = 3,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Delta => "delta",
            Self::Compacted => "compacted",
        }
    }

    /// Whether a restore can begin with it.
    pub fn is_base(self) -> bool {
        self != Self::Delta
    }
}

/// What is known before the content: who wrote it, about whom, and what it continues.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Header {
    #[prost(uint32, tag = "1")]
    pub format: u32,
    #[prost(enumeration = "Kind", tag = "2")]
    pub kind: i32,
    /// Of the `EtcdCluster`.
    #[prost(string, tag = "3")]
    pub cluster_uid: String,
    /// As etcd says it.
    #[prost(fixed64, tag = "4")]
    pub cluster_id: u64,
    #[prost(uint64, tag = "5")]
    pub epoch: u64,
    #[prost(uint64, tag = "6")]
    pub fencing: u64,
    /// A delta's first revision; of a full backup, a revision that it holds at least.
    #[prost(int64, tag = "7")]
    pub first_revision: i64,
    /// Nanoseconds since 1970. All that a full backup holds was committed by then.
    #[prost(int64, tag = "8")]
    pub created: i64,
    #[prost(string, tag = "9")]
    pub etcd_version: String,
    /// Digest of the object that this one continues; empty if there is none.
    #[prost(bytes = "vec", tag = "10")]
    pub parent: Vec<u8>,
    #[prost(uint32, tag = "11")]
    pub codec: u32,
    /// Empty if the object is not encrypted.
    #[prost(string, tag = "12")]
    pub key_id: String,
    /// 32 random bytes, encrypted or not: no two objects have the same header.
    #[prost(bytes = "vec", tag = "13")]
    pub salt: Vec<u8>,
    /// Tells a wrong key from damage.
    #[prost(bytes = "vec", tag = "14")]
    pub key_check: Vec<u8>,
    /// Of users and roles, when the object was begun.
    #[prost(uint64, tag = "15")]
    pub auth_revision: u64,
}

impl Header {
    pub fn parent_digest(&self) -> Option<Digest256> {
        self.parent.as_slice().try_into().ok()
    }

    pub fn created_at(&self) -> Timestamp {
        timestamp(self.created)
    }

    pub fn is_encrypted(&self) -> bool {
        !self.key_id.is_empty()
    }

    pub(crate) fn known_kind(&self) -> Option<Kind> {
        Kind::try_from(self.kind).ok()
    }

    /// What a reader relies on without asking.
    pub(crate) fn check(&self) -> Result<(), ObjectError> {
        let bad = |reason| Err(ObjectError::damaged(0, reason));
        if self.format != FORMAT {
            return Err(ObjectError::Format(self.format));
        }
        if self.known_kind().is_none() {
            return bad("its kind is unknown");
        }
        if self.codec != CODEC_ZSTD {
            return bad("its compression is unknown");
        }
        if self.first_revision < 1 {
            return bad("its first revision is below 1");
        }
        if self.salt.len() != SALT_SIZE {
            return bad("its salt has a wrong length");
        }
        if !matches!(self.parent.len(), 0 | DIGEST_SIZE) {
            return bad("the digest of its parent has a wrong length");
        }
        Ok(())
    }
}

/// One block of a delta, for those who look for a revision or a moment.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct BlockEntry {
    /// Where its frame begins in the object.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    #[prost(int64, tag = "2")]
    pub first_revision: i64,
    #[prost(int64, tag = "3")]
    pub last_revision: i64,
    #[prost(int64, tag = "4")]
    pub first_time: i64,
    #[prost(int64, tag = "5")]
    pub last_time: i64,
    /// Its first change belongs to the revision that the block before it ends with.
    #[prost(bool, tag = "6")]
    pub continues: bool,
}

/// Watch events name the lease of a key but not how long it lasts.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseEntry {
    #[prost(int64, tag = "1")]
    pub id: i64,
    #[prost(int64, tag = "2")]
    pub ttl: i64,
}

/// What is known after the content.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Trailer {
    /// The revision that the object leads to; an empty delta's lies one below its first.
    #[prost(int64, tag = "1")]
    pub last_revision: i64,
    /// Up to where a full backup's history is compacted.
    #[prost(int64, optional, tag = "2")]
    pub compact_revision: Option<i64>,
    /// A delta has every change that was committed by this moment, up to its last revision.
    #[prost(int64, tag = "3")]
    pub covered_through: i64,
    #[prost(uint64, tag = "4")]
    pub events: u64,
    #[prost(uint64, tag = "5")]
    pub content_bytes: u64,
    /// SHA-256 of all blocks before compression; of a full backup, therefore, the one that etcd sent.
    #[prost(bytes = "vec", tag = "6")]
    pub content_digest: Vec<u8>,
    #[prost(message, repeated, tag = "7")]
    pub blocks: Vec<BlockEntry>,
    #[prost(message, repeated, tag = "8")]
    pub leases: Vec<LeaseEntry>,
}

impl Trailer {
    pub fn covered(&self) -> Timestamp {
        timestamp(self.covered_through)
    }
}

pub(crate) fn timestamp(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or_default()
}

/// Good for the years 1678 to 2261.
pub(crate) fn nanoseconds(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(if time > Timestamp::UNIX_EPOCH { i64::MAX } else { i64::MIN })
}
