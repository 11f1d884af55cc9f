//! From nothing, or from old volumes, to a formed cluster: exactly once.
//!
//! The latch has three positions. Absent: no member may start empty, all report what they have. `Issued`: all were empty,
//! members may start as a new cluster. `Formed`: the cluster has had a quorum, and clients may find it. Each step is written
//! before anything may rely on it. Which members may still start empty is for the tickets to say.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::member::{DataState, Ticket};
use quorate_api::names;
use quorate_api::status::{Latch, LatchState};

use super::{Plan, recovery};
use crate::context::{Context, Member, MemberFacts};
use crate::membership;
use crate::object::{Kind, ObjectKey};
use crate::quorum;
use crate::read::Read;
use crate::reason::Reason;

const FIRST_EPOCH: i64 = 1;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if context.desired.members.is_zero() {
        return ControlFlow::Continue(());
    }
    match context.latch() {
        None => first_step(context, plan),
        Some(latch) if latch.state == LatchState::Issued && latch.recovery.is_none() => {
            second_step(context, latch, plan);
        }
        Some(_) => {}
    }
    ControlFlow::Continue(())
}

/// Absent to `Issued`, or to `Formed` if there is data already.
fn first_step(context: &Context<'_>, plan: &mut Plan) {
    // Of all that report, members or not: one volume's list must not hide what is on the others.
    let cluster_ids = membership::newest_cluster_ids(context.view);
    let has_data = |member: &&Member<'_>| member.cluster_id().is_some_and(|id| cluster_ids.contains(id));
    let with_data = context.members.iter().filter(has_data).collect::<Vec<_>>();
    match cluster_ids.iter().copied().collect::<Vec<_>>()[..] {
        // Somebody removed the status while the cluster was being formed.
        _ if is_open(context) => plan.note(Reason::BootstrapClosed, "withdrawing the permission to start empty"),
        [] => issue_if_all_empty(context, plan),
        [cluster_id] if !is_agreed(context, plan, with_data.len()) => {
            let silent = silent(context, plan).join(", ");
            let detail = format!("waiting for {silent} to report before cluster {cluster_id} goes on");
            plan.note(Reason::WaitingForReports, detail);
        }
        [cluster_id] => {
            let epoch = with_data.iter().filter_map(|member| member.data_epoch()).max().unwrap_or(FIRST_EPOCH);
            let cluster_id = Some(cluster_id.to_owned());
            // Nobody knows under which names it began, so no member of it can begin any more.
            plan.latch = Some(Latch { cluster_id, ..latch(context, LatchState::Formed, epoch) });
            plan.note(Reason::Adopted, adopted(context));
            plan.data_loss = recovery::loss_of_adopted(context, epoch);
        }
        ref several => plan.note(Reason::ClusterIdMismatch, format!("found clusters {}", several.join(", "))),
    }
}

fn adopted(context: &Context<'_>) -> String {
    let (found, wished) = (context.size(), context.desired.members.get());
    let size = if i32::try_from(found) == Ok(wished) { String::new() } else { format!(", {wished} are wished for") };
    format!("a cluster of {found} members goes on from its volumes{size}")
}

/// One volume does not speak for the cluster: a majority does, of those that it lists and of those that are wished for, or
/// all there are.
fn is_agreed(context: &Context<'_>, plan: &Plan, with_data: usize) -> bool {
    let wished = usize::try_from(context.desired.members.get()).unwrap_or_default();
    quorum::is_quorate(with_data, context.size().max(wished)) || silent(context, plan).is_empty()
}

/// Pods that have not said yet what is on their volumes.
fn silent(context: &Context<'_>, plan: &Plan) -> Vec<String> {
    let names = (0..plan.pods).map(|ordinal| names::member(context.name, ordinal));
    let has_reported = |name: &str| context.view.member(name)?.status.as_ref()?.data.as_ref().map(|_| ());
    names.filter(|name| has_reported(name).is_none()).collect()
}

fn issue_if_all_empty(context: &Context<'_>, plan: &mut Plan) {
    let unusable = name_those(context, |member| {
        use DataState::{Damaged, Fenced, Foreign, Unreadable};
        let state = member.data_state();
        matches!(state, Some(Damaged | Unreadable | Foreign | Fenced)) || member.has_started()
    });
    let beyond = context.view.member_claims().filter(|(ordinal, ..)| *ordinal >= context.desired.members.get());
    let beyond = beyond.map(|(_, claim, _)| claim).collect::<Vec<_>>();
    let silent = silent(context, plan).join(", ");
    if !unusable.is_empty() {
        plan.note(Reason::DataNotEmpty, format!("the data of {unusable} must be looked at first"));
    } else if !beyond.is_empty() {
        let claims = beyond.join(", ");
        let detail = format!(
            "volume claims {claims} are of a cluster that had more members; remove them, or create the EtcdCluster again with as many replicas"
        );
        plan.note(Reason::DataNotEmpty, detail);
    } else if silent.is_empty() {
        // What was heard of them may be older than a beginning.
        let records = (0..plan.pods).map(|ordinal| names::member(context.name, ordinal));
        plan.reads.extend(records.map(|name| Read::Object(ObjectKey::new(Kind::EtcdMember, name))));
        plan.latch = Some(Latch {
            size: Some(context.desired.members.get()),
            ..latch(context, LatchState::Issued, FIRST_EPOCH)
        });
        plan.note(Reason::BootstrapIssued, "all members are empty and form a new cluster");
    } else {
        plan.note(Reason::WaitingForReports, format!("waiting for {silent} to report"));
    }
}

/// `Issued` to `Formed`.
fn second_step(context: &Context<'_>, issued: &Latch, plan: &mut Plan) {
    let running = context.members.iter().filter(|member| member.is_running()).collect::<Vec<_>>();
    if !quorum::is_quorate(running.len(), context.size()) {
        let missing = name_those(context, |member| !member.is_running());
        plan.note(Reason::WaitingForMembers, format!("waiting for {missing} to start"));
        return;
    }
    let cluster_ids = running.iter().filter_map(|member| member.cluster_id()).collect::<BTreeSet<_>>();
    match cluster_ids.iter().copied().collect::<Vec<_>>()[..] {
        [cluster_id] => {
            let formed = latch(context, LatchState::Formed, issued.epoch);
            plan.latch = Some(Latch { cluster_id: Some(cluster_id.to_owned()), size: issued.size, ..formed });
            plan.note(Reason::Formed, format!("cluster {cluster_id} has a quorum"));
        }
        [] => plan.note(Reason::WaitingForMembers, "waiting for a member to name its cluster"),
        ref several => plan.note(Reason::ClusterIdMismatch, format!("found clusters {}", several.join(", "))),
    }
}

/// Whether some member still holds a ticket to start empty, as one that cannot be read may.
fn is_open(context: &Context<'_>) -> bool {
    let holds_one = |member: &Member<'_>| matches!(member.ticket, Some(Ticket::Bootstrap { .. }));
    context.members.iter().any(holds_one) || !context.view.unreadable_members.is_empty()
}

fn latch(context: &Context<'_>, state: LatchState, epoch: i64) -> Latch {
    Latch::new(state, epoch, Time(context.now))
}

fn name_those(context: &Context<'_>, which: impl Fn(&MemberFacts<'_>) -> bool) -> String {
    let names = context.members.iter().filter(|member| which(member)).map(|member| member.name.as_str());
    names.collect::<Vec<_>>().join(", ")
}
