//! Nodes and volumes: what is read, what is done only while it is still true, and what happens without the right to ask.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::status::{EtcdClusterStatus, Latch, LatchState};
use quorate_api::{EtcdCluster, EtcdClusterSpec};
use quorate_core::node::{NodeFact, Reach};
use quorate_core::{Action, ClusterIdentity, Effect, Guard, Reason};
use quorate_operator::act::Actor;
use quorate_operator::error::Error;
use quorate_operator::etcd::EtcdClients;
use quorate_operator::nodes::Nodes;
use quorate_operator::writes::Writes;
use quorate_runtime::election::Claim;
use serde_json::{Value, json};

use crate::script::{Exchange, expect, failure, scripted};

const GET_NODE: &str = "GET /api/v1/nodes/node2";
const LIST_NODES: &str = "GET /api/v1/nodes";
const GET_POD: &str = "GET /api/v1/namespaces/default/pods/etcd-1";
const DELETE_POD: &str = "DELETE /api/v1/namespaces/default/pods/etcd-1";
const GET_CLAIM: &str = "GET /api/v1/namespaces/default/persistentvolumeclaims/data-etcd-1";
const DELETE_CLAIM: &str = "DELETE /api/v1/namespaces/default/persistentvolumeclaims/data-etcd-1";
const GET_VOLUME: &str = "GET /api/v1/persistentvolumes/pv-1";
const GET_CLUSTER: &str = "GET /apis/quorate.dev/v1alpha1/namespaces/default/etcdclusters/etcd";

fn node(ready: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "node2", "labels": { "kubernetes.io/hostname": "node2" } },
        "spec": {}, "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    })
}

fn nodes(items: &[Value]) -> (u16, Value) {
    (200, json!({ "apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": items }))
}

fn claim() -> (u16, Value) {
    let metadata = json!({ "name": "data-etcd-1", "uid": "claim-uid", "resourceVersion": "42" });
    (
        200,
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": { "volumeName": "pv-1" } }),
    )
}

/// A volume of one node.
fn volume() -> (u16, Value) {
    let requirement = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": ["node2"] });
    let required = json!({ "nodeSelectorTerms": [{ "matchExpressions": [requirement] }] });
    let spec = json!({ "nodeAffinity": { "required": required } });
    (200, json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-1" }, "spec": spec }))
}

/// All that tells where the volume can be used.
fn reach(labelled: &[Value], by_name: (u16, Value)) -> Vec<Exchange> {
    vec![
        expect(GET_CLAIM, claim()),
        expect(GET_VOLUME, volume()),
        expect(LIST_NODES, nodes(labelled))
            .checked(|query, _| assert!(query.contains("kubernetes.io%2Fhostname+in+%28node2%29"), "{query}")),
        expect(GET_NODE, by_name),
    ]
}

async fn ask_for_reach(script: Vec<Exchange>) -> Option<Reach> {
    let (client, server) = scripted(script);
    let reach = Nodes::default().reach(&client, "default", "data-etcd-1").await.unwrap();
    drop(client);
    server.await.unwrap();
    reach
}

#[tokio::test]
async fn a_volume_is_out_of_reach_if_its_node_is_there_under_no_name() {
    let gone = ask_for_reach(reach(&[], failure(404, "NotFound"))).await.unwrap();
    assert!(gone.is_gone() && gone.nodes() == "node2");
    let silent = ask_for_reach(reach(&[], (200, node("Unknown")))).await.unwrap();
    assert_eq!(silent.best(), Some(NodeFact::Silent), "somebody has taken its label");
    let unbound = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {}, "spec": {} });
    assert_eq!(ask_for_reach(vec![expect(GET_CLAIM, (200, unbound))]).await, Some(Reach::Open));
    let lost = vec![expect(GET_CLAIM, claim()), expect(GET_VOLUME, failure(404, "NotFound"))];
    assert_eq!(ask_for_reach(lost).await, Some(Reach::Open), "nobody knows where it was");
}

#[tokio::test]
async fn whoever_may_not_ask_is_told_nothing_and_does_not_ask_again_at_once() {
    let script = vec![expect(GET_NODE, (200, node("True"))), expect(GET_NODE, failure(403, "Forbidden"))];
    let (client, server) = scripted(script);
    let asking = Nodes::default();
    assert_eq!(asking.fact(&client, "node2").await.unwrap(), Some(NodeFact::Ready));
    assert_eq!(asking.fact(&client, "node2").await.unwrap(), None);
    assert_eq!(asking.fact(&client, "node2").await.unwrap(), None, "without a request");
    assert_eq!(asking.reach(&client, "default", "data-etcd-1").await.unwrap(), None);
    drop(client);
    server.await.unwrap();
}

#[tokio::test]
async fn that_the_api_is_away_is_no_refusal() {
    let (client, server) = scripted(vec![expect(GET_NODE, failure(500, "InternalError"))]);
    let asking = Nodes::default();
    asking.fact(&client, "node2").await.unwrap_err();
    drop(client);
    server.await.unwrap();
}

fn cluster() -> EtcdCluster {
    let mut cluster = EtcdCluster::new("etcd", EtcdClusterSpec::default());
    cluster.metadata.namespace = Some("default".to_owned());
    cluster.metadata.uid = Some("cluster-uid".to_owned());
    let latch = Latch::new(LatchState::Formed, 1, Time(Timestamp::UNIX_EPOCH));
    cluster.status = Some(EtcdClusterStatus { latch: Some(latch), ..EtcdClusterStatus::default() });
    cluster
}

async fn take(script: Vec<Exchange>, action: Action) -> Result<(), Error> {
    let (client, server) = scripted(script);
    let (claim, viewed, etcd) = (Claim::always(), cluster(), EtcdClients::default());
    let identity = ClusterIdentity::of(&viewed.metadata).unwrap();
    let actor = Actor {
        client: &client,
        claim: &claim,
        etcd: &etcd,
        writes: &Writes::default(),
        identity: &identity,
        cluster: &viewed,
    };
    let (_, result) = actor.take(&[action]).await;
    drop(client);
    server.await.unwrap();
    result
}

fn success() -> (u16, Value) {
    (
        200,
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Success", "code": 200, "message": "", "reason": "" }),
    )
}

fn pod() -> (u16, Value) {
    let metadata = json!({ "name": "etcd-1", "uid": "pod-uid", "resourceVersion": "7" });
    (
        200,
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": { "nodeName": "node2", "containers": [] } }),
    )
}

fn remove_pod() -> Action {
    let guard = Guard::NodeGone { pod_uid: "pod-uid".to_owned(), node: "node2".to_owned() };
    Action { reason: Reason::PodOnLostNode, effect: Effect::RemovePod { name: "etcd-1".to_owned(), guard } }
}

#[tokio::test]
async fn a_pod_is_removed_by_force_only_if_a_fresh_look_finds_no_node() {
    let script = vec![
        expect(GET_POD, pod()),
        expect(GET_NODE, failure(404, "NotFound")),
        expect(DELETE_POD, success()).checked(|_, body| {
            assert_eq!(body["gracePeriodSeconds"], 0);
            assert_eq!(body["preconditions"]["uid"], "pod-uid");
        }),
    ];
    take(script, remove_pod()).await.unwrap();
    let back = vec![expect(GET_POD, pod()), expect(GET_NODE, (200, node("Unknown")))];
    assert!(matches!(take(back, remove_pod()).await, Err(Error::Outdated { .. })), "it was made again, and is silent");
}

fn delete_claim() -> Action {
    let guard = Guard::VolumeOutOfReach {
        cluster_uid: "cluster-uid".to_owned(),
        generation: None,
        epoch: Some(1),
        claim_uid: "claim-uid".to_owned(),
    };
    Action { reason: Reason::VolumeGivenUp, effect: Effect::DeleteClaim { name: "data-etcd-1".to_owned(), guard } }
}

#[tokio::test]
async fn a_volume_is_given_up_only_if_a_fresh_look_finds_its_node_gone() {
    let metadata = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": { "name": "data-etcd-1", "uid": "claim-uid", "resourceVersion": "42" },
    });
    let looked = || [expect(GET_CLAIM, (200, metadata.clone())), expect(GET_CLUSTER, (200, json!(cluster())))];
    let mut script = reach(&[], failure(404, "NotFound"));
    script.extend(looked());
    script
        .push(expect(DELETE_CLAIM, success()).checked(|_, body| assert_eq!(body["preconditions"]["uid"], "claim-uid")));
    take(script, delete_claim()).await.unwrap();
    let mut back = reach(&[node("Unknown")], (200, node("Unknown")));
    back.extend(looked());
    assert!(matches!(take(back, delete_claim()).await, Err(Error::Outdated { .. })));
}
