//! From how many members to how many a cluster is on its way, from the wish to the last vote.
//!
//! A member that is replaced makes the numbers differ too; only a new wish begins a way. It is in the status, so that its end
//! can be told with where it began.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::status::{ClusterPhase, EtcdClusterStatus, ScalingStatus};

use crate::action::Event;
use crate::context::{Context, Member};
use crate::reason::Reason;

/// The way that the cluster is on, if it is on one.
pub(crate) fn of(context: &Context<'_>) -> Option<ScalingStatus> {
    let to = context.desired.members.get();
    let members = context.members.iter().filter(|member| !context.is_uninvited(member)).collect::<Vec<_>>();
    let is_voter = |member: &&&Member<'_>| member.seat.is_voter();
    let voters = i32::try_from(members.iter().filter(is_voter).count()).ok()?;
    let is_there = voters == to && i32::try_from(members.len()) == Ok(to);
    if !context.is_formed() || to == 0 || is_there {
        return None;
    }
    let status = context.status();
    let before = status.and_then(|status| status.scaling.as_ref());
    let followed = status.and_then(|status| status.observed_generation);
    let is_new_wish = followed.is_some() && followed != context.view.cluster.metadata.generation;
    match before {
        Some(before) if before.to == to => Some(before.clone()),
        None if !is_new_wish => None,
        _ => Some(ScalingStatus { from: voters, to, since: Time(context.now) }),
    }
}

/// The beginning and the end of a way.
pub(crate) fn event(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Event> {
    let told = |reason: Reason, way: &ScalingStatus| {
        let message = format!("{} -> {} members: {}", way.from, way.to, reason.sentence());
        Some(Event { reason, message })
    };
    match (&before.scaling, &after.scaling) {
        (Some(known), Some(way)) if known.to == way.to => None,
        (_, Some(way)) => told(Reason::ScalingBegun, way),
        // One that was put to sleep is not there.
        (Some(way), None) if after.cluster_size == Some(way.to) => told(Reason::ScalingEnded, way),
        (Some(way), None) if after.phase != Some(ClusterPhase::Hibernated) => told(Reason::ScalingTakenBack, way),
        _ => None,
    }
}
