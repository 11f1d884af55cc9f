//! A data directory for a new cluster from a snapshot and the delta events after it.
//!
//! The result is what etcd's own restore writes, with what that one forgets: alarms of the lost cluster are dropped, a
//! stale downgrade is removed, term and configuration are those of the new cluster. Files appear under their final
//! name only when everything is on disk.

mod append;
mod received;
mod reseed;
mod staged_member;

use std::path::Path;

pub use reseed::{ReseedError, Reseeded, reseed};

use crate::bbolt::{self, Db};
use crate::copy::CopyError;
use crate::events::{Cut, EventStream};
use crate::history::{Applied, History, HistoryError, Leases, check_cut};
use crate::membership::{InitialCluster, Member, MembershipError, conf_state, conf_state_json};
use crate::rebuild::{Grants, Patch, Rebuild, RebuildError, bumped, meta_entries, schedule_compaction, set_compacted};
use crate::schema::{
    ALARM, CLUSTER, CLUSTER_VERSION, CONF_STATE, CONSISTENT_INDEX, DOWNGRADE, Entries, MEMBERS, MEMBERS_REMOVED, META,
    MinorVersion, STORAGE_VERSION, SchemaError, TERM, small_bucket,
};
use crate::snap::{Snap, SnapError};
use crate::snapshot::{DigestPolicy, Snapshot, SnapshotError, digest_of};
use crate::staging::StagingError;
use crate::validate::{UnsoundError, require_sound};
use crate::wal::{BOOTSTRAP_TERM, BootstrapError, SegmentName, bootstrap_segment};
use staged_member::StagedMember;

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Staging(#[from] StagingError),
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
    #[error("the snapshot cannot be copied")]
    Copy(#[from] CopyError),
    #[error("the copied database cannot be read back")]
    Reread(#[source] bbolt::Error),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error("the members cannot be written")]
    Members(#[from] MembershipError),
    #[error("the snap file cannot be written")]
    Snap(#[from] SnapError),
    #[error("the write-ahead log cannot be written")]
    Wal(#[from] BootstrapError),
    #[error(transparent)]
    Unsound(#[from] UnsoundError),
    #[error("a snapshot of etcd {from} cannot be restored for etcd {to}: {reason}")]
    Version { from: MinorVersion, to: MinorVersion, reason: &'static str },
    #[error(
        "the snapshot does not say which release wrote it, so nothing is known about restoring it for etcd {to}; \
         leave the target version out to restore all the same"
    )]
    UnknownVersion { to: MinorVersion },
    #[error("member {0:x} is not one of the cluster to restore")]
    ForeignMember(u64),
    #[error("a thread of the restore stopped")]
    Stopped,
}

/// Where to compact the restored history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactAt {
    /// Keep only what is alive at the restored revision.
    Head,
    Revision(i64),
}

impl CompactAt {
    pub(crate) fn revision(self, head: i64) -> i64 {
        match self {
            Self::Head => head,
            Self::Revision(revision) => revision,
        }
    }
}

/// How the database file was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A copy of the snapshot with new pages at its end.
    Append,
    /// A new file in key order, without free pages.
    Rewrite,
}

/// What to restore, from where, for whom.
#[derive(Debug, Clone)]
pub struct Restore<'a> {
    pub snapshot: &'a Path,
    pub data_dir: &'a Path,
    pub cluster: &'a InitialCluster,
    /// The member this directory is for; only its write-ahead log differs from the others'.
    pub member: &'a Member,
    pub cut: Cut,
    pub compact: Option<CompactAt>,
    /// Raise the revision by this much and mark everything older as compacted, so that clients that saw later
    /// revisions of the lost cluster list anew instead of trusting their caches.
    pub bump_revision: Option<i64>,
    /// Seconds to live for leases that events mention and the snapshot does not know; without it their keys are kept
    /// for ever.
    pub lease_ttl: Option<i64>,
    pub digest: DigestPolicy,
    /// The release that will run on the directory, if known.
    pub target_version: Option<MinorVersion>,
    /// Write a new file in key order even where a copy would do.
    pub rewrite: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    pub revision: i64,
    /// Where the history begins; after a bump the server removes the rest when it starts.
    pub compact_revision: Option<i64>,
    pub events: u64,
    pub database_bytes: u64,
    pub mode: Mode,
}

impl<'a> Restore<'a> {
    /// The whole snapshot and all events, as they are.
    pub fn new(snapshot: &'a Path, data_dir: &'a Path, cluster: &'a InitialCluster, member: &'a Member) -> Self {
        Self {
            snapshot,
            data_dir,
            cluster,
            member,
            cut: Cut::End,
            compact: None,
            bump_revision: None,
            lease_ttl: None,
            digest: DigestPolicy::Require,
            target_version: None,
            rewrite: false,
        }
    }

    pub fn run(&self, events: Option<&mut dyn EventStream>) -> Result<Restored, RestoreError> {
        if !self.cluster.members().contains(self.member) {
            return Err(RestoreError::ForeignMember(self.member.id));
        }
        let snapshot = Snapshot::open(self.snapshot)?;
        snapshot.require_digest(self.digest)?;
        check_versions(snapshot.schema.etcd_version(), self.target_version)?;
        check_cut(&snapshot, self.cut).map_err(RestoreError::History)?;
        if snapshot.stored_digest().is_none() {
            require_sound(&snapshot)?;
        }
        let staged = StagedMember::create(self.data_dir)?;
        let inside_base = matches!(self.cut, Cut::Revision(wanted) if wanted < snapshot.schema.revision());
        let restored = std::thread::scope(|scope| {
            // A digest vouches for the way, not for what the member had: that is looked at meanwhile.
            let looked = snapshot.stored_digest().map(|_| scope.spawn(|| require_sound(&snapshot)));
            let restored = if self.rewrite || inside_base || self.compact.is_some() {
                self.rewrite(&snapshot, events, &staged)?
            } else {
                self.append(&snapshot, events, &staged)?
            };
            if let Some(looked) = looked {
                looked.join().map_err(|_| RestoreError::Stopped)??;
            }
            Ok::<_, RestoreError>(restored)
        })?;
        self.publish(staged, restored)
    }

    fn publish(&self, staged: StagedMember, restored: Restored) -> Result<Restored, RestoreError> {
        write_bootstrap(&staged, self.cluster.members(), self.member.id, self.cluster.cluster_id())?;
        staged.publish()?;
        Ok(restored)
    }

    fn rewrite(
        &self,
        snapshot: &Snapshot,
        events: Option<&mut dyn EventStream>,
        staged: &StagedMember,
    ) -> Result<Restored, RestoreError> {
        std::thread::scope(|scope| {
            let digest = scope.spawn(|| digest_of(snapshot.db.file(), snapshot.data_length()));
            let history = History::collecting(snapshot, events, self.cut, staged.root(), self.wanted_leases())?;
            let head = history.revision();
            let compact = self.compact.map(|at| at.revision(head));
            if let Some(revision) = compact {
                history.check_compaction(revision)?;
            }
            let bump_to = self.bump_revision.map(|by| bumped(head, by)).transpose()?;
            let mut meta = meta_entries(&snapshot.db)?;
            if let Some(revision) = compact {
                set_compacted(&mut meta, revision);
            }
            let patch = self.patch(&snapshot.db, meta, bump_to)?;
            let grants = self.grants(history.applied());
            let rebuild = Rebuild { history: &history, compact, bump_to, patch, grants };
            let (_, written, _) = rebuild.write(staged.create_file("snap", "db")?)?;
            let digest = digest.join().map_err(|_| RestoreError::Stopped)?;
            let digest = digest.map_err(|source| SnapshotError::Io { path: self.snapshot.to_owned(), source })?;
            snapshot.accept_digest(&digest, self.digest)?;
            Ok(Restored {
                revision: bump_to.unwrap_or(head),
                compact_revision: bump_to.or(compact).or(history.compact_revision()),
                events: history.events(),
                database_bytes: written.high_water * u64::from(written.page_size),
                mode: Mode::Rewrite,
            })
        })
    }

    fn wanted_leases(&self) -> Leases {
        if self.lease_ttl.is_some() { Leases::Collect } else { Leases::Ignore }
    }

    /// What the source of the events knew comes before what was asked for in general.
    fn grants(&self, applied: &Applied) -> Grants {
        let unknown = self.lease_ttl.into_iter().flat_map(|ttl| applied.leases.iter().map(move |id| (*id, ttl)));
        Grants { leases: unknown.chain(applied.known_leases.iter().map(|(id, ttl)| (*id, *ttl))).collect() }
    }

    /// The small buckets of the restored database.
    fn patch(&self, db: &Db, mut meta: Entries, bump_to: Option<i64>) -> Result<Patch, RestoreError> {
        let buckets = db.buckets().map_err(RestoreError::Reread)?;
        let mut cluster = small_bucket(db, &buckets, CLUSTER)?;
        cluster.remove(DOWNGRADE);
        if let Some(target) = self.target_version {
            drop_newer_versions(&mut cluster, &mut meta, target);
        }
        if let Some(revision) = bump_to {
            schedule_compaction(&mut meta, revision);
        }
        bootstrap_patch(self.cluster.members(), meta, cluster)
    }
}

/// What a cluster that these members just formed has in its small buckets.
fn bootstrap_patch(members: &[Member], mut meta: Entries, cluster: Entries) -> Result<Patch, RestoreError> {
    meta.insert(CONSISTENT_INDEX.to_vec(), (members.len() as u64).to_be_bytes().to_vec());
    meta.insert(TERM.to_vec(), BOOTSTRAP_TERM.to_be_bytes().to_vec());
    meta.insert(CONF_STATE.to_vec(), conf_state_json(&conf_state(members))?);
    let records = members
        .iter()
        .map(|member| Ok((member.hex_id().into_bytes(), member.to_json()?)))
        .collect::<Result<Entries, MembershipError>>()?;
    Ok(Patch::from([
        (ALARM, Entries::new()),
        (CLUSTER, cluster),
        (MEMBERS, records),
        (MEMBERS_REMOVED, Entries::new()),
        (META, meta),
    ]))
}

/// Snap file and write-ahead log. The log goes last: its presence is what makes etcd take the directory for a member's.
fn write_bootstrap(staged: &StagedMember, members: &[Member], own: u64, cluster: u64) -> Result<(), RestoreError> {
    let snap = Snap::bootstrap(members, BOOTSTRAP_TERM, members.len() as u64);
    staged.write_file("snap", &snap.name().to_string(), &snap.encode()?)?;
    let segment = bootstrap_segment(own, cluster, members)?;
    staged.write_file("wal", &SegmentName::FIRST.to_string(), &segment)?;
    Ok(())
}

/// Which releases start on files of which others; everything not listed ends in a crash loop or was never tried.
fn check_versions(from: Option<MinorVersion>, to: Option<MinorVersion>) -> Result<(), RestoreError> {
    let Some(to) = to else { return Ok(()) };
    let Some(from) = from else { return Err(RestoreError::UnknownVersion { to }) };
    let refuse = |reason| Err(RestoreError::Version { from, to, reason });
    if from.major != 3 || to.major != 3 {
        return refuse("only releases 3.4 to 3.7 are known; leave the target version out to restore all the same");
    }
    match (from.minor, to.minor) {
        // 3.4 knows no term; restore writes one, and then 3.6 starts. 3.5 does not look at what 3.6 added.
        (4, 4..=6) | (5 | 6, 5) | (5..=6, 6) | (6 | 7, 7) => Ok(()),
        (from, to) if from < 4 || to < 4 || from > 7 || to > 7 => {
            refuse("only releases 3.4 to 3.7 are known; leave the target version out to restore all the same")
        }
        (older, newer) if older < newer => {
            refuse("that is more than one minor release at once; restore for one in between and upgrade from there")
        }
        _ => refuse("etcd refuses files of a newer release; run the release of the snapshot"),
    }
}

/// An older release decides its versions anew; what a newer one noted would only mislead it.
fn drop_newer_versions(cluster: &mut Entries, meta: &mut Entries, target: MinorVersion) {
    let newer = |bytes: &Vec<u8>| {
        std::str::from_utf8(bytes).ok().and_then(MinorVersion::parse).is_some_and(|version| version > target)
    };
    for (entries, key) in [(cluster, CLUSTER_VERSION), (meta, STORAGE_VERSION)] {
        if entries.get(key).is_some_and(newer) {
            entries.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_proven_version_steps_are_accepted() {
        let outcome =
            |from, to| check_versions(Some(MinorVersion::new(3, from)), Some(MinorVersion::new(3, to))).is_ok();
        let accepted: Vec<(u32, u32)> = (4..=7)
            .flat_map(|from| (4..=7).map(move |to| (from, to)))
            .filter(|(from, to)| outcome(*from, *to))
            .collect();
        assert_eq!(accepted, [(4, 4), (4, 5), (4, 6), (5, 5), (5, 6), (6, 5), (6, 6), (6, 7), (7, 7)]);
        for untried in [(3, 4), (7, 8), (8, 8), (8, 9), (u32::MAX, 7), (7, u32::MAX), (u32::MAX, u32::MAX)] {
            assert!(!outcome(untried.0, untried.1), "{untried:?}");
        }
        assert!(check_versions(Some(MinorVersion::new(4, 0)), Some(MinorVersion::new(4, 0))).is_err());
        assert!(check_versions(None, Some(MinorVersion::new(3, 7))).is_err());
        assert!(check_versions(Some(MinorVersion::new(3, 7)), None).is_ok());
    }
}
