//! The members as the status shows them, from pods and Leases.
//!
//! A member is `Ready` while its pod is ready and its Lease is renewed, `NotReady` if its pod is not ready, and `Unknown`
//! if only the Lease has run out. `Unknown` turns into `NotReady` after a grace period, and is never taken for dead. One
//! that serves another cluster's data is `NotReady`, however well it does.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::status::{MemberHealth, MemberReason, MemberRole, MemberStatus};

use crate::context::{Context, MemberFacts};
use crate::rules::restart;

/// All members, by ordinal.
pub(crate) fn observe(context: &Context<'_>) -> Vec<MemberStatus> {
    let mut members = context.members.iter().map(|member| observe_one(context, member)).collect::<Vec<_>>();
    keep_one_leader(context, &mut members);
    members
}

fn observe_one(context: &Context<'_>, member: &MemberFacts<'_>) -> MemberStatus {
    let before = previous(context, &member.name);
    let (status, reason) = health(context, member, before);
    let since = before
        .filter(|before| before.status == status)
        .map_or(Time(context.now), |before| before.last_transition_time.clone());
    let etcd = member.report.and_then(|report| report.etcd.as_ref());
    MemberStatus {
        name: member.name.clone(),
        id: member.heartbeat.member_id.clone().or_else(|| before.and_then(|before| before.id.clone())),
        role: member.heartbeat.role,
        status,
        reason,
        version: etcd.and_then(|etcd| etcd.version.clone()),
        last_transition_time: since,
    }
}

fn previous<'a>(context: &Context<'a>, name: &str) -> Option<&'a MemberStatus> {
    context.status()?.members.iter().find(|member| member.name == name)
}

fn health(
    context: &Context<'_>,
    member: &MemberFacts<'_>,
    before: Option<&MemberStatus>,
) -> (MemberHealth, MemberReason) {
    let pod_ready = member.pod.is_some_and(|pod| pod.ready && pod.terminating.is_none());
    if !pod_ready {
        return (MemberHealth::NotReady, MemberReason::PodNotReady);
    }
    if context.is_stranger(member) {
        return (MemberHealth::NotReady, MemberReason::OtherCluster);
    }
    if member.heartbeat.is_alive(context.now) {
        return (MemberHealth::Ready, MemberReason::LeaseSucceeded);
    }
    match before {
        // It does not become unknown again by waiting longer.
        Some(before) if before.reason == MemberReason::UnknownGracePeriodExceeded => {
            (MemberHealth::NotReady, MemberReason::UnknownGracePeriodExceeded)
        }
        Some(before)
            if before.status == MemberHealth::Unknown
                && context.now.duration_since(before.last_transition_time.0) >= context.desired.unknown_grace =>
        {
            (MemberHealth::NotReady, MemberReason::UnknownGracePeriodExceeded)
        }
        _ => (MemberHealth::Unknown, MemberReason::LeaseExpired),
    }
}

/// Two members may both say that they lead: one of them has not noticed yet. The higher term is the later election. A
/// member that is not ready leads nobody.
fn keep_one_leader(context: &Context<'_>, members: &mut [MemberStatus]) {
    let leader = members
        .iter()
        .zip(&context.members)
        .filter(|(status, _)| status.role == Some(MemberRole::Leader) && status.status == MemberHealth::Ready)
        .max_by_key(|(_, facts)| (facts.heartbeat.term, facts.heartbeat.renewed))
        .map(|(status, _)| status.name.clone());
    for member in members.iter_mut().filter(|member| member.role == Some(MemberRole::Leader)) {
        if Some(&member.name) != leader.as_ref() {
            member.role = Some(MemberRole::Member);
        }
    }
}

/// How long until the first member that is ready falls silent, unless it renews its Lease.
pub(crate) fn first_expiry(context: &Context<'_>) -> Option<SignedDuration> {
    first(context, |status, facts| (status.status == MemberHealth::Ready).then_some(facts.heartbeat.expires)?)
}

/// How long until the first grace period ends of members that are not.
pub(crate) fn end_of_grace(context: &Context<'_>) -> Option<SignedDuration> {
    let desired = context.desired;
    first(context, |status, facts| match status.status {
        MemberHealth::Ready => None,
        MemberHealth::Unknown => status.last_transition_time.0.checked_add(desired.unknown_grace).ok(),
        MemberHealth::NotReady => restart::stuck_since(status, facts).checked_add(desired.not_ready_grace).ok(),
    })
}

fn first(
    context: &Context<'_>,
    deadline: impl Fn(&MemberStatus, &MemberFacts<'_>) -> Option<Timestamp>,
) -> Option<SignedDuration> {
    let observed = observe(context);
    let deadlines = observed.iter().zip(&context.members).filter_map(|(status, facts)| deadline(status, facts));
    deadlines.map(|at| at.duration_since(context.now)).filter(SignedDuration::is_positive).min()
}
