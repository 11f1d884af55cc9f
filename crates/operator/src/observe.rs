//! What is, as the core wants to see it: first from the caches, then what it asks for, live.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};
use quorate_api::names;
use quorate_api::{EtcdCluster, EtcdMember};
use quorate_core::hashes::HashAnswer;
use quorate_core::membership::ListAnswer;
use quorate_core::read::Endpoints;
use quorate_core::view::{ClaimFact, Platform, PodFact};
use quorate_core::{Kind, Object, ObjectKey, Read, View};
use quorate_runtime::error::chain;
use serde::de::DeserializeOwned;

use crate::act::within;
use crate::caches::Caches;
use crate::error::Error;
use crate::etcd::{EtcdClients, Target};
use crate::hashing::Hashing;
use crate::nodes::Nodes;
use crate::renewals::{Renewals, Source};
use crate::secrets::Certificates;
use crate::unanswered;

/// What the caches have under the names of a cluster. Each is looked up, so the cost does not grow with the fleet.
pub fn cached(caches: &Caches, cluster: EtcdCluster, platform: Platform) -> Result<View, Error> {
    let mut view = View::new(cluster, platform)?;
    let (namespace, name) = (view.identity.namespace().to_owned(), view.identity.name().to_owned());
    let account = names::member_account(&name);
    insert(&mut view, get(&caches.service_accounts, &namespace, &account));
    insert(&mut view, get(&caches.roles, &namespace, &account));
    for binding in [account, names::operator_binding(&name)] {
        insert(&mut view, get(&caches.role_bindings, &namespace, &binding));
    }
    for service in [names::peer_service(&name), names::client_service(&name)] {
        insert(&mut view, get(&caches.services, &namespace, &service));
    }
    insert(&mut view, get(&caches.stateful_sets, &namespace, &names::stateful_set(&name)));
    insert(&mut view, get(&caches.budgets, &namespace, &names::disruption_budget(&name)));
    for ordinal in 0..names::MOST_MEMBERS {
        insert_cached_member(caches, &mut view, &namespace, names::member(&name, ordinal));
    }
    Ok(view)
}

fn insert_cached_member(caches: &Caches, view: &mut View, namespace: &str, member: String) {
    if let Some(lease) = get(&caches.leases, namespace, &member) {
        view.heard.extend(caches.renewals.last(&lease).map(|heard| (member.clone(), heard)));
        view.insert(lease);
    }
    if let Some(found) = get(&caches.members, namespace, &member) {
        insert_member(view, found);
    }
    let claim = names::data_claim(&member);
    if let Some(found) = get(&caches.claims, namespace, &claim) {
        let uid = found.metadata.uid.unwrap_or_default();
        let terminating = found.metadata.deletion_timestamp.is_some();
        view.claims.insert(claim, ClaimFact { uid, terminating });
    }
    if let Some(pod) = get(&caches.pods, namespace, &member) {
        view.pods.insert(member, PodFact::from(&pod));
    }
}

fn get<K>(store: &Store<K>, namespace: &str, name: &str) -> Option<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.get(&ObjectRef::new(name).within(namespace)).map(|object| (*object).clone())
}

fn insert<K: Into<Object>>(view: &mut View, object: Option<K>) {
    if let Some(object) = object {
        view.insert(object);
    }
}

/// A member that cannot be read is there all the same, and takes the place of what could be read of it before.
fn insert_member(view: &mut View, member: DeserializeGuard<EtcdMember>) {
    forget_member(view, &member.name_any());
    match member.0 {
        Ok(member) => view.insert(member),
        Err(InvalidObject { error, metadata }) => {
            view.unreadable_members.insert(metadata.name.unwrap_or_default(), error);
        }
    }
}

fn forget_member(view: &mut View, name: &str) {
    view.objects.remove(&ObjectKey::new(Kind::EtcdMember, name));
    view.unreadable_members.remove(name);
}

/// Where live answers come from.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Sources<'a> {
    pub client: &'a Client,
    pub renewals: &'a Renewals,
    pub certificates: &'a Certificates,
    pub etcd: &'a Arc<EtcdClients>,
    pub hashing: &'a Hashing,
    pub nodes: &'a Nodes,
}

/// Whether there is still anything to decide about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    Here,
    Gone,
}

/// Reads what a decision has asked for, and puts it into the view.
pub async fn read(sources: &Sources<'_>, view: &mut View, reads: &[Read]) -> Result<Whereabouts, Error> {
    // The newest EtcdCluster first: everything else is read after it.
    if reads.contains(&Read::Cluster) && read_cluster(sources.client, view).await? == Whereabouts::Gone {
        return Ok(Whereabouts::Gone);
    }
    let members = reads.iter().filter_map(|read| match read {
        Read::Member(name) => Some(name.as_str()),
        _ => None,
    });
    let members = members.collect::<Vec<_>>();
    read_members(sources, view, &members).await?;
    let keys = reads.iter().filter_map(|read| match read {
        Read::Object(key) => Some(key.clone()),
        _ => None,
    });
    let keys = keys.collect::<Vec<_>>();
    read_objects(sources.client, view, keys).await?;
    for read in reads {
        match read {
            Read::Secrets => sources.certificates.add_to(sources.client, view).await?,
            Read::MemberList(endpoints) => view.member_list = member_list(sources, view, endpoints).await,
            Read::Hashes(endpoints) => view.hashes = hashes(sources, view, endpoints),
            // On the heap: it is rarely needed, and every pass would be as large as it.
            Read::Node(_) | Read::Reach(_) => Box::pin(read_node(sources, view, read)).await?,
            Read::Cluster | Read::Member(_) | Read::Object(_) => {}
        }
        view.reads.insert(read.clone());
    }
    Ok(Whereabouts::Here)
}

/// An operator that may not ask goes on without an answer.
async fn read_node(sources: &Sources<'_>, view: &mut View, read: &Read) -> Result<(), Error> {
    let (client, namespace) = (sources.client, view.identity.namespace());
    let is_answered = match read {
        Read::Node(name) => {
            let fact = sources.nodes.fact(client, name).await?;
            view.nodes.extend(fact.map(|fact| (name.clone(), fact)));
            fact.is_some()
        }
        Read::Reach(claim) => {
            let reach = sources.nodes.reach(client, namespace, claim).await?;
            let is_answered = reach.is_some();
            view.reaches.extend(reach.map(|reach| (claim.clone(), reach)));
            is_answered
        }
        _ => true,
    };
    view.nodes_refused |= !is_answered;
    Ok(())
}

async fn read_cluster(client: &Client, view: &mut View) -> Result<Whereabouts, Error> {
    let api = Api::<EtcdCluster>::namespaced(client.clone(), view.identity.namespace());
    let Some(live) = within("read the EtcdCluster", api.get_opt(view.identity.name())).await? else {
        return Ok(Whereabouts::Gone);
    };
    if !view.identity.is(&live.metadata) {
        return Err(Error::Outdated { what: format!("EtcdCluster {}", view.identity.name()) });
    }
    view.cluster = live.into();
    Ok(Whereabouts::Here)
}

/// Replaces what the caches say about the pods and Leases of some members by what is true now.
async fn read_members(sources: &Sources<'_>, view: &mut View, members: &[&str]) -> Result<(), Error> {
    let pods = Api::<Pod>::namespaced(sources.client.clone(), view.identity.namespace());
    let leases = Api::<Lease>::namespaced(sources.client.clone(), view.identity.namespace());
    let (pods, leases) = (&pods, &leases);
    let reads = members.iter().map(|&name| async move {
        let pod = within(&format!("read Pod {name}"), pods.get_opt(name)).await?;
        let lease = within(&format!("read Lease {name}"), leases.get_opt(name)).await?;
        Ok::<_, Error>((name, pod, lease))
    });
    for (name, pod, lease) in futures::future::try_join_all(reads).await? {
        match pod {
            Some(pod) => drop(view.pods.insert(name.to_owned(), PodFact::from(&pod))),
            None => drop(view.pods.remove(name)),
        }
        match lease {
            Some(lease) => {
                let heard = sources.renewals.saw(&lease, Source::Found, Timestamp::now());
                view.heard.extend(heard.map(|heard| (name.to_owned(), heard)));
                view.insert(lease);
            }
            None => drop(view.objects.remove(&ObjectKey::new(Kind::Lease, name))),
        }
    }
    Ok(())
}

/// Replaces what the caches say about some objects by what is true now. What is not there is not in the view either.
async fn read_objects(client: &Client, view: &mut View, keys: Vec<ObjectKey>) -> Result<(), Error> {
    let namespace = view.identity.namespace().to_owned();
    let (members, others): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| key.kind == Kind::EtcdMember);
    let live_members = members.iter().map(|key| read_member(client, &namespace, key));
    let live_others = others.iter().map(|key| read_object(client, &namespace, key));
    let (live_members, live_others) =
        tokio::try_join!(futures::future::try_join_all(live_members), futures::future::try_join_all(live_others))?;
    for (key, live) in members.iter().zip(live_members) {
        match live {
            Some(member) => insert_member(view, member),
            None => forget_member(view, &key.name),
        }
    }
    for (key, live) in others.iter().zip(live_others) {
        match live {
            Some(object) => view.insert(object),
            None => drop(view.objects.remove(key)),
        }
    }
    Ok(())
}

async fn member_list(sources: &Sources<'_>, view: &View, endpoints: &Endpoints) -> ListAnswer {
    match sources.etcd.member_list(sources.client, &Target::new(&view.identity, endpoints), true).await {
        Ok(list) => list.into(),
        Err(error) => {
            let (namespace, cluster) = (view.identity.namespace(), view.identity.name());
            tracing::warn!(namespace, cluster, error = chain(&error), "no quorum has said who its members are");
            match error {
                Error::NoMemberAnswered { failures } => unanswered::list_answer(&failures),
                // Nobody was asked: the operator's own certificate could not be read. That says nothing about the members.
                _ => ListAnswer::NotAsked,
            }
        }
    }
}

fn hashes(sources: &Sources<'_>, view: &View, endpoints: &Endpoints) -> HashAnswer {
    sources.hashing.ask(view.identity.uid(), || {
        let (client, etcd) = (sources.client.clone(), Arc::clone(sources.etcd));
        let (identity, endpoints) = (view.identity.clone(), endpoints.clone());
        async move {
            match etcd.hashes(&client, &Target::new(&identity, &endpoints)).await {
                Ok(hashes) => unanswered::hash_answer(hashes),
                Err(error) => HashAnswer::Failed(chain(&error)),
            }
        }
    })
}

async fn read_member(
    client: &Client,
    namespace: &str,
    key: &ObjectKey,
) -> Result<Option<DeserializeGuard<EtcdMember>>, Error> {
    let api = Api::<DeserializeGuard<EtcdMember>>::namespaced(client.clone(), namespace);
    within(&format!("read {key}"), api.get_opt(&key.name)).await
}

async fn read_object(client: &Client, namespace: &str, key: &ObjectKey) -> Result<Option<Object>, Error> {
    match key.kind {
        Kind::ServiceAccount => read_as::<ServiceAccount>(client, namespace, key).await,
        Kind::Role => read_as::<Role>(client, namespace, key).await,
        Kind::RoleBinding => read_as::<RoleBinding>(client, namespace, key).await,
        Kind::Service => read_as::<Service>(client, namespace, key).await,
        Kind::Lease => read_as::<Lease>(client, namespace, key).await,
        Kind::EtcdMember => read_as::<EtcdMember>(client, namespace, key).await,
        Kind::StatefulSet => read_as::<StatefulSet>(client, namespace, key).await,
        Kind::PodDisruptionBudget => read_as::<PodDisruptionBudget>(client, namespace, key).await,
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
        let mut cluster = EtcdCluster::new("etcd", EtcdClusterSpec::default());
        cluster.metadata.namespace = Some("default".to_owned());
        cluster.metadata.uid = Some("uid".to_owned());
        let mut view = View::new(cluster, Platform::default()).unwrap();
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
        assert!(view.member("etcd-0").is_some() && view.unreadable_members.is_empty());
        insert_member(&mut view, of(json!({ "fly": {} })));
        assert!(view.member("etcd-0").is_none(), "what it said before does not count any more");
    }
}
