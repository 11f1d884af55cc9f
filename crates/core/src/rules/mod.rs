//! The rules, one file each, in the order in which they are asked. The first that stops ends the pass.

mod access;
mod account;
mod attention;
mod bootstrap;
mod certificates;
mod corruption;
pub(crate) mod delete;
pub(crate) mod divergence;
mod members;
mod nodes;
mod ownership;
mod pause;
mod recovery;
mod renewal;
mod repair;
mod restart;
mod serving;
mod size;
pub(crate) mod strangers;
mod tickets;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::member::Ticket;
use quorate_api::status::{ConsistencyStatus, CopiesLost, DataLossStatus, Latch, MemberStatus};

use crate::action::Action;
use crate::context::Context;
use crate::read::Read;
use crate::reason::Reason;

/// What a pass has come to so far. Rules write it; objects and status are made from it.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub actions: Vec<Action>,
    /// What each member may do at its next start.
    pub tickets: BTreeMap<String, Ticket>,
    /// The incarnation that all of this is about.
    pub epoch: Option<i64>,
    /// How many pods there are to be.
    pub pods: i32,
    /// What must be known for certain before any of this is done.
    pub reads: BTreeSet<Read>,
    /// When a rule will change its mind by the clock alone.
    pub wake: Option<SignedDuration>,
    /// The latch to write, if it moves.
    pub latch: Option<Latch>,
    /// The member whose pod is stopped because it does not come back by itself.
    pub restarted: Option<String>,
    /// Since when no member can be reached, if that is so and they serve.
    pub out_of_reach_since: Option<Time>,
    /// What came of comparing the members' data, if that was done.
    pub consistency: Option<ConsistencyStatus>,
    /// What may have been lost, if a quorum has just been recovered.
    pub data_loss: Option<DataLossStatus>,
    /// The only member there is from now on, if that is so.
    pub sole_member: Option<MemberStatus>,
    /// That no copy is left, or only one that has come back since.
    pub copies_lost: Option<CopiesLost>,
    /// Why the pass waits or stopped, with the details.
    pub notes: Vec<Note>,
}

/// Something a user should read in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub reason: Reason,
    pub detail: String,
    /// Whether it may get better without a human, though its reason does not say so.
    pub passing: bool,
}

impl Plan {
    pub(crate) fn note(&mut self, reason: Reason, detail: impl Into<String>) {
        self.push_note(reason, detail.into(), false);
    }

    pub(crate) fn push_note(&mut self, reason: Reason, detail: String, passing: bool) {
        self.notes.push(Note { reason, detail, passing });
    }

    /// Look again after this time at the latest. One that has passed needs no look.
    pub(crate) fn wake_after(&mut self, time: SignedDuration) {
        if time.is_positive() {
            self.wake = Some(self.wake.map_or(time, |wake| wake.min(time)));
        }
    }

    /// A pod that is not a member has a ticket too, so that its agent knows why it waits.
    pub(crate) fn ticket(&self, member: &str) -> Ticket {
        self.tickets.get(member).cloned().unwrap_or_else(|| tickets::of_no_member(self.epoch))
    }

    /// Whether the member may start empty.
    pub(crate) fn may_begin(&self, member: &str) -> bool {
        matches!(self.tickets.get(member), Some(Ticket::Bootstrap { .. }))
    }

    pub(crate) fn has_note(&self, reason: Reason) -> bool {
        self.notes.iter().any(|note| note.reason == reason)
    }
}

type Rule = fn(&Context<'_>, &mut Plan) -> ControlFlow<()>;

/// Deleting outranks pausing: it is the later and clearer wish. Where clients are led comes first of all actions, because
/// the rest is dropped when one fails.
const RULES: &[Rule] = &[
    tickets::rule,
    size::rule,
    attention::rule,
    strangers::note,
    corruption::note,
    divergence::note,
    nodes::ask,
    renewal::rule,
    pause::rule,
    serving::rule,
    ownership::rule,
    delete::keep_volumes_in_reach,
    certificates::rule,
    bootstrap::rule,
    recovery::rule,
    repair::rule,
    nodes::rule,
    members::rule,
    restart::rule,
    account::rule,
    divergence::rule,
];

pub(crate) fn run(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for rule in RULES {
        if rule(context, &mut plan).is_break() {
            break;
        }
    }
    plan
}
