//! A member that does not come back by itself gets a new pod: one at a time, and only if the others are a majority.
//!
//! It starts from its own data. A member without data is left alone: no restart gives it any.

use std::ops::ControlFlow;

use quorate_api::status::{MemberHealth, MemberStatus};

use super::Plan;
use crate::action::{Action, Effect, Guard};
use crate::context::Context;
use crate::quorum;
use crate::reason::Reason;
use crate::status::members;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if !context.is_formed() {
        return ControlFlow::Continue(());
    }
    let observed = members::observe(context);
    let ready = observed.iter().filter(|member| member.status == MemberHealth::Ready).count();
    let in_flight = context.members.iter().any(|member| member.pod.is_none_or(|pod| pod.terminating));
    let lost = context.members.iter().filter(|member| member.has_lost_data()).map(|member| member.name.as_str());
    let lost = lost.collect::<Vec<_>>();
    if !lost.is_empty() {
        plan.note(Reason::MemberDataLost, format!("{}: {}", lost.join(", "), Reason::MemberDataLost.sentence()));
    }
    if in_flight || !quorum::may_stop_unready(ready, context.size()) {
        return ControlFlow::Continue(());
    }
    let stuck = observed
        .iter()
        .zip(&context.members)
        .filter(|(status, member)| is_stuck(context, status) && !member.has_lost_data())
        .min_by_key(|(status, member)| (status.last_transition_time.0, member.ordinal));
    if let Some((_, member)) = stuck
        && let Some(pod) = member.pod
    {
        let effect = Effect::RestartPod { name: member.name.clone(), guard: Guard::Uid(pod.uid.clone()) };
        plan.actions.push(Action::new(Reason::MemberStuck, effect));
    }
    ControlFlow::Continue(())
}

fn is_stuck(context: &Context<'_>, member: &MemberStatus) -> bool {
    member.status == MemberHealth::NotReady
        && context.now.duration_since(member.last_transition_time.0) >= context.desired.not_ready_grace
}
