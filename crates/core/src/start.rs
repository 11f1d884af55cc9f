//! May etcd start on this volume, and how? The agent's question, answered by a table.
//!
//! No member decides alone that it is new: an empty volume starts only on a ticket. A member's own verified data starts
//! without one, even while the Kubernetes API is out of reach, because this etcd may be the one behind that very API.

use quorate_api::member::{DataState, Peer, Ticket};
use serde::{Deserialize, Serialize};

use crate::lease::Heartbeat;

/// What is on the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub state: DataState,
    /// Present with [`DataState::Valid`].
    pub identity: Option<Identity>,
    /// As whom etcd was about to begin on a volume that holds no data, if it was.
    pub prepared: Option<Identity>,
}

/// Whose data it is, and how far it goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    #[serde(rename = "memberID")]
    pub member_id: String,
    pub epoch: i64,
    /// How often etcd has been started on it.
    pub boot_count: i64,
    /// Last index in its log.
    pub last_index: i64,
}

impl Identity {
    /// The same member of the same incarnation, however far it goes.
    pub fn is_of(&self, other: &Self) -> bool {
        self.cluster_id == other.cluster_id && self.member_id == other.member_id && self.epoch == other.epoch
    }
}

/// What the agent could read from Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiAnswer<T> {
    /// The API did not answer.
    Unreachable,
    /// It answered, and refuses to say: nothing is known, and waiting alone will not change that.
    Refused,
    /// It answered that there is nothing.
    Nothing,
    Known(T),
}

impl<T> ApiAnswer<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unreachable | Self::Refused | Self::Nothing => None,
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Start {
    /// Start from the data that is there.
    Resume,
    /// Start empty, as part of a new cluster (`--initial-cluster-state=new`).
    New { epoch: i64, token: String, initial_cluster: Vec<Peer> },
    /// Start empty, as a member that the cluster has already added (`--initial-cluster-state=existing`).
    Join { epoch: i64, cluster_id: String, member_id: String, initial_cluster: Vec<Peer> },
    /// Write the named point of a backup first, then start as a new incarnation.
    Restore { epoch: i64, token: String, initial_cluster: Vec<Peer>, source: String, revision: i64, digest: String },
    /// Make the data that is there the beginning of a new incarnation, with this member alone, then start it.
    Recover { epoch: i64, token: String, initial_cluster: Vec<Peer>, raise_to: i64 },
    /// Do not start; look again when something changes.
    Wait(WaitFor),
    /// Move what is there aside, never delete it, and look again.
    Quarantine(Unusable),
    /// Do not start, and touch nothing: a human must look.
    Refuse(Refusal),
}

/// What a member waits for that has no data, or none that anything vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WaitFor {
    /// No ticket yet.
    Ticket,
    /// The API, without which an empty member cannot know whether it is new.
    KubernetesApi,
    /// The right to read what the API knows about it: the API answers and refuses.
    KubernetesApiAccess,
    /// It has run before and its data is gone: it must be replaced.
    Replacement,
    /// What is on the volume cannot be read, so nobody knows what it is.
    ReadableVolume,
}

/// Why data cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unusable {
    Damaged,
    /// It belongs to an earlier incarnation of the cluster.
    EarlierEpoch,
    /// It belongs to a member that is no longer one: another has taken its place.
    Replaced,
    /// It is not this cluster's.
    Foreign,
}

/// Why a member must not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Data of another member or cluster.
    ForeignData,
    /// Another cluster or member than is on record.
    IdentityChanged,
    /// Older than what is on record: the volume was rolled back, and its member has forgotten what it promised.
    RolledBack,
    /// Newer than the ticket: the ticket is from before.
    LaterEpoch,
    /// Of an earlier incarnation than a ticket that was seen before, which cannot be read now.
    EarlierEpoch,
    /// Not what the other members have, so the operator has fenced it.
    Diverged,
}

impl Refusal {
    /// Why sound data is not started, for whoever looks at the member.
    pub fn explanation(self) -> Option<&'static str> {
        match self {
            // An inspection says it better.
            Self::ForeignData => None,
            Self::IdentityChanged => Some(
                "the volume holds another member, or this member of another cluster, than this member was known as; \
                 unless the right one is put back, the member is replaced once the others are a quorum without it",
            ),
            Self::RolledBack => Some(
                "the volume is older than what this member was known to hold, so it has forgotten writes that it \
                 acknowledged; unless the right one is put back, the member is replaced once the others are a quorum \
                 without it",
            ),
            Self::LaterEpoch => Some("the volume is of a later incarnation of the cluster than the ticket"),
            Self::EarlierEpoch => Some("the volume is of an earlier incarnation of the cluster"),
            Self::Diverged => Some(
                "the data differs from what a majority of the members have, so whoever reads here could be told what \
                 is not true; the member is replaced once the others are a quorum without it",
            ),
        }
    }
}

/// The table.
pub fn start(found: &Found, ticket: &ApiAnswer<Ticket>, recorded: &ApiAnswer<Identity>) -> Start {
    match (found.state, &found.identity) {
        // An inspection finds no fences; only what is recorded outside of the volume can tell.
        (DataState::Foreign | DataState::Fenced, _) if joins(ticket, recorded) => Start::Quarantine(Unusable::Foreign),
        (DataState::Foreign | DataState::Fenced, _) => Start::Refuse(Refusal::ForeignData),
        (DataState::Damaged, _) | (DataState::Valid, None) => make_room(Unusable::Damaged, ticket, recorded),
        (DataState::Unreadable, _) => Start::Wait(WaitFor::ReadableVolume),
        (DataState::Valid, Some(identity)) => with_data(identity, ticket, recorded),
        (DataState::Empty, _) => without_data(found.prepared.as_ref(), ticket, recorded),
    }
}

/// Whether the ticket makes this a member that has never begun. It is good for one start: what is on the volume then is that
/// member's own.
fn joins(ticket: &ApiAnswer<Ticket>, recorded: &ApiAnswer<Identity>) -> bool {
    let Some(Ticket::Join { member_id, .. }) = ticket.known() else { return false };
    match recorded {
        ApiAnswer::Nothing => true,
        ApiAnswer::Known(mark) => mark.member_id != *member_id,
        ApiAnswer::Unreachable | ApiAnswer::Refused => false,
    }
}

/// Unusable data stays where it is, and keeps being reported, until a ticket needs the room: moved aside any earlier,
/// the member would look new.
fn make_room(why: Unusable, ticket: &ApiAnswer<Ticket>, recorded: &ApiAnswer<Identity>) -> Start {
    match ticket {
        ApiAnswer::Known(Ticket::Join { .. }) if joins(ticket, recorded) => Start::Quarantine(why),
        ApiAnswer::Known(Ticket::Restore { .. }) => Start::Quarantine(why),
        ApiAnswer::Unreachable => Start::Wait(WaitFor::KubernetesApi),
        ApiAnswer::Refused => Start::Wait(WaitFor::KubernetesApiAccess),
        ApiAnswer::Nothing | ApiAnswer::Known(_) => Start::Wait(WaitFor::Replacement),
    }
}

fn with_data(identity: &Identity, ticket: &ApiAnswer<Ticket>, recorded: &ApiAnswer<Identity>) -> Start {
    match ticket.known().and_then(Ticket::epoch) {
        Some(epoch) if identity.epoch < epoch => recover(identity, ticket, recorded)
            .or_else(|| refuse_copy(identity, ticket, recorded))
            .unwrap_or_else(|| make_room(Unusable::EarlierEpoch, ticket, recorded)),
        Some(epoch) if identity.epoch > epoch => Start::Refuse(Refusal::LaterEpoch),
        _ if joins(ticket, recorded) && !is_for(ticket, identity) => Start::Quarantine(Unusable::Replaced),
        _ if ticket.known().is_some_and(|ticket| ticket.fences(&identity.member_id)) => {
            Start::Refuse(Refusal::Diverged)
        }
        _ => match recorded {
            ApiAnswer::Known(mark) => compare(identity, mark),
            // There is a record, perhaps, and an API that is not behind this etcd, because it answers.
            ApiAnswer::Refused => Start::Wait(WaitFor::KubernetesApiAccess),
            // There is nothing to compare with, and this etcd may be the one behind that very API.
            ApiAnswer::Unreachable | ApiAnswer::Nothing => Start::Resume,
        },
    }
}

/// Data of an earlier incarnation may be what a later one is to begin from, unless it is not what its member is known to have
/// had. Who puts it aside does not ask.
fn refuse_copy(identity: &Identity, ticket: &ApiAnswer<Ticket>, recorded: &ApiAnswer<Identity>) -> Option<Start> {
    let is_put_aside = joins(ticket, recorded) || matches!(ticket.known(), Some(Ticket::Restore { .. }));
    let mark = recorded.known().filter(|_| !is_put_aside)?;
    Some(compare(identity, mark)).filter(|compared| *compared != Start::Resume)
}

/// Whether this is the copy that a new incarnation is to begin from. It must be all that the member is known to have had, unless
/// somebody has named it, and in no case has it begun the new one already.
fn recover(identity: &Identity, ticket: &ApiAnswer<Ticket>, recorded: &ApiAnswer<Identity>) -> Option<Start> {
    let Some(Ticket::Recover { epoch, token, initial_cluster, cluster_id, member_id, raise_to, even_if_fenced }) =
        ticket.known()
    else {
        return None;
    };
    if *cluster_id != identity.cluster_id || *member_id != identity.member_id {
        return None;
    }
    let is_good =
        |mark: &Identity| compare(identity, mark) == Start::Resume || (*even_if_fenced && identity.is_of(mark));
    match recorded {
        ApiAnswer::Known(mark) if !is_good(mark) => Some(compare(identity, mark)),
        ApiAnswer::Unreachable => Some(Start::Wait(WaitFor::KubernetesApi)),
        ApiAnswer::Refused => Some(Start::Wait(WaitFor::KubernetesApiAccess)),
        ApiAnswer::Nothing | ApiAnswer::Known(_) => Some(Start::Recover {
            epoch: *epoch,
            token: token.clone(),
            initial_cluster: initial_cluster.clone(),
            raise_to: *raise_to,
        }),
    }
}

fn is_for(ticket: &ApiAnswer<Ticket>, identity: &Identity) -> bool {
    matches!(ticket.known(), Some(Ticket::Join { member_id, .. }) if *member_id == identity.member_id)
}

/// The record is outside of the volume, so it does not travel back in time with it.
fn compare(identity: &Identity, mark: &Identity) -> Start {
    if mark.epoch < identity.epoch {
        return Start::Resume;
    }
    if identity.cluster_id != mark.cluster_id || identity.member_id != mark.member_id {
        return Start::Refuse(Refusal::IdentityChanged);
    }
    if identity.epoch < mark.epoch || identity.boot_count < mark.boot_count || identity.last_index < mark.last_index {
        return Start::Refuse(Refusal::RolledBack);
    }
    Start::Resume
}

/// What a ticket is worth. If a member's record is lost, and its Lease tells that it has started all the same, it may not
/// start empty again.
pub fn in_force(ticket: Ticket, recorded: Option<&Identity>, heartbeat: &Heartbeat) -> Ticket {
    match ticket {
        Ticket::Bootstrap { epoch, .. } if recorded.is_none() && heartbeat.has_started() => Ticket::Resume { epoch },
        // The Lease of whoever was here before says nothing about the one that joins.
        Ticket::Join { epoch, member_id, .. }
            if recorded.is_none() && heartbeat.has_started() && heartbeat.member_id.as_ref() == Some(&member_id) =>
        {
            Ticket::Resume { epoch }
        }
        ticket => ticket,
    }
}

fn without_data(prepared: Option<&Identity>, ticket: &ApiAnswer<Ticket>, recorded: &ApiAnswer<Identity>) -> Start {
    // That it begins was put on record, and then it did not: the volume still says so, which a wiped one does not.
    let never_began = |mark: &Identity| prepared.is_some_and(|own| own.is_of(mark)) && mark.last_index == 0;
    match ticket {
        ApiAnswer::Unreachable => Start::Wait(WaitFor::KubernetesApi),
        ApiAnswer::Refused => Start::Wait(WaitFor::KubernetesApiAccess),
        ApiAnswer::Nothing | ApiAnswer::Known(Ticket::Hold { .. }) => Start::Wait(WaitFor::Ticket),
        // What was to be recovered is gone too.
        ApiAnswer::Known(Ticket::Resume { .. } | Ticket::Fence { .. } | Ticket::Recover { .. }) => {
            Start::Wait(WaitFor::Replacement)
        }
        ApiAnswer::Known(Ticket::Join { epoch, cluster_id, member_id, initial_cluster }) => {
            let began = |mark: &Identity| mark.member_id == *member_id && !never_began(mark);
            match recorded {
                ApiAnswer::Unreachable => Start::Wait(WaitFor::KubernetesApi),
                ApiAnswer::Refused => Start::Wait(WaitFor::KubernetesApiAccess),
                // What it was sent is gone. Nobody knows whether it has a vote by now.
                ApiAnswer::Known(mark) if began(mark) => Start::Wait(WaitFor::Replacement),
                ApiAnswer::Nothing | ApiAnswer::Known(_) => Start::Join {
                    epoch: *epoch,
                    cluster_id: cluster_id.clone(),
                    member_id: member_id.clone(),
                    initial_cluster: initial_cluster.clone(),
                },
            }
        }
        ApiAnswer::Known(Ticket::Restore { epoch, token, initial_cluster, source, revision, digest }) => {
            Start::Restore {
                epoch: *epoch,
                token: token.clone(),
                initial_cluster: initial_cluster.clone(),
                source: source.clone(),
                revision: *revision,
                digest: digest.clone(),
            }
        }
        ApiAnswer::Known(Ticket::Bootstrap { epoch, token, initial_cluster }) => match recorded {
            ApiAnswer::Unreachable => Start::Wait(WaitFor::KubernetesApi),
            ApiAnswer::Refused => Start::Wait(WaitFor::KubernetesApiAccess),
            // One start per ticket: it has voted in this epoch already, and has forgotten what.
            ApiAnswer::Known(mark) if mark.epoch >= *epoch && !never_began(mark) => Start::Wait(WaitFor::Replacement),
            ApiAnswer::Nothing | ApiAnswer::Known(_) => {
                Start::New { epoch: *epoch, token: token.clone(), initial_cluster: initial_cluster.clone() }
            }
        },
    }
}
