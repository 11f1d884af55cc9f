//! What is worth telling about a change of status. A status that stays the same says nothing.

use quorate_api::conditions::{self, ConditionType};
use quorate_api::status::{EtcdClusterStatus, MemberHealth, MemberRole, MemberStatus};

use crate::action::Event;
use crate::reason::Reason;
use crate::rules::Plan;

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
    moved.chain(members).chain(leader_event(before, after)).chain(ready_event(before, after)).collect()
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
