//! The rules, one file each, in the order in which they are asked. The first that stops ends the pass.

mod account;
mod attention;
pub(crate) mod bootstrap;
mod certificates;
pub(crate) mod delete;
mod ownership;
mod pause;
pub(crate) mod repair;
pub(crate) mod restart;
mod serving;

use std::ops::ControlFlow;

use quorate_api::status::Latch;

use crate::action::Action;
use crate::context::Context;
use crate::reason::Reason;

/// What a pass has come to so far.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub actions: Vec<Action>,
    /// The latch to write, if it moves.
    pub latch: Option<Latch>,
    /// Why the pass waits or stopped, with the details.
    pub notes: Vec<Note>,
}

/// Something a user should read in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub reason: Reason,
    pub detail: String,
}

impl Plan {
    pub(crate) fn note(&mut self, reason: Reason, detail: impl Into<String>) {
        self.notes.push(Note { reason, detail: detail.into() });
    }
}

type Rule = fn(&Context<'_>, &mut Plan) -> ControlFlow<()>;

/// Deleting outranks pausing: it is the later and clearer wish. Where clients are led comes first of all actions, because
/// the rest is dropped when one fails.
const RULES: &[Rule] = &[
    attention::rule,
    pause::rule,
    serving::rule,
    ownership::rule,
    delete::keep_volumes_in_reach,
    certificates::rule,
    bootstrap::rule,
    repair::rule,
    restart::rule,
    account::rule,
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
