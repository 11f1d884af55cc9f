//! What is on the volume, before etcd may touch it.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use quorate_api::member::{DataState, ListedMember, LogEnd};
use quorate_core::{
    record::{Inspection, VolumeRecord},
    start::Found,
};
use quorate_etcd::{
    membership::{Member, hex_id},
    schema::Schema,
    validate::{DirError, DirFacts},
    wal::{WalError, WalScan, list_segments, read_metadata},
};
use quorate_runtime::error::chain;

use crate::{
    error::{Error, Result, While},
    identity::VolumeIdentity,
    soundness::{KnownDamage, Soundness, is_damage},
};

const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// What may lie on a volume that nobody has used.
const NOBODYS: [&str; 3] = ["lost+found", ".snapshot", ".snapshots"];
/// Names of what is found are listed up to this number.
const MOST_NAMES: usize = 5;

/// A member's volume: etcd's data directory and what lies beside it.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) root: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) namespace: String,
    pub(crate) cluster: String,
    pub(crate) member: String,
    pub(crate) damage: KnownDamage,
}

/// What was found, and whose volume it is, if it is this member's.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    pub(crate) inspection: Inspection,
    pub(crate) identity: Option<VolumeIdentity>,
}

impl Looked {
    pub(crate) fn kept(&self) -> VolumeRecord {
        self.identity.as_ref().map(|identity| identity.record.clone()).unwrap_or_default()
    }
}

impl Volume {
    /// Looks without changing anything, but for an exchange that was cut short. What cannot be read is reported with the reason: an agent that ended instead would
    /// say nothing at all. Nothing is returned if an etcd runs on the data.
    pub(crate) fn inspect(&self) -> Option<Looked> {
        let identity = match VolumeIdentity::read(&self.root) {
            Ok(identity) => identity,
            Err(error) => return Some(Looked { inspection: not_inspected(&error), identity: None }),
        };
        if let Some(VolumeIdentity { namespace, cluster, member, .. }) = identity.as_ref().filter(|it| !self.is_own(it))
        {
            let owner = format!("the volume belongs to member {member} of cluster {namespace}/{cluster}");
            return Some(Looked { inspection: Inspection::unusable(DataState::Foreign, owner), identity: None });
        }
        let settled = identity.as_ref().and_then(|own| own.successor.as_ref()).map(|next| self.settle_exchange(next));
        if let Some(Err(error)) = settled {
            return Some(Looked { inspection: not_inspected(&error), identity });
        }
        let identity = identity.map(|identity| self.present(identity));
        let inspection = match self.inspect_data(identity.as_ref()) {
            Ok(inspection) => inspection,
            Err(Error::Inspect(DirError::InUse { .. })) => return None,
            Err(error) => not_inspected(&error),
        };
        Some(Looked { inspection, identity })
    }

    /// Whose data lies there: the successor's, once it has taken the place of what it was made of.
    fn present(&self, identity: VolumeIdentity) -> VolumeIdentity {
        let owner = identity.successor.as_ref().and_then(|_| self.log_owner().ok().flatten());
        match owner {
            Some((cluster, member)) => identity.with_log_of(&cluster, &member),
            None => identity,
        }
    }

    /// Off the one thread, which answers probes and renews the Lease: a disk may take its time, or for ever.
    pub(crate) async fn on<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> T + Send + 'static) -> Result<T> {
        let volume = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&volume)).await;
        done.map_err(io::Error::other).doing(|| format!("working on {}", self.root.display()))
    }

    pub(crate) fn is_own(&self, identity: &VolumeIdentity) -> bool {
        identity.namespace == self.namespace && identity.cluster == self.cluster && identity.member == self.member
    }

    /// The remains of a first start that never got as far as a log hold nothing, and count as nothing.
    fn inspect_data(&self, identity: Option<&VolumeIdentity>) -> Result<Inspection> {
        let empty = is_empty(&self.data)?;
        let strangers = self.strangers()?;
        match identity {
            _ if empty && !strangers.is_empty() => Ok(foreign(format!("the volume holds {}", listed(&strangers)))),
            Some(identity) if identity.has_not_begun() && (empty || !self.holds_log()?) => {
                Ok(Inspection::prepared(identity.running(0)))
            }
            _ if empty => Ok(Inspection::empty()),
            None => Ok(foreign("the volume holds data that no member of this cluster has written".to_owned())),
            Some(identity) => self.inspect_own(identity),
        }
    }

    /// What lies beside the data and is not ours.
    pub(crate) fn strangers(&self) -> Result<Vec<OsString>> {
        let reading = || format!("reading {}", self.root.display());
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.root).doing(reading)? {
            let name = entry.doing(reading)?.file_name();
            let text = name.to_string_lossy();
            let own = self.data.file_name() == Some(&name)
                || text.starts_with("quorate.")
                || text.starts_with("quarantine-")
                || NOBODYS.contains(&&*text);
            if !own {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn inspect_own(&self, identity: &VolumeIdentity) -> Result<Inspection> {
        let (facts, doubt) = match self.soundness(identity.doubted)? {
            Soundness::Damaged(reason) => return Ok(Inspection::unusable(DataState::Damaged, reason)),
            Soundness::Sound { facts, doubt } => (facts, doubt),
        };
        let found = match own_data(&facts, identity) {
            Ok(last_index) => Inspection {
                found: Found { state: DataState::Valid, identity: Some(identity.running(last_index)), prepared: None },
                reason: doubt,
                revision: facts.schema.as_ref().map(Schema::revision),
                committed_index: facts.log.as_ref().and_then(|log| i64::try_from(log.hard_state.commit?).ok()),
                log_end: facts.log.as_ref().and_then(log_end),
                members: facts.schema.map(|schema| members(schema.members)).unwrap_or_default(),
            },
            Err(reason) => foreign(reason),
        };
        Ok(match &identity.successor {
            // What etcd has added while it applied the log alone is true of nobody else's.
            Some(successor) if found.found.state == DataState::Valid => {
                Inspection { committed_index: None, log_end: Some(successor.log_end), members: Vec::new(), ..found }
            }
            _ => found,
        })
    }

    pub(crate) fn holds_log(&self) -> Result<bool> {
        let dir = self.data.join("member/wal");
        match fs::metadata(&dir) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(Error::Io { what: format!("reading {}", dir.display()), source }),
        }
        match list_segments(&dir) {
            Ok(_) => Ok(true),
            Err(WalError::NoSegments { .. }) => Ok(false),
            Err(error) => Err(Error::Inspect(DirError::Log(error))),
        }
    }

    /// The cluster and the member whose log it is, once there is one. etcd makes it under another name first.
    pub(crate) fn log_owner(&self) -> Result<Option<(String, String)>> {
        if !self.holds_log()? {
            return Ok(None);
        }
        let log = read_metadata(&self.data.join("member/wal")).map_err(|error| Error::Inspect(DirError::Log(error)))?;
        Ok(log.cluster_id.zip(log.node_id).map(|(cluster, member)| (hex_id(cluster), hex_id(member))))
    }

    /// What an etcd that does not answer yet is busy with, as far as its files show. The text changes as long as it gets on.
    pub(crate) fn progress(&self) -> String {
        let dir = self.data.join("member/snap");
        let size = |path: &Path| path.metadata().map(|metadata| metadata.len()).ok();
        // etcd writes what another member sends under a passing name.
        let names = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut arriving =
            names.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tmp")));
        match (arriving.find_map(|path| size(&path)), size(&dir.join("db"))) {
            (Some(bytes), _) => format!("receiving a snapshot, {} MiB so far", bytes >> 20),
            (None, Some(bytes)) => format!("starting from a database of {} MiB", bytes >> 20),
            (None, None) => "starting without a database".to_owned(),
        }
    }

    /// Whether an etcd runs on this data, which it locks.
    pub(crate) fn is_in_use(&self) -> bool {
        let Ok(database) = File::open(self.data.join("member/snap/db")) else { return false };
        matches!(database.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Returns when an etcd runs on this data, or when none does any more.
    pub(crate) async fn use_becomes(&self, in_use: bool) -> Result<()> {
        while self.on(Volume::is_in_use).await? != in_use {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Ok(())
    }
}

/// The last index of the log, if the log is that of the member whose volume this is.
fn own_data(facts: &DirFacts, identity: &VolumeIdentity) -> Result<i64, String> {
    let log = facts.log.as_ref().ok_or("there is no log")?;
    let (cluster, member) = (hex_id(log.cluster_id), hex_id(log.node_id));
    if cluster != identity.cluster_id || member != identity.member_id {
        return Err(format!(
            "the log is that of member {member} of cluster {cluster}, the volume that of member {} of cluster {}",
            identity.member_id, identity.cluster_id
        ));
    }
    i64::try_from(log.last_index).map_err(|_| "the log's last index is out of range".to_owned())
}

pub(crate) fn log_end(log: &WalScan) -> Option<LogEnd> {
    Some(LogEnd { term: i64::try_from(log.last_term).ok()?, index: i64::try_from(log.last_index).ok()? })
}

pub(crate) fn is_empty(dir: &Path) -> Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(source) => Err(Error::Io { what: format!("reading {}", dir.display()), source }),
    }
}

fn foreign(what: String) -> Inspection {
    Inspection::unusable(DataState::Foreign, what)
}

fn not_inspected(error: &Error) -> Inspection {
    let state = if is_damage(error) { DataState::Damaged } else { DataState::Unreadable };
    Inspection::unusable(state, chain(error))
}

/// The first few names, and how many there are besides.
fn listed(names: &[OsString]) -> String {
    let more = names.len().saturating_sub(MOST_NAMES);
    let first =
        names.iter().take(MOST_NAMES).map(|name| format!("`{}`", name.display())).collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

fn members(mut members: Vec<Member>) -> Vec<ListedMember> {
    members.sort_by_key(|member| member.id);
    let listed = members.into_iter().map(|member| {
        ListedMember::new(member.id, member.name, member.peer_urls, member.is_learner, &member.client_urls)
    });
    listed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(root: &Path) -> Volume {
        Volume {
            root: root.to_owned(),
            data: root.join("data"),
            namespace: "default".to_owned(),
            cluster: "etcd".to_owned(),
            member: "etcd-0".to_owned(),
            damage: KnownDamage::default(),
        }
    }

    fn used_once(volume: &Volume) {
        let identity = VolumeIdentity {
            namespace: volume.namespace.clone(),
            cluster: volume.cluster.clone(),
            member: volume.member.clone(),
            cluster_id: "cafe".to_owned(),
            member_id: "beef".to_owned(),
            epoch: 1,
            boot_count: 1,
            record: VolumeRecord::default(),
            recovered: None,
            successor: None,
            doubted: false,
        };
        identity.write(&volume.root).unwrap();
    }

    fn state(volume: &Volume) -> (DataState, String) {
        let inspection = volume.inspect().unwrap().inspection;
        (inspection.found.state, inspection.reason.unwrap_or_default())
    }

    #[test]
    fn a_volume_with_nothing_but_what_file_systems_put_there_is_empty() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("lost+found")).unwrap();
        fs::create_dir(root.path().join("quarantine-20260101T000000.000Z")).unwrap();
        assert_eq!(state(&volume(root.path())).0, DataState::Empty);
    }

    #[test]
    fn what_lies_on_the_volume_outside_of_the_data_directory_is_somebodys() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("member")).unwrap();
        let (state, reason) = state(&volume(root.path()));
        assert_eq!(state, DataState::Foreign);
        assert!(reason.contains("`member`"), "{reason}");
    }

    #[test]
    fn files_in_the_data_directory_that_no_member_has_written_are_somebodys() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("data/member")).unwrap();
        assert_eq!(state(&volume(root.path())).0, DataState::Foreign);
        used_once(&volume(root.path()));
        assert_eq!(state(&volume(root.path())).0, DataState::Empty, "remains of a first start");
    }

    /// A file where a directory should be cannot be read by anybody, not even by root.
    #[test]
    fn a_data_directory_that_cannot_be_read_is_neither_damaged_nor_empty() {
        let root = tempfile::tempdir().unwrap();
        used_once(&volume(root.path()));
        fs::write(root.path().join("data"), "").unwrap();
        let (found, reason) = state(&volume(root.path()));
        assert_eq!(found, DataState::Unreadable);
        assert!(reason.contains("data"), "{reason}");
    }

    #[test]
    fn a_log_that_cannot_be_read_is_not_taken_for_a_missing_one() {
        let root = tempfile::tempdir().unwrap();
        used_once(&volume(root.path()));
        fs::create_dir(root.path().join("data")).unwrap();
        // Going round in a circle fails for root too.
        std::os::unix::fs::symlink("member", root.path().join("data/member")).unwrap();
        assert_eq!(state(&volume(root.path())).0, DataState::Unreadable);
    }

    #[test]
    fn a_snapshot_that_arrives_shows_as_progress() {
        let root = tempfile::tempdir().unwrap();
        let volume = volume(root.path());
        let dir = root.path().join("data/member/snap");
        fs::create_dir_all(&dir).unwrap();
        let arriving = File::create(dir.join("tmp123")).unwrap();
        arriving.set_len(3 << 20).unwrap();
        let before = volume.progress();
        assert!(before.contains("receiving a snapshot"), "{before}");
        arriving.set_len(5 << 20).unwrap();
        assert_ne!(volume.progress(), before);
        fs::rename(dir.join("tmp123"), dir.join("db")).unwrap();
        assert!(volume.progress().contains("a database of 5 MiB"));
    }

    #[test]
    fn a_volume_whose_owner_cannot_be_told_is_unreadable() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("quorate.json"), "{").unwrap();
        let (found, reason) = state(&volume(root.path()));
        assert_eq!(found, DataState::Unreadable);
        assert!(reason.contains("quorate.json"), "{reason}");
    }
}
