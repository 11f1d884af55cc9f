//! What is, as the core wants to see it.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::runtime::reflector::Store;
use kube::{Api, Client, Resource, ResourceExt};
use quorate_api::names::{self, labels};
use quorate_api::{EtcdCluster, EtcdMember};
use quorate_core::view::{ClaimFact, Platform, PodFact};
use quorate_core::{Kind, Object, ObjectKey, View};
use serde::de::DeserializeOwned;

use crate::caches::Caches;
use crate::error::Error;

/// Most members that a cluster can have; a spec that asks for more is not followed anyway.
const MOST_MEMBERS: i32 = 7;

/// Everything with the cluster's label, from the caches. Certificates are not among it.
pub fn cached(caches: &Caches, cluster: EtcdCluster, platform: Platform) -> View {
    let namespace = cluster.namespace().unwrap_or_default();
    let name = cluster.name_any();
    let mut view = View::new(cluster, platform);
    let members = labelled(&caches.members, &namespace, &name).into_iter().filter_map(|member| member.0.ok());
    members.for_each(|member| view.insert(member));
    insert_all(&mut view, labelled(&caches.service_accounts, &namespace, &name));
    insert_all(&mut view, labelled(&caches.roles, &namespace, &name));
    insert_all(&mut view, labelled(&caches.role_bindings, &namespace, &name));
    insert_all(&mut view, labelled(&caches.services, &namespace, &name));
    insert_all(&mut view, labelled(&caches.leases, &namespace, &name));
    insert_all(&mut view, labelled(&caches.stateful_sets, &namespace, &name));
    insert_all(&mut view, labelled(&caches.budgets, &namespace, &name));
    for pod in labelled(&caches.pods, &namespace, &name) {
        // Others may carry the label; members have a number.
        if names::ordinal_of(&name, &pod.name_any()).is_some() {
            view.pods.insert(pod.name_any(), PodFact::from(&pod));
        }
    }
    for claim in labelled(&caches.claims, &namespace, &name) {
        let fact = ClaimFact {
            uid: claim.uid().unwrap_or_default(),
            terminating: claim.metadata.deletion_timestamp.is_some(),
        };
        view.claims.insert(claim.name_any(), fact);
    }
    view
}

fn labelled<K>(store: &Store<K>, namespace: &str, cluster: &str) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let belongs = |object: &K| {
        object.meta().namespace.as_deref() == Some(namespace)
            && object.labels().get(labels::CLUSTER).is_some_and(|label| label == cluster)
    };
    store.state_filter(belongs).iter().map(|object| (**object).clone()).collect()
}

fn insert_all<K: Into<Object>>(view: &mut View, objects: Vec<K>) {
    for object in objects {
        view.insert(object);
    }
}

/// Adds objects that have a name the cluster needs and are not in the caches: others may own them, or a hand has removed
/// their label, or our own write has not come back yet.
pub async fn add_unlabelled(client: &Client, view: &mut View) -> Result<(), Error> {
    let namespace = view.cluster.namespace().unwrap_or_default();
    let missing = needed(&view.cluster).into_iter().filter(|key| !view.objects.contains_key(key));
    let found = missing.map(|key| read(client, &namespace, key));
    for object in futures::future::try_join_all(found).await?.into_iter().flatten() {
        view.insert(object);
    }
    Ok(())
}

fn needed(cluster: &EtcdCluster) -> Vec<ObjectKey> {
    let name = cluster.name_any();
    let account = names::member_account(&name);
    let mut keys = vec![
        ObjectKey::new(Kind::ServiceAccount, account.clone()),
        ObjectKey::new(Kind::Role, account.clone()),
        ObjectKey::new(Kind::RoleBinding, account),
        ObjectKey::new(Kind::Service, names::peer_service(&name)),
        ObjectKey::new(Kind::Service, names::client_service(&name)),
        ObjectKey::new(Kind::StatefulSet, names::stateful_set(&name)),
        ObjectKey::new(Kind::PodDisruptionBudget, names::disruption_budget(&name)),
    ];
    for ordinal in 0..cluster.spec.replicas.clamp(0, MOST_MEMBERS) {
        keys.push(ObjectKey::new(Kind::Lease, names::member(&name, ordinal)));
        keys.push(ObjectKey::new(Kind::EtcdMember, names::member(&name, ordinal)));
    }
    keys
}

async fn read(client: &Client, namespace: &str, key: ObjectKey) -> Result<Option<Object>, Error> {
    match key.kind {
        Kind::ServiceAccount => read_as::<ServiceAccount>(client, namespace, &key).await,
        Kind::Role => read_as::<Role>(client, namespace, &key).await,
        Kind::RoleBinding => read_as::<RoleBinding>(client, namespace, &key).await,
        Kind::Service => read_as::<Service>(client, namespace, &key).await,
        Kind::Lease => read_as::<Lease>(client, namespace, &key).await,
        Kind::EtcdMember => read_as::<EtcdMember>(client, namespace, &key).await,
        Kind::StatefulSet => read_as::<StatefulSet>(client, namespace, &key).await,
        Kind::PodDisruptionBudget => read_as::<PodDisruptionBudget>(client, namespace, &key).await,
    }
}

async fn read_as<K>(client: &Client, namespace: &str, key: &ObjectKey) -> Result<Option<Object>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Into<Object>,
{
    let found = Api::<K>::namespaced(client.clone(), namespace).get_opt(&key.name).await;
    found.map(|object| object.map(Into::into)).map_err(|source| Error::api(format!("read {key}"), source))
}
