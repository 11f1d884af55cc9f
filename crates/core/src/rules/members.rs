//! Who is a member and who should be: one change at a time, each from where the cluster is.
//!
//! A member is added as a learner, once its pod runs and has said what is on its volume, and gets a vote when it has caught
//! up. One that is not wished for goes from etcd before its pod goes. One whose data is proven to be gone is removed, and then
//! its place is free and is filled in the ordinary way. A quorum confirms who the members are before any of this, and the
//! rest of them must be one without whoever goes. One whose volume nobody can reach any more, because its node is gone for
//! good, goes the same way if somebody has said after how long. That a member is silent is never a reason.

use std::ops::ControlFlow;

use jiff::SignedDuration;
use quorate_api::member::DataState;
use quorate_api::names;

use super::{Plan, access, corruption, divergence, restart, size, strangers};
use crate::action::{Action, Effect, MemberChange};
use crate::build::addresses;
use crate::context::{Context, Member};
use crate::guard::{Guard, voters_and_learners};
use crate::membership;
use crate::object::{Kind, ObjectKey};
use crate::quorum;
use crate::read::{Endpoints, Read};
use crate::reason::Reason;
use crate::strangers::Stranger;
use crate::view::PodFact;
use crate::waiting;

/// Nothing tells when etcd would take a change that it has refused: that a learner has caught up, for example.
const UNTIL_TRIED_AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// Agents renew that often.
const UNTIL_LOOKED_AGAIN: SignedDuration = SignedDuration::from_secs(3);
/// So many entries of the log are sent within a moment, and a vote may be asked for meanwhile.
const A_FEW_ENTRIES: i64 = 5000;

/// What is to be done next, or what it waits for.
enum Step<'c, 'a> {
    Remove { member: &'c Member<'a>, reason: Reason },
    Expel { stranger: &'c Stranger },
    Disarm { id: String },
    Promote { member: &'c Member<'a> },
    Add { member: String },
    Wait { reason: Reason, why: String },
}

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if !context.is_formed() || context.desired.members.is_zero() {
        return ControlFlow::Continue(());
    }
    // Once it has fallen silent, one that says that it has no data has none.
    let empty = context.members.iter().filter(|member| member.data_state() == Some(DataState::Empty));
    for expires in empty.filter_map(|member| member.heartbeat.expires) {
        plan.wake_after(expires.duration_since(context.now));
    }
    let Some(step) = next(context) else { return ControlFlow::Continue(()) };
    if let Step::Wait { reason, why } = step {
        if !plan.has_note(reason) {
            plan.note(reason, format!("{why}: {}", reason.sentence()));
        }
        // It catches up by itself, which its Lease tells and no event does.
        if reason == Reason::MemberCatchingUp {
            plan.wake_after(UNTIL_LOOKED_AGAIN);
        }
        // Those that are missed may be members no more, and nobody has been able to tell since.
        if matches!(reason, Reason::WaitingForReadyMembers | Reason::WaitingForQuorum) {
            size::is_confirmed(context, plan);
        }
        return ControlFlow::Continue(());
    }
    confirm(context, &step, plan);
    // Whoever cannot be reached now is not asked every second.
    if !size::is_confirmed(context, plan) {
        return ControlFlow::Continue(());
    }
    plan.wake_after(UNTIL_TRIED_AGAIN);
    if let Some(refusal) = &context.view.refusal {
        access::note_refusal(context, plan, &refusal.what, &refusal.cause);
    }
    for (reason, change) in changes(context, &step) {
        // etcd refuses a vote to a learner that has not caught up yet.
        let said = if reason == Reason::MemberPromoted { Reason::MemberJoining } else { reason };
        plan.note(said, format!("{}: {}", change.member(), said.sentence()));
        let (via, guard) = (via(context, &change), guard(context));
        plan.actions.push(Action::new(reason, Effect::ChangeMembers { change, via, guard }));
    }
    // Nobody else is disturbed while one comes or goes. To be given a vote disturbs nobody, and may take long.
    match step {
        Step::Promote { .. } => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    }
}

/// A vote is given or taken on the word of all members, and data is called gone on the member's own.
fn confirm(context: &Context<'_>, step: &Step<'_, '_>, plan: &mut Plan) {
    restart::confirm_all(context, plan);
    let changed = match step {
        Step::Remove { member, .. } => &member.name,
        Step::Add { member } => member,
        Step::Promote { .. } | Step::Expel { .. } | Step::Disarm { .. } | Step::Wait { .. } => return,
    };
    plan.reads.insert(Read::Object(ObjectKey::new(Kind::EtcdMember, changed.clone())));
}

fn next<'c, 'a>(context: &'c Context<'a>) -> Option<Step<'c, 'a>> {
    let wished = context.desired.members.get();
    let is_surplus = |member: &&Member<'_>| member.ordinal >= wished;
    // As long as there is one, etcd refuses most requests.
    if let Some(id) = corruption::left_behind(context) {
        return Some(Step::Disarm { id });
    }
    if let Some(stranger) = strangers::next(context) {
        return Some(Step::Expel { stranger });
    }
    let invited = context.members.iter().filter(|member| !context.is_uninvited(member));
    let (voters, learners): (Vec<_>, Vec<_>) = invited.partition(|member| member.seat.is_voter());
    // Whoever has no vote can go at any time.
    if let Some(member) = learners.iter().rev().copied().find(is_surplus) {
        return Some(Step::Remove { member, reason: Reason::MemberRemoved });
    }
    let lost = voters.iter().copied().find(|member| is_lost(context, member));
    let is_useless = |member: &&Member<'_>| {
        is_lost(context, member)
            || corruption::is_alarmed(context, member)
            || (lost.is_some() && is_stuck(context, member))
    };
    if let Some(member) = learners.iter().copied().find(is_useless) {
        return Some(Step::Remove { member, reason: why_lost(context, member) });
    }
    if let Some(member) = learners.first() {
        return Some(promote(context, member));
    }
    if let Some(member) = lost {
        return Some(remove(context, member, why_lost(context, member)));
    }
    // One that does not serve first: the others may need the quorum that is smaller without it.
    let mut surplus = voters.iter().rev().copied().filter(is_surplus);
    let surplus = surplus.clone().find(|member| !context.serves(member)).or_else(|| surplus.next());
    let is_free = |ordinal: &i32| context.members.iter().all(|member| member.ordinal != *ordinal);
    let free = next_to_join(context, voters.len(), (0..wished).filter(is_free));
    let too_many = usize::try_from(wished).is_ok_and(|wished| voters.len() > wished);
    match (surplus, free) {
        (Some(member), _) if too_many => Some(remove(context, member, Reason::MemberRemoved)),
        (_, Some(member)) => Some(add(context, member)),
        (Some(member), None) => Some(remove(context, member, Reason::MemberRemoved)),
        (None, None) => None,
    }
}

/// Whoever is trusted by its owner is not judged by what others have.
fn is_lost(context: &Context<'_>, member: &Member<'_>) -> bool {
    let is_lost = member.is_data_lost(context) || member.is_given_up(context);
    is_lost && !divergence::is_trusted_member(context, member)
}

fn why_lost(context: &Context<'_>, member: &Member<'_>) -> Reason {
    if member.is_given_up(context) { Reason::MemberGivenUp } else { Reason::MemberReplaced }
}

/// One that does not come must not keep another from being replaced.
fn is_stuck(context: &Context<'_>, learner: &Member<'_>) -> bool {
    let waited = context.now.duration_since(learner.stuck_since());
    !learner.is_learning(context.now) && waited >= context.desired.not_ready_grace
}

/// Its own vote counts too, and must not be what the quorum waits for.
fn promote<'c, 'a>(context: &'c Context<'a>, member: &'c Member<'a>) -> Step<'c, 'a> {
    let with_it = context.serving_voters() + 1;
    let arrives = waiting::catching_up(context, member);
    if !member.is_learning(context.now) {
        let reason = if arrives.is_some() { Reason::MemberCatchingUp } else { Reason::MemberJoining };
        return Step::Wait { reason, why: arrives.unwrap_or_else(|| member.name.clone()) };
    }
    if !quorum::is_quorate(with_it, context.size() + 1) {
        return Step::Wait { reason: Reason::WaitingForReadyMembers, why: unready(context) };
    }
    if is_far_behind(context, member) {
        let why = arrives.unwrap_or_else(|| member.name.clone());
        return Step::Wait { reason: Reason::MemberCatchingUp, why };
    }
    Step::Promote { member }
}

/// By what both have last said, which is some seconds old. etcd has the last word, but need not be asked every second for as long
/// as a large snapshot takes.
fn is_far_behind(context: &Context<'_>, learner: &Member<'_>) -> bool {
    let leader = context.members.iter().find(|member| member.leads()).and_then(|leader| leader.heartbeat.last_index);
    let (Some(there), Some(here)) = (leader, learner.heartbeat.last_index) else { return false };
    there.saturating_sub(here) > A_FEW_ENTRIES.max(there / 10)
}

/// Those that are left must be a quorum by themselves, and those that are there must be one to agree to it.
fn remove<'c, 'a>(context: &'c Context<'a>, member: &'c Member<'a>, reason: Reason) -> Step<'c, 'a> {
    if let Some(why) = strangers::learners(context).filter(|_| reason != Reason::MemberRemoved) {
        return Step::Wait { reason: Reason::ForeignLearner, why };
    }
    let serving = context.serving_voters();
    let others = serving - usize::from(member.seat.is_voter() && context.serves(member));
    let is_quorate = context.membership.is_quorate(serving);
    let is_safe = is_quorate && quorum::is_quorate(others, context.size().saturating_sub(1));
    // Nobody who is well is sent away while one that stays is not.
    let is_wanted =
        |other: &Member<'_>| other.ordinal != member.ordinal && other.ordinal < context.desired.members.get();
    let all_well = context.members.iter().filter(|other| is_wanted(other)).all(Member::is_ready);
    if is_safe && (all_well || !member.is_ready()) {
        return Step::Remove { member, reason };
    }
    let reason = if is_safe { Reason::WaitingForReadyMembers } else { Reason::WaitingForQuorum };
    Step::Wait { reason, why: unready(context) }
}

/// etcd adds nobody while it is not in touch with all that have a vote.
fn add<'c, 'a>(context: &'c Context<'a>, member: String) -> Step<'c, 'a> {
    if context.serving_voters() < context.size() {
        return Step::Wait { reason: Reason::WaitingForReadyMembers, why: unready(context) };
    }
    if let Some(why) = strangers::learners(context) {
        return Step::Wait { reason: Reason::ForeignLearner, why };
    }
    if may_join(context, &member) {
        return Step::Add { member };
    }
    let waits = context.view.pods.get(&member).and_then(waiting::pod_waits_for);
    Step::Wait {
        reason: Reason::WaitingForPod,
        why: waits.map_or(member.clone(), |waits| format!("{member} ({waits})")),
    }
}

/// One whose pod does not come keeps no other waiting. Two members cannot spare one, and one alone can do without the other: so
/// the second comes when the third can follow.
fn next_to_join(context: &Context<'_>, voters: usize, free: impl Iterator<Item = i32>) -> Option<String> {
    let free = free.map(|ordinal| names::member(context.name, ordinal));
    let (here, awaited): (Vec<_>, Vec<_>) = free.partition(|member| may_join(context, member));
    let waits = here.is_empty() || (voters == 1 && here.len() < 2);
    let (first, second) = if waits { (awaited, here) } else { (here, awaited) };
    first.into_iter().chain(second).next()
}

/// Whether its agent runs and has said what is on its volume.
fn may_join(context: &Context<'_>, member: &str) -> bool {
    let report = context.view.member(member).and_then(|member| member.status.as_ref()?.data.as_ref());
    // What was said from another node says nothing about a pod that has none yet, or that does not start there.
    let is_here = |pod: &PodFact| pod.terminating.is_none() && pod.node.is_some() && pod.starting.is_none();
    let runs = context.view.pods.get(member).is_some_and(is_here) && !context.is_volume_ending(member);
    runs && report.is_some_and(|data| data.state != DataState::Unreadable)
}

fn unready(context: &Context<'_>) -> String {
    let unready = context.members.iter().filter(|member| member.seat.is_voter() && !member.is_ready());
    let foreign = context.membership.foreign_voters.iter().cloned();
    unready.map(|member| member.name.clone()).chain(foreign).collect::<Vec<_>>().join(", ")
}

/// Whoever leads and is about to go gives its place up first.
fn changes(context: &Context<'_>, step: &Step<'_, '_>) -> Vec<(Reason, MemberChange)> {
    match step {
        Step::Wait { .. } => Vec::new(),
        Step::Disarm { id } => vec![(Reason::AlarmDisarmed, MemberChange::DisarmCorrupt { id: id.clone() })],
        Step::Expel { stranger } => {
            let (member, id) = (stranger.name.clone(), stranger.id.clone());
            vec![(Reason::StrangerRemoved, MemberChange::Remove { member, id })]
        }
        Step::Add { member } => {
            let peer_url = addresses::peer_url(context, member);
            vec![(Reason::LearnerAdded, MemberChange::AddLearner { member: member.clone(), peer_url })]
        }
        Step::Promote { member } => {
            vec![(Reason::MemberPromoted, MemberChange::Promote { member: member.name.clone(), id: id(member) })]
        }
        Step::Remove { member, reason } => {
            let heir = member.leads().then(|| heir(context, member)).flatten();
            let moved = heir.map(|heir| {
                let (from, to, to_id) = (member.name.clone(), heir.name.clone(), id(heir));
                (Reason::LeaderMoved, MemberChange::MoveLeader { from, to, to_id })
            });
            let remove = MemberChange::Remove { member: member.name.clone(), id: id(member) };
            moved.into_iter().chain([(*reason, remove)]).collect()
        }
    }
}

fn heir<'c, 'a>(context: &'c Context<'a>, leader: &Member<'_>) -> Option<&'c Member<'a>> {
    let is_heir =
        |member: &&Member<'_>| member.ordinal != leader.ordinal && member.seat.is_voter() && member.is_ready();
    context.members.iter().find(is_heir)
}

fn id(member: &Member<'_>) -> String {
    member.seat.listed.as_ref().map(|listed| listed.id.clone()).unwrap_or_default()
}

/// Whoever is removed does not answer for it.
fn via(context: &Context<'_>, change: &MemberChange) -> Endpoints {
    let answers = |member: &&Member<'_>| match change {
        MemberChange::MoveLeader { from, .. } => member.name == *from,
        MemberChange::Remove { member: removed, .. } => member.name != *removed && member.seat.is_voter(),
        MemberChange::AddLearner { .. } | MemberChange::Promote { .. } | MemberChange::DisarmCorrupt { .. } => {
            member.seat.is_voter()
        }
    };
    size::endpoints(context, context.members.iter().filter(answers))
}

fn guard(context: &Context<'_>) -> Guard {
    Guard::MembersUnchanged {
        cluster_uid: context.uid.to_owned(),
        generation: context.view.cluster.metadata.generation,
        epoch: context.latch().map_or(0, |latch| latch.epoch),
        cluster_id: membership::cluster_id(context.view).unwrap_or_default().to_owned(),
        members: voters_and_learners(&context.membership.list),
    }
}
