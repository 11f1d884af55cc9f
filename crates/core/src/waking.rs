//! The moments between sleep and service: no quorum is lost that nobody has had since.

use quorate_api::conditions::{self, ConditionType};
use quorate_api::status::ClusterPhase;

use crate::context::Context;

/// Whether the cluster was put to sleep, was woken, and has not served since. Not for longer than a pod gets to become ready:
/// then it is no waking any more.
pub(crate) fn is_waking(context: &Context<'_>) -> bool {
    let Some(status) = context.status().filter(|_| !context.desired.members.is_zero()) else { return false };
    let since = match status.phase {
        Some(ClusterPhase::Hibernated) => context.now,
        Some(ClusterPhase::Waking) => {
            // It is progressing from the moment that it is woken.
            let progressing = conditions::find(&status.conditions, ConditionType::Progressing);
            progressing.map_or(context.now, |condition| condition.last_transition_time.0)
        }
        _ => return false,
    };
    context.is_formed() && context.now.duration_since(since) < context.desired.not_ready_grace
}
