//! A new write-ahead log and snap file around an intact database.
//!
//! When the log of a single-member cluster is damaged, or ends before the index the database was applied to, etcd
//! either refuses to start or starts and never accepts a write. The database itself is whole; what it needs is a log
//! that agrees with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::append::{begin, finish, require_sound};
use super::part::{Part, PartError};
use super::{RestoreError, Restored, bootstrap_patch, write_bootstrap};
use crate::bbolt::Db;
use crate::copy::copy_hashed;
use crate::membership::{Member, cluster_id};
use crate::rebuild::{Grants, meta_entries};
use crate::schema::{CLUSTER, Schema, small_bucket};
use crate::snap::{Snap, SnapName};
use crate::wal::read_metadata;

#[derive(Debug, thiserror::Error)]
pub enum ReseedError {
    #[error("{} has no readable database; restore it from a backup", path.display())]
    Database { path: PathBuf, source: crate::bbolt::Error },
    #[error("{} is in use by a running etcd; stop it first", path.display())]
    InUse { path: PathBuf },
    #[error(
        "the directory belongs to a cluster of {0} members; remove this member and add it anew, so that it takes the \
         others' data"
    )]
    NotAlone(usize),
    #[error("no member is recorded, neither in the database nor in a snap file; restore from a backup")]
    NoMember,
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// The outcome of a re-seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reseeded {
    pub revision: i64,
    pub member_id: u64,
    pub cluster_id: u64,
    /// Where the directory as it was is kept.
    pub replaced: PathBuf,
}

/// Rebuilds the log and snap file of a single-member data directory; its contents and its revision stay the same.
pub fn reseed(data_dir: &Path) -> Result<Reseeded, ReseedError> {
    let path = Restored::database_path(data_dir);
    let unreadable = |source| ReseedError::Database { path: path.clone(), source };
    let source = Db::open(&path).map_err(unreadable)?;
    // bbolt holds this lock for as long as it has the file open.
    if source.file().try_lock().is_err() {
        return Err(ReseedError::InUse { path });
    }
    let schema = Schema::read(&source).map_err(RestoreError::from)?;
    require_sound(&source)?;
    let member = sole_member(data_dir, &schema)?;
    let cluster = match read_metadata(&data_dir.join("member").join("wal")) {
        Ok(metadata) if metadata.node_id == Some(member.id) => metadata.cluster_id.filter(|id| *id != 0),
        _ => None,
    };
    let cluster = cluster.unwrap_or_else(|| cluster_id([member.id]));

    let members = std::slice::from_ref(&member);
    let part = Part::replacing(data_dir).map_err(RestoreError::from)?;
    rewrite_small_buckets(&source, &part, members)?;
    write_bootstrap(&part, members, member.id, cluster)?;
    let replaced = part.exchange().map_err(RestoreError::from)?;
    Ok(Reseeded { revision: schema.revision(), member_id: member.id, cluster_id: cluster, replaced })
}

fn rewrite_small_buckets(source: &Db, part: &Part, members: &[Member]) -> Result<(), RestoreError> {
    let file = Arc::new(part.create_file("snap", "db")?);
    copy_hashed(source.file(), source.data_length(), &file)?;
    let db = Db::open(&part.path("snap", "db")).map_err(RestoreError::Reread)?;
    let buckets = db.buckets().map_err(RestoreError::Reread)?;
    let cluster = small_bucket(&db, &buckets, CLUSTER)?;
    let mut patch = bootstrap_patch(members, meta_entries(&db)?, cluster)?;
    // This is still the same cluster: its alarms and its past members remain true.
    patch.remove(crate::schema::ALARM);
    patch.remove(crate::schema::MEMBERS_REMOVED);
    finish(&db, begin(&db, part)?, None, &patch, &Grants::default())?;
    Ok(())
}

/// From 3.6 on the database is the authority on members, before that the newest snap file.
fn sole_member(data_dir: &Path, schema: &Schema) -> Result<Member, ReseedError> {
    let members = match schema.members.as_slice() {
        [] => newest_snap(&data_dir.join("member").join("snap")).map(|snap| snap.members).unwrap_or_default(),
        members => members.to_vec(),
    };
    match members.as_slice() {
        [] => Err(ReseedError::NoMember),
        [only] => Ok(only.clone()),
        several => Err(ReseedError::NotAlone(several.len())),
    }
}

/// The newest snap file that can be read; broken ones are passed over, as etcd does.
pub(crate) fn newest_snap(dir: &Path) -> Option<Snap> {
    let mut names: Vec<SnapName> =
        std::fs::read_dir(dir).ok()?.filter_map(|entry| SnapName::parse(entry.ok()?.file_name().to_str()?)).collect();
    names.sort_unstable();
    names.iter().rev().find_map(|name| Snap::decode(&std::fs::read(dir.join(name.to_string())).ok()?).ok())
}

impl From<PartError> for ReseedError {
    fn from(error: PartError) -> Self {
        Self::Restore(error.into())
    }
}
