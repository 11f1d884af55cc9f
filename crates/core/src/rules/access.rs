//! What keeps the operator from etcd: a right that it does not have, or a way that is closed.
//!
//! Members serve all the same, and their agents tell who they are. Only what etcd would have to confirm or to change waits.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::names::labels;

use super::Plan;
use crate::context::Context;
use crate::read::Endpoints;
use crate::reason::Reason;

/// How long a way must have been closed before a human is called: members that have just died look the same for a while.
const LASTING: SignedDuration = SignedDuration::from_mins(1);

/// Says what etcd does not let the operator do, as the continuation of "to", and how to give it the right.
pub(super) fn note_refusal(context: &Context<'_>, plan: &mut Plan, what: &str, cause: &str) {
    let reason = Reason::EtcdRightsMissing;
    if plan.has_note(reason) {
        return;
    }
    let advice = if context.desired.encrypted {
        reason.sentence()
    } else {
        "authentication is enabled and spec.tls.mode is Disabled, so the operator has no certificate that could speak for a user: etcdctl auth disable"
    };
    plan.note(reason, format!("etcd does not let the operator {what} ({cause}): {advice}"));
}

/// Says which way is closed, and since when is written down: nothing else would know it after the operator's next life.
pub(super) fn note_closed_way(context: &Context<'_>, plan: &mut Plan, asked: &Endpoints) {
    let since = context.status().and_then(|status| status.etcd_out_of_reach_since.clone()).unwrap_or(Time(context.now));
    let left = LASTING - context.now.duration_since(since.0);
    plan.out_of_reach_since = Some(since);
    plan.wake_after(left);
    let reason = Reason::EtcdOutOfReach;
    if plan.has_note(reason) {
        return;
    }
    let mut members = asked.members.iter().map(|endpoint| endpoint.member.as_str()).collect::<Vec<_>>();
    members.sort_unstable();
    let operator = context.view.platform.account.as_ref();
    let operator = operator.map_or(String::new(), |account| format!(" in namespace {}", account.namespace));
    let detail = format!(
        "from the operator{operator} to TCP port {} of {}: {} (pods with the label {}={})",
        asked.client_port,
        members.join(", "),
        reason.sentence(),
        labels::CLUSTER,
        context.name,
    );
    plan.push_note(reason, detail, left.is_positive());
}
