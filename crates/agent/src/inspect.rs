//! What is on the volume, before etcd may touch it.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use quorate_api::member::{DataReport, DataState};
use quorate_core::start::{Found, Identity};
use quorate_etcd::{
    membership::hex_id,
    schema::Schema,
    validate::{self, DirError, DirFacts, Severity, Tier},
    wal::{WalError, list_segments},
};

use crate::{
    error::{Error, Result, While, chain},
    identity::VolumeIdentity,
};

const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// A member's volume: etcd's data directory and what lies beside it.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) root: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) namespace: String,
    pub(crate) cluster: String,
    pub(crate) member: String,
}

/// What an inspection found, for the start table and for the report.
#[derive(Clone, Debug)]
pub(crate) struct Inspection {
    pub(crate) found: Found,
    pub(crate) reason: Option<String>,
    pub(crate) revision: Option<i64>,
    /// What is behind this index can still be overruled by the others; up to it nothing can ever go missing.
    pub(crate) committed_index: Option<i64>,
}

impl Inspection {
    fn unusable(state: DataState, reason: String) -> Self {
        Inspection {
            found: Found { state, identity: None },
            reason: Some(reason),
            revision: None,
            committed_index: None,
        }
    }

    fn empty() -> Self {
        let found = Found { state: DataState::Empty, identity: None };
        Inspection { found, reason: None, revision: None, committed_index: None }
    }

    /// The report on a volume on which etcd does not run. What was on record stays, unless this data continues it: a
    /// record that follows the volume would let a volume that was rolled back, or exchanged, vouch for itself.
    pub(crate) fn report(&self, recorded: Option<&DataReport>, refusal: Option<&str>) -> DataReport {
        let own = self.found.identity.as_ref();
        let state = if refusal.is_some() && self.found.state == DataState::Valid {
            DataState::Fenced
        } else {
            self.found.state
        };
        let reason = refusal.map(str::to_owned).or_else(|| self.reason.clone());
        let known = recorded.filter(|known| known.member_id.is_some());
        let continues = |own: &Identity, known: &DataReport| {
            known.cluster_id.as_ref() == Some(&own.cluster_id)
                && known.member_id.as_ref() == Some(&own.member_id)
                && known.epoch == Some(own.epoch)
        };
        match (own, known) {
            (Some(own), None) if refusal.is_none() => self.first_report(own, state, reason),
            (Some(own), Some(known)) if refusal.is_none() && known.epoch < Some(own.epoch) => {
                self.first_report(own, state, reason)
            }
            (Some(own), Some(known)) if refusal.is_none() && continues(own, known) => DataReport {
                state,
                reason,
                boot_count: known.boot_count.max(Some(own.boot_count)),
                last_index: known.last_index.max(self.committed_index),
                revision: known.revision.max(self.revision),
                ..known.clone()
            },
            (_, known) => DataReport { state, reason, ..known.cloned().unwrap_or(DataReport::of(state)) },
        }
    }

    fn first_report(&self, own: &Identity, state: DataState, reason: Option<String>) -> DataReport {
        DataReport {
            state,
            reason,
            cluster_id: Some(own.cluster_id.clone()),
            member_id: Some(own.member_id.clone()),
            epoch: Some(own.epoch),
            revision: self.revision,
            last_index: self.committed_index,
            boot_count: Some(own.boot_count),
        }
    }
}

impl Volume {
    /// Looks without changing anything. What cannot be judged is reported as damaged, with the reason: an agent that ended
    /// instead would say nothing at all. Nothing is returned if an etcd runs on the data.
    pub(crate) fn inspect(&self) -> Option<Inspection> {
        match self.try_inspect() {
            Ok(inspection) => Some(inspection),
            Err(Error::Inspect(DirError::InUse { .. })) => None,
            Err(error) => Some(Inspection::unusable(DataState::Damaged, chain(&error))),
        }
    }

    /// The remains of a first start that never got as far as a log hold nothing, and count as nothing.
    fn try_inspect(&self) -> Result<Inspection> {
        let identity = VolumeIdentity::read(&self.root)?;
        if let Some(identity) = &identity
            && !self.is_own(identity)
        {
            let VolumeIdentity { namespace, cluster, member, .. } = identity;
            let owner = format!("the volume belongs to member {member} of cluster {namespace}/{cluster}");
            return Ok(Inspection::unusable(DataState::Foreign, owner));
        }
        let never_began = !self.holds_log()? && identity.as_ref().is_none_or(|identity| identity.boot_count <= 1);
        if never_began || is_empty(&self.data)? {
            return Ok(Inspection::empty());
        }
        self.inspect_data(identity.as_ref())
    }

    fn is_own(&self, identity: &VolumeIdentity) -> bool {
        identity.namespace == self.namespace && identity.cluster == self.cluster && identity.member == self.member
    }

    fn inspect_data(&self, identity: Option<&VolumeIdentity>) -> Result<Inspection> {
        let (facts, doubt) = match validate::data_dir(&self.data, Tier::Instant) {
            Ok((findings, _)) if findings.is_damaged() => {
                let damage = findings.list.iter().filter(|finding| finding.kind.severity() == Severity::Damage);
                let reason = damage.map(ToString::to_string).collect::<Vec<_>>().join("; ");
                return Ok(Inspection::unusable(DataState::Damaged, reason));
            }
            Ok((_, facts)) => (facts, None),
            // What a power cut leaves: etcd goes on from what is certain. Whether that is less than this member is known
            // to have had, the record tells. After a cut of the whole site there is no record to wait for.
            Err(error @ DirError::Undecided { .. }) => {
                let doubt = error.to_string();
                let DirError::Undecided { facts, .. } = error else { return Err(Error::Inspect(error)) };
                (*facts, Some(doubt))
            }
            Err(error) => return Err(Error::Inspect(error)),
        };
        let Some(identity) = identity else {
            let reason = "the volume holds data that no member of this cluster has written".to_owned();
            return Ok(Inspection::unusable(DataState::Foreign, reason));
        };
        Ok(match own_data(&facts, identity) {
            Ok(last_index) => Inspection {
                found: Found {
                    state: DataState::Valid,
                    identity: Some(Identity {
                        cluster_id: identity.cluster_id.clone(),
                        member_id: identity.member_id.clone(),
                        epoch: identity.epoch,
                        boot_count: identity.boot_count,
                        last_index,
                    }),
                },
                reason: doubt,
                revision: facts.schema.as_ref().map(Schema::revision),
                committed_index: facts.log.as_ref().and_then(|log| i64::try_from(log.hard_state.commit?).ok()),
            },
            Err(reason) => Inspection::unusable(DataState::Foreign, reason),
        })
    }

    pub(crate) fn holds_log(&self) -> Result<bool> {
        let dir = self.data.join("member/wal");
        if !dir.is_dir() {
            return Ok(false);
        }
        match list_segments(&dir) {
            Ok(_) => Ok(true),
            Err(WalError::NoSegments { .. }) => Ok(false),
            Err(error) => Err(Error::Inspect(DirError::Log(error))),
        }
    }

    /// Whether an etcd runs on this data, which it locks.
    pub(crate) fn is_in_use(&self) -> bool {
        let Ok(database) = File::open(self.data.join("member/snap/db")) else { return false };
        matches!(database.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Returns when an etcd runs on this data, or when none does any more.
    pub(crate) async fn use_becomes(&self, in_use: bool) {
        while self.is_in_use() != in_use {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Makes room for a new member: whatever is there was found to hold nothing.
    pub(crate) fn clear_remains(&self, now: Timestamp) -> Result<()> {
        if is_empty(&self.data)? { Ok(()) } else { self.quarantine(now).map(drop) }
    }

    /// Moves the data aside, on the same volume and under a name that tells when. Nothing is ever deleted.
    pub(crate) fn quarantine(&self, now: Timestamp) -> Result<PathBuf> {
        let aside = self.root.join(format!("quarantine-{}", now.strftime("%Y%m%dT%H%M%S%.3fZ")));
        fs::rename(&self.data, &aside).doing(|| format!("moving {} to {}", self.data.display(), aside.display()))?;
        Ok(aside)
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

fn is_empty(dir: &Path) -> Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(source) => Err(Error::Io { what: format!("reading {}", dir.display()), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspection(member: &str, epoch: i64, boot_count: i64, last_index: i64) -> Inspection {
        let identity =
            Identity { cluster_id: "cafe".to_owned(), member_id: member.to_owned(), epoch, boot_count, last_index };
        Inspection {
            found: Found { state: DataState::Valid, identity: Some(identity) },
            reason: None,
            revision: Some(last_index),
            committed_index: Some(last_index),
        }
    }

    #[test]
    fn a_volume_that_continues_the_record_moves_it_on_and_never_back() {
        let record = inspection("beef", 1, 4, 100).report(None, None);
        let ahead = inspection("beef", 1, 5, 90).report(Some(&record), None);
        assert_eq!((ahead.boot_count, ahead.last_index, ahead.revision), (Some(5), Some(100), Some(100)));
    }

    #[test]
    fn a_refused_volume_leaves_no_trace_in_the_record() {
        let record = inspection("beef", 1, 4, 100).report(None, None);
        for stranger in [inspection("dead", 1, 50, 9_000), inspection("beef", 7, 50, 9_000)] {
            let report = stranger.report(Some(&record), Some("it is a stranger"));
            assert_eq!((report.state, report.reason.as_deref()), (DataState::Fenced, Some("it is a stranger")));
            assert_eq!(DataReport { state: DataState::Valid, reason: None, ..report }, record);
        }
        assert_eq!(inspection("dead", 1, 50, 9_000).report(None, Some("a stranger")).member_id, None);
    }

    #[test]
    fn a_wiped_volume_keeps_what_is_on_record() {
        let record = inspection("beef", 1, 4, 100).report(None, None);
        let report = Inspection::empty().report(Some(&record), None);
        assert_eq!((report.state, report.member_id.as_deref()), (DataState::Empty, Some("beef")));
    }

    #[test]
    fn a_new_incarnation_replaces_the_record() {
        let record = inspection("beef", 1, 4, 100).report(None, None);
        let report = inspection("f00d", 2, 1, 5).report(Some(&record), None);
        assert_eq!((report.member_id.as_deref(), report.epoch, report.last_index), (Some("f00d"), Some(2), Some(5)));
    }
}
