//! Members come and go while clients write.

use std::collections::BTreeSet;

use quorate_api::{conditions::ConditionType, status::ClusterPhase};
use quorate_e2e::{Bed, Clients, Cluster, beside_others, cluster::Kind, eventually, faults};
use serde_json::json;

/// As `kubectl scale` and autoscalers do.
pub(crate) async fn scale(cluster: &Cluster, replicas: i32) {
    let change = json!({ "spec": { "replicas": replicas } });
    cluster.kubernetes.patch(&format!("{}/scale", cluster.own_path()), &change).await;
}

/// So many members, all with a vote and ready, as many pods, and nothing left to do.
pub(crate) async fn settles_at(cluster: &Cluster, size: i32) {
    eventually(&format!("{} has settled at {size} members", cluster.namespace), async || {
        let status = cluster.status().await;
        let pods = cluster.kubernetes.find(&cluster.all(Kind::Pod)).await?["items"].as_array()?.len();
        let generation = cluster.kubernetes.find(&cluster.own_path()).await?["metadata"]["generation"].as_i64();
        let is_whole = status.cluster_size == Some(size) && status.ready_replicas == size;
        let is_current = status.observed_generation == generation && status.pending.is_empty();
        let has_pods = i32::try_from(pods) == Ok(size);
        (is_whole && is_current && has_pods && cluster.is(ConditionType::Progressing, "False").await).then_some(())
    })
    .await;
    let listed = cluster.connect(0).await.member_list(true).await.unwrap().members;
    let names = listed.iter().map(|member| member.name.clone()).collect::<BTreeSet<_>>();
    assert_eq!(names, (0..size).map(|ordinal| cluster.member(ordinal)).collect());
    assert!(listed.iter().all(|member| !member.is_learner), "{listed:?}");
}

async fn scales_to(cluster: &Cluster, size: i32) {
    scale(cluster, size).await;
    settles_at(cluster, size).await;
}

pub(crate) async fn ids(cluster: &Cluster) -> BTreeSet<u64> {
    let listed = cluster.connect(0).await.member_list(true).await.unwrap().members;
    listed.iter().map(|member| member.id).collect()
}

async fn claims(cluster: &Cluster) -> usize {
    cluster.kubernetes.list(&cluster.all(Kind::VolumeClaim)).await.len()
}

async fn grows_and_shrinks(bed: &Bed, namespace: &str, sizes: &[i32]) {
    let cluster = Cluster::create(bed, namespace, json!({ "replicas": 1, "spread": "None" })).await;
    cluster.is_whole().await;
    let clients = Clients::of(&cluster).await;
    let id = cluster.status().await.cluster_id;
    for size in sizes {
        scales_to(&cluster, *size).await;
        eventually("volumes of members that are gone are gone", async || {
            (i32::try_from(claims(&cluster).await) == Ok(*size)).then_some(())
        })
        .await;
        clients.have_written(50).await;
    }
    assert_eq!(cluster.status().await.cluster_id, id, "the same cluster");
    clients.were_told_the_truth().await;
}

#[test]
fn a_cluster_grows_and_shrinks_while_clients_write() {
    beside_others(async |bed| grows_and_shrinks(&bed, "scaled", &[3, 5, 3, 1]).await);
}

#[test]
#[ignore = "takes minutes: make campaign"]
fn a_cluster_grows_to_as_many_as_there_may_be_and_back() {
    beside_others(async |bed| grows_and_shrinks(&bed, "scaled-far", &[3, 5, 7, 5, 3, 1]).await);
}

#[test]
fn the_leader_hands_over_before_it_goes_and_volumes_that_are_kept_are_put_aside_later() {
    beside_others(async |bed| {
        let spec = json!({ "replicas": 3, "storage": { "retention": { "onScaleDown": "Retain" } } });
        let cluster = Cluster::create(&bed, "kept-volumes", spec).await;
        cluster.is_whole().await;
        let leader = cluster.leader().await;
        let leaders_client = cluster.connect(leader).await;
        let listed = cluster.connect(0).await.member_list(true).await.unwrap().members;
        let last = listed.iter().find(|member| member.name == cluster.member(2)).unwrap().id;
        if leader != 2 {
            leaders_client.move_leader(last).await.unwrap();
        }
        eventually("the last member leads", async || (cluster.leader().await == 2).then_some(())).await;
        let clients = Clients::of(&cluster).await;
        let before = ids(&cluster).await;

        scales_to(&cluster, 1).await;
        assert_eq!(claims(&cluster).await, 3, "volumes were to be kept");
        eventually("that leadership was moved is an event", async || {
            let events = bed.kubernetes.list(&cluster.all(Kind::Event)).await;
            events.iter().any(|event| event["reason"] == "LeaderMoved").then_some(())
        })
        .await;

        scales_to(&cluster, 3).await;
        clients.were_told_the_truth().await;
        assert_eq!(ids(&cluster).await.intersection(&before).count(), 1, "who comes back is another member");
        let aside = std::fs::read_dir(faults::volume(&cluster, 2).await).unwrap().flatten();
        let aside = aside.filter(|entry| entry.file_name().to_string_lossy().starts_with("quarantine-"));
        assert_eq!(aside.count(), 1, "what was on the volume is still there");
    });
}

#[test]
fn a_wish_that_changes_midway_is_followed_from_where_the_cluster_is() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "changed-mind", json!({ "replicas": 3, "spread": "None" })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let before = ids(&cluster).await;
        scale(&cluster, 5).await;
        eventually("a fourth member is added", async || (ids(&cluster).await.len() == 4).then_some(())).await;
        scales_to(&cluster, 3).await;
        clients.were_told_the_truth().await;
        assert_eq!(ids(&cluster).await, before, "those that were there are still there");
    });
}

#[test]
fn a_cluster_that_was_put_to_sleep_wakes_with_the_same_members() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "asleep", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        scales_to(&cluster, 3).await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let before = ids(&cluster).await;
        scale(&cluster, 0).await;
        eventually("it sleeps", async || {
            let pods = bed.kubernetes.find(&cluster.all(Kind::Pod)).await?["items"].as_array()?.len();
            (pods == 0 && cluster.status().await.phase == Some(ClusterPhase::Hibernated)).then_some(())
        })
        .await;
        assert_eq!(claims(&cluster).await, 3);
        scale(&cluster, 3).await;
        let mut phases = Vec::new();
        eventually("it serves again", async || {
            phases.extend(cluster.status().await.phase);
            cluster.is(ConditionType::Ready, "True").await.then_some(())
        })
        .await;
        assert!(!phases.contains(&ClusterPhase::QuorumLost), "{phases:?}");
        settles_at(&cluster, 3).await;
        assert_eq!(ids(&cluster).await, before, "the same members");
        clients.have_written(50).await;
        clients.were_told_the_truth().await;
    });
}

#[test]
fn a_member_whose_etcd_was_removed_by_hand_comes_back_as_a_new_one() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "removed-by-hand", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let listed = cluster.connect(0).await.member_list(true).await.unwrap().members;
        let victim = listed.iter().find(|member| member.name == cluster.member(2)).unwrap().id;
        eventually("it is removed", async || cluster.connect(0).await.member_remove(victim).await).await;
        eventually("another member has taken its place", async || {
            let now = cluster.try_connect(0).await?.member_list(true).await.ok()?.members;
            let successor = now.iter().find(|member| member.name == cluster.member(2))?;
            (successor.id != victim && !successor.is_learner).then_some(())
        })
        .await;
        settles_at(&cluster, 3).await;
        clients.were_told_the_truth().await;
    });
}
