//! Whoever was added by hand is spoken of, then removed: but not if the quorum might live by its vote.
//!
//! Nobody hears whether a voter of somebody else is there. So only our own members are counted on, and the others stay as long
//! as ours are no quorum without them.

use std::ops::ControlFlow;

use super::Plan;
use crate::context::{Context, Member};
use crate::quorum;
use crate::reason::Reason;
use crate::strangers::Stranger;

/// Says who is there, and what becomes of it. Also while the cluster is paused.
pub(super) fn note(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if !context.is_formed() || context.desired.members.is_zero() {
        return ControlFlow::Continue(());
    }
    let (kept, going): (Vec<_>, Vec<_>) = context.strangers.iter().partition(|stranger| is_kept(context, stranger));
    for reason in [Reason::MemberNotAskedFor, Reason::ForeignVoter, Reason::ForeignLearner] {
        let is_of_kind = |stranger: &&&Stranger| self::reason(stranger.is_under_our_name, stranger.learner) == reason;
        let of_kind = going.iter().filter(is_of_kind);
        let said = of_kind.map(|stranger| format!("{} ({}), until {}", stranger.name, stranger.id, stranger.due()));
        let said = said.collect::<Vec<_>>();
        if !said.is_empty() {
            plan.note(reason, format!("{}: {}", said.join(", "), reason.sentence()));
        }
    }
    if !kept.is_empty() {
        let said = kept.iter().map(|stranger| format!("{} ({})", stranger.name, stranger.id)).collect::<Vec<_>>();
        let reason = Reason::StrangerKept;
        // Members that come back may be a quorum.
        let may_pass = !context.members.iter().filter(|member| !context.is_uninvited(member)).all(Member::is_ready);
        plan.push_note(reason, format!("{}: {}", said.join(", "), reason.sentence()), may_pass);
    }
    for stranger in going {
        plan.wake_after(stranger.due().duration_since(context.now));
    }
    ControlFlow::Continue(())
}

/// What is said of one that has been there for less than its time.
pub(crate) fn reason(is_under_our_name: bool, learner: bool) -> Reason {
    match (is_under_our_name, learner) {
        (true, _) => Reason::MemberNotAskedFor,
        (false, true) => Reason::ForeignLearner,
        (false, false) => Reason::ForeignVoter,
    }
}

/// Who goes next. Whoever has no vote goes first: beside it etcd takes no other learner.
pub(super) fn next<'c>(context: &'c Context<'_>) -> Option<&'c Stranger> {
    let due = context.strangers.iter().filter(|stranger| is_due(context, stranger) && is_safe(context, stranger));
    due.min_by_key(|stranger| (!stranger.learner, stranger.first_seen, &stranger.id))
}

/// Those beside whom nobody can be added.
pub(super) fn learners(context: &Context<'_>) -> Option<String> {
    let learners = context.strangers.iter().filter(|stranger| stranger.learner);
    let names = learners.map(|stranger| format!("{} ({})", stranger.name, stranger.id)).collect::<Vec<_>>();
    (!names.is_empty()).then(|| names.join(", "))
}

fn is_kept(context: &Context<'_>, stranger: &Stranger) -> bool {
    is_due(context, stranger) && !is_safe(context, stranger)
}

fn is_due(context: &Context<'_>, stranger: &Stranger) -> bool {
    context.now >= stranger.due()
}

/// Whether our own members that are ready are a quorum of those that are left. That there is one now, the list shows.
fn is_safe(context: &Context<'_>, stranger: &Stranger) -> bool {
    let is_ours = |member: &&Member<'_>| member.is_ready() && member.seat.is_voter() && !context.is_uninvited(member);
    let ours = context.members.iter().filter(is_ours).count();
    stranger.learner || quorum::is_quorate(ours, context.size().saturating_sub(1))
}
