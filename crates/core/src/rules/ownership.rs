//! Objects of others are never touched, even if they have the name we need.

use std::ops::ControlFlow;

use super::Plan;
use crate::build;
use crate::context::Context;
use crate::object::Object;
use crate::reason::Reason;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    let taken = build::keys(context, plan)
        .into_iter()
        .filter_map(|key| context.view.objects.get(&key))
        .filter(|object| !is_ours(context, object))
        .map(|object| object.key().to_string())
        .collect::<Vec<_>>();
    if taken.is_empty() {
        return ControlFlow::Continue(());
    }
    let names = taken.join(", ");
    plan.note(Reason::NameTaken, format!("{names}: not made by this EtcdCluster; remove it or choose another name"));
    ControlFlow::Break(())
}

/// Ours by owner, and not on its way out: an object that is being deleted still belongs to the cluster that was there
/// before, and must be gone first.
pub(super) fn is_ours(context: &Context<'_>, object: &Object) -> bool {
    object.owner_uid() == Some(context.uid)
}
