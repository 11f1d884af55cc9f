//! A pod's token dies with the ServiceAccount that it was made for, and the kubelet does not ask for another before it
//! would have expired. Such a member serves and cannot say so: it gets a new pod, one at a time.

use std::ops::ControlFlow;

use quorate_api::status::MemberRole;

use super::{Plan, restart};
use crate::action::{Action, Effect};
use crate::context::{Context, Member};
use crate::gate::Gate;
use crate::guard::Guard;
use crate::quorum;
use crate::reason::Reason;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    // Whatever else is being put right may be what keeps a member from being well.
    let is_budget = |action: &Action| matches!(action.reason, Reason::EvictionsStopped | Reason::EvictionsAllowed);
    if !plan.actions.iter().all(is_budget) {
        return ControlFlow::Continue(());
    }
    let gate = Gate::counting_on(context, |member: &Member<'_>| context.serves(member));
    let leads = |member: &Member<'_>| member.status.role == Some(MemberRole::Leader);
    let has_no_part_yet = |member: &Member<'_>| {
        let keeps_data = !context.desired.is_ephemeral() || !member.has_started();
        !context.is_formed() && !member.is_running() && keeps_data && !context.is_pod_away()
    };
    let next = context
        .members
        .iter()
        .filter(|member| context.is_speechless(member))
        .filter(|member| has_no_part_yet(member) || (gate.may_stop(member) && is_replaceable(context, member)))
        .min_by_key(|member| (member.is_pod_ready(), leads(member), member.ordinal));
    if let Some(member) = next
        && let Some(pod) = member.pod
    {
        let effect = Effect::RestartPod { name: member.name.clone(), guard: Guard::Uid(pod.uid.clone()) };
        plan.actions.push(Action::new(Reason::AccountRenewed, effect));
        restart::confirm_all(context, plan);
    }
    ControlFlow::Continue(())
}

/// One whose data goes with its pod is replaced, on the word of others who can speak. If there are too few, all are left
/// alone: within the hour their kubelets ask for another token.
fn is_replaceable(context: &Context<'_>, member: &Member<'_>) -> bool {
    let speaks = |other: &&Member<'_>| {
        let is_other = other.ordinal != member.ordinal && other.seat.is_voter();
        is_other && other.is_ready() && !context.is_speechless(other)
    };
    let speaking = context.members.iter().filter(speaks).count();
    !context.desired.is_ephemeral() || quorum::is_quorate(speaking, context.size())
}
