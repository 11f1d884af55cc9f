//! Clients are led away from a member that is silent or serves other data.
//!
//! Kubernetes itself notices only when the node is declared dead, and until then every new connection may end there. A
//! majority must speak for it: if most are silent, it is more likely that nobody can be heard than that nobody serves.

use std::ops::ControlFlow;

use quorate_api::status::{MemberHealth, MemberReason, MemberStatus};

use super::Plan;
use crate::action::{Action, Effect};
use crate::context::{Context, MemberFacts};
use crate::quorum;
use crate::reason::Reason;
use crate::status::members;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    let observed = members::observe(context);
    let ready = observed.iter().filter(|member| member.status == MemberHealth::Ready).count();
    let quorate = quorum::is_quorate(ready, context.size());
    for (status, member) in observed.iter().zip(&context.members) {
        let Some(pod) = member.pod.filter(|pod| pod.terminating.is_none()) else { continue };
        let Some(serving) = should_serve(context, status, member, quorate) else { continue };
        if serving != pod.serving {
            let reason = if serving { Reason::MemberShown } else { Reason::MemberHidden };
            let effect = Effect::SetServing { pod: member.name.clone(), uid: pod.uid.clone(), serving };
            plan.actions.push(Action::new(reason, effect));
        }
    }
    ControlFlow::Continue(())
}

/// Nothing if there is no reason to change what is.
fn should_serve(context: &Context<'_>, status: &MemberStatus, member: &MemberFacts<'_>, quorate: bool) -> Option<bool> {
    if context.is_stranger(member) {
        return Some(false);
    }
    match (status.status, status.reason) {
        (MemberHealth::Ready, _) => Some(true),
        (_, MemberReason::LeaseExpired | MemberReason::UnknownGracePeriodExceeded) => Some(!quorate),
        // Kubernetes leads nobody to a pod that is not ready.
        _ => None,
    }
}
