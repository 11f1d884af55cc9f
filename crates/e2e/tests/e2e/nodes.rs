//! Nodes that do not come back, nodes that are emptied, and data that goes with its pod.

use std::collections::BTreeMap;

use quorate_api::{
    conditions::{self, ConditionType},
    names,
    status::MemberHealth,
};
use quorate_e2e::{
    Clients, Cluster, alone,
    bed::{Bed, aside},
    beside_others,
    cluster::Kind,
    eventually, faults,
};
use serde_json::{Value, json};

use crate::scaling::{ids, settles_at};

async fn node_of(cluster: &Cluster, ordinal: i32) -> Option<String> {
    let pod = cluster.find(Kind::Pod, &cluster.member(ordinal)).await?;
    Some(pod["spec"]["nodeName"].as_str()?.to_owned())
}

fn number(node: &str) -> u8 {
    node.trim_start_matches("node").parse().unwrap()
}

/// A member on another node than the acting operator's, whose successor would have to take over first.
async fn victim(bed: &Bed, cluster: &Cluster) -> (i32, String) {
    let operator = bed.acting_operator().await["spec"]["nodeName"].clone();
    for ordinal in 0..3 {
        let node = node_of(cluster, ordinal).await.unwrap();
        if operator != node.as_str() {
            return (ordinal, node);
        }
    }
    panic!("all members are on the operator's node")
}

async fn id(cluster: &Cluster, ordinal: i32) -> Option<String> {
    cluster.member_status(ordinal).await?.id
}

async fn another_takes_its_place(cluster: &Cluster, ordinal: i32, before: Option<&str>) {
    eventually("another member has taken its place", async || {
        let now = cluster.member_status(ordinal).await?;
        (now.id.as_deref() != before && now.status == MemberHealth::Ready).then_some(())
    })
    .await;
    cluster.is_whole().await;
}

async fn claim(cluster: &Cluster, ordinal: i32) -> Option<Value> {
    cluster.find(Kind::VolumeClaim, &names::data_claim(&cluster.member(ordinal))).await
}

fn ephemeral() -> Value {
    json!({ "replicas": 3, "storage": { "ephemeral": {} } })
}

/// On volumes that stay on their nodes.
fn local() -> Value {
    json!({ "replicas": 3, "storage": { "volumeClaimTemplate": { "storageClassName": "local", "size": "1Gi" } } })
}

#[test]
fn a_member_whose_data_goes_with_its_pod_is_replaced_by_itself() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "ephemeral", ephemeral()).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        for ordinal in [1, cluster.leader().await] {
            let before = id(&cluster, ordinal).await;
            bed.kubernetes.delete(&cluster.path(Kind::Pod, &cluster.member(ordinal))).await;
            another_takes_its_place(&cluster, ordinal, before.as_deref()).await;
        }
        assert!(bed.kubernetes.list(&cluster.all(Kind::VolumeClaim)).await.is_empty());
        let asleep = json!({ "spec": { "replicas": 0 } });
        for path in [format!("{}/scale", cluster.own_path()), cluster.own_path()] {
            let refusal = bed.kubernetes.try_patch(&path, &asleep).await.expect_err("it would lose everything");
            assert!(refusal.message.contains("cannot be 0 with spec.storage.ephemeral"), "{refusal:?}");
        }
        clients.were_told_the_truth().await;
    });
}

#[test]
fn data_may_be_in_memory_where_nothing_is_held_in_reserve() {
    beside_others(async |bed| {
        let storage = json!({ "ephemeral": { "medium": "Memory", "sizeLimit": "1Gi" } });
        let cluster = Cluster::create(&bed, "in-memory", json!({ "replicas": 3, "storage": storage })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let before = id(&cluster, 2).await;
        bed.kubernetes.delete(&cluster.path(Kind::Pod, &cluster.member(2))).await;
        another_takes_its_place(&cluster, 2, before.as_deref()).await;
        clients.were_told_the_truth().await;
        let volume = faults::volume(&cluster, 2).await;
        assert!(volume.join("data").is_dir() && !volume.join("quorate.reserve").exists());
    });
}

#[test]
fn members_that_never_come_are_named_cost_nobody_anything_and_go_with_the_wish() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "hung-growth", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let before = ids(&cluster).await;
        let grown = json!({ "spec": { "replicas": 5, "podTemplate": { "nodeSelector": { "is": "nowhere" } } } });
        bed.kubernetes.patch(&cluster.own_path(), &grown).await;
        eventually("there are pods that find no node", async || {
            let pods = bed.kubernetes.list(&cluster.all(Kind::Pod)).await;
            (pods.iter().filter(|pod| pod["spec"]["nodeName"].is_null()).count() == 2).then_some(())
        })
        .await;
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": cluster.member(0), "namespace": cluster.namespace },
            "deleteOptions": { "dryRun": ["All"] },
        });
        let path = format!("{}/eviction", cluster.path(Kind::Pod, &cluster.member(0)));
        eventually("one of the three may be evicted", async || {
            bed.kubernetes.try_create(&path, &eviction).await.map_err(|refusal| refusal.message)
        })
        .await;
        eventually("the status names who is waited for", async || {
            let conditions = cluster.status().await.conditions;
            let progressing = conditions::find(&conditions, ConditionType::Progressing)?;
            let names = progressing.reason == "WaitingForPod" && progressing.message.contains(&cluster.member(3));
            (progressing.status == "True" && names).then_some(())
        })
        .await;
        assert!(cluster.is(ConditionType::Ready, "True").await);
        assert_eq!(ids(&cluster).await, before, "nobody is added who has no pod that runs");
        clients.have_written(50).await;

        let taken_back = json!({ "spec": { "replicas": 3, "podTemplate": null } });
        bed.kubernetes.patch(&cluster.own_path(), &taken_back).await;
        settles_at(&cluster, 3).await;
        assert_eq!(ids(&cluster).await, before, "all as before");
        clients.were_told_the_truth().await;
    });
}

#[test]
fn a_member_with_ephemeral_storage_is_replaced_when_its_node_is_deleted() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "deleted-node", ephemeral()).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let (victim, node) = victim(&bed, &cluster).await;
        let before = id(&cluster, victim).await;
        let number = number(&node);
        let gone = aside(move || faults::remove_node(number)).await;
        another_takes_its_place(&cluster, victim, before.as_deref()).await;
        assert_ne!(node_of(&cluster, victim).await, Some(node));
        clients.were_told_the_truth().await;
        aside(move || gone.mend()).await;
        bed.nodes_are_ready().await;
        cluster.is_whole().await;
    });
}

#[test]
fn a_member_whose_volume_went_with_its_node_waits_until_its_owner_gives_it_up() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "stranded", local()).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let (victim, node) = victim(&bed, &cluster).await;
        let (before, volume) = (id(&cluster, victim).await, claim(&cluster, victim).await.unwrap());
        let number = number(&node);
        let gone = aside(move || faults::remove_node(number)).await;
        eventually("the status says what waits", async || {
            let stalled = cluster.condition(ConditionType::Stalled).await?;
            (stalled == ("True".to_owned(), "VolumeStranded".to_owned())).then_some(())
        })
        .await;
        let lost = cluster.status().await.lost_nodes;
        assert_eq!((lost[0].member.as_str(), lost[0].node.as_str()), (&*cluster.member(victim), &*node));
        assert_eq!(id(&cluster, victim).await, before);
        assert_eq!(claim(&cluster, victim).await.unwrap()["metadata"]["uid"], volume["metadata"]["uid"]);

        let given_up = json!({ "spec": { "recovery": { "nodeLostAfter": "5s" } } });
        bed.kubernetes.patch(&cluster.own_path(), &given_up).await;
        another_takes_its_place(&cluster, victim, before.as_deref()).await;
        let now = claim(&cluster, victim).await.unwrap();
        assert_ne!(now["metadata"]["uid"], volume["metadata"]["uid"], "it has a new volume");
        assert_ne!(node_of(&cluster, victim).await, Some(node));
        assert!(cluster.status().await.lost_nodes.is_empty());
        clients.were_told_the_truth().await;
        aside(move || gone.mend()).await;
        bed.nodes_are_ready().await;
        cluster.is_whole().await;
    });
}

#[test]
fn a_node_that_comes_back_brings_its_member_back() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "node-returns", local()).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let (victim, node) = victim(&bed, &cluster).await;
        let before = id(&cluster, victim).await;
        let number = number(&node);
        let gone = aside(move || faults::remove_node(number)).await;
        eventually("the node is missed", async || (!cluster.status().await.lost_nodes.is_empty()).then_some(())).await;
        clients.have_written(50).await;
        aside(move || gone.mend()).await;
        bed.nodes_are_ready().await;
        cluster.is_whole().await;
        assert_eq!(id(&cluster, victim).await, before, "the same member");
        assert_eq!(node_of(&cluster, victim).await, Some(node));
        clients.were_told_the_truth().await;
    });
}

/// How many members' kubelets call them ready.
async fn ready_pods(cluster: &Cluster) -> Option<usize> {
    let pods = cluster.kubernetes.find(&cluster.all(Kind::Pod)).await?["items"].as_array()?.clone();
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    Some(pods.iter().filter(is_ready).count())
}

/// Empties each node in turn, and has an eye on the members all the while.
async fn drain_each_node(bed: &Bed, cluster: &Cluster) {
    for number in 1..=3 {
        let drain = aside(move || faults::drain_node(number));
        tokio::pin!(drain);
        let mut fewest = 3;
        let drained = loop {
            tokio::select! {
                drained = &mut drain => break drained,
                () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {
                    fewest = ready_pods(cluster).await.map_or(fewest, |ready| ready.min(fewest));
                }
            }
        };
        assert!(fewest >= 2, "{fewest} members were left while node{number} was drained");
        let mut left = BTreeMap::new();
        for ordinal in 0..3 {
            left.insert(ordinal, node_of(cluster, ordinal).await);
        }
        assert!(left.values().all(|node| *node != Some(format!("node{number}"))), "{left:?}");
        aside(move || drained.mend()).await;
        bed.nodes_are_ready().await;
        cluster.is_whole().await;
    }
}

#[test]
fn every_node_can_be_drained_in_turn_and_the_quorum_stays() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "drained", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let cluster_id = cluster.status().await.cluster_id;
        drain_each_node(&bed, &cluster).await;
        clients.were_told_the_truth().await;
        assert_eq!(cluster.status().await.cluster_id, cluster_id);
    });
}

#[test]
fn nodes_of_members_whose_data_goes_with_their_pods_can_be_drained_too() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "drained-all", ephemeral()).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        drain_each_node(&bed, &cluster).await;
        clients.were_told_the_truth().await;
    });
}
