//! What is worth telling about a change of status. A status that stays the same says nothing.

use quorate_api::conditions::{self, ConditionType};
use quorate_api::status::{DifferingMember, EtcdClusterStatus, MemberHealth, MemberRole, MemberStatus, StrangerStatus};

use crate::action::Event;
use crate::reason::Reason;
use crate::rules::Plan;
use crate::rules::divergence::BELIEVED;
use crate::rules::strangers;
use crate::scaling;

/// From the status before to the status after.
pub(crate) fn between(before: Option<&EtcdClusterStatus>, after: &EtcdClusterStatus, plan: &Plan) -> Vec<Event> {
    let nothing = EtcdClusterStatus::default();
    let before = before.unwrap_or(&nothing);
    let moved = plan.latch.iter().flat_map(|_| plan.notes.iter());
    let moved = moved.map(|note| Event { reason: note.reason, message: note.detail.clone() });
    let members = after.members.iter().filter_map(|member| {
        let known = before.members.iter().find(|known| known.name == member.name);
        member_event(known, member)
    });
    let others = [leader_event(before, after), ready_event(before, after), divergence_event(before, after)];
    let others = others.into_iter().chain([scaling::event(before, after)]);
    moved.chain(members).chain(stranger_events(before, after)).chain(others.flatten()).collect()
}

/// Whoever was added by hand is news once.
fn stranger_events(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<Event> {
    let is_news = |stranger: &&StrangerStatus| before.strangers.iter().all(|known| known.id != stranger.id);
    let told = after.strangers.iter().filter(is_news).map(|stranger| {
        let reason = strangers::reason(stranger.under_our_name, stranger.learner);
        Event { reason, message: format!("{} ({}): {}", stranger.name, stranger.id, reason.sentence()) }
    });
    told.collect()
}

/// A difference is news once, when it is believed.
fn divergence_event(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Event> {
    let believed = |status: &EtcdClusterStatus| {
        let differing = status.consistency.iter().flat_map(|known| known.differing.clone());
        differing.filter(|found| found.seen >= BELIEVED).collect::<Vec<DifferingMember>>()
    };
    let (known, found) = (believed(before), believed(after));
    let news = found.iter().filter(|found| !known.contains(found)).map(|found| found.name.as_str()).collect::<Vec<_>>();
    let is_undecided = after.consistency.as_ref().is_some_and(|known| known.undecided);
    let reason = if is_undecided { Reason::MembersDiffer } else { Reason::MemberDiverged };
    (!news.is_empty()).then(|| Event { reason, message: format!("{}: {}", news.join(", "), reason.sentence()) })
}

/// A member that was never ready is news only once it is.
fn member_event(before: Option<&MemberStatus>, after: &MemberStatus) -> Option<Event> {
    let was = before.map(|before| before.status);
    if was == Some(after.status) || (was.is_none() && after.status != MemberHealth::Ready) {
        return None;
    }
    let reason = match after.status {
        MemberHealth::Ready => Reason::MemberReady,
        MemberHealth::NotReady => Reason::MemberNotReady,
        MemberHealth::Unknown => Reason::MemberUnknown,
    };
    Some(Event { reason, message: format!("{}: {:?}", after.name, after.reason) })
}

fn leader_event(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Event> {
    let leader = leader(after)?;
    (self::leader(before) != Some(leader))
        .then(|| Event { reason: Reason::LeaderElected, message: format!("{leader} leads") })
}

fn leader(status: &EtcdClusterStatus) -> Option<&str> {
    let leads = |member: &&MemberStatus| member.role == Some(MemberRole::Leader);
    status.members.iter().find(leads).map(|member| member.name.as_str())
}

fn ready_event(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Event> {
    let condition = conditions::find(&after.conditions, ConditionType::Ready)?;
    let before = conditions::find(&before.conditions, ConditionType::Ready);
    let was = before.map_or("False", |before| before.status.as_str());
    let named = Reason::ALL.iter().copied().find(|reason| reason.as_str() == condition.reason);
    let reason = named.unwrap_or(Reason::QuorumLost);
    (was != condition.status).then(|| Event { reason, message: condition.message.clone() })
}
