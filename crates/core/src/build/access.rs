//! What member pods may do in Kubernetes: read and answer their cluster's members, and renew its Leases. Nothing else.
//! And the operator's own right to Secrets, which it has only where there is an EtcdCluster.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use quorate_api::names;

use super::metadata;
use crate::context::Context;
use crate::rules::Plan;

pub(super) fn service_account(context: &Context<'_>) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(context, names::member_account(context.name)),
        // Only the agent's container gets a token, by a volume of its own.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// By name, so that the account reaches no other cluster. Between members of one cluster an admission policy decides.
pub(super) fn role(context: &Context<'_>, plan: &Plan) -> Role {
    let members = (0..plan.pods).map(|ordinal| names::member(context.name, ordinal)).collect::<Vec<_>>();
    let rule = |group: &str, resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(members.clone()),
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        ..PolicyRule::default()
    };
    // A rule with an empty list of names would mean every name.
    let rules = (!members.is_empty()).then(|| {
        vec![
            rule(quorate_api::GROUP, "etcdmembers", &["get", "list", "watch"]),
            rule(quorate_api::GROUP, "etcdmembers/status", &["patch", "update"]),
            rule("coordination.k8s.io", "leases", &["get", "patch", "update"]),
        ]
    });
    Role { metadata: metadata(context, names::member_account(context.name)), rules }
}

/// Nothing if the cluster has no Secrets, or if the operator's rights are not its own business.
pub(crate) fn operator_binding(context: &Context<'_>) -> Option<RoleBinding> {
    let account = context.view.platform.account.as_ref().filter(|_| context.desired.encrypted)?;
    Some(RoleBinding {
        metadata: metadata(context, names::operator_binding(context.name)),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: names::SECRETS_ROLE.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account.name.clone(),
            namespace: Some(account.namespace.clone()),
            ..Subject::default()
        }]),
    })
}

pub(super) fn role_binding(context: &Context<'_>) -> RoleBinding {
    let name = names::member_account(context.name);
    RoleBinding {
        metadata: metadata(context, name.clone()),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: name.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name,
            namespace: Some(context.namespace.to_owned()),
            ..Subject::default()
        }]),
    }
}
