//! A member that does not come back by itself gets a new pod: one at a time, and only if the others are a majority.
//!
//! It starts from its own data. A member without usable data, or with that of another cluster, is left alone: no restart
//! changes that.

use std::ops::ControlFlow;

use jiff::Timestamp;
use quorate_api::status::{MemberHealth, MemberReason, MemberStatus};

use super::Plan;
use crate::action::{Action, Effect, Guard};
use crate::context::{Context, MemberFacts};
use crate::quorum;
use crate::reason::Reason;
use crate::status::members;
use crate::validate::Storage;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    // Ephemeral storage goes with the pod: a restart would be the loss that it is meant to cure.
    if !context.is_formed() || matches!(context.desired.storage, Storage::Ephemeral { .. }) {
        return ControlFlow::Continue(());
    }
    let observed = members::observe(context);
    let ready = observed.iter().filter(|member| member.status == MemberHealth::Ready).count();
    if context.is_pod_away() || !quorum::may_stop_unready(ready, context.size()) {
        return ControlFlow::Continue(());
    }
    let stuck = observed
        .iter()
        .zip(&context.members)
        .filter(|(status, member)| is_stuck(context, status, member) && can_come_back(context, member))
        .min_by_key(|(status, member)| (status.last_transition_time.0, member.ordinal));
    if let Some((status, member)) = stuck
        && let Some(pod) = member.pod
    {
        let guard = match status.reason {
            MemberReason::PodNotReady => Guard::PodStillUnready(pod.uid.clone()),
            _ => Guard::Uid(pod.uid.clone()),
        };
        let effect = Effect::RestartPod { name: member.name.clone(), guard };
        plan.actions.push(Action::new(Reason::MemberStuck, effect));
    }
    ControlFlow::Continue(())
}

fn is_stuck(context: &Context<'_>, status: &MemberStatus, member: &MemberFacts<'_>) -> bool {
    status.status == MemberHealth::NotReady
        && context.now.duration_since(stuck_since(status, member)) >= context.desired.not_ready_grace
}

/// A new pod gets its time, however long the member has been away before.
pub(crate) fn stuck_since(status: &MemberStatus, member: &MemberFacts<'_>) -> Timestamp {
    let created = member.pod.and_then(|pod| pod.created);
    created.map_or(status.last_transition_time.0, |created| created.max(status.last_transition_time.0))
}

fn can_come_back(context: &Context<'_>, member: &MemberFacts<'_>) -> bool {
    !member.has_no_usable_data() && !context.is_stranger(member)
}
