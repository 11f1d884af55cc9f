//! What a pass decides.

use jiff::SignedDuration;
use quorate_api::status::EtcdClusterStatus;
use serde::Serialize;

use crate::build::certificates::CertificateRequest;
use crate::guard::Guard;
use crate::object::{Object, ObjectKey};
use crate::read::{Endpoints, Read};
use crate::reason::Reason;

/// The outcome of a pass.
///
/// The status is written before the actions are taken, as a whole and only if it differs, with the resource version of
/// the viewed EtcdCluster as precondition: a pass over an old view changes nothing. Actions are taken in order, and the
/// rest is dropped at the first that fails.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// What must be read first. While there is anything, nothing else of the decision counts: put the answers into the
    /// view and ask again.
    pub reads: Vec<Read>,
    pub actions: Vec<Action>,
    pub status: EtcdClusterStatus,
    /// Whether it differs from the one that is there, as it is written.
    pub status_changed: bool,
    /// What changed, to be told once the status is written.
    pub events: Vec<Event>,
    /// When to look again even if nothing is reported.
    pub requeue: SignedDuration,
    /// The same, if the members that are ready go on renewing their Leases.
    pub rest: SignedDuration,
}

impl Decision {
    /// Nothing is to be done, and the status stays as it is.
    pub fn is_settled(&self) -> bool {
        self.actions.is_empty() && !self.status_changed
    }
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    pub reason: Reason,
    pub message: String,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Action {
    pub reason: Reason,
    pub effect: Effect,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Effect {
    /// Server-side apply.
    Apply {
        object: Box<Object>,
        how: ApplyMode,
        guard: Guard,
    },
    /// Delete an owned object.
    Delete {
        key: ObjectKey,
        guard: Guard,
    },
    /// Delete a member's pod, which its StatefulSet makes again.
    RestartPod {
        name: String,
        guard: Guard,
    },
    /// Remove the pod of a node that is gone, without waiting for its kubelet.
    RemovePod {
        name: String,
        guard: Guard,
    },
    /// Lead clients to a member, or away from it.
    SetServing {
        pod: String,
        /// The pod is still the one that was seen.
        uid: String,
        serving: bool,
    },
    /// Delete a member's volume, with its data.
    DeleteClaim {
        name: String,
        guard: Guard,
    },
    /// Change who the members of etcd are, or who of them leads.
    ChangeMembers {
        change: MemberChange,
        /// Whoever of them answers first takes it. A leader gives its place up itself, so it is the only one then.
        via: Endpoints,
        guard: Guard,
    },
    /// Make a key and a certificate, and keep both in a Secret.
    IssueCertificate(CertificateRequest),
    /// Keep the EtcdCluster until its volumes are gone.
    AddFinalizer,
    RemoveFinalizer,
}

/// What etcd is asked to change. Members are named as their pods, identifiers are etcd's, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum MemberChange {
    /// Add a member that listens and has no vote.
    AddLearner {
        member: String,
        peer_url: String,
    },
    /// Give a learner that has caught up a vote. etcd refuses as long as it has not.
    Promote {
        member: String,
        id: String,
    },
    Remove {
        member: String,
        id: String,
    },
    /// End the alarm that says of a member which is gone that its data is corrupt.
    DisarmCorrupt {
        id: String,
    },
    /// Let another member lead, without anybody having to notice a silence.
    MoveLeader {
        from: String,
        to: String,
        to_id: String,
    },
}

impl MemberChange {
    /// Who is changed.
    pub fn member(&self) -> &str {
        match self {
            Self::AddLearner { member, .. } | Self::Promote { member, .. } | Self::Remove { member, .. } => member,
            Self::MoveLeader { from, .. } => from,
            Self::DisarmCorrupt { id } => id,
        }
    }
}

/// What applying an object does to what others have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ApplyMode {
    /// There was nothing. If somebody else makes one of this name meanwhile, theirs stays as it is.
    Create,
    /// Our fields win.
    Update,
    /// Our fields win, and what others have added to lists goes.
    PutRight,
}

impl Action {
    pub(crate) fn new(reason: Reason, effect: Effect) -> Self {
        Self { reason, effect }
    }

    /// What it is done to, for events and logs.
    pub fn target(&self) -> String {
        match &self.effect {
            Effect::Apply { object, .. } => object.key().to_string(),
            Effect::Delete { key, .. } => key.to_string(),
            Effect::RestartPod { name, .. } | Effect::RemovePod { name, .. } | Effect::SetServing { pod: name, .. } => {
                format!("Pod {name}")
            }
            Effect::DeleteClaim { name, .. } => format!("PersistentVolumeClaim {name}"),
            Effect::ChangeMembers { change, .. } => format!("etcd member {}", change.member()),
            Effect::IssueCertificate(request) => format!("Secret {}", request.secret),
            Effect::AddFinalizer | Effect::RemoveFinalizer => "EtcdCluster".to_owned(),
        }
    }
}
