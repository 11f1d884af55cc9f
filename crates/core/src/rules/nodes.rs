//! Nodes that are gone for good, and what they take with them.
//!
//! Nodes and volumes are not watched: they are asked for, one by one, and only while a member is missed or finds no place. A
//! pod on a node that is gone is removed if Kubernetes does not do it. A volume that can be used there alone is given up if
//! somebody has said after how long: its member goes first, by the rule that replaces members, then its claim, and then the
//! pod that found no place with it.

use std::ops::ControlFlow;

use jiff::SignedDuration;
use quorate_api::names;

use super::{Plan, size};
use crate::action::{Action, Effect};
use crate::context::{Context, Member};
use crate::guard::Guard;
use crate::loss::{self, Loss};
use crate::node::NodeFact;
use crate::read::Read;
use crate::reason::Reason;
use crate::view::PodFact;

/// What restarts is back by then, and nobody has to ask for its node.
const UNTIL_MISSED: SignedDuration = SignedDuration::from_secs(15);
/// A pod and its claim are made together, and heard of one after the other.
const UNTIL_CLAIM_IS_HEARD_OF: SignedDuration = SignedDuration::from_secs(20);
/// Nobody tells when a node that is missed is deleted or comes back.
const UNTIL_ASKED_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// Asks about the nodes of members that are missed, and says what is known of them.
pub(super) fn ask(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if !context.is_formed() || context.desired.members.is_zero() {
        return ControlFlow::Continue(());
    }
    let reads = questions(context);
    if !reads.is_empty() {
        plan.wake_after(UNTIL_ASKED_AGAIN);
    }
    for member in context.members.iter().filter(|member| is_silent(context, member)) {
        plan.wake_after(UNTIL_MISSED - silent_for(context, member));
    }
    if context.view.nodes_refused {
        note_refusal(context, plan);
    } else {
        plan.reads.extend(reads);
    }
    note_losses(context, plan);
    note_waiting(context, plan);
    ControlFlow::Continue(())
}

/// Removes what is left on nodes that are gone.
pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    for loss in &context.losses {
        if let Some(pod) = pod(context, loss).filter(|pod| pod.node.is_some()) {
            remove_pod(context, loss, pod, plan);
        }
        if let Some(left) = loss.until_given_up(context.desired, context.now) {
            plan.wake_after(left);
        }
    }
    let mut abandoned = context.losses.iter().filter(|loss| is_abandoned(context, loss));
    if let Some(loss) = abandoned.next() {
        delete_claim(context, loss, plan);
    }
    if !context.desired.is_ephemeral() {
        renew_pods_without_claim(context, plan);
    }
    ControlFlow::Continue(())
}

fn questions(context: &Context<'_>) -> Vec<Read> {
    let places = loss::places(context.name, context.desired, &context.membership);
    places.into_iter().flat_map(|place| questions_about(context, &place)).collect()
}

fn questions_about(context: &Context<'_>, place: &str) -> Vec<Read> {
    let pod = context.view.pods.get(place);
    let mut reads = Vec::new();
    let node = pod.and_then(|pod| pod.node.as_ref());
    if let Some(node) = node.filter(|_| is_missed(context, place)) {
        reads.push(Read::Node(node.clone()));
    }
    let is_adrift = match (pod, node) {
        (Some(_), Some(node)) => context.view.nodes.get(node) == Some(&NodeFact::Gone),
        (Some(_), None) => true,
        // Its StatefulSet is about to make one.
        (None, _) => loss::known(context.view, place).is_some(),
    };
    let claim = names::data_claim(place);
    let has_volume = context.view.claims.get(&claim).is_some_and(|claim| !claim.terminating);
    if is_adrift && has_volume && !context.desired.is_ephemeral() {
        reads.push(Read::Reach(claim));
    }
    reads
}

/// Whoever renews its Lease is not missed, whatever else is wrong with it.
fn is_missed(context: &Context<'_>, place: &str) -> bool {
    match context.members.iter().find(|member| member.name == place) {
        Some(member) => is_silent(context, member) && silent_for(context, member) >= UNTIL_MISSED,
        None => context.view.pods.get(place).is_some_and(|pod| pod.terminating.is_some()),
    }
}

fn is_silent(context: &Context<'_>, member: &Member<'_>) -> bool {
    !member.is_ready() && !member.heartbeat.is_alive(context.now)
}

fn silent_for(context: &Context<'_>, member: &Member<'_>) -> SignedDuration {
    context.now.duration_since(member.status.last_transition_time.0)
}

fn pod<'c>(context: &'c Context<'_>, loss: &Loss) -> Option<&'c PodFact> {
    context.view.pods.get(&loss.member)
}

/// Nothing can run on a node that is gone, so nobody is asked whether the pod has ended.
fn remove_pod(context: &Context<'_>, loss: &Loss, pod: &PodFact, plan: &mut Plan) {
    let left = loss.until_pod_goes(context.desired, context.now);
    plan.wake_after(left);
    let Some(node) = pod.node.clone().filter(|_| left.is_zero() && is_missed(context, &loss.member)) else { return };
    plan.reads.insert(Read::Member(loss.member.clone()));
    let guard = Guard::NodeGone { pod_uid: pod.uid.clone(), node };
    let effect = Effect::RemovePod { name: loss.member.clone(), guard };
    plan.actions.push(Action::new(Reason::PodOnLostNode, effect));
}

/// A volume that no member needs, and that nobody waits for any more.
fn is_abandoned(context: &Context<'_>, loss: &Loss) -> bool {
    let is_due = loss.until_given_up(context.desired, context.now).is_some_and(|left| left.is_zero());
    let is_member = context.members.iter().any(|member| member.name == loss.member);
    let is_free = pod(context, loss).is_none_or(|pod| pod.node.is_none());
    is_due && !is_member && is_free && !context.keeps_volumes()
}

/// That its member is none any more was said by a quorum.
fn delete_claim(context: &Context<'_>, loss: &Loss, plan: &mut Plan) {
    let name = names::data_claim(&loss.member);
    let Some(claim) = context.view.claims.get(&name).filter(|claim| !claim.terminating) else { return };
    if !size::is_confirmed(context, plan) {
        return;
    }
    let guard = Guard::VolumeOutOfReach {
        cluster_uid: context.uid.to_owned(),
        generation: context.view.cluster.metadata.generation,
        epoch: context.latch().map(|latch| latch.epoch),
        claim_uid: claim.uid.clone(),
    };
    plan.actions.push(Action::new(Reason::VolumeGivenUp, Effect::DeleteClaim { name, guard }));
}

/// Its StatefulSet makes a claim with a pod, and looks for it again only when something happens to the pod. Nothing runs in a
/// pod that has no node.
fn renew_pods_without_claim(context: &Context<'_>, plan: &mut Plan) {
    for place in loss::places(context.name, context.desired, &context.membership) {
        let pod = context.view.pods.get(&place).filter(|pod| pod.node.is_none() && pod.terminating.is_none());
        let Some(pod) = pod.filter(|_| !context.view.claims.contains_key(&names::data_claim(&place))) else { continue };
        let age = pod.created.map(|created| context.now.duration_since(created)).unwrap_or_default();
        plan.wake_after(UNTIL_CLAIM_IS_HEARD_OF - age);
        if age >= UNTIL_CLAIM_IS_HEARD_OF {
            let effect = Effect::RestartPod { name: place, guard: Guard::Uid(pod.uid.clone()) };
            plan.actions.push(Action::new(Reason::PodWithoutVolume, effect));
        }
    }
}

fn note_losses(context: &Context<'_>, plan: &mut Plan) {
    for loss in &context.losses {
        let has_end = context.is_quorate() && loss.until_given_up(context.desired, context.now).is_some();
        let reason = match (loss.stranded, has_end) {
            (false, _) => Reason::NodeLost,
            (true, false) => Reason::VolumeStranded,
            (true, true) => Reason::MemberGoesWithNode,
        };
        plan.note(reason, format!("{} ({}): {}", loss.member, loss.node, reason.sentence()));
    }
}

/// What is missed, and may come back.
fn note_waiting(context: &Context<'_>, plan: &mut Plan) {
    let is_lost = |member: &str| context.loss(member).is_some();
    for place in loss::places(context.name, context.desired, &context.membership) {
        let pod = context.view.pods.get(&place);
        let on = pod.and_then(|pod| pod.node.as_ref());
        let reach = context.view.reaches.get(&names::data_claim(&place)).filter(|_| on.is_none());
        let (node, fact) = match (on, reach) {
            (Some(node), _) => (node.clone(), context.view.nodes.get(node).copied()),
            (None, Some(reach)) => (reach.nodes(), reach.best()),
            (None, None) => continue,
        };
        let reason = match fact.filter(|_| !is_lost(&place)) {
            Some(NodeFact::Silent) => Reason::NodeSilent,
            Some(NodeFact::Cordoned) if on.is_none() => Reason::NodeCordoned,
            _ => continue,
        };
        plan.note(reason, format!("{place} ({node}): {}", reason.sentence()));
    }
}

/// Said once a member has been missed for so long that its node may be the reason.
fn note_refusal(context: &Context<'_>, plan: &mut Plan) {
    let is_long = |member: &&Member<'_>| {
        is_silent(context, member) && silent_for(context, member) >= context.desired.unknown_grace
    };
    let missed = context.members.iter().filter(is_long).map(|member| member.name.as_str()).collect::<Vec<_>>();
    if !missed.is_empty() {
        let reason = Reason::NodesOutOfReach;
        plan.note(reason, format!("{}: {}", missed.join(", "), reason.sentence()));
    }
}
