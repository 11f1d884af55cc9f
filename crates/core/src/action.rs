//! What a pass decides.

use jiff::SignedDuration;
use quorate_api::status::EtcdClusterStatus;
use serde::Serialize;

use crate::build::certificates::CertificateRequest;
use crate::object::{Object, ObjectKey};
use crate::reason::Reason;

/// The outcome of a pass.
///
/// The status is written before the actions are taken, as a whole and only if it differs, with the resource version of
/// the viewed EtcdCluster as precondition: a pass over an old view changes nothing. Actions are taken in order, and the
/// rest is dropped at the first that fails.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    pub actions: Vec<Action>,
    pub status: EtcdClusterStatus,
    /// What changed, to be told once the status is written.
    pub events: Vec<Event>,
    /// When to look again even if nothing is reported.
    pub requeue: SignedDuration,
    /// The same, if the members that are ready go on renewing their Leases.
    pub rest: SignedDuration,
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
    /// Make a key and a certificate, and keep both in a Secret.
    IssueCertificate(CertificateRequest),
    /// Keep the EtcdCluster until its volumes are gone.
    AddFinalizer,
    RemoveFinalizer,
}

/// What must still be true when an action is taken, checked by a live read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Guard {
    /// Applying is safe at any time: it only says again what the spec says.
    None,
    /// The object is still the one that was seen.
    Uid(String),
    /// The pod is still the one that was seen, and is still not ready.
    PodStillUnready(String),
    /// The EtcdCluster is still the one that was seen, and its latch still says that members of this epoch may start
    /// empty.
    BootstrapOpen { cluster_uid: String, epoch: i64 },
    /// The EtcdCluster is still the one that was seen, and is still being deleted.
    ClusterDeleting { cluster_uid: String, object_uid: String },
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
            Effect::RestartPod { name, .. } | Effect::SetServing { pod: name, .. } => format!("Pod {name}"),
            Effect::DeleteClaim { name, .. } => format!("PersistentVolumeClaim {name}"),
            Effect::IssueCertificate(request) => format!("Secret {}", request.secret),
            Effect::AddFinalizer | Effect::RemoveFinalizer => "EtcdCluster".to_owned(),
        }
    }
}
