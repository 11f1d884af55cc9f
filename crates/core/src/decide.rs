//! One pass: which spec to follow, what the rules say, what is true, and what must be known for certain first.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use quorate_api::EtcdClusterStatus;
use quorate_api::names;
use quorate_api::status::{MemberHealth, MemberStatus};

use crate::action::{Action, Decision};
use crate::build;
use crate::context::Context;
use crate::events;
use crate::health;
use crate::object::{Kind, ObjectKey};
use crate::read::Read;
use crate::rules::{self, Plan, delete};
use crate::status;
use crate::validate::{self, Accepted};
use crate::view::View;

/// Look again after this time even if nothing is reported: a missed event must not last.
const RESYNC: SignedDuration = SignedDuration::from_secs(300);
/// Secrets are not watched. One that is in the way is mostly that of a deleted cluster of the same name, about to go.
const WHILE_A_SECRET_IS_TAKEN: SignedDuration = SignedDuration::from_secs(2);

/// Decides what to do about a cluster.
pub fn decide(view: &View, now: Timestamp) -> Decision {
    if delete::is_deleting(view) {
        let set = Read::Object(ObjectKey::new(Kind::StatefulSet, names::stateful_set(view.identity.name())));
        let missing = view.stateful_set(view.identity.name()).is_none().then_some(set);
        return quiet(view, delete::actions(view), status::deleting(view, now), missing);
    }
    let Accepted { desired, defects } = validate::accept(view);
    let Some(desired) = desired else {
        return quiet(view, Vec::new(), status::invalid(view, &defects, now), None);
    };
    let context = Context::new(view, &desired, now);
    let mut plan = rules::run(&context);
    if !view.taken_secrets.is_empty() {
        plan.wake_after(WHILE_A_SECRET_IS_TAKEN);
    }
    let status = status::of(&context, &plan, &defects);
    let rest = [plan.wake, health::end_of_grace(&context), Some(RESYNC)].into_iter().flatten().min().unwrap_or(RESYNC);
    let requeue = health::first_expiry(&context).map_or(rest, |expiry| expiry.min(rest));
    let events = events::between(view.cluster.status.as_ref(), &status, &plan);
    let status_changed = is_changed(view, &status);
    let doubts =
        if plan.actions.is_empty() && !status_changed { BTreeSet::new() } else { doubts(&context, &plan, &status) };
    let reads = plan.reads.iter().cloned().chain(doubts);
    let reads = unread(view, reads);
    Decision { reads, actions: plan.actions, status, status_changed, events, requeue, rest }
}

/// A pass that does not look at members.
fn quiet(view: &View, actions: Vec<Action>, status: EtcdClusterStatus, read: Option<Read>) -> Decision {
    let status_changed = is_changed(view, &status);
    let reads = if actions.is_empty() && !status_changed {
        Vec::new()
    } else {
        unread(view, read.into_iter().chain([Read::Cluster]))
    };
    Decision { reads, actions, status, status_changed, events: Vec::new(), requeue: RESYNC, rest: RESYNC }
}

fn unread(view: &View, reads: impl Iterator<Item = Read>) -> Vec<Read> {
    reads.filter(|read| !view.reads.contains(read)).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Times lose their fractions when they are written, so statuses are compared as they are written.
fn is_changed(view: &View, status: &EtcdClusterStatus) -> bool {
    let as_written = |status: &EtcdClusterStatus| serde_json::to_string(status).ok();
    let is_written = |before: &EtcdClusterStatus| before == status || as_written(before) == as_written(status);
    !view.cluster.status.as_ref().is_some_and(is_written)
}

/// Before anything is written: the EtcdCluster is as it was seen, what seems to be missing is missing, and members of which
/// the caches alone say that they are worse off truly are.
fn doubts(context: &Context<'_>, plan: &Plan, status: &EtcdClusterStatus) -> BTreeSet<Read> {
    let view = context.view;
    let is_known = |key: &ObjectKey| {
        let unreadable = key.kind == Kind::EtcdMember && view.unreadable_members.contains_key(&key.name);
        unreadable || view.objects.contains_key(key)
    };
    let missing = build::keys(context, plan).into_iter().filter(|key| !is_known(key)).map(Read::Object);
    let before = view.cluster.status.as_ref().map(|status| status.members.as_slice()).unwrap_or_default();
    let is_worse = |member: &&MemberStatus| {
        let known = before.iter().find(|known| known.name == member.name);
        member.status != MemberHealth::Ready && known.is_some_and(|known| known.status != member.status)
    };
    let worse = status.members.iter().filter(is_worse).map(|member| Read::Member(member.name.clone()));
    missing.chain(worse).chain([Read::Cluster]).collect()
}
