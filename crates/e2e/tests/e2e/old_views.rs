//! An operator whose view is older than the world: of a cluster that was deleted and made again meanwhile, under its name.

use std::{collections::BTreeMap, time::Duration};

use quorate_api::names;
use quorate_e2e::{
    Bed, Clients, Cluster, Gate, Keys, alone, cluster::Kind, eventually, gate::Request, operator::OwnOperator,
    operator::without_installed_operator, stays,
};
use serde_json::{Value, json};

use crate::scaling::settles_at;

const OLD_SIZE: i32 = 3;
const NEW_SIZE: i32 = 5;
/// Longer than an operator waits before it tries again what was refused.
const LONG: Duration = Duration::from_secs(15);

/// What there is of the volumes, by name, each with its identity and whether it is on its way out.
async fn volumes(cluster: &Cluster) -> BTreeMap<String, (Value, bool)> {
    let claims = cluster.kubernetes.list(&cluster.all(Kind::VolumeClaim)).await;
    let of = |claim: &Value| {
        let metadata = &claim["metadata"];
        let name = metadata["name"].as_str().unwrap().to_owned();
        (name, (metadata["uid"].clone(), !metadata["deletionTimestamp"].is_null()))
    };
    claims.iter().map(of).collect()
}

async fn uid(cluster: &Cluster) -> Value {
    cluster.kubernetes.get(&cluster.own_path()).await["metadata"]["uid"].clone()
}

/// Another cluster of the same name takes the place of one that goes though nobody has seen to its volumes.
async fn make_again(cluster: &Cluster, old: &Value) {
    let path = cluster.own_path();
    let _ = cluster.kubernetes.try_delete(&path).await;
    let unheld = json!({ "metadata": { "finalizers": null } });
    let _ = cluster.kubernetes.try_patch(&path, &unheld).await;
    eventually("it is gone", async || cluster.kubernetes.is_absent(&path).await.then_some(())).await;
    cluster.apply(json!({ "replicas": NEW_SIZE, "spread": "None" })).await;
    assert_ne!(uid(cluster).await, *old);
}

fn deletions(gate: &Gate, from: usize) -> Vec<Request> {
    gate.asked().into_iter().skip(from).filter(|request| request.method == "DELETE").collect()
}

/// Waits until the operator has looked, after so many requests, whether the cluster is still the one that it knows: it was
/// about to do something.
async fn wants_to_act(gate: &Gate, cluster: &Cluster, from: usize) {
    eventually("the operator wants to act on what it knows", async || {
        let looks = |request: &Request| request.method == "GET" && request.path.starts_with(&cluster.own_path());
        gate.asked().iter().skip(from).any(looks).then_some(())
    })
    .await;
}

/// The cluster of which the operator will have an old view, and what was written to it.
async fn formed(bed: &Bed, gate: &Gate, namespace: &str) -> (Cluster, OwnOperator, Keys) {
    let cluster = Cluster::named(bed, namespace, "db");
    let storage = json!({ "retention": { "onDelete": "Delete" } });
    cluster.apply(json!({ "replicas": OLD_SIZE, "spread": "None", "storage": storage })).await;
    let operator = OwnOperator::start_behind(gate, namespace);
    cluster.is_whole().await;
    settles_at(&cluster, OLD_SIZE).await;
    let mut keys = Keys::default();
    keys.write(&cluster, 20).await;
    (cluster, operator, keys)
}

/// Nobody touches the new cluster while the view is old; afterwards it takes over the volumes, and grows.
async fn is_untouched_and_goes_on(gate: &Gate, cluster: &Cluster, mut keys: Keys, held: &[&'static str], from: usize) {
    let kept = volumes(cluster).await;
    assert_eq!(kept.len(), usize::try_from(OLD_SIZE).unwrap());
    let new = uid(cluster).await;
    stays("the volumes are left alone", LONG, async || volumes(cluster).await == kept).await;
    assert_eq!(deletions(gate, from), [], "by an operator that knows the cluster before");

    held.iter().for_each(|kind| gate.release(kind));
    eventually("the new cluster serves", async || (cluster.status().await.ready_replicas >= 3).then_some(())).await;
    let clients = Clients::of(cluster).await;
    settles_at(cluster, NEW_SIZE).await;
    clients.have_written(50).await;
    clients.were_told_the_truth().await;
    keys.write(cluster, 5).await;
    keys.is_held_by_all(cluster).await;
    assert_eq!(uid(cluster).await, new);
    let now = volumes(cluster).await;
    assert!(kept.iter().all(|(name, claim)| now.get(name) == Some(claim)), "{kept:?} became {now:?}");
    assert_eq!(deletions(gate, from), [], "nothing of a new cluster is to be deleted");
}

/// The operator has begun to delete the old cluster with its volumes, and does not hear that it is another by now.
async fn deleting_view(bed: &Bed) {
    let namespace = "old-view-deleting";
    bed.kubernetes.empty_namespace(namespace).await;
    let gate = Gate::open(namespace).await;
    let (cluster, _operator, keys) = formed(bed, &gate, namespace).await;
    let (old, set) = (uid(&cluster).await, cluster.path(Kind::StatefulSet, &names::stateful_set(&cluster.name)));
    // It waits for the pods, and then for nothing any more.
    gate.hold("pods");
    bed.kubernetes.delete(&cluster.own_path()).await;
    eventually("it has begun", async || bed.kubernetes.is_absent(&set).await.then_some(())).await;
    eventually("the pods are gone", async || {
        bed.kubernetes.find(&cluster.all(Kind::Pod)).await?["items"].as_array()?.is_empty().then_some(())
    })
    .await;
    gate.hold("etcdclusters");
    make_again(&cluster, &old).await;
    let from = gate.asked().len();
    gate.release("pods");
    wants_to_act(&gate, &cluster, from).await;
    is_untouched_and_goes_on(&gate, &cluster, keys, &["etcdclusters"], from).await;
}

/// The operator does not hear that the cluster was deleted at all, and sees what belonged to it disappear.
async fn living_view(bed: &Bed) {
    let namespace = "old-view-living";
    bed.kubernetes.empty_namespace(namespace).await;
    let gate = Gate::open(namespace).await;
    let (cluster, _operator, keys) = formed(bed, &gate, namespace).await;
    let old = uid(&cluster).await;
    gate.hold("etcdclusters");
    let from = gate.asked().len();
    make_again(&cluster, &old).await;
    wants_to_act(&gate, &cluster, from).await;
    eventually("what belonged to the old one is gone", async || {
        let pods = bed.kubernetes.find(&cluster.all(Kind::Pod)).await?["items"].as_array()?.len();
        let members = bed.kubernetes.find(&cluster.all(Kind::EtcdMember)).await?["items"].as_array()?.len();
        (pods == 0 && members == 0).then_some(())
    })
    .await;
    is_untouched_and_goes_on(&gate, &cluster, keys, &["etcdclusters"], from).await;
}

#[test]
fn an_operator_that_was_deleting_a_cluster_leaves_the_next_one_of_that_name_and_its_volumes_alone() {
    alone(async |bed| without_installed_operator(bed, deleting_view).await);
}

#[test]
#[ignore = "takes minutes: make campaign"]
fn an_operator_that_has_not_heard_of_a_deletion_leaves_the_next_cluster_of_that_name_alone() {
    alone(async |bed| without_installed_operator(bed, living_view).await);
}
