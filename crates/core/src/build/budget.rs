//! How many members Kubernetes may take away at a time.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quorate_api::member::Ticket;
use quorate_api::names;

use super::{metadata, selector};
use crate::context::{Context, Member};
use crate::quorum;
use crate::rules::Plan;
use crate::view::PodFact;

/// As a number of pods that must stay ready, because only that number is about members: a share of all pods would count those
/// that are to become members and never start, and no node could be drained meanwhile. All that Kubernetes counts as ready,
/// or may come to count, are in it before they are: whoever has a vote, is about to get one, or had one. So one at a time may
/// go while all are ready, and one that is not ready itself while all others are.
pub(super) fn disruption_budget(context: &Context<'_>, plan: &Plan) -> PodDisruptionBudget {
    let counted = counted(context);
    let least = if may_go(context, plan) { counted.saturating_sub(1) } else { counted };
    PodDisruptionBudget {
        metadata: metadata(context, names::disruption_budget(context.name)),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(i32::try_from(least).unwrap_or(i32::MAX))),
            selector: Some(selector(context)),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}

fn counted(context: &Context<'_>) -> usize {
    let may_be_ready = |member: &&Member<'_>| {
        let is_ready = member.pod.is_some_and(|pod| pod.ready);
        member.seat.is_voter() || is_ready || member.is_learning(context.now)
    };
    let is_former = |name: &String| context.members.iter().all(|member| member.name != *name);
    let is_counted = |pod: &PodFact| pod.ready && pod.terminating.is_none();
    let former = context.view.pods.iter().filter(|(name, pod)| is_counted(pod) && is_former(name)).count();
    context.members.iter().filter(may_be_ready).count() + former
}

/// The rest must be a quorum, also once the next has got its vote, or one has gone that is not wished for. A single member may
/// be moved, or no node could ever be drained, unless its data goes with its pod. And the kubelet must see what we see: it
/// knows nothing of a member that is cut off from the others, or that is about to be fenced.
fn may_go(context: &Context<'_>, plan: &Plan) -> bool {
    let is_fenced = plan.tickets.values().any(|ticket| matches!(ticket, Ticket::Fence { .. }));
    let voters = || context.members.iter().filter(|member| member.seat.is_voter());
    let is_seen = |member: &Member<'_>| member.is_ready() || !member.pod.is_some_and(|pod| pod.ready);
    let (ours, size) = (voters().count(), context.size());
    let comes = usize::from(context.members.iter().any(|member| member.is_learning(context.now)));
    let goes = usize::from(voters().any(|member| member.ordinal >= context.desired.members.get()));
    let is_spared = |ours: usize, size: usize| quorum::is_quorate(ours.saturating_sub(1), size);
    // Its volume would go with it, and may be the only copy.
    let is_ending = voters().any(|member| context.is_volume_ending(&member.name));
    let is_alone = size <= 1 && comes == 0 && !context.desired.is_ephemeral();
    let any_time = is_spared(ours, size)
        && is_spared(ours + comes, size + comes)
        && is_spared(ours.saturating_sub(goes), size.saturating_sub(goes));
    !is_ending && (is_alone || (any_time && !is_fenced && voters().all(is_seen)))
}
