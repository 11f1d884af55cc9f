//! What the operator and a member's agent talk through.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use quorate_api::{EtcdMember, EtcdMemberSpec};

use super::metadata;
use crate::context::{Context, MemberFacts};
use crate::rules::bootstrap;

/// Made here, renewed by the agent: holder, times and duration are the agent's.
pub(super) fn lease(context: &Context<'_>, member: &MemberFacts<'_>) -> Lease {
    Lease { metadata: metadata(context, member.name.clone()), spec: Some(LeaseSpec::default()) }
}

/// The spec is ours, the status is the agent's.
pub(super) fn etcd_member(context: &Context<'_>, member: &MemberFacts<'_>) -> EtcdMember {
    EtcdMember {
        metadata: metadata(context, member.name.clone()),
        spec: EtcdMemberSpec {
            cluster: context.name.to_owned(),
            ordinal: member.ordinal,
            ticket: bootstrap::ticket(context),
        },
        status: None,
    }
}
