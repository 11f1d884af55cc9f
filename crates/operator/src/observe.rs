//! What is, as the core wants to see it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::reflector::Store;
use kube::{Api, Client, Resource, ResourceExt};
use quorate_api::names::{self, labels};
use quorate_api::status::{MemberHealth, MemberStatus};
use quorate_api::{EtcdCluster, EtcdMember};
use quorate_core::view::{ClaimFact, Platform, PodFact};
use quorate_core::{Decision, Effect, Kind, Object, ObjectKey, Reason, View};
use serde::de::DeserializeOwned;

use crate::act::within;
use crate::caches::Caches;
use crate::error::Error;
use crate::renewals::{Renewals, Source};

/// Most members that a cluster can have; a spec that asks for more is not followed anyway.
const MOST_MEMBERS: i32 = 7;

/// Everything with the cluster's label, from the caches. Certificates are not among it.
pub fn cached(caches: &Caches, cluster: EtcdCluster, platform: Platform) -> View {
    let namespace = cluster.namespace().unwrap_or_default();
    let name = cluster.name_any();
    let mut view = View::new(cluster, platform);
    for member in labelled(&caches.members, &namespace, &name) {
        insert_member(&mut view, member);
    }
    insert_all(&mut view, labelled(&caches.service_accounts, &namespace, &name));
    insert_all(&mut view, labelled(&caches.roles, &namespace, &name));
    insert_all(&mut view, labelled(&caches.role_bindings, &namespace, &name));
    insert_all(&mut view, labelled(&caches.services, &namespace, &name));
    for lease in labelled(&caches.leases, &namespace, &name) {
        view.heard.extend(caches.renewals.last(&lease).map(|heard| (lease.name_any(), heard)));
        view.insert(lease);
    }
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

/// A member that cannot be read is there all the same.
fn insert_member(view: &mut View, member: DeserializeGuard<EtcdMember>) {
    match member.0 {
        Ok(member) => view.insert(member),
        Err(InvalidObject { error, metadata }) => {
            view.unreadable_members.insert(metadata.name.unwrap_or_default(), error);
        }
    }
}

/// Members of which the caches alone say that they are worse off than the status says, or are to be restarted. A watch
/// that has died silently looks just like this.
pub fn doubtful(view: &View, decision: &Decision) -> Vec<String> {
    let before = view.cluster.status.as_ref().map(|status| status.members.as_slice()).unwrap_or_default();
    let is_worse = |member: &&MemberStatus| {
        let known = before.iter().find(|known| known.name == member.name);
        member.status != MemberHealth::Ready && known.is_some_and(|known| known.status != member.status)
    };
    let worse = decision.status.members.iter().filter(is_worse).map(|member| member.name.clone());
    // A pod that serves is stopped on the word of the others, so they are asked again as well.
    let serves = |reason: Reason| reason == Reason::AccountRenewed;
    let restarted = decision.actions.iter().flat_map(|action| match &action.effect {
        Effect::RestartPod { .. } if serves(action.reason) => view.pods.keys().cloned().collect(),
        Effect::RestartPod { name, .. } => vec![name.clone()],
        _ => Vec::new(),
    });
    worse.chain(restarted).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Replaces what the caches say about the pods and Leases of some members by what is true now.
pub async fn confirm(client: &Client, renewals: &Renewals, view: &mut View, members: &[String]) -> Result<(), Error> {
    let namespace = view.cluster.namespace().unwrap_or_default();
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let leases = Api::<Lease>::namespaced(client.clone(), &namespace);
    let (pods, leases) = (&pods, &leases);
    let reads = members.iter().map(|name| async move {
        let pod = within(&format!("read Pod {name}"), pods.get_opt(name)).await?;
        let lease = within(&format!("read Lease {name}"), leases.get_opt(name)).await?;
        Ok::<_, Error>((name, pod, lease))
    });
    for (name, pod, lease) in futures::future::try_join_all(reads).await? {
        match pod {
            Some(pod) => drop(view.pods.insert(name.clone(), PodFact::from(&pod))),
            None => drop(view.pods.remove(name)),
        }
        match lease {
            Some(lease) => {
                let heard = renewals.saw(&lease, Source::Found, Timestamp::now());
                view.heard.extend(heard.map(|heard| (name.clone(), heard)));
                view.insert(lease);
            }
            None => drop(view.objects.remove(&ObjectKey::new(Kind::Lease, name))),
        }
    }
    Ok(())
}

/// Adds objects that have a name the cluster needs and are not in the caches: others may own them, or a hand has removed
/// their label, or our own write has not come back yet.
pub async fn add_unlabelled(client: &Client, view: &mut View) -> Result<(), Error> {
    let namespace = view.cluster.namespace().unwrap_or_default();
    let missing = needed(view).into_iter().filter(|key| !view.objects.contains_key(key));
    let (members, others): (Vec<_>, Vec<_>) = missing.partition(|key| key.kind == Kind::EtcdMember);
    let members = members.into_iter().filter(|key| !view.unreadable_members.contains_key(&key.name));
    let members = members.map(|key| read_member(client, &namespace, key));
    let others = others.into_iter().map(|key| read(client, &namespace, key));
    let (members, others) =
        tokio::try_join!(futures::future::try_join_all(members), futures::future::try_join_all(others))?;
    members.into_iter().flatten().for_each(|member| insert_member(view, member));
    others.into_iter().flatten().for_each(|object| view.insert(object));
    Ok(())
}

async fn read_member(
    client: &Client,
    namespace: &str,
    key: ObjectKey,
) -> Result<Option<DeserializeGuard<EtcdMember>>, Error> {
    let api = Api::<DeserializeGuard<EtcdMember>>::namespaced(client.clone(), namespace);
    within(&format!("read {key}"), api.get_opt(&key.name)).await
}

fn needed(view: &View) -> Vec<ObjectKey> {
    let cluster = &view.cluster;
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
    if view.platform.account.is_some() {
        keys.push(ObjectKey::new(Kind::RoleBinding, names::operator_binding(&name)));
    }
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
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let found = within(&format!("read {key}"), api.get_opt(&key.name)).await;
    found.map(|object| object.map(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_api::EtcdClusterSpec;
    use serde_json::json;

    #[test]
    fn a_member_that_cannot_be_read_is_neither_absent_nor_the_end_of_the_pass() {
        let mut view = View::new(EtcdCluster::new("etcd", EtcdClusterSpec::default()), Platform::default());
        let of = |ticket: serde_json::Value| {
            let member = json!({
                "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdMember", "metadata": { "name": "etcd-0" },
                "spec": { "cluster": "etcd", "ordinal": 0, "ticket": ticket },
            });
            serde_json::from_value::<DeserializeGuard<EtcdMember>>(member).unwrap()
        };
        insert_member(&mut view, of(json!({ "fly": {} })));
        assert!(view.member("etcd-0").is_none());
        assert!(view.unreadable_members["etcd-0"].contains("fly"), "{:?}", view.unreadable_members);
        insert_member(&mut view, of(json!({ "resume": { "epoch": 1 } })));
        assert!(view.member("etcd-0").is_some());
    }
}
