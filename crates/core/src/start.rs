//! May etcd start on this volume, and how? The agent's question, answered by a table.
//!
//! No member decides alone that it is new: an empty volume starts only on a ticket. A member's own verified data starts
//! without one, even while the Kubernetes API is out of reach, because this etcd may be the one behind that very API.

use quorate_api::member::{DataState, Peer, Ticket};
use serde::Serialize;

/// What is on the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub state: DataState,
    /// Present with [`DataState::Valid`].
    pub identity: Option<Identity>,
}

/// Whose data it is, and how far it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster_id: String,
    pub member_id: String,
    pub epoch: i64,
    /// How often etcd has been started on it.
    pub boot_count: i64,
    /// Last index in its log.
    pub last_index: i64,
}

/// What the agent could read from Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word<T> {
    /// The API did not answer.
    Unreachable,
    /// It answered that there is nothing.
    Nothing,
    Known(T),
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Start {
    /// Start from the data that is there.
    Resume,
    /// Start empty, as part of a new cluster (`--initial-cluster-state=new`).
    New { epoch: i64, token: String, initial_cluster: Vec<Peer> },
    /// Start empty, as a member that the cluster has already added (`--initial-cluster-state=existing`).
    Join { epoch: i64, initial_cluster: Vec<Peer> },
    /// Write the named point of a backup first, then start as a new incarnation.
    Restore { epoch: i64, token: String, initial_cluster: Vec<Peer>, source: String, revision: i64, digest: String },
    /// Do not start; look again when something changes.
    Wait(WaitFor),
    /// Move what is there aside, never delete it, and look again.
    Quarantine(Unusable),
    /// Do not start, and touch nothing: a human must look.
    Refuse(Refusal),
}

/// What a member without data waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WaitFor {
    /// No ticket yet.
    Ticket,
    /// The API, without which an empty member cannot know whether it is new.
    KubernetesApi,
    /// It has run before and its data is gone: it must be replaced.
    Replacement,
}

/// Why data cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unusable {
    Damaged,
    /// It belongs to an earlier incarnation of the cluster.
    EarlierEpoch,
}

/// Why a member must not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Refusal {
    /// Data of another member or cluster.
    ForeignData,
    /// Another cluster or member than is on record.
    IdentityChanged,
    /// Older than what is on record: the volume was rolled back, and its member has forgotten what it promised.
    RolledBack,
    /// Newer than the ticket: the ticket is from before.
    LaterEpoch,
}

/// The table.
pub fn start(found: &Found, ticket: &Word<Ticket>, recorded: &Word<Identity>) -> Start {
    match (found.state, &found.identity) {
        // An inspection finds no fences; only what is recorded outside of the volume can tell.
        (DataState::Foreign | DataState::Fenced, _) => Start::Refuse(Refusal::ForeignData),
        (DataState::Damaged, _) | (DataState::Valid, None) => make_room(Unusable::Damaged, ticket),
        (DataState::Valid, Some(identity)) => with_data(identity, ticket, recorded),
        (DataState::Empty, _) => without_data(ticket, recorded),
    }
}

/// Unusable data stays where it is, and keeps being reported, until a ticket needs the room: moved aside any earlier,
/// the member would look new.
fn make_room(why: Unusable, ticket: &Word<Ticket>) -> Start {
    match ticket {
        Word::Known(Ticket::Join { .. } | Ticket::Restore { .. }) => Start::Quarantine(why),
        Word::Unreachable => Start::Wait(WaitFor::KubernetesApi),
        Word::Nothing | Word::Known(_) => Start::Wait(WaitFor::Replacement),
    }
}

fn with_data(identity: &Identity, ticket: &Word<Ticket>, recorded: &Word<Identity>) -> Start {
    let wanted_epoch = match ticket {
        Word::Known(ticket) => ticket.epoch(),
        Word::Unreachable | Word::Nothing => None,
    };
    match wanted_epoch {
        Some(epoch) if identity.epoch < epoch => make_room(Unusable::EarlierEpoch, ticket),
        Some(epoch) if identity.epoch > epoch => Start::Refuse(Refusal::LaterEpoch),
        _ => match recorded {
            Word::Known(mark) => compare(identity, mark),
            Word::Unreachable | Word::Nothing => Start::Resume,
        },
    }
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

fn without_data(ticket: &Word<Ticket>, recorded: &Word<Identity>) -> Start {
    match ticket {
        Word::Unreachable => Start::Wait(WaitFor::KubernetesApi),
        Word::Nothing | Word::Known(Ticket::Hold { .. }) => Start::Wait(WaitFor::Ticket),
        Word::Known(Ticket::Resume { .. }) => Start::Wait(WaitFor::Replacement),
        Word::Known(Ticket::Join { epoch, initial_cluster }) => {
            Start::Join { epoch: *epoch, initial_cluster: initial_cluster.clone() }
        }
        Word::Known(Ticket::Restore { epoch, token, initial_cluster, source, revision, digest }) => Start::Restore {
            epoch: *epoch,
            token: token.clone(),
            initial_cluster: initial_cluster.clone(),
            source: source.clone(),
            revision: *revision,
            digest: digest.clone(),
        },
        Word::Known(Ticket::Bootstrap { epoch, token, initial_cluster }) => match recorded {
            Word::Unreachable => Start::Wait(WaitFor::KubernetesApi),
            // One start per ticket: it has voted in this epoch already, and has forgotten what.
            Word::Known(mark) if mark.epoch >= *epoch => Start::Wait(WaitFor::Replacement),
            Word::Nothing | Word::Known(_) => {
                Start::New { epoch: *epoch, token: token.clone(), initial_cluster: initial_cluster.clone() }
            }
        },
    }
}
