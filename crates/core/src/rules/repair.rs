//! Everything that belongs to the cluster exists and is as it should be; what does not belong to it goes.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quorate_api::member::Ticket;
use quorate_api::names;

use super::{Plan, ownership, size};
use crate::action::{Action, ApplyMode, Effect};
use crate::build;
use crate::context::Context;
use crate::drift;
use crate::guard::Guard;
use crate::object::{Kind, Object};
use crate::read::Read;
use crate::reason::Reason;
use crate::view::ClaimFact;

/// How much longer than it should take the end of a pod is waited for.
const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(10);

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    for wanted in build::objects(context, plan) {
        let (reason, how) = match context.view.objects.get(&wanted.key()) {
            None if is_unreadable(context, &wanted) => continue,
            None if wanted.kind() == Kind::StatefulSet && waits_for_old_pods(context) => {
                plan.note(Reason::WaitingForOldPods, Reason::WaitingForOldPods.sentence());
                old_pods(context).flatten().for_each(|due| plan.wake_after(due.duration_since(context.now)));
                continue;
            }
            None => (Reason::ObjectMissing, ApplyMode::Create),
            // It comes back on its own once the old one is gone.
            Some(actual) if actual.is_terminating() => continue,
            Some(actual) if drift::is_current(&wanted, actual) => continue,
            Some(actual) => changed(&wanted, actual),
        };
        if wanted.kind() == Kind::StatefulSet && how != ApplyMode::Create {
            // How many pods there are is what counts, and not how many there were when the caches last heard of them.
            plan.reads.insert(Read::Object(wanted.key()));
        }
        let guard = guard(context, plan, &wanted, context.view.objects.get(&wanted.key()));
        plan.actions.push(Action::new(reason, Effect::Apply { object: Box::new(wanted), how, guard }));
    }
    remove_superfluous(context, plan);
    ControlFlow::Continue(())
}

/// Pods of a StatefulSet that was deleted go with it. A new one that still finds them fails to make its own, and waits
/// longer each time before it tries again. One that does not go, on a dead node, is not waited for.
fn waits_for_old_pods(context: &Context<'_>) -> bool {
    old_pods(context).any(|due| due.is_none_or(|due| context.now < due))
}

/// Until when each is waited for. One that was orphaned by hand stays, and is taken over.
fn old_pods<'a>(context: &Context<'a>) -> impl Iterator<Item = Option<Timestamp>> + use<'a> {
    let controlled = context.view.pods.values().filter(|pod| pod.controlled);
    controlled.map(|pod| pod.terminating.and_then(|due| due.checked_add(STUCK_AFTER).ok()))
}

/// It is there, and what it says is not known: it is left alone.
fn is_unreadable(context: &Context<'_>, wanted: &Object) -> bool {
    wanted.kind() == Kind::EtcdMember && context.view.unreadable_members.contains_key(wanted.name())
}

/// A ticket to start empty is worth nothing if the latch has moved since it was viewed, and neither is a fence, or a list of
/// members on which pods are removed.
fn guard(context: &Context<'_>, plan: &Plan, wanted: &Object, actual: Option<&Object>) -> Guard {
    match (wanted, actual) {
        // The ticket is there already, and may have been used: only what is around it is put right.
        (Object::EtcdMember(wanted), Some(Object::EtcdMember(actual)))
            if wanted.spec.ticket == actual.spec.ticket && wanted.spec.ticket.epoch().is_some() =>
        {
            let epoch = wanted.spec.ticket.epoch().unwrap_or_default();
            Guard::EpochStands { cluster_uid: context.uid.to_owned(), epoch }
        }
        (Object::EtcdMember(member), _) => match &member.spec.ticket {
            Ticket::Bootstrap { epoch, .. } => {
                Guard::BootstrapOpen { cluster_uid: context.uid.to_owned(), epoch: *epoch }
            }
            Ticket::Fence { epoch, member_id, .. } if context.is_formed() => {
                let (cluster_uid, member_id) = (context.uid.to_owned(), member_id.clone());
                Guard::FenceStands { cluster_uid, epoch: *epoch, member_id }
            }
            Ticket::Join { epoch, member_id, .. } => {
                let (cluster_uid, member_id) = (context.uid.to_owned(), member_id.clone());
                Guard::JoinOpen { cluster_uid, epoch: *epoch, member_id }
            }
            Ticket::Recover { epoch, .. } => Guard::RecoveryOpen {
                cluster_uid: context.uid.to_owned(),
                epoch: *epoch,
                survivor: wanted.name().to_owned(),
            },
            // One of an earlier epoch would let an etcd go on that must not.
            Ticket::Resume { epoch } => Guard::EpochStands { cluster_uid: context.uid.to_owned(), epoch: *epoch },
            _ => Guard::None,
        },
        (Object::StatefulSet(wanted), Some(Object::StatefulSet(actual))) if pods(wanted) < pods(actual) => {
            same_incarnation(context, plan, None)
        }
        _ => Guard::None,
    }
}

fn pods(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default()
}

/// Of which cluster and epoch it is decided: the latch is written before anything is done.
fn same_incarnation(context: &Context<'_>, plan: &Plan, object_uid: Option<String>) -> Guard {
    Guard::SameIncarnation {
        cluster_uid: context.uid.to_owned(),
        generation: context.view.cluster.metadata.generation,
        epoch: plan.latch.as_ref().or(context.latch()).map(|latch| latch.epoch),
        object_uid,
    }
}

fn changed(wanted: &Object, actual: &Object) -> (Reason, ApplyMode) {
    match (wanted, actual) {
        (Object::EtcdMember(wanted), Object::EtcdMember(actual)) if wanted.spec.ticket != actual.spec.ticket => {
            match wanted.spec.ticket {
                Ticket::Bootstrap { .. } => (Reason::BootstrapAllowed, ApplyMode::Update),
                Ticket::Resume { .. } => (Reason::ResumeAllowed, ApplyMode::Update),
                Ticket::Fence { .. } => (Reason::FenceOrdered, ApplyMode::Update),
                Ticket::Join { .. } => (Reason::JoinAllowed, ApplyMode::Update),
                Ticket::Recover { .. } => (Reason::SurvivorAllowed, ApplyMode::Update),
                _ => (Reason::ObjectChanged, ApplyMode::PutRight),
            }
        }
        (Object::PodDisruptionBudget(wanted), Object::PodDisruptionBudget(actual)) => {
            let reason = match least(wanted).cmp(&least(actual)) {
                Ordering::Greater => Reason::EvictionsStopped,
                Ordering::Less => Reason::EvictionsAllowed,
                Ordering::Equal => Reason::ObjectChanged,
            };
            (reason, ApplyMode::PutRight)
        }
        _ => (Reason::ObjectChanged, ApplyMode::PutRight),
    }
}

fn least(budget: &PodDisruptionBudget) -> i32 {
    match budget.spec.as_ref().and_then(|spec| spec.min_available.as_ref()) {
        Some(IntOrString::Int(least)) => *least,
        _ => -1,
    }
}

/// Members and Leases with a number that no pod has. That they are no members is confirmed first.
fn remove_superfluous(context: &Context<'_>, plan: &mut Plan) {
    // A hibernated cluster keeps its members: they come back.
    if context.desired.members.is_zero() {
        return;
    }
    let pods = plan.pods.max(context.membership.pods());
    let beyond = |name: &str| names::ordinal_of(context.name, name).is_some_and(|ordinal| ordinal >= pods);
    let is_record = |object: &&Object| matches!(object.kind(), Kind::EtcdMember | Kind::Lease) && beyond(object.name());
    let superfluous = context.view.objects.values().filter(is_record);
    let superfluous = superfluous.filter(|object| ownership::is_ours(context, object) && !object.is_terminating());
    let superfluous = superfluous.collect::<Vec<_>>();
    if superfluous.is_empty() || !size::may_remove(context, plan) {
        return;
    }
    let volumes = superfluous.iter().filter_map(|record| volume_of(context, record)).collect::<BTreeMap<_, _>>();
    if context.keeps_volumes() && !volumes.is_empty() {
        let names = volumes.keys().copied().collect::<Vec<_>>().join(", ");
        plan.note(Reason::VolumesKept, format!("{names}: {}", Reason::VolumesKept.sentence()));
    }
    for (name, claim) in volumes.iter().filter(|_| !context.keeps_volumes()) {
        if !claim.terminating && !context.view.pods.contains_key(*name) {
            let guard = same_incarnation(context, plan, Some(claim.uid.clone()));
            let effect = Effect::DeleteClaim { name: names::data_claim(name), guard };
            plan.actions.push(Action::new(Reason::VolumeNotNeeded, effect));
        }
    }
    // The record goes last: it is what tells the volume of a member that was removed from one that was kept before.
    let superfluous = superfluous.into_iter().filter(|record| !volumes.contains_key(record.name()));
    for object in superfluous {
        let guard = same_incarnation(context, plan, Some(object.metadata().uid.clone().unwrap_or_default()));
        plan.actions.push(Action::new(Reason::ObjectSuperfluous, Effect::Delete { key: object.key(), guard }));
    }
}

/// The volume of a member that was removed, if it goes too.
fn volume_of<'c>(context: &'c Context<'_>, record: &'c Object) -> Option<(&'c str, &'c ClaimFact)> {
    let goes = context.is_formed() && context.desired.volumes_go_with_members();
    let claim = context.view.claims.get(&names::data_claim(record.name())).filter(|_| goes)?;
    Some((record.name(), claim))
}
