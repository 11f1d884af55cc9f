//! A pod's token dies with the ServiceAccount that it was made for, and the kubelet does not ask for another before it
//! would have expired. Such a member serves and cannot say so: it gets a new pod, one at a time.

use std::ops::ControlFlow;

use jiff::Timestamp;
use quorate_api::names;
use quorate_api::status::{MemberHealth, MemberRole, MemberStatus};

use super::Plan;
use crate::action::{Action, Effect, Guard};
use crate::context::{Context, MemberFacts};
use crate::object::Kind;
use crate::quorum;
use crate::reason::Reason;
use crate::status::members;
use crate::validate::Storage;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    // Ephemeral storage goes with the pod.
    let is_ephemeral = matches!(context.desired.storage, Storage::Ephemeral { .. });
    let Some(made) = account_made(context) else { return ControlFlow::Continue(()) };
    if is_ephemeral || !plan.actions.is_empty() || context.is_pod_away() {
        return ControlFlow::Continue(());
    }
    let observed = members::observe(context);
    let (speechless, replaced): (Vec<_>, Vec<_>) =
        observed.iter().zip(&context.members).partition(|(_, member)| is_speechless(member, made));
    let is_back = |(status, _): &(&MemberStatus, &MemberFacts<'_>)| status.status == MemberHealth::Ready;
    if context.is_formed() && !replaced.iter().all(is_back) {
        return ControlFlow::Continue(());
    }
    // Those who cannot speak have only the kubelet to speak for them.
    let well = replaced.iter().filter(|other| is_back(other)).count()
        + speechless.iter().filter(|(_, member)| is_pod_ready(member)).count();
    let may_stop = |member: &MemberFacts<'_>| {
        let others = well - usize::from(is_pod_ready(member));
        let has_no_part_yet = !context.is_formed() && !member.is_running();
        context.size() == 1 || has_no_part_yet || quorum::is_quorate(others, context.size())
    };
    let leads = |status: &MemberStatus| status.role == Some(MemberRole::Leader);
    let next = speechless
        .iter()
        .filter(|(_, member)| may_stop(member))
        .min_by_key(|(status, member)| (is_pod_ready(member), leads(status), member.ordinal));
    if let Some((_, member)) = next
        && let Some(pod) = member.pod
    {
        let effect = Effect::RestartPod { name: member.name.clone(), guard: Guard::Uid(pod.uid.clone()) };
        plan.actions.push(Action::new(Reason::AccountRenewed, effect));
    }
    ControlFlow::Continue(())
}

fn account_made(context: &Context<'_>) -> Option<Timestamp> {
    let account = context.view.object(Kind::ServiceAccount, &names::member_account(context.name))?;
    Some(account.metadata().creation_timestamp.as_ref()?.0)
}

fn is_speechless(member: &MemberFacts<'_>, account_made: Timestamp) -> bool {
    member.pod.and_then(|pod| pod.created).is_some_and(|created| created < account_made)
}

fn is_pod_ready(member: &MemberFacts<'_>) -> bool {
    member.pod.is_some_and(|pod| pod.ready)
}
