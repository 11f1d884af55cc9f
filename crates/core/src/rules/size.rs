//! How many pods there are: as many as the members need, and as those need that are to become members.

use std::ops::ControlFlow;

use jiff::SignedDuration;
use quorate_api::member::{DataState, EtcdMemberStatus};
use quorate_api::names;
use quorate_api::status::LatchState;

use super::{Plan, access};
use crate::context::{Context, Member};
use crate::membership::{self, ListAnswer, ListSource};
use crate::object::{Kind, ObjectKey};
use crate::read::{Endpoint, Endpoints, Read};
use crate::reason::Reason;

/// Nothing tells when there is a quorum again that could answer.
const UNTIL_ASKED_AGAIN: SignedDuration = SignedDuration::from_secs(30);

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    // Whoever was added by hand gets no pod, and keeps the one that it has.
    let needs_pod = |member: &&Member<'_>| !context.is_uninvited(member);
    let invited = context.members.iter().filter(needs_pod).map(|member| member.ordinal + 1).max().unwrap_or(0);
    let there = pods_there(context);
    let seats = context.membership.pods().min(there).max(invited);
    // Whoever is to become a member reports first what is on its volume. Founders are as many as they were to be.
    let is_forming = context.latch().is_some_and(|latch| latch.state == LatchState::Issued);
    plan.pods = if is_forming { seats } else { seats.max(context.desired.members.get()) };
    // Fewer pods than now is a step that cannot be taken back if a member was overlooked.
    if !context.desired.members.is_zero() && plan.pods < there && !may_remove(context, plan) {
        // As many as there are, and not as many as there were when the caches last heard of them.
        plan.reads.insert(Read::Object(ObjectKey::new(Kind::StatefulSet, names::stateful_set(context.name))));
        plan.pods = there;
    }
    note_difference(context, plan);
    ControlFlow::Continue(())
}

fn note_difference(context: &Context<'_>, plan: &mut Plan) {
    let members = context.members.iter().filter(|member| !context.is_uninvited(member)).count();
    let wished = context.desired.members.get();
    if context.is_formed() && wished != 0 && i32::try_from(members) != Ok(wished) {
        let reason = Reason::Scaling;
        plan.note(reason, format!("{members} members, {wished} wished for: {}", reason.sentence()));
    }
}

/// Whether what is beyond the members may go: a quorum has said who they are, or there has never been an etcd to ask.
pub(super) fn may_remove(context: &Context<'_>, plan: &mut Plan) -> bool {
    let has_begun = context.is_formed()
        || context.view.reports().any(|(_, report)| has_trace(report))
        || context.view.heartbeats().any(|heartbeat| heartbeat.has_started());
    // A volume of which nobody has said yet that it is empty may hold anything.
    let has_report =
        |member: &str| context.view.reports().any(|(name, report)| name == member && report.data.is_some());
    let mut claims = context.view.member_claims();
    let is_unknown = claims.any(|(ordinal, ..)| !has_report(&names::member(context.name, ordinal)));
    !(has_begun || is_unknown) || is_confirmed(context, plan)
}

fn has_trace(report: &EtcdMemberStatus) -> bool {
    let data = report.data.as_ref();
    report.etcd.as_ref().is_some_and(|etcd| etcd.running)
        || data.is_some_and(|data| data.state != DataState::Empty || data.member_id.is_some())
}

/// Whether a quorum has confirmed who the members are. Asks for it if not.
pub(super) fn is_confirmed(context: &Context<'_>, plan: &mut Plan) -> bool {
    if context.membership.source == ListSource::Confirmed {
        return true;
    }
    let endpoints = endpoints(context, context.members.iter());
    let cause = match &context.view.member_list {
        _ if endpoints.members.is_empty() => "no member has an address at which it could be asked".to_owned(),
        ListAnswer::NotAsked => {
            plan.reads.insert(Read::MemberList(endpoints));
            plan.wake_after(UNTIL_ASKED_AGAIN);
            return false;
        }
        ListAnswer::Refused { cause } => {
            access::note_refusal(context, plan, "list its members", cause);
            plan.wake_after(UNTIL_ASKED_AGAIN);
            return false;
        }
        // Their agents say that they serve.
        ListAnswer::OutOfReach if context.is_quorate() => {
            access::note_closed_way(context, plan, &endpoints);
            plan.wake_after(UNTIL_ASKED_AGAIN);
            return false;
        }
        ListAnswer::Failed | ListAnswer::OutOfReach => {
            let mut asked = endpoints.members.iter().map(|endpoint| endpoint.member.as_str()).collect::<Vec<_>>();
            asked.sort_unstable();
            format!("{} were asked, and none has answered for a quorum", asked.join(", "))
        }
        ListAnswer::Answered { cluster_id, .. } => {
            let ours = membership::cluster_id(context.view).unwrap_or("one that nobody is sure of");
            format!("whoever answered belongs to cluster {cluster_id}, and this one is {ours}")
        }
    };
    if !plan.has_note(Reason::WaitingForMemberList) {
        plan.note(Reason::WaitingForMemberList, format!("{}: {cause}", Reason::WaitingForMemberList.sentence()));
    }
    plan.wake_after(UNTIL_ASKED_AGAIN);
    false
}

pub(super) fn endpoints<'c>(context: &Context<'_>, members: impl Iterator<Item = &'c Member<'c>>) -> Endpoints {
    let mut members = members.collect::<Vec<_>>();
    members.sort_by_key(|member| !member.is_ready());
    Endpoints {
        members: members.into_iter().filter_map(endpoint).collect(),
        client_port: context.desired.etcd().client_port,
        encrypted: context.desired.encrypted,
    }
}

fn endpoint(member: &Member<'_>) -> Option<Endpoint> {
    Some(Endpoint { member: member.name.clone(), address: member.pod?.address.clone()? })
}

fn pods_there(context: &Context<'_>) -> i32 {
    let set = context.view.stateful_set(&names::stateful_set(context.name));
    set.and_then(|set| set.spec.as_ref()?.replicas).unwrap_or(0)
}
