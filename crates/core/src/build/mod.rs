//! Objects from a spec that can be followed and a plan that was made. Nothing here can fail, and nothing is decided.

mod access;
pub mod addresses;
mod budget;
pub mod certificates;
mod member;
mod pod;
mod services;
mod workload;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;
use quorate_api::EtcdCluster;
use quorate_api::names::{self, labels};

use crate::context::Context;
use crate::drift;
use crate::object::{Kind, Object, ObjectKey};
use crate::rules::Plan;

pub(crate) use services::is_cut_off;

/// Everything that the cluster consists of, in the order in which it is made.
pub(crate) fn objects(context: &Context<'_>, plan: &Plan) -> Vec<Object> {
    let mut objects = Vec::from_iter(access::operator_binding(context).map(Object::from));
    objects.extend([
        access::service_account(context).into(),
        access::role(context, plan).into(),
        access::role_binding(context).into(),
        services::peer(context).into(),
    ]);
    // Clients find the cluster only once it is formed: nothing they are told before could be relied on. While a quorum is
    // being recovered there is one already, and it leads nowhere.
    if context.is_formed() || context.is_recovering() {
        objects.push(services::client(context).into());
    }
    // Before any ticket: nobody may be evicted beside a member that is stopped.
    objects.push(budget::disruption_budget(context, plan).into());
    objects.extend((0..plan.pods).map(|ordinal| member::lease(context, ordinal).into()));
    objects.extend((0..plan.pods).map(|ordinal| member::etcd_member(context, plan, ordinal).into()));
    objects.push(workload::stateful_set(context, plan).into());
    objects.into_iter().map(drift::sealed).collect()
}

/// What lets the operator read Secrets, if it is not there or not as it should be.
pub(crate) fn missing_operator_binding(context: &Context<'_>) -> Option<Object> {
    let binding = drift::sealed(access::operator_binding(context)?.into());
    let actual = context.view.objects.get(&binding.key());
    (!actual.is_some_and(|actual| drift::is_current(&binding, actual))).then_some(binding)
}

/// The names that the cluster needs, also of what is made later.
pub(crate) fn keys(context: &Context<'_>, plan: &Plan) -> Vec<ObjectKey> {
    let account = names::member_account(context.name);
    let mut keys = vec![
        ObjectKey::new(Kind::ServiceAccount, account.clone()),
        ObjectKey::new(Kind::Role, account.clone()),
        ObjectKey::new(Kind::RoleBinding, account),
        ObjectKey::new(Kind::Service, names::peer_service(context.name)),
        ObjectKey::new(Kind::Service, names::client_service(context.name)),
        ObjectKey::new(Kind::StatefulSet, names::stateful_set(context.name)),
        ObjectKey::new(Kind::PodDisruptionBudget, names::disruption_budget(context.name)),
    ];
    keys.extend(access::operator_binding(context).map(|binding| Object::from(binding).key()));
    for ordinal in 0..plan.pods {
        let name = names::member(context.name, ordinal);
        keys.push(ObjectKey::new(Kind::Lease, name.clone()));
        keys.push(ObjectKey::new(Kind::EtcdMember, name));
    }
    keys
}

fn metadata(context: &Context<'_>, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(context.namespace.to_owned()),
        labels: Some(common_labels(context)),
        owner_references: Some(vec![owner(context)]),
        ..ObjectMeta::default()
    }
}

fn owner(context: &Context<'_>) -> OwnerReference {
    OwnerReference {
        api_version: EtcdCluster::api_version(&()).into_owned(),
        kind: EtcdCluster::kind(&()).into_owned(),
        name: context.name.to_owned(),
        uid: context.uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn common_labels(context: &Context<'_>) -> BTreeMap<String, String> {
    let mut all = cluster_label(context);
    all.insert(labels::NAME.to_owned(), "etcd".to_owned());
    all.insert(labels::INSTANCE.to_owned(), context.name.to_owned());
    all.insert(labels::MANAGED_BY.to_owned(), labels::MANAGER.to_owned());
    all
}

fn cluster_label(context: &Context<'_>) -> BTreeMap<String, String> {
    BTreeMap::from([(labels::CLUSTER.to_owned(), context.name.to_owned())])
}

/// Member pods, and no other pods that the cluster may come to have.
fn selector_labels(context: &Context<'_>) -> BTreeMap<String, String> {
    let mut all = cluster_label(context);
    all.insert(labels::COMPONENT.to_owned(), labels::MEMBER.to_owned());
    all
}

/// New pods serve as soon as they are ready, also while no operator runs.
fn serving_label() -> BTreeMap<String, String> {
    BTreeMap::from([(labels::SERVING.to_owned(), "true".to_owned())])
}

fn selector(context: &Context<'_>) -> LabelSelector {
    LabelSelector { match_labels: Some(selector_labels(context)), ..LabelSelector::default() }
}

/// The selector of the member pods as text.
pub(crate) fn selector_text(context: &Context<'_>) -> String {
    let labels = selector_labels(context);
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}
