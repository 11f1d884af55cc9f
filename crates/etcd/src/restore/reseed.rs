//! A new write-ahead log and snap file around an intact database.
//!
//! When the log of a single-member cluster is damaged, or ends before the index the database was applied to, etcd
//! either refuses to start or starts and never accepts a write. The database itself is whole; what it needs is a log
//! that agrees with it.

use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::append::{begin, finish};
use super::staged_member::StagedMember;
use super::{RestoreError, bootstrap_patch, write_bootstrap};
use crate::bbolt::{self, Db};
use crate::copy::copy_hashed;
use crate::data_dir::{DataDir, lock_exclusive};
use crate::membership::{Member, cluster_id};
use crate::rebuild::{Grants, meta_entries};
use crate::schema::{CLUSTER, MinorVersion, Schema, small_bucket};
use crate::snap::{Snap, SnapName};
use crate::staging::{StagingError, failed};
use crate::validate::UnsoundError;
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
    let data_dir = &DataDir::new(data_dir);
    let path = data_dir.db();
    let unreadable = |source| ReseedError::Database { path: path.clone(), source };
    let source = Db::open(&path).map_err(unreadable)?;
    match lock_exclusive(source.file()) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ReseedError::InUse { path }),
        Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error).into()),
    }
    let schema = Schema::read(&source).map_err(RestoreError::from)?;
    require_sound_pages(&source).map_err(RestoreError::from)?;
    let member = sole_member(data_dir, &schema)?;
    let cluster = match read_metadata(&data_dir.wal()) {
        Ok(metadata) if metadata.node_id == Some(member.id) => metadata.cluster_id.filter(|id| *id != 0),
        _ => None,
    };
    let cluster = cluster.unwrap_or_else(|| cluster_id([member.id]));

    let members = std::slice::from_ref(&member);
    let staged = StagedMember::replacing(data_dir)?;
    rewrite_small_buckets(&source, &staged, members)?;
    write_bootstrap(&staged, members, member.id, cluster)?;
    let replaced = staged.exchange()?;
    Ok(Reseeded { revision: schema.revision(), member_id: member.id, cluster_id: cluster, replaced })
}

fn require_sound_pages(db: &Db) -> Result<(), UnsoundError> {
    let checked = bbolt::check(db, |_, _, _| {})?;
    match checked.findings.as_slice() {
        [] => Ok(()),
        [first, others @ ..] => {
            let others = others.len() + checked.unlisted;
            Err(UnsoundError::Damaged { first: first.error.to_string(), others })
        }
    }
}

fn rewrite_small_buckets(source: &Db, staged: &StagedMember, members: &[Member]) -> Result<(), RestoreError> {
    let file = Arc::new(staged.create_file("snap", "db")?);
    copy_hashed(source.file(), source.data_length(), &file)?;
    let db = Db::open(&staged.path("snap", "db")).map_err(RestoreError::Reread)?;
    let buckets = db.buckets().map_err(RestoreError::Reread)?;
    let cluster = small_bucket(&db, &buckets, CLUSTER)?;
    let mut patch = bootstrap_patch(members, meta_entries(&db)?, cluster)?;
    // This is still the same cluster: its alarms and its past members remain true.
    patch.remove(crate::schema::ALARM);
    patch.remove(crate::schema::MEMBERS_REMOVED);
    finish(&db, begin(&db, staged)?, None, &patch, &Grants::default())?;
    Ok(())
}

/// The only member, as a voter: alone it cannot be anything else, whatever it was recorded as.
fn sole_member(data_dir: &DataDir, schema: &Schema) -> Result<Member, ReseedError> {
    let snap = newest_snap(&data_dir.snap()).map(|snap| snap.members).unwrap_or_default();
    let mut members = current_members(schema, snap);
    match (members.pop(), members.len()) {
        (None, _) => Err(ReseedError::NoMember),
        (Some(only), 0) => Ok(Member { is_learner: false, ..only }),
        (Some(_), others) => Err(ReseedError::NotAlone(others.saturating_add(1))),
    }
}

/// From 3.6 on the database is the authority on members. Before that the snap file is, which may be older than the last
/// change, while the database may still list who was removed: together they tell.
fn current_members(schema: &Schema, snap: Vec<Member>) -> Vec<Member> {
    let database = schema.members.iter().cloned();
    let is_authority = schema.storage_version.is_some_and(|version| version >= MinorVersion::new(3, 6));
    if is_authority && !schema.members.is_empty() {
        return database.collect();
    }
    let known: BTreeMap<u64, Member> = database.chain(snap).map(|member| (member.id, member)).collect();
    known.into_values().filter(|member| !schema.removed_members.contains(&member.hex_id())).collect()
}

/// The newest snap file that can be read; broken ones are passed over, as etcd does.
pub(crate) fn newest_snap(dir: &Path) -> Option<Snap> {
    let mut names: Vec<SnapName> =
        std::fs::read_dir(dir).ok()?.filter_map(|entry| SnapName::parse(entry.ok()?.file_name().to_str()?)).collect();
    names.sort_unstable();
    names.iter().rev().find_map(|name| Snap::read(&dir.join(name.to_string())).ok()?.ok())
}

impl From<StagingError> for ReseedError {
    fn from(error: StagingError) -> Self {
        Self::Restore(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::InitialCluster;

    fn members() -> Vec<Member> {
        InitialCluster::parse("a=http://a:1,b=http://b:1", "t").unwrap().members().to_vec()
    }

    #[test]
    fn the_sole_member_is_a_voter_whatever_was_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let learner = Member { is_learner: true, ..members().remove(0) };
        for storage_version in [None, Some(MinorVersion::new(3, 6))] {
            let schema = Schema { members: vec![learner.clone()], storage_version, ..Schema::default() };
            assert!(!sole_member(&DataDir::new(dir.path()), &schema).unwrap().is_learner);
        }
    }

    #[test]
    fn before_3_6_the_snap_file_tells_and_the_removed_do_not_count() {
        let both = members();
        let in_snap = Member { name: "renamed".to_owned(), ..both[0].clone() };
        let mut schema = Schema { members: both[..1].to_vec(), ..Schema::default() };
        assert_eq!(current_members(&schema, vec![in_snap.clone()]), std::slice::from_ref(&in_snap));
        assert_eq!(current_members(&schema, both.clone()).len(), 2, "the snap file knows of another one");
        schema.removed_members = vec![both[1].hex_id()];
        assert_eq!(current_members(&schema, both.clone()), both[..1], "which has been removed since");
        schema.members.clone_from(&both);
        assert_eq!(current_members(&schema, vec![in_snap.clone()]), [in_snap], "though the database still lists it");
        schema.storage_version = Some(MinorVersion::new(3, 6));
        assert_eq!(current_members(&schema, Vec::new()), both);
    }
}
