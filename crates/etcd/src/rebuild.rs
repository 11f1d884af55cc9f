//! Writing a database file: the root tree with replaced buckets, and bucket `key` from a history.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::ControlFlow;
use std::sync::Arc;

use prost::Message;

use crate::bbolt::{self, Bucket, Db, Meta, Output, Tree, TreeWriter, Walk};
use crate::history::{History, HistoryError};
use crate::mvcc::Revision;
use crate::pb::lease::Lease;
use crate::schema::{
    BUCKETS, Entries, FINISHED_COMPACT, KEY, LEASE, META, SCHEDULED_COMPACT, SchemaError, small_bucket,
};

#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error("the database cannot be written")]
    Write(#[source] bbolt::Error),
    #[error("the source database cannot be read")]
    Read(#[source] bbolt::Error),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error("bumping revision {revision} by {by} leaves the range of revisions")]
    Bump { revision: i64, by: i64 },
}

/// Complete new contents of some buckets; the others stay as they are.
pub(crate) type Patch = BTreeMap<&'static str, Entries>;

/// The entries of `meta`, ready to be changed and put into a patch.
pub(crate) fn meta_entries(db: &Db) -> Result<Entries, RebuildError> {
    let buckets = db.buckets().map_err(RebuildError::Read)?;
    Ok(small_bucket(db, &buckets, META)?)
}

/// Records a compaction that is already carried out in the data.
pub(crate) fn set_compacted(meta: &mut Entries, revision: i64) {
    let stored = Revision { main: revision, sub: 0 }.encode().to_vec();
    meta.insert(SCHEDULED_COMPACT.to_vec(), stored.clone());
    meta.insert(FINISHED_COMPACT.to_vec(), stored);
}

/// Records a compaction that the server carries out when it starts.
pub(crate) fn schedule_compaction(meta: &mut Entries, revision: i64) {
    meta.insert(SCHEDULED_COMPACT.to_vec(), Revision { main: revision, sub: 0 }.encode().to_vec());
}

/// The revision after a bump.
pub(crate) fn bumped(revision: i64, by: i64) -> Result<i64, RebuildError> {
    revision.checked_add(by).filter(|_| by > 0).ok_or(RebuildError::Bump { revision, by })
}

/// The entry that makes a bumped revision the newest one: a put of nothing.
pub(crate) fn push_bump_marker(tree: &mut TreeWriter, output: &mut Output, revision: i64) -> Result<(), RebuildError> {
    tree.push(output, &Revision { main: revision, sub: 0 }.encode(), &[]).map_err(RebuildError::Write)
}

/// A new file with the entries of `history`.
#[derive(Debug)]
pub(crate) struct Rebuild<'h> {
    pub(crate) history: &'h History<'h>,
    /// Leaves out what a compaction at this revision removes.
    pub(crate) compact: Option<i64>,
    /// Adds a marker at this revision.
    pub(crate) bump_to: Option<i64>,
    pub(crate) patch: Patch,
    pub(crate) grants: Grants,
}

impl Rebuild<'_> {
    /// Fills an empty file and makes it durable. Returns the number of entries written to bucket `key`.
    pub(crate) fn write(self, file: File) -> Result<(Arc<File>, Meta, u64), RebuildError> {
        let db = &self.history.snapshot.db;
        let page_size = db.page_size();
        let mut output = Output::new(file, page_size, 2).map_err(RebuildError::Write)?;
        let buckets = db.buckets().map_err(RebuildError::Read)?;
        let mut trees = Vec::new();
        let mut entries = 0;
        for name in bucket_names(&buckets) {
            let tree = match (patched(&self.patch, &name), buckets.iter().find(|bucket| bucket.name == name)) {
                (Some(entries), _) => small_tree(&mut output, entries)?,
                (None, _) if name == KEY.as_bytes() => {
                    let mut tree = TreeWriter::new(page_size);
                    entries = self.push_history(&mut tree, &mut output)?;
                    tree.finish(&mut output).map_err(RebuildError::Write)?
                }
                (None, bucket) if name == LEASE.as_bytes() => self.grants.tree(db, bucket, &mut output)?,
                (None, Some(bucket)) => copy_bucket(db, bucket, &mut output)?,
                (None, None) => small_tree(&mut output, &Entries::new())?,
            };
            trees.push((name, tree));
        }
        let root = root_page(&mut output, &trees)?;
        let freelist = output.empty_freelist().map_err(RebuildError::Write)?;
        let (file, meta) = output.finish(root, freelist, db.meta().txid).map_err(RebuildError::Write)?;
        Ok((file, meta, entries))
    }

    fn push_history(&self, tree: &mut TreeWriter, output: &mut Output) -> Result<u64, RebuildError> {
        let compacted = self.compact.unwrap_or(-1);
        let keep = match self.compact {
            Some(revision) => Some(self.history.keep(revision)?),
            None => None,
        };
        let mut entries = 0;
        self.history.for_each(|entry| -> Result<(), RebuildError> {
            // A deletion at exactly the compacted revision stays, as it does since 3.4.34, 3.5.16 and 3.6: watchers
            // that resume there must see it.
            let gone = entry.main() <= compacted
                && !keep.as_ref().is_some_and(|keep| keep.contains(entry.ordinal))
                && !(entry.stored.is_tombstone && entry.main() == compacted);
            if gone {
                return Ok(());
            }
            entries += 1;
            tree.push(output, entry.key, entry.value).map_err(RebuildError::Write)
        })?;
        if let Some(revision) = self.bump_to {
            push_bump_marker(tree, output, revision)?;
            entries += 1;
        }
        Ok(entries)
    }
}

/// Leases to add to those of the snapshot.
///
/// Events tell which lease a key is attached to, but not how long it lasts. Without a record of it the key would never
/// expire.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grants {
    /// Seconds to live by id.
    pub(crate) leases: BTreeMap<i64, i64>,
}

impl Grants {
    /// The bucket of leases with what it lacks.
    pub(crate) fn tree(&self, db: &Db, bucket: Option<&Bucket>, output: &mut Output) -> Result<Tree, RebuildError> {
        // Ids are stored as unsigned numbers, and that is the order of their keys.
        let mut missing: BTreeMap<[u8; 8], i64> =
            self.leases.iter().map(|(id, ttl)| (id.to_be_bytes(), *ttl)).collect();
        let mut tree = TreeWriter::new(output.page_size());
        let mut refused = None;
        if let Some(bucket) = bucket {
            let walked = Walk::new(db).bucket(bucket, |key, value| {
                let pushed = push_before(&mut missing, Some(key), &mut tree, output);
                Ok(match pushed.and_then(|()| tree.push(output, key, value)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        refused = Some(error);
                        ControlFlow::Break(())
                    }
                })
            });
            let _ = walked.map_err(RebuildError::Read)?;
        }
        if let Some(error) = refused {
            return Err(RebuildError::Write(error));
        }
        push_before(&mut missing, None, &mut tree, output).map_err(RebuildError::Write)?;
        tree.finish(output).map_err(RebuildError::Write)
    }
}

/// Adds the missing leases that sort before `next`, and forgets `next` itself if it is one of them.
fn push_before(
    missing: &mut BTreeMap<[u8; 8], i64>,
    next: Option<&[u8]>,
    tree: &mut TreeWriter,
    output: &mut Output,
) -> Result<(), bbolt::Error> {
    while let Some(entry) = missing.first_entry().filter(|entry| next.is_none_or(|next| entry.key().as_slice() <= next))
    {
        let (id, ttl) = entry.remove_entry();
        if next != Some(id.as_slice()) {
            let lease = Lease { id: i64::from_be_bytes(id), ttl, remaining_ttl: 0 };
            tree.push(output, &id, &lease.encode_to_vec())?;
        }
    }
    Ok(())
}

/// Names in file order: etcd's own, and any other bucket that is there.
pub(crate) fn bucket_names(buckets: &[Bucket]) -> BTreeSet<Vec<u8>> {
    let existing = buckets.iter().map(|bucket| bucket.name.clone());
    BUCKETS.iter().map(|name| name.as_bytes().to_vec()).chain(existing).collect()
}

/// The new contents of this bucket, if it gets any.
pub(crate) fn patched<'p>(patch: &'p Patch, name: &[u8]) -> Option<&'p Entries> {
    patch.get(std::str::from_utf8(name).ok()?)
}

pub(crate) fn small_tree(output: &mut Output, entries: &Entries) -> Result<Tree, RebuildError> {
    let mut tree = TreeWriter::new(output.page_size());
    for (key, value) in entries {
        tree.push(output, key, value).map_err(RebuildError::Write)?;
    }
    tree.finish(output).map_err(RebuildError::Write)
}

pub(crate) fn root_page(output: &mut Output, trees: &[(Vec<u8>, Tree)]) -> Result<bbolt::PageId, RebuildError> {
    let mut root = TreeWriter::new(output.page_size());
    for (name, tree) in trees {
        root.push_bucket(output, name, tree).map_err(RebuildError::Write)?;
    }
    root.finish_as_pages(output).map_err(RebuildError::Write)
}

fn copy_bucket(db: &Db, bucket: &Bucket, output: &mut Output) -> Result<Tree, RebuildError> {
    let mut tree = TreeWriter::new(output.page_size());
    let mut refused = None;
    let _ = Walk::new(db)
        .bucket(bucket, |key, value| {
            Ok(match tree.push(output, key, value) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    refused = Some(error);
                    ControlFlow::Break(())
                }
            })
        })
        .map_err(RebuildError::Read)?;
    match refused {
        Some(error) => Err(RebuildError::Write(error)),
        None => tree.finish(output).map_err(RebuildError::Write),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bbolt::BucketRoot;

    #[test]
    fn buckets_keep_their_names_byte_for_byte() {
        let name = vec![0xff, b'x'];
        let bucket = Bucket { name: name.clone(), root: BucketRoot::Page(2), sequence: 0 };
        assert!(bucket_names(&[bucket]).contains(&name));
        assert!(patched(&Patch::from([(META, Entries::new())]), &name).is_none());
        assert!(patched(&Patch::from([(META, Entries::new())]), META.as_bytes()).is_some());
    }
}
