//! May this member be disturbed now? One answer for every rule that stops a pod.
//!
//! At most one pod is away at a time. A member that serves is stopped only if every other voter serves; one that does not,
//! only if the others are a majority without it, or if there is no majority to lose and its own data is sound. One whose data
//! goes with its pod is replaced after that, so the others must be able to.

use quorate_api::member::DataState;
use quorate_api::status::MemberReason;

use crate::context::{Context, Member};
use crate::quorum;

/// Judges a cluster. Rules differ only in whom they count on.
pub(crate) struct Gate<'c, 'a, F> {
    context: &'c Context<'a>,
    /// Whether a member can be counted on to serve.
    serves: F,
}

/// Counts on the members that are ready.
pub(crate) fn by_health<'c, 'a>(context: &'c Context<'a>) -> Gate<'c, 'a, impl Fn(&Member<'_>) -> bool> {
    Gate { context, serves: |member: &Member<'_>| member.is_ready() }
}

impl<'c, 'a, F: Fn(&Member<'_>) -> bool> Gate<'c, 'a, F> {
    pub(crate) fn counting_on(context: &'c Context<'a>, serves: F) -> Self {
        Self { context, serves }
    }

    pub(crate) fn may_stop(&self, member: &Member<'_>) -> bool {
        let context = self.context;
        // Somebody has deleted the claim, and its volume would be lost with a stop.
        if context.is_volume_ending(&member.name) {
            return false;
        }
        let others = context.members.iter().filter(|other| other.ordinal != member.ordinal && other.seat.is_voter());
        let (serving, not_serving): (Vec<_>, Vec<_>) = others.partition(|other| (self.serves)(other));
        if !member.seat.is_voter() {
            return !context.is_pod_away();
        }
        let quorate_without_it = quorum::is_quorate(serving.len(), context.size());
        if context.desired.is_ephemeral() && !is_replaceable(context, member) {
            return false;
        }
        if (self.serves)(member) {
            let all_others = not_serving.is_empty() && context.membership.foreign_voters.is_empty();
            // Of one or two nobody can be away without a pause, and would otherwise never get a new pod.
            return !context.is_pod_away() && all_others && (quorate_without_it || context.size() <= 2);
        }
        let nothing_to_lose = !quorate_without_it;
        let is_sound = member.data_state() == Some(DataState::Valid);
        let is_unready = member.status.reason == MemberReason::PodNotReady;
        (quorate_without_it && !context.is_pod_away())
            || (nothing_to_lose && is_sound && is_unready && !context.is_pod_ending())
    }
}

/// Whether it could be removed and added again at once. Those that only seem to serve have no say in that.
fn is_replaceable(context: &Context<'_>, member: &Member<'_>) -> bool {
    let others = context.ready_voters() - usize::from(member.is_ready() && member.seat.is_voter());
    quorum::is_quorate(others, context.size()) && context.membership.foreign_learners.is_empty()
}
