//! Restore by copying: the snapshot stays as it is, new entries and the root go behind it.

use std::sync::Arc;

use super::staged_member::StagedMember;
use super::{Mode, Restore, RestoreError, Restored};
use crate::bbolt::{self, Db, NO_FREELIST, Output, TreeWriter};
use crate::copy::copy_hashed;
use crate::events::{Cut, EventStream};
use crate::history::{Applied, HistoryError, apply};
use crate::rebuild::{
    Grants, Patch, RebuildError, bucket_names, bumped, meta_entries, patched, push_bump_marker, root_page, small_tree,
};
use crate::schema::{Entries, KEY, LEASE, Schema, SchemaError};
use crate::snapshot::Snapshot;

impl Restore<'_> {
    pub(super) fn append(
        &self,
        snapshot: &Snapshot,
        events: Option<&mut dyn EventStream>,
        staged: &StagedMember,
    ) -> Result<Restored, RestoreError> {
        let file = Arc::new(staged.create_file("snap", "db")?);
        let digest = copy_hashed(snapshot.db.file(), snapshot.data_length(), &file)?;
        snapshot.accept_digest(&digest, self.digest)?;
        self.extend(&snapshot.schema, events, staged)
    }

    /// Adds to the database that lies in its place already.
    pub(super) fn extend(
        &self,
        schema: &Schema,
        events: Option<&mut dyn EventStream>,
        staged: &StagedMember,
    ) -> Result<Restored, RestoreError> {
        let db = Db::open(&staged.path("snap", "db")).map_err(RestoreError::Reread)?;
        let base = schema.revision();
        let mut output = begin(&db, staged)?;
        let mut tree = resume_keys(&db)?;
        let applied = match events {
            Some(events) => {
                apply(events, base, self.cut, self.wanted_leases(), |key, value| -> Result<(), RestoreError> {
                    tree.push(&mut output, key, value).map_err(|error| RebuildError::Write(error).into())
                })?
            }
            None => match self.cut {
                Cut::Revision(wanted) if wanted > base => {
                    return Err(HistoryError::NotReached { wanted, last: base }.into());
                }
                _ => Applied { revision: base, ..Applied::default() },
            },
        };
        let bump_to = self.bump_revision.map(|by| bumped(applied.revision, by)).transpose()?;
        if let Some(revision) = bump_to {
            push_bump_marker(&mut tree, &mut output, revision)?;
        }
        let patch = self.patch(&db, meta_entries(&db)?, bump_to)?;
        let database_bytes = finish(&db, output, Some(tree), &patch, &self.grants(&applied))?;
        Ok(Restored {
            revision: bump_to.unwrap_or(applied.revision),
            compact_revision: bump_to.or(schema.compact_revision()),
            events: applied.events,
            database_bytes,
            mode: Mode::Append,
        })
    }
}

/// Output behind the last page of the copied database.
pub(super) fn begin(db: &Db, staged: &StagedMember) -> Result<Output, RestoreError> {
    let path = staged.path("snap", "db");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|source| RestoreError::Reread(bbolt::Error::Io { action: "open", offset: 0, source }))?;
    Ok(Output::new(file, db.page_size(), db.meta().high_water).map_err(RebuildError::Write)?)
}

fn resume_keys(db: &Db) -> Result<TreeWriter, RestoreError> {
    let bucket = db.bucket(KEY.as_bytes()).map_err(RestoreError::Reread)?;
    let bucket = bucket.ok_or(SchemaError::NoBucket(KEY))?;
    TreeWriter::resume(db, &bucket).map_err(RestoreError::Reread)
}

/// Writes the root with the patched buckets; all others, and `key` if it was not extended, keep their pages.
pub(super) fn finish(
    db: &Db,
    mut output: Output,
    keys: Option<TreeWriter>,
    patch: &Patch,
    grants: &Grants,
) -> Result<u64, RestoreError> {
    let buckets = db.buckets().map_err(RestoreError::Reread)?;
    let mut keys = match keys {
        Some(tree) => Some(tree.finish(&mut output).map_err(RebuildError::Write)?),
        None => None,
    };
    let mut trees = Vec::new();
    for name in bucket_names(&buckets) {
        let extended = if name == KEY.as_bytes() { keys.take() } else { None };
        let tree = match (extended, patched(patch, &name), buckets.iter().find(|bucket| bucket.name == name)) {
            (Some(tree), _, _) => tree,
            (None, Some(entries), _) => small_tree(&mut output, entries)?,
            (None, None, bucket) if name == LEASE.as_bytes() && !grants.leases.is_empty() => {
                grants.tree(db, bucket, &mut output)?
            }
            (None, None, Some(bucket)) => bucket.tree(),
            (None, None, None) => small_tree(&mut output, &Entries::new())?,
        };
        trees.push((name, tree));
    }
    let root = root_page(&mut output, &trees)?;
    // Pages that fell out of use are not listed: without a freelist bbolt finds them by itself.
    let (_, meta) = output.finish(root, NO_FREELIST, db.meta().txid.saturating_add(1)).map_err(RebuildError::Write)?;
    Ok(meta.high_water * u64::from(meta.page_size))
}
