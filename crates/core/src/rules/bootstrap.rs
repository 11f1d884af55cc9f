//! From nothing, or from old volumes, to a formed cluster: exactly once.
//!
//! The latch has three positions. Absent: no member may start empty, all report what they have. `Issued`: all were empty,
//! members may start as a new cluster. `Formed`: none may start empty ever again in this epoch. Each step is written
//! before anything may rely on it, and tickets are withdrawn before the latch closes, so that at no moment a member could
//! start empty next to a formed cluster.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::member::{DataState, Peer, Ticket};
use quorate_api::names;
use quorate_api::status::{Latch, LatchState, MemberHealth};

use super::Plan;
use crate::build::addresses;
use crate::context::{Context, MemberFacts};
use crate::quorum;
use crate::reason::Reason;

/// How long a serving quorum waits for members that have not started yet, before they lose the right to start empty.
pub(crate) const LATECOMER_GRACE: SignedDuration = SignedDuration::from_secs(60);

const FIRST_EPOCH: i64 = 1;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if context.desired.members.is_zero() {
        return ControlFlow::Continue(());
    }
    match context.latch() {
        None => first_step(context, plan),
        Some(latch) if latch.state == LatchState::Issued => second_step(context, latch, plan),
        Some(_) => {}
    }
    ControlFlow::Continue(())
}

/// Absent to `Issued`, or to `Formed` if there is data already.
fn first_step(context: &Context<'_>, plan: &mut Plan) {
    let with_data = context.members.iter().filter(|member| member.cluster_id().is_some()).collect::<Vec<_>>();
    let cluster_ids = with_data.iter().filter_map(|member| member.cluster_id()).collect::<BTreeSet<_>>();
    match cluster_ids.iter().copied().collect::<Vec<_>>()[..] {
        [] => issue_if_all_empty(context, plan),
        // Somebody removed the status while the cluster was being formed.
        _ if is_open(context) => plan.note(Reason::BootstrapClosed, "withdrawing the permission to start empty"),
        [cluster_id] if !is_agreed(context, with_data.len()) => {
            let silent = name_those(context, |member| member.data_state().is_none());
            let detail = format!("waiting for {silent} to report before cluster {cluster_id} goes on");
            plan.note(Reason::WaitingForReports, detail);
        }
        [cluster_id] => {
            let epoch = with_data.iter().filter_map(|member| member.data_epoch()).max().unwrap_or(FIRST_EPOCH);
            plan.latch = Some(latch(context, LatchState::Formed, epoch, Some(cluster_id)));
            plan.note(Reason::Adopted, format!("cluster {cluster_id} goes on from its volumes"));
        }
        ref several => plan.note(Reason::ClusterIdMismatch, format!("found clusters {}", several.join(", "))),
    }
}

/// One volume does not speak for the cluster: a majority does, or all there are.
fn is_agreed(context: &Context<'_>, with_data: usize) -> bool {
    quorum::is_quorate(with_data, context.size()) || context.members.iter().all(|member| member.data_state().is_some())
}

fn issue_if_all_empty(context: &Context<'_>, plan: &mut Plan) {
    let unusable = name_those(context, |member| {
        let state = member.data_state();
        matches!(state, Some(DataState::Damaged | DataState::Foreign | DataState::Fenced)) || member.has_started()
    });
    let beyond = context.view.member_claims().filter(|(ordinal, ..)| *ordinal >= context.desired.members.get());
    let beyond = beyond.map(|(_, claim, _)| claim).collect::<Vec<_>>();
    let silent = name_those(context, |member| member.data_state().is_none());
    if !unusable.is_empty() {
        plan.note(Reason::DataNotEmpty, format!("the data of {unusable} must be looked at first"));
    } else if !beyond.is_empty() {
        let claims = beyond.join(", ");
        let detail =
            format!("volume claims {claims} are of a cluster that had more members; remove them or want as many");
        plan.note(Reason::DataNotEmpty, detail);
    } else if silent.is_empty() {
        plan.latch = Some(latch(context, LatchState::Issued, FIRST_EPOCH, None));
        plan.note(Reason::BootstrapIssued, "all members are empty and form a new cluster");
    } else {
        plan.note(Reason::WaitingForReports, format!("waiting for {silent} to report"));
    }
}

/// `Issued` to `Formed`.
fn second_step(context: &Context<'_>, issued: &Latch, plan: &mut Plan) {
    if !is_closing(context) {
        let missing = name_those(context, |member| !member.has_started());
        plan.note(Reason::WaitingForMembers, format!("waiting for {missing} to start"));
        return;
    }
    let running = context.members.iter().filter(|member| member.is_running());
    let cluster_ids = running.filter_map(MemberFacts::cluster_id).collect::<BTreeSet<_>>();
    match cluster_ids.iter().copied().collect::<Vec<_>>()[..] {
        _ if is_open(context) => plan.note(Reason::BootstrapClosed, "withdrawing the permission to start empty"),
        [cluster_id] => {
            plan.latch = Some(latch(context, LatchState::Formed, issued.epoch, Some(cluster_id)));
            plan.note(Reason::Formed, format!("cluster {cluster_id} has a quorum"));
        }
        [] => plan.note(Reason::WaitingForMembers, "waiting for a member to name its cluster"),
        ref several => plan.note(Reason::ClusterIdMismatch, format!("found clusters {}", several.join(", "))),
    }
}

/// Whether some member still holds a ticket to start empty, as one that cannot be read may.
fn is_open(context: &Context<'_>) -> bool {
    let holds_one = |member: &MemberFacts<'_>| matches!(member.ticket, Some(Ticket::Bootstrap { .. }));
    context.members.iter().any(holds_one) || !context.view.unreadable_members.is_empty()
}

/// Whether the time to start empty is over: all have started, or a quorum runs and the rest had their time. Once the
/// first ticket is withdrawn there is no way back.
fn is_closing(context: &Context<'_>) -> bool {
    if !context.latch().is_some_and(|latch| latch.state == LatchState::Issued) {
        return false;
    }
    if context.members.iter().any(|member| matches!(member.ticket, Some(Ticket::Resume { .. }))) {
        return true;
    }
    let all_started = context.members.iter().all(MemberFacts::has_started);
    let running = context.members.iter().filter(|member| member.is_running()).count();
    let waited = serving_since(context).is_some_and(|since| context.now.duration_since(since) >= LATECOMER_GRACE);
    quorum::is_quorate(running, context.size()) && (all_started || waited)
}

/// Since when a majority has been ready, as far as is on record. An operator that was away has not waited.
fn serving_since(context: &Context<'_>) -> Option<Timestamp> {
    let members = &context.status()?.members;
    let ready = members.iter().filter(|member| member.status == MemberHealth::Ready);
    let mut since = ready.map(|member| member.last_transition_time.0).collect::<Vec<_>>();
    since.sort_unstable();
    since.get(quorum::quorum(context.size()) - 1).copied()
}

/// What a member may do at its next start.
pub(crate) fn ticket(context: &Context<'_>) -> Ticket {
    match context.latch() {
        None => Ticket::Hold { reason: "members report their data before any may start empty".to_owned() },
        Some(latch) if latch.state == LatchState::Issued && !is_closing(context) => Ticket::Bootstrap {
            epoch: latch.epoch,
            token: token(context, latch.epoch),
            initial_cluster: initial_cluster(context),
        },
        Some(latch) => Ticket::Resume { epoch: latch.epoch },
    }
}

/// When the rule changes its mind by the clock alone.
pub(crate) fn next_change(context: &Context<'_>) -> Option<SignedDuration> {
    context.latch().filter(|latch| latch.state == LatchState::Issued)?;
    let left = LATECOMER_GRACE - context.now.duration_since(serving_since(context)?);
    (left > SignedDuration::ZERO).then_some(left)
}

/// Tells this incarnation from every other one of this name, also in etcd's own handshake.
fn token(context: &Context<'_>, epoch: i64) -> String {
    format!("{}-{}-{epoch}", context.name, context.uid)
}

fn initial_cluster(context: &Context<'_>) -> Vec<Peer> {
    let peer = |member: &MemberFacts<'_>| Peer {
        name: member.name.clone(),
        url: addresses::peer_url(context, &names::member(context.name, member.ordinal)),
    };
    context.members.iter().map(peer).collect()
}

fn latch(context: &Context<'_>, state: LatchState, epoch: i64, cluster_id: Option<&str>) -> Latch {
    Latch { state, epoch, since: Time(context.now), cluster_id: cluster_id.map(str::to_owned) }
}

fn name_those(context: &Context<'_>, which: impl Fn(&MemberFacts<'_>) -> bool) -> String {
    let names = context.members.iter().filter(|member| which(member)).map(|member| member.name.as_str());
    names.collect::<Vec<_>>().join(", ")
}
