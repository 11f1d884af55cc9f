//! What each member may do at its next start.
//!
//! A member may start empty as part of a new cluster if it has never started in this epoch, and only then. That it is
//! about to is on record before it does, so the permission needs no deadline: a member whose image takes an hour to arrive
//! begins an hour later, and one that has run, and lost its data, does not begin again. The same holds for one that joins,
//! whose ticket names the learner that it is.

use std::ops::ControlFlow;

use quorate_api::member::{ListedMember, Peer, Ticket};
use quorate_api::names;
use quorate_api::status::{Latch, LatchState};

use super::{Plan, divergence, recovery, size};
use crate::build::addresses;
use crate::context::{Context, Member};
use crate::membership;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    plan.epoch = context.latch().map(|latch| latch.epoch);
    for member in &context.members {
        let beginning = context.latch().and_then(|latch| recovery::ticket(context, latch, member));
        let given = beginning.or_else(|| divergence::fence(context, member, plan));
        let ticket = given.unwrap_or_else(|| match context.latch() {
            None => hold("members report their data before any may start empty", None),
            Some(latch) if may_begin(context, latch, member, plan) => bootstrap(context, latch),
            Some(latch) => join(context, latch, member, plan).unwrap_or(Ticket::Resume { epoch: latch.epoch }),
        });
        plan.tickets.insert(member.name.clone(), ticket);
    }
    keep_invitations(context, plan);
    ControlFlow::Continue(())
}

/// Whoever was just added joins, though what members have last told does not have it yet: from a list that is older than its ticket
/// it would seem to be whoever was here before, or nobody. The ticket would be gone when its agent makes use of it.
fn keep_invitations(context: &Context<'_>, plan: &mut Plan) {
    let Some(latch) = context.latch().filter(|latch| latch.state == LatchState::Formed) else { return };
    for (name, _) in context.view.reports() {
        let Some(given @ Ticket::Join { epoch, member_id, .. }) = context.view.member(name).map(|it| &it.spec.ticket)
        else {
            continue;
        };
        let is_listed = context.membership.list.iter().any(|listed| listed.id == *member_id);
        if *epoch == latch.epoch && !is_listed && !size::is_confirmed(context, plan) {
            plan.tickets.insert(name.to_owned(), given.clone());
        }
    }
}

/// The ticket of a pod that is not a member.
pub(crate) fn of_no_member(epoch: Option<i64>) -> Ticket {
    hold("the cluster does not have this member", epoch)
}

fn hold(reason: &str, epoch: Option<i64>) -> Ticket {
    Ticket::Hold { reason: reason.to_owned(), epoch }
}

fn may_begin(context: &Context<'_>, latch: &Latch, member: &Member<'_>, plan: &mut Plan) -> bool {
    let is_founder = latch.size.is_some_and(|size| member.ordinal < size);
    if !is_founder || member.has_begun() {
        return false;
    }
    if latch.state == LatchState::Issued {
        return true;
    }
    // It has the permission, and has not made use of it as far as anybody knows.
    let has_it = matches!(member.ticket, Some(Ticket::Bootstrap { epoch, .. }) if *epoch == latch.epoch);
    // Its record is there and knows nothing: then only the others can tell that it has never run.
    let is_new =
        member.ticket.is_some() && !member.has_started() && member.status.id.is_none() && is_listed_as_founder(member);
    has_it || (is_new && size::is_confirmed(context, plan))
}

/// Founders are listed by name from the start; who is added later has none until it has started.
fn is_listed_as_founder(member: &Member<'_>) -> bool {
    member.seat.listed.as_ref().is_none_or(|listed| !listed.name.is_empty())
}

fn bootstrap(context: &Context<'_>, latch: &Latch) -> Ticket {
    Ticket::Bootstrap {
        epoch: latch.epoch,
        token: token(context, latch.epoch),
        initial_cluster: initial_cluster(context, latch.size.unwrap_or_default()),
    }
}

/// Who was added and has never started joins. Its record must be there, because it is what makes the ticket single-use.
fn join(context: &Context<'_>, latch: &Latch, member: &Member<'_>, plan: &mut Plan) -> Option<Ticket> {
    let (id, given, cluster_id) = (member.seat.newcomer()?, member.ticket, latch.cluster_id.clone()?);
    if given.is_none() {
        return Some(hold("it is looked for what is on record of this member", Some(latch.epoch)));
    }
    // It has made use of its ticket, and gets no other one.
    if member.recorded_id() == Some(id) {
        let is_it = |ticket: &&Ticket| matches!(ticket, Ticket::Join { member_id, .. } if member_id == id);
        return given.filter(is_it).cloned();
    }
    // A member that nobody has asked for does not begin, nor does one that is to go before it has.
    let is_surplus = member.seat.is_voter() && member.ordinal >= context.desired.members.get();
    if is_surplus || context.is_uninvited(member) {
        return Some(of_no_member(Some(latch.epoch)));
    }
    let has_it = matches!(given, Some(Ticket::Join { member_id, .. }) if member_id == id);
    // Nothing is on record: then only a quorum can tell that it has never run.
    if !has_it && member.recorded_id().is_none() && !size::is_confirmed(context, plan) {
        return Some(hold("a quorum must confirm that this member has never run", Some(latch.epoch)));
    }
    let initial_cluster = context.membership.list.iter().flat_map(|listed| peers(context, listed)).collect();
    Some(Ticket::Join { epoch: latch.epoch, cluster_id, member_id: id.to_owned(), initial_cluster })
}

/// One that has not started has no name yet, and will have that of its pod.
fn peers(context: &Context<'_>, listed: &ListedMember) -> Vec<Peer> {
    let named = Some(listed.name.clone()).filter(|name| !name.is_empty());
    let pod = || membership::ordinal(context.name, listed).map(|ordinal| names::member(context.name, ordinal));
    let name = named.or_else(pod).unwrap_or_else(|| listed.id.clone());
    listed.peer_urls.iter().map(|url| Peer { name: name.clone(), url: url.clone() }).collect()
}

/// Tells this incarnation from every other one of this name, also in etcd's own handshake.
pub(super) fn token(context: &Context<'_>, epoch: i64) -> String {
    format!("{}-{}-{epoch}", context.name, context.uid)
}

fn initial_cluster(context: &Context<'_>, size: i32) -> Vec<Peer> {
    let founders = (0..size).map(|ordinal| names::member(context.name, ordinal));
    founders.map(|name| peer(context, &name)).collect()
}

pub(super) fn peer(context: &Context<'_>, member: &str) -> Peer {
    Peer { url: addresses::peer_url(context, member), name: member.to_owned() }
}
