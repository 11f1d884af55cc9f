//! What is on the volume, before etcd may touch it.

use std::{
    fs::{self, File},
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
    validate::{self, DirFacts, Severity, Tier},
    wal::list_segments,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{
    error::{Error, Result, While},
    identity::VolumeIdentity,
};

const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// A member's volume: etcd's data directory and what lies beside it.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) root: PathBuf,
    pub(crate) data: PathBuf,
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

    /// The report, with what was on record before for a volume that says nothing itself.
    pub(crate) fn report(&self, recorded: Option<&DataReport>) -> DataReport {
        let identity = self.found.identity.as_ref();
        DataReport {
            state: self.found.state,
            reason: self.reason.clone(),
            cluster_id: identity.map(|id| id.cluster_id.clone()).or_else(|| recorded?.cluster_id.clone()),
            member_id: identity.map(|id| id.member_id.clone()).or_else(|| recorded?.member_id.clone()),
            epoch: identity.map(|id| id.epoch).or_else(|| recorded?.epoch),
            revision: self.revision.or_else(|| recorded?.revision),
            last_index: self.committed_index.or_else(|| recorded?.last_index),
            boot_count: identity.map(|id| id.boot_count).or_else(|| recorded?.boot_count),
        }
    }
}

impl Volume {
    /// Looks without changing anything. The remains of a first start that never got as far as a log hold nothing, and
    /// count as nothing.
    pub(crate) fn inspect(&self) -> Result<Inspection> {
        let identity = VolumeIdentity::read(&self.root)?;
        if let Some(identity) = &identity
            && (identity.cluster != self.cluster || identity.member != self.member)
        {
            let owner = format!("member {} of cluster {}", identity.member, identity.cluster);
            return Ok(Inspection::unusable(DataState::Foreign, format!("the volume belongs to {owner}")));
        }
        let holds_log = self.holds_log()?;
        let never_began = !holds_log && identity.as_ref().is_none_or(|identity| identity.boot_count <= 1);
        if never_began || is_empty(&self.data)? {
            return Ok(Inspection::empty());
        }
        self.inspect_data(identity.as_ref())
    }

    /// Whether an etcd runs on this data, which it locks.
    pub(crate) fn is_in_use(&self) -> bool {
        let Ok(database) = File::open(self.data.join("member/snap/db")) else { return false };
        flock(&database, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
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

    fn inspect_data(&self, identity: Option<&VolumeIdentity>) -> Result<Inspection> {
        let (findings, facts) = validate::data_dir(&self.data, Tier::Instant).map_err(Error::Inspect)?;
        if findings.is_damaged() {
            let damage = findings.list.iter().filter(|finding| finding.kind.severity() == Severity::Damage);
            let reason = damage.map(ToString::to_string).collect::<Vec<_>>().join("; ");
            return Ok(Inspection::unusable(DataState::Damaged, reason));
        }
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
                reason: None,
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
        let segments = list_segments(&dir).map_err(validate::DirError::Log).map_err(Error::Inspect)?;
        Ok(!segments.is_empty())
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
