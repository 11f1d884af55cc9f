//! The end of a cluster. By default the volumes stay and Kubernetes collects the rest by its owner references.
//!
//! With `retention.onDelete: Delete` a finalizer holds the EtcdCluster until pods and then volumes are gone.

use std::ops::ControlFlow;

use quorate_api::names::{self, VOLUMES_FINALIZER};
use quorate_api::storage::RetentionPolicy;

use super::Plan;
use crate::action::{Action, Effect};
use crate::context::Context;
use crate::guard::Guard;
use crate::object::{Kind, Object, ObjectKey};
use crate::reason::Reason;
use crate::view::View;

pub(crate) fn is_deleting(view: &View) -> bool {
    view.cluster.metadata.deletion_timestamp.is_some()
}

fn has_finalizer(view: &View) -> bool {
    view.cluster.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == VOLUMES_FINALIZER)
}

/// While the cluster lives: the finalizer is there exactly if the volumes go with it.
pub(super) fn keep_volumes_in_reach(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    match (context.desired.volumes_go_with_cluster(), has_finalizer(context.view)) {
        (true, false) => plan.actions.push(Action::new(Reason::VolumesGoWithCluster, Effect::AddFinalizer)),
        (false, true) => plan.actions.push(Action::new(Reason::VolumesStay, Effect::RemoveFinalizer)),
        _ => {}
    }
    ControlFlow::Continue(())
}

/// What is left to do for a cluster that is being deleted. Needs no valid spec.
pub(crate) fn actions(view: &View) -> Vec<Action> {
    if !has_finalizer(view) {
        return Vec::new();
    }
    if view.cluster.spec.storage.retention.on_delete == RetentionPolicy::Retain {
        return vec![Action::new(Reason::VolumesStay, Effect::RemoveFinalizer)];
    }
    let (name, cluster_uid) = (view.identity.name(), view.identity.uid());
    let deleting = |object_uid: &str| Guard::ClusterDeleting {
        cluster_uid: cluster_uid.to_owned(),
        object_uid: object_uid.to_owned(),
    };
    let reason = Reason::VolumesGoWithCluster;
    let set = view.object(Kind::StatefulSet, &names::stateful_set(name));
    let is_ours = |set: &&Object| set.owner_uid() == Some(cluster_uid);
    let orphaned = set.is_some_and(|set| !is_ours(&set)) || view.pods.values().any(|pod| !pod.controlled);
    if orphaned {
        // Pods that a hand has taken from us go on, and need their volumes.
        return vec![Action::new(Reason::VolumesStay, Effect::RemoveFinalizer)];
    }
    if let Some(set) = set {
        let uid = set.metadata().uid.as_deref().unwrap_or_default();
        let key = ObjectKey::new(Kind::StatefulSet, set.name());
        let delete = Action::new(reason, Effect::Delete { key, guard: deleting(uid) });
        return if set.is_terminating() { Vec::new() } else { vec![delete] };
    }
    if !view.pods.is_empty() {
        return Vec::new();
    }
    if view.member_claims().next().is_none() {
        return vec![Action::new(reason, Effect::RemoveFinalizer)];
    }
    let remaining = view.member_claims().filter(|(.., claim)| !claim.terminating);
    remaining
        .map(|(_, name, claim)| {
            Action::new(reason, Effect::DeleteClaim { name: name.to_owned(), guard: deleting(&claim.uid) })
        })
        .collect()
}
