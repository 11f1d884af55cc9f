//! What the operator and a member's agent talk through.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use quorate_api::{EtcdMember, EtcdMemberSpec, names};

use super::metadata;
use crate::context::Context;
use crate::rules::Plan;

/// Made here, renewed by the agent: holder, times and duration are the agent's.
pub(super) fn lease(context: &Context<'_>, ordinal: i32) -> Lease {
    Lease { metadata: metadata(context, names::member(context.name, ordinal)), spec: Some(LeaseSpec::default()) }
}

/// The spec is ours, the status is the agent's.
pub(super) fn etcd_member(context: &Context<'_>, plan: &Plan, ordinal: i32) -> EtcdMember {
    let name = names::member(context.name, ordinal);
    let ticket = plan.ticket(&name);
    EtcdMember {
        metadata: metadata(context, name),
        spec: EtcdMemberSpec { cluster: context.name.to_owned(), ordinal, ticket },
        status: None,
    }
}
