//! What happens to single members, and to all of them.

use quorate_api::status::MemberHealth;
use quorate_e2e::{
    Cluster, Ledger, beside_others,
    cluster::Kind,
    eventually,
    faults::{self, Program},
};
use rustix::process::Signal;
use serde_json::json;

#[test]
fn a_deleted_pod_returns_with_its_identity_and_its_data() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "deleted-pod", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 20).await;
        let before = cluster.member_status(1).await.unwrap();
        let uid = cluster.pod(1).await["metadata"]["uid"].clone();

        bed.kubernetes.delete(&cluster.path(Kind::Pod, &cluster.member(1))).await;
        ledger.write(&cluster, 20).await;
        eventually("a new pod is there", async || {
            let pod = cluster.find(Kind::Pod, &cluster.member(1)).await?;
            (pod["metadata"]["uid"] != uid).then_some(())
        })
        .await;
        cluster.member_becomes(1, MemberHealth::Ready).await;
        cluster.is_whole().await;
        assert_eq!(cluster.member_status(1).await.unwrap().id, before.id, "the same member");
        ledger.is_held_by_all(&cluster).await;
    });
}

#[test]
fn all_pods_deleted_at_once_come_back_with_all_keys() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "all-pods", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 50).await;
        let id = cluster.status().await.cluster_id;
        for ordinal in 0..3 {
            faults::signal(&cluster, ordinal, Program::Etcd, Signal::KILL).await;
            bed.kubernetes
                .delete(&format!("{}?gracePeriodSeconds=0", cluster.path(Kind::Pod, &cluster.member(ordinal))))
                .await;
        }
        ledger.write(&cluster, 10).await;
        cluster.is_whole().await;
        ledger.is_held_by_all(&cluster).await;
        assert_eq!(cluster.status().await.cluster_id, id, "the same cluster");
    });
}

#[test]
fn a_frozen_member_shows_leaves_the_service_and_comes_back() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "frozen", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 10).await;
        let victim = cluster.leader().await;
        let address = cluster.pod(victim).await["status"]["podIP"].as_str().unwrap().to_owned();
        eventually("all members are behind the Service", async || {
            (cluster.serving_addresses().await.len() == 3).then_some(())
        })
        .await;

        let pid = faults::signal(&cluster, victim, Program::Etcd, Signal::STOP).await;
        eventually("the frozen member has left the Service", async || {
            (!cluster.serving_addresses().await.contains(&address)).then_some(())
        })
        .await;
        eventually("the frozen member is not called ready", async || {
            (cluster.member_status(victim).await?.status != MemberHealth::Ready).then_some(())
        })
        .await;
        ledger.write(&cluster, 10).await;
        assert_ne!(cluster.leader().await, victim, "a frozen leader is still called leader");

        rustix::process::kill_process(pid, Signal::CONT).unwrap();
        cluster.is_whole().await;
        ledger.is_held_by_all(&cluster).await;
    });
}

#[test]
fn a_killed_etcd_is_started_again_on_its_own_data() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "killed-etcd", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 20).await;
        let before = faults::signal(&cluster, 0, Program::Etcd, Signal::KILL).await;
        eventually("a new etcd runs", async || {
            faults::process(&cluster, 0, Program::Etcd).await.filter(|now| *now != before)
        })
        .await;
        cluster.is_whole().await;
        ledger.write(&cluster, 1).await;
        ledger.is_held_by_all(&cluster).await;
    });
}

#[test]
fn a_killed_agent_leaves_etcd_alone_and_goes_on_reporting() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "killed-agent", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let etcd = faults::process(&cluster, 0, Program::Etcd).await;
        let before = faults::signal(&cluster, 0, Program::Agent, Signal::KILL).await;
        eventually("a new agent runs", async || {
            faults::process(&cluster, 0, Program::Agent).await.filter(|now| *now != before)
        })
        .await;
        let renewed = cluster.get(Kind::Lease, &cluster.member(0)).await["spec"]["renewTime"].clone();
        eventually("the Lease is renewed again", async || {
            (cluster.get(Kind::Lease, &cluster.member(0)).await["spec"]["renewTime"] != renewed).then_some(())
        })
        .await;
        assert_eq!(faults::process(&cluster, 0, Program::Etcd).await, etcd, "etcd was restarted with its agent");
        cluster.is_whole().await;
    });
}
