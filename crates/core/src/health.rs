//! Whether each member can be counted on, from pods and Leases. Judged once, before any rule is asked.
//!
//! A member is `Ready` while its pod is ready and its Lease is renewed, `NotReady` if its pod is not ready, and `Unknown`
//! if only the Lease has run out. `Unknown` turns into `NotReady` after a grace period, and is never taken for dead. One
//! that serves another cluster's data is `NotReady`, however well it does.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::status::{MemberHealth, MemberReason, MemberRole, MemberStatus};

use crate::context::{Context, Member, MemberFacts, is_stranger};
use crate::validate::Desired;
use crate::view::View;
use crate::waiting;

/// However often a restart did not help, it is tried again after this time.
const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_hours(1);

/// How long a pod that was made at `until` gets, and how long a member must be ready for its trouble to be over: as long as
/// the trouble has lasted.
pub(crate) fn patience(desired: &Desired, troubled: Timestamp, until: Timestamp) -> SignedDuration {
    let grace = desired.not_ready_grace;
    until.duration_since(troubled).clamp(grace, grace.max(LONGEST_BACK_OFF))
}

/// All members, by ordinal.
pub(crate) fn judge<'a>(
    view: &View,
    desired: &Desired,
    facts: Vec<MemberFacts<'a>>,
    now: Timestamp,
) -> Vec<Member<'a>> {
    let judge = |facts: MemberFacts<'a>| Member { status: judge_one(view, desired, &facts, now), facts };
    let mut members = facts.into_iter().map(judge).collect::<Vec<_>>();
    keep_one_leader(&mut members);
    members
}

fn judge_one(view: &View, desired: &Desired, member: &MemberFacts<'_>, now: Timestamp) -> MemberStatus {
    let before = previous(view, &member.name);
    let (status, reason) = health(view, desired, member, before, now);
    let since =
        before.filter(|before| before.status == status).map_or(Time(now), |before| before.last_transition_time.clone());
    let etcd = member.report.and_then(|report| report.etcd.as_ref());
    let known_id = || before.and_then(|before| before.id.clone());
    MemberStatus {
        name: member.name.clone(),
        id: member.seat.newcomer().map(str::to_owned).or(member.heartbeat.member_id.clone()).or_else(known_id),
        role: if member.seat.is_voter() { member.heartbeat.role } else { Some(MemberRole::Learner) },
        status,
        reason,
        version: etcd.and_then(|etcd| etcd.version.clone()),
        message: if status == MemberHealth::Ready { None } else { waiting::waits_for(member) },
        troubled_since: troubled_since(desired, before, status, &since, now),
        last_transition_time: since,
    }
}

/// A member that was restarted, and is ready, may be so for a moment only: what it went through is not forgotten at once.
fn troubled_since(
    desired: &Desired,
    before: Option<&MemberStatus>,
    status: MemberHealth,
    since: &Time,
    now: Timestamp,
) -> Option<Time> {
    let troubled = before?.troubled_since.clone()?;
    let lasts = patience(desired, troubled.0, since.0);
    let is_over = status == MemberHealth::Ready && now.duration_since(since.0) >= lasts;
    (!is_over).then_some(troubled)
}

fn previous<'a>(view: &'a View, name: &str) -> Option<&'a MemberStatus> {
    view.cluster.status.as_ref()?.members.iter().find(|member| member.name == name)
}

fn health(
    view: &View,
    desired: &Desired,
    member: &MemberFacts<'_>,
    before: Option<&MemberStatus>,
    now: Timestamp,
) -> (MemberHealth, MemberReason) {
    // Its kubelet may still count it as ready, for who was here before.
    if member.seat.newcomer().is_some() || member.is_learner() {
        return (MemberHealth::NotReady, MemberReason::Learning);
    }
    let pod_ready = member.pod.is_some_and(|pod| pod.ready && pod.terminating.is_none());
    // It has got its vote and uses it, and its kubelet has not looked since.
    let was_learning = before.is_some_and(|before| before.reason == MemberReason::Learning);
    if !pod_ready && was_learning && member.is_heard() && member.heartbeat.is_alive(now) {
        return (MemberHealth::NotReady, MemberReason::Learning);
    }
    if !pod_ready {
        return (MemberHealth::NotReady, MemberReason::PodNotReady);
    }
    if is_stranger(view, member) {
        return (MemberHealth::NotReady, MemberReason::OtherCluster);
    }
    if member.heartbeat.is_alive(now) {
        return (MemberHealth::Ready, MemberReason::LeaseSucceeded);
    }
    match before {
        // It does not become unknown again by waiting longer.
        Some(before) if before.reason == MemberReason::UnknownGracePeriodExceeded => {
            (MemberHealth::NotReady, MemberReason::UnknownGracePeriodExceeded)
        }
        Some(before)
            if before.status == MemberHealth::Unknown
                && now.duration_since(before.last_transition_time.0) >= desired.unknown_grace =>
        {
            (MemberHealth::NotReady, MemberReason::UnknownGracePeriodExceeded)
        }
        _ => (MemberHealth::Unknown, MemberReason::LeaseExpired),
    }
}

/// Two members may both say that they lead: one of them has not noticed yet. The higher term is the later election. A
/// member that is not ready leads nobody.
fn keep_one_leader(members: &mut [Member<'_>]) {
    let leads = |member: &Member<'_>| member.status.role == Some(MemberRole::Leader);
    let leader = members
        .iter()
        .filter(|member| leads(member) && member.is_ready())
        .max_by_key(|member| (member.heartbeat.term, member.heartbeat.renewed))
        .map(|member| member.name.clone());
    for member in members.iter_mut().filter(|member| leads(member)) {
        if Some(&member.facts.name) != leader.as_ref() {
            member.status.role = Some(MemberRole::Member);
        }
    }
}

/// How long until the first member that is ready falls silent, unless it renews its Lease.
pub(crate) fn first_expiry(context: &Context<'_>) -> Option<SignedDuration> {
    let ready = context.members.iter().filter(|member| member.is_ready());
    first(context, ready.filter_map(|member| member.heartbeat.expires))
}

/// How long until the first member that was not heard of counts as not ready.
pub(crate) fn end_of_grace(context: &Context<'_>) -> Option<SignedDuration> {
    let silent = context.members.iter().filter(|member| member.status.status == MemberHealth::Unknown);
    let end =
        |member: &Member<'_>| member.status.last_transition_time.0.checked_add(context.desired.unknown_grace).ok();
    first(context, silent.filter_map(end))
}

fn first(context: &Context<'_>, deadlines: impl Iterator<Item = Timestamp>) -> Option<SignedDuration> {
    deadlines.map(|at| at.duration_since(context.now)).filter(SignedDuration::is_positive).min()
}
