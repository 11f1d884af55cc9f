//! A paused cluster is watched and not touched.

use std::ops::ControlFlow;

use super::Plan;
use crate::context::Context;
use crate::reason::Reason;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if !context.desired.spec.maintenance.paused {
        return ControlFlow::Continue(());
    }
    plan.note(Reason::Paused, Reason::Paused.sentence());
    ControlFlow::Break(())
}
