//! A member that does not come back by itself gets a new pod: one at a time, and if the gate lets it.
//!
//! It starts from its own data. A member without usable data, or with that of another cluster, is left alone: no restart
//! changes that. Nor is one disturbed that is getting somewhere, however slowly.

use std::ops::ControlFlow;

use jiff::SignedDuration;
use quorate_api::status::{MemberHealth, MemberReason};

use super::Plan;
use crate::action::{Action, Effect};
use crate::context::{Context, Member};
use crate::gate;
use crate::guard::Guard;
use crate::health;
use crate::node::NodeFact;
use crate::read::Read;
use crate::reason::Reason;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if !context.is_formed() {
        return ControlFlow::Continue(());
    }
    let gate = gate::by_health(context);
    let candidates = context.members.iter().filter(|member| can_come_back(context, member));
    let (due, waiting): (Vec<_>, Vec<_>) = candidates.partition(|member| left(context, member).is_zero());
    let stuck = due.iter().filter(|member| gate.may_stop(member));
    if let Some(member) = stuck.min_by_key(|member| (member.status.last_transition_time.0, member.ordinal))
        && let Some(pod) = member.pod
    {
        let guard = match member.status.reason {
            MemberReason::PodNotReady => Guard::PodStillUnready(pod.uid.clone()),
            _ => Guard::Uid(pod.uid.clone()),
        };
        let effect = Effect::RestartPod { name: member.name.clone(), guard };
        plan.actions.push(Action::new(Reason::MemberStuck, effect));
        plan.restarted = Some(member.name.clone());
        confirm_all(context, plan);
    }
    for member in waiting {
        plan.wake_after(left(context, member));
    }
    ControlFlow::Continue(())
}

/// A pod is stopped on the word of all members, so all are asked again.
pub(super) fn confirm_all(context: &Context<'_>, plan: &mut Plan) {
    plan.reads.extend(context.members.iter().map(|member| Read::Member(member.name.clone())));
}

/// How much longer its pod gets. Each pod gets as long as all before it together, so that repeated restarts slow down
/// without anybody having to count them.
fn left(context: &Context<'_>, member: &Member<'_>) -> SignedDuration {
    let stuck = member.stuck_since();
    let patience = health::patience(context.desired, member.troubled_since(), stuck);
    (patience - context.now.duration_since(stuck)).max(SignedDuration::ZERO)
}

fn can_come_back(context: &Context<'_>, member: &Member<'_>) -> bool {
    member.status.status == MemberHealth::NotReady
        && !member.is_learning(context.now)
        && member.pod.is_some_and(|pod| pod.starting.is_none())
        && member.progress().is_none()
        && !member.has_no_usable_data()
        && !context.is_stranger(member)
        && !is_out_of_touch(context, member)
}

/// A pod ends when its node has ended it, and that one does not answer. What is on it may still be well.
fn is_out_of_touch(context: &Context<'_>, member: &Member<'_>) -> bool {
    let node = member.pod.and_then(|pod| pod.node.as_ref());
    node.and_then(|node| context.view.nodes.get(node)).is_some_and(|fact| *fact >= NodeFact::Silent)
}
