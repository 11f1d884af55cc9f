//! Everything that belongs to the cluster exists and is as it should be; what does not belong to it goes.

use std::ops::ControlFlow;

use jiff::{SignedDuration, Timestamp};
use quorate_api::member::Ticket;
use quorate_api::names;

use super::{Plan, ownership};
use crate::action::{Action, Effect, Guard};
use crate::build;
use crate::context::Context;
use crate::drift;
use crate::object::{Kind, Object, ObjectKey};
use crate::reason::Reason;

/// How much longer than it should take the end of a pod is waited for.
const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(10);

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    for wanted in build::objects(context) {
        let reason = match context.view.objects.get(&wanted.key()) {
            None if is_unreadable(context, &wanted) => continue,
            None if wanted.kind() == Kind::StatefulSet && waits_for_old_pods(context) => {
                plan.note(Reason::WaitingForOldPods, Reason::WaitingForOldPods.sentence());
                continue;
            }
            None => Reason::ObjectMissing,
            // It comes back on its own once the old one is gone.
            Some(actual) if actual.is_terminating() => continue,
            Some(actual) if drift::is_current(&wanted, actual) => continue,
            Some(actual) => changed_reason(&wanted, actual),
        };
        let guard = guard(context, &wanted);
        plan.actions.push(Action::new(reason, Effect::Apply { object: Box::new(wanted), guard }));
    }
    plan.actions.extend(superfluous(context));
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

/// When the rule changes its mind by the clock alone.
pub(crate) fn next_change(context: &Context<'_>) -> Option<SignedDuration> {
    let set = ObjectKey::new(Kind::StatefulSet, names::stateful_set(context.name));
    if context.view.objects.contains_key(&set) {
        return None;
    }
    old_pods(context).flatten().map(|due| due.duration_since(context.now)).filter(SignedDuration::is_positive).min()
}

/// It is there, and what it says is not known: it is left alone.
fn is_unreadable(context: &Context<'_>, wanted: &Object) -> bool {
    wanted.kind() == Kind::EtcdMember && context.view.unreadable_members.contains_key(wanted.name())
}

/// A ticket to start empty is worth nothing if the latch has moved since it was viewed.
fn guard(context: &Context<'_>, wanted: &Object) -> Guard {
    match wanted {
        Object::EtcdMember(member) => match &member.spec.ticket {
            Ticket::Bootstrap { epoch, .. } => {
                Guard::BootstrapOpen { cluster_uid: context.uid.to_owned(), epoch: *epoch }
            }
            _ => Guard::None,
        },
        _ => Guard::None,
    }
}

fn changed_reason(wanted: &Object, actual: &Object) -> Reason {
    match (wanted, actual) {
        (Object::EtcdMember(wanted), Object::EtcdMember(actual)) if wanted.spec.ticket != actual.spec.ticket => {
            match wanted.spec.ticket {
                Ticket::Bootstrap { .. } => Reason::BootstrapAllowed,
                Ticket::Resume { .. } => Reason::ResumeAllowed,
                _ => Reason::ObjectChanged,
            }
        }
        _ => Reason::ObjectChanged,
    }
}

/// Members and Leases with a number that the cluster does not have.
fn superfluous<'a>(context: &'a Context<'_>) -> impl Iterator<Item = Action> + use<'a> {
    let beyond = |name: &str| names::ordinal_of(context.name, name).is_some_and(|n| n >= context.desired.members.get());
    // A hibernated cluster keeps its members: they come back.
    let wanted = !context.desired.members.is_zero();
    context
        .view
        .objects
        .values()
        .filter(move |object| {
            wanted && matches!(object.kind(), Kind::EtcdMember | Kind::Lease) && beyond(object.name())
        })
        .filter(|object| ownership::is_ours(context, object) && !object.is_terminating())
        .map(|object| {
            let guard = Guard::Uid(object.metadata().uid.clone().unwrap_or_default());
            Action::new(Reason::ObjectSuperfluous, Effect::Delete { key: object.key(), guard })
        })
}
