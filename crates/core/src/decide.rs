//! One pass: which spec to follow, what the rules say, what is true.

use jiff::{SignedDuration, Timestamp};
use quorate_api::EtcdClusterStatus;

use crate::action::{Action, Decision};
use crate::context::Context;
use crate::events;
use crate::rules::{self, delete};
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
        return quiet(delete::actions(view), status::deleting(view, now));
    }
    let Accepted { desired, defects } = validate::accept(view);
    let Some(desired) = desired else {
        return quiet(Vec::new(), status::invalid(view, &defects, now));
    };
    let context = Context::new(view, &desired, now);
    let plan = rules::run(&context);
    let status = status::of(&context, &plan, &defects);
    let next_change = [
        status::members::end_of_grace(&context),
        rules::bootstrap::next_change(&context),
        rules::repair::next_change(&context),
        (!view.taken_secrets.is_empty()).then_some(WHILE_A_SECRET_IS_TAKEN),
    ];
    let rest = next_change.into_iter().flatten().min().unwrap_or(RESYNC).min(RESYNC);
    let requeue = status::members::first_expiry(&context).map_or(rest, |expiry| expiry.min(rest));
    let events = events::between(view.cluster.status.as_ref(), &status, &plan);
    Decision { actions: plan.actions, status, events, requeue, rest }
}

fn quiet(actions: Vec<Action>, status: EtcdClusterStatus) -> Decision {
    Decision { actions, status, events: Vec::new(), requeue: RESYNC, rest: RESYNC }
}
