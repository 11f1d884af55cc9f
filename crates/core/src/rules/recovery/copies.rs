//! Which members hold a copy of an incarnation whose quorum is lost, and where those copies end.
//!
//! Of two logs the one with the higher term, then index, has all that the other has, whoever holds it. But a log that stands
//! alone says nothing about what it lacks. A voter that is left may have been part of every quorum; a learner was part of
//! none, and what it has received so far may end anywhere. So a learner is compared with voters, and never stands for them.

use quorate_api::member::{DataReport, DataState, LogEnd};
use quorate_api::status::{Latch, QuorumRecovery};

use crate::context::{Context, Member};

fn data<'a>(member: &Member<'a>) -> Option<&'a DataReport> {
    member.report?.data.as_ref()
}

/// Whether it may hold a copy of this incarnation, as far as its last report says. A log that nothing was ever written to is
/// none.
pub(super) fn is_copy(member: &Member<'_>, epoch: i64) -> bool {
    member.data_state() == Some(DataState::Valid) && member.data_epoch() == Some(epoch) && !is_blank(member)
}

/// Whether somebody may name it. That is older than what its member is known to have had, or differs from what others had, is
/// for a human to weigh: it may be all there is.
pub(super) fn may_be_named(member: &Member<'_>, epoch: i64) -> bool {
    let is_fenced = data(member).is_some_and(|data| {
        data.state == DataState::Fenced && (data.rolled_back || data.diverged) && data.epoch == Some(epoch)
    });
    is_copy(member, epoch) || (is_fenced && !is_blank(member))
}

fn is_blank(member: &Member<'_>) -> bool {
    data(member).and_then(|data| data.log_end).is_some_and(|end| end.index == 0)
}

/// Whether it has a vote: by etcd's list, by its Lease, or by its own data, which may know better than both.
pub(super) fn has_vote(member: &Member<'_>) -> bool {
    let says_so = data(member).is_some_and(|data| {
        let mut members = data.members.iter();
        members.any(|listed| data.member_id.as_ref() == Some(&listed.id) && !listed.learner)
    });
    !member.is_learner() || says_so
}

/// Whether anything may be left to begin from: what a voter has, or may have, or what somebody has named.
pub(super) fn is_any_left(context: &Context<'_>, epoch: i64, named: Option<&str>) -> bool {
    let mut voters = context.members.iter().filter(|member| has_vote(member));
    context.member(named).is_some_and(|named| may_be_named(named, epoch))
        || voters.any(|voter| is_copy(voter, epoch) || (!is_blank(voter) && !voter.is_data_lost(context)))
}

/// Where the log of a copy ends that does not run, and whose agent knows of the new epoch, so that it never will again. One
/// that ends before what the member is known to have had is not that member's, and counts only if somebody has named it.
pub(super) fn end_of_copy(latch: &Latch, recovery: &QuorumRecovery, member: &Member<'_>) -> Option<LogEnd> {
    let is_copy = is_copy(member, recovery.epoch) && !is_rolled_back(member);
    let is_one = is_copy || is_taken_as_it_is(recovery, member);
    let data = data(member).filter(|_| is_one && has_heard(latch, member) && !member.is_running())?;
    data.log_end.filter(|_| data.cluster_id.as_ref() == Some(&recovery.cluster_id))
}

fn is_taken_as_it_is(recovery: &QuorumRecovery, member: &Member<'_>) -> bool {
    recovery.named.as_ref() == Some(&member.name) && may_be_named(member, recovery.epoch)
}

/// Whether its report is by an agent that knows of the present epoch, and so not from before.
pub(super) fn has_heard(latch: &Latch, member: &Member<'_>) -> bool {
    data(member).is_some_and(|data| data.ticket_epoch == Some(latch.epoch))
}

fn is_rolled_back(member: &Member<'_>) -> bool {
    let Some(data) = data(member) else { return false };
    let is_its_own = member.heartbeat.member_id == data.member_id;
    let recorded = data.last_index.max(member.heartbeat.last_index.filter(|_| is_its_own));
    data.log_end.map(|end| end.index) < recorded && data.log_end.is_some()
}

/// What began in an epoch that was given up since is put aside with the rest, like what is older.
pub(super) fn is_of_no_use(
    context: &Context<'_>,
    latch: &Latch,
    recovery: &QuorumRecovery,
    member: &Member<'_>,
) -> bool {
    let is_old = member.data_epoch().is_some_and(|epoch| epoch != recovery.epoch && epoch != latch.epoch);
    let has_nothing = member.data_epoch() == Some(recovery.epoch) && is_blank(member);
    let is_useless = member.is_data_lost(context) || is_rolled_back(member) || is_old || has_nothing;
    is_useless && !is_taken_as_it_is(recovery, member)
}

/// Whether it may have a copy, and has not said so since it knows of the new epoch.
pub(super) fn is_waited_for(
    context: &Context<'_>,
    latch: &Latch,
    recovery: &QuorumRecovery,
    member: &Member<'_>,
) -> bool {
    let is_known = end_of_copy(latch, recovery, member).is_some() || is_of_no_use(context, latch, recovery, member);
    (!is_known || !has_heard(latch, member)) && !has_never_begun(member)
}

/// A learner that was added and has not begun: what is on record under its name is that of whoever was here before.
fn has_never_begun(member: &Member<'_>) -> bool {
    let listed = member.seat.listed.as_ref().map(|listed| listed.id.as_str());
    let has_begun = member.recorded_id() == listed || (member.is_heard() && member.heartbeat.has_started());
    !member.seat.is_voter() && !has_begun
}

/// The best of all that are known. A learner's counts if no voter has as much. One that was given up before, or whose volume
/// goes with its pod, is used if there is no other.
pub(super) fn best<'c, 'a>(
    context: &Context<'_>,
    recovery: &QuorumRecovery,
    copies: &[(LogEnd, &'c Member<'a>)],
) -> Option<(LogEnd, &'c Member<'a>)> {
    let farthest_voter = copies.iter().filter(|(_, member)| has_vote(member)).map(|(end, _)| *end).max();
    let counts = |end: LogEnd, member: &Member<'_>| {
        has_vote(member) || recovery.named.is_some() || farthest_voter.is_some_and(|farthest| end > farthest)
    };
    let copies = copies.iter().copied().filter(|(end, member)| counts(*end, member));
    copies.max_by_key(|(end, member)| {
        let is_fresh = !recovery.given_up.contains(&member.name);
        (is_fresh, !context.is_volume_ending(&member.name), *end, -member.ordinal)
    })
}

/// In words, what would be chosen by what is known without stopping anybody.
pub(super) fn best_known(context: &Context<'_>, epoch: i64) -> String {
    let left = context.members.iter().filter(|member| is_copy(member, epoch)).collect::<Vec<_>>();
    let best = left.iter().max_by_key(|member| (member.heartbeat.term, member.heartbeat.last_index, -member.ordinal));
    let all = left.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ");
    match best {
        Some(best) if left.len() > 1 => format!("{}, by what is known the best of {all}", best.name),
        Some(best) => format!("{}, the only copy that is left", best.name),
        None => "no copy that is known yet".to_owned(),
    }
}

/// In words, what nobody uses by itself and somebody may name. Nothing if there is nothing.
pub(super) fn worth_naming(context: &Context<'_>, epoch: i64) -> Option<String> {
    let what = |member: &Member<'_>| {
        let data = data(member)?;
        let why = match data.state {
            DataState::Fenced if data.diverged => "differs from what others had",
            DataState::Fenced => "is older than what it is known to have had",
            _ => "has no vote, so nobody knows how much it lacks",
        };
        may_be_named(member, epoch).then(|| format!("{} {why}", member.name))
    };
    let all = context.members.iter().filter_map(what).collect::<Vec<_>>();
    (!all.is_empty()).then(|| all.join(", "))
}
