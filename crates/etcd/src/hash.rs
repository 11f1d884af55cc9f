//! The hashes by which etcd members compare their contents, computed from files.

use std::ops::ControlFlow;

use crate::bbolt::Walk;
use crate::history::{History, HistoryError};
use crate::schema::KEY;

/// What the server's `HashKV` answers for the same contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashKv {
    pub hash: u32,
    pub revision: i64,
    /// -1 if the store was never compacted, as the server says it.
    pub compact_revision: i64,
}

/// Computes `HashKV` at the end of `history` for a server that compacted at `compact`, or as the snapshot did.
///
/// The history may hold more than such a server does: what compaction removes is left out here.
pub fn hash_kv(history: &History<'_>, compact: Option<i64>) -> Result<HashKv, HistoryError> {
    let compact = match compact {
        Some(wanted) => history.check_compaction(wanted).map(|()| Some(wanted))?,
        None => history.compact_revision(),
    };
    let keep = match compact {
        Some(compacted) => match history.keep(history.revision())? {
            // With nothing alive etcd takes the empty set for no set and hashes whatever its compaction left.
            nothing if nothing.live == 0 => Some(history.keep(compacted)?),
            keep => Some(keep),
        },
        None => None,
    };
    let compacted = compact.unwrap_or(-1);
    let mut hash = crc32c::crc32c(KEY.as_bytes());
    history.for_each(|entry| -> Result<(), HistoryError> {
        if let Some(keep) = &keep
            && entry.main() <= compacted
        {
            let superseded = !keep.contains(entry.ordinal);
            if superseded || (entry.main() == compacted && entry.stored.is_tombstone) {
                return Ok(());
            }
        }
        hash = crc32c::crc32c_append(hash, entry.key);
        hash = crc32c::crc32c_append(hash, entry.value);
        Ok(())
    })?;
    Ok(HashKv { hash, revision: history.revision(), compact_revision: compacted })
}

/// What `etcdutl snapshot status` prints: every bucket, nothing left out.
pub fn status_hash(history: &History<'_>) -> Result<u32, HistoryError> {
    let db = &history.snapshot.db;
    let mut walk = Walk::new(db);
    let mut hash = 0;
    for bucket in db.buckets()? {
        hash = crc32c::crc32c_append(hash, &bucket.name);
        let mut add = |key: &[u8], value: &[u8]| {
            hash = crc32c::crc32c_append(hash, key);
            hash = crc32c::crc32c_append(hash, value);
        };
        if bucket.name == KEY.as_bytes() {
            history.for_each(|entry| -> Result<(), HistoryError> {
                add(entry.key, entry.value);
                Ok(())
            })?;
        } else {
            let _ = walk.bucket(&bucket, |key, value| -> Result<_, HistoryError> {
                add(key, value);
                Ok(ControlFlow::Continue(()))
            })?;
        }
    }
    Ok(hash)
}
