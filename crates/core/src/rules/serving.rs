//! Clients are led away from a member that is silent, serves other data or has no vote.
//!
//! Kubernetes itself notices only when the node is declared dead, and until then every new connection may end there. A
//! majority must speak for it: if most are silent, it is more likely that nobody can be heard than that nobody serves.

use std::ops::ControlFlow;

use quorate_api::status::{MemberHealth, MemberReason};

use super::Plan;
use crate::action::{Action, Effect};
use crate::context::{Context, Member};
use crate::reason::Reason;
use crate::view::PodFact;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    for member in &context.members {
        let Some(pod) = member.pod.filter(|pod| pod.terminating.is_none()) else { continue };
        let Some(serving) = should_serve(context, member) else { continue };
        if serving != pod.serving {
            let reason = if serving { Reason::MemberShown } else { Reason::MemberHidden };
            let effect = Effect::SetServing { pod: member.name.clone(), uid: pod.uid.clone(), serving };
            plan.actions.push(Action::new(reason, effect));
        }
    }
    for (name, pod) in outsiders(context) {
        let effect = Effect::SetServing { pod: name.clone(), uid: pod.uid.clone(), serving: false };
        plan.actions.push(Action::new(Reason::MemberHidden, effect));
    }
    ControlFlow::Continue(())
}

/// Pods that are no members and whose kubelets call them ready: what runs there is of an epoch before. As long as the members
/// serve, so that it is known who they are.
fn outsiders<'a>(context: &Context<'a>) -> Vec<(&'a String, &'a PodFact)> {
    if !context.is_formed() || !context.is_quorate() {
        return Vec::new();
    }
    let is_member = |name: &str| context.members.iter().any(|member| member.name == name);
    let shown = context.view.pods.iter().filter(|(_, pod)| pod.ready && pod.serving && pod.terminating.is_none());
    shown.filter(|(name, _)| !is_member(name)).collect()
}

/// Nothing if there is no reason to change what is.
fn should_serve(context: &Context<'_>, member: &Member<'_>) -> Option<bool> {
    if context.is_stranger(member) {
        return Some(false);
    }
    match (member.status.status, member.status.reason) {
        (MemberHealth::Ready, _) => Some(true),
        (_, MemberReason::Learning) if member.pod.is_some_and(|pod| pod.ready) => Some(false),
        (_, MemberReason::LeaseExpired | MemberReason::UnknownGracePeriodExceeded) => Some(!context.is_quorate()),
        // Kubernetes leads nobody to a pod that is not ready.
        _ => None,
    }
}
