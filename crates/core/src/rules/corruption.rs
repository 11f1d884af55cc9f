//! etcd's own word that a member's data is corrupt: a second opinion is asked for at once, and then it counts.
//!
//! The comparison is that of [`divergence`]. If all others agree and are a quorum without it, the member is treated as one that
//! was seen to differ often enough: it is fenced and replaced. etcd keeps alarms by identifier, also those of members that are
//! gone, and refuses most requests as long as there is one. So the last step is to disarm it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::status::{ConsistencyStatus, DifferingMember};

use super::{Plan, divergence};
use crate::alarms;
use crate::context::{Context, Member};
use crate::hashes::{self, Comparison, DataHash};
use crate::membership::ListSource;
use crate::quorum;
use crate::reason::Reason;

/// Says of whom etcd says so, and whether anybody else can do something about it.
pub(super) fn note(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    let raised = alarms::corrupt(context);
    if raised.is_empty() || !context.is_formed() {
        return ControlFlow::Continue(());
    }
    let member_of = |id: &String| context.members.iter().find(|member| id_of(member) == Some(id));
    let is_listed = |id: &String| context.membership.list.iter().any(|listed| listed.id == *id);
    // A learner is replaced, and what is left of one that is gone is disarmed. Somebody else's member is nobody's to judge.
    let may_pass = raised.iter().all(|id| match member_of(id) {
        Some(member) => !member.seat.is_voter() || may_pass(context, member),
        None => !is_listed(id),
    });
    let names = raised.iter().map(|id| member_of(id).map_or(id.as_str(), |member| member.name.as_str()));
    let names = names.collect::<Vec<_>>().join(", ");
    let reason = Reason::MemberCorrupt;
    plan.push_note(reason, format!("{names}: {}", reason.sentence()), may_pass);
    ControlFlow::Continue(())
}

/// Not if nobody is left to compare it with, its owner trusts it, or a comparison did not bear it out.
fn may_pass(context: &Context<'_>, member: &Member<'_>) -> bool {
    let known = context.status().and_then(|status| status.consistency.as_ref());
    let is_borne_out = known.is_none_or(|known| {
        let is_compared = known.failure.is_none() && known.alarmed.iter().any(|id| Some(id) == id_of(member));
        !is_compared || divergence::is_believed(member, known)
    });
    context.size() > 2 && is_borne_out && !divergence::is_trusted_by_owner(context, member)
}

/// Whether etcd says of the member that its data is corrupt.
pub(super) fn is_alarmed(context: &Context<'_>, member: &Member<'_>) -> bool {
    id_of(member).is_some_and(|id| alarms::corrupt(context).contains(id))
}

/// Voters of which etcd says that their data is corrupt.
pub(super) fn voters<'c, 'a>(context: &'c Context<'a>) -> Vec<&'c Member<'a>> {
    let corrupt = alarms::corrupt(context);
    let is_corrupt = |member: &&Member<'_>| id_of(member).is_some_and(|id| corrupt.contains(id));
    context.members.iter().filter(|member| member.seat.is_voter()).filter(is_corrupt).collect()
}

pub(super) fn ids(context: &Context<'_>) -> Vec<String> {
    voters(context).into_iter().filter_map(id_of).cloned().collect()
}

fn id_of<'c>(member: &'c Member<'_>) -> Option<&'c String> {
    member.seat.listed.as_ref().map(|listed| &listed.id)
}

/// What a comparison comes to if all others agree and are a quorum. What the member itself has does not count: etcd has looked
/// at it before, and what is asked for now may be what a leader has sent it since.
pub(super) fn borne_out(
    context: &Context<'_>,
    answers: &BTreeMap<String, Result<DataHash, String>>,
) -> Option<ConsistencyStatus> {
    let corrupt = voters(context);
    let names = corrupt.iter().map(|member| member.name.as_str()).collect::<BTreeSet<_>>();
    let others = answers.iter().filter(|(name, _)| !names.contains(name.as_str()));
    let others = others.map(|(name, answer)| (name.clone(), answer.clone())).collect::<BTreeMap<_, _>>();
    let all = context.size().saturating_sub(corrupt.len());
    if corrupt.is_empty() || others.len() != all || !quorum::is_quorate(all, context.size()) {
        return None;
    }
    let cluster_id = context.latch().and_then(|latch| latch.cluster_id.as_deref()).unwrap_or_default();
    let Comparison::Same { revision } = hashes::compare(&others, cluster_id, all) else { return None };
    let differing = corrupt.iter().filter_map(|member| {
        let (name, id) = (member.name.clone(), id_of(member)?.clone());
        Some(DifferingMember { name, id, seen: divergence::BELIEVED })
    });
    Some(ConsistencyStatus {
        last_compared: Some(Time(context.now)),
        revision: Some(revision),
        differing: differing.collect(),
        ..ConsistencyStatus::default()
    })
}

/// A member that is gone, of which there is still an alarm.
pub(super) fn left_behind(context: &Context<'_>) -> Option<String> {
    let is_listed = |id: &String| context.membership.list.iter().any(|listed| listed.id == *id);
    // Where no list is known, nobody is known to be gone.
    let corrupt = Some(alarms::corrupt(context)).filter(|_| context.membership.source >= ListSource::Reported)?;
    corrupt.into_iter().find(|id| !is_listed(id))
}
