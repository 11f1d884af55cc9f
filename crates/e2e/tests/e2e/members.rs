//! What happens to single members, and to all of them.

use quorate_api::{
    conditions::ConditionType,
    names,
    status::{EtcdClusterStatus, MemberHealth},
};
use quorate_e2e::{
    Clients, Cluster, Keys, beside_others,
    cluster::Kind,
    eventually,
    faults::{self, Program},
};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::scaling::ids;

#[test]
fn a_deleted_pod_returns_with_its_identity_and_its_data() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "deleted-pod", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 20).await;
        let before = cluster.member_status(1).await.unwrap();
        let uid = cluster.pod(1).await["metadata"]["uid"].clone();

        bed.kubernetes.delete(&cluster.path(Kind::Pod, &cluster.member(1))).await;
        keys.write(&cluster, 20).await;
        eventually("a new pod is there", async || {
            let pod = cluster.find(Kind::Pod, &cluster.member(1)).await?;
            (pod["metadata"]["uid"] != uid).then_some(())
        })
        .await;
        cluster.member_becomes(1, MemberHealth::Ready).await;
        cluster.is_whole().await;
        assert_eq!(cluster.member_status(1).await.unwrap().id, before.id, "the same member");
        keys.is_held_by_all(&cluster).await;
    });
}

#[test]
fn all_pods_deleted_at_once_come_back_with_all_keys() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "all-pods", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 50).await;
        let id = cluster.status().await.cluster_id;
        for ordinal in 0..3 {
            faults::signal(&cluster, ordinal, Program::Etcd, Signal::KILL).await;
            bed.kubernetes
                .delete(&format!("{}?gracePeriodSeconds=0", cluster.path(Kind::Pod, &cluster.member(ordinal))))
                .await;
        }
        keys.write(&cluster, 10).await;
        cluster.is_whole().await;
        keys.is_held_by_all(&cluster).await;
        assert_eq!(cluster.status().await.cluster_id, id, "the same cluster");
    });
}

#[test]
fn a_frozen_member_shows_leaves_the_service_and_comes_back() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "frozen", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 10).await;
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
        keys.write(&cluster, 10).await;
        assert_ne!(cluster.leader().await, victim, "a frozen leader is still called leader");

        kill_process(pid, Signal::CONT).unwrap();
        cluster.is_whole().await;
        keys.is_held_by_all(&cluster).await;
    });
}

#[test]
fn a_killed_etcd_is_started_again_on_its_own_data() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "killed-etcd", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 20).await;
        let before = faults::signal(&cluster, 0, Program::Etcd, Signal::KILL).await;
        eventually("a new etcd runs", async || {
            faults::process(&cluster, 0, Program::Etcd).await.filter(|now| *now != before)
        })
        .await;
        cluster.is_whole().await;
        keys.write(&cluster, 1).await;
        keys.is_held_by_all(&cluster).await;
    });
}

#[test]
fn a_member_whose_etcd_crashes_again_and_again_costs_the_others_nothing() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "crash-loop", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let before = ids(&cluster).await;
        let leader = cluster.leader().await;
        let (victim, other) = ((leader + 1) % 3, (leader + 2) % 3);
        let uid = cluster.pod(victim).await["metadata"]["uid"].clone();
        let etcd_of = async |ordinal: i32| faults::process(&cluster, ordinal, Program::Etcd).await;
        let untouched = [etcd_of(leader).await, etcd_of(other).await];

        // As the kernel does it to one that has too little memory, until Kubernetes makes it wait longer and longer.
        eventually("Kubernetes calls it a crash loop", async || {
            if let Some(etcd) = etcd_of(victim).await {
                let _ = kill_process(etcd, Signal::KILL);
            }
            let containers = cluster.pod(victim).await["status"]["containerStatuses"].as_array().cloned();
            let waits = |one: &Value| one["state"]["waiting"]["reason"] == "CrashLoopBackOff";
            containers.unwrap_or_default().iter().any(waits).then_some(())
        })
        .await;
        eventually("the status shows it", async || {
            let shown = cluster.member_status(victim).await?;
            (shown.status != MemberHealth::Ready).then_some(())
        })
        .await;
        assert!(cluster.is(ConditionType::Ready, "True").await, "the others serve");
        clients.have_written(50).await;

        cluster.is_whole().await;
        assert_eq!([etcd_of(leader).await, etcd_of(other).await], untouched, "the others were left alone");
        assert_eq!(cluster.pod(victim).await["metadata"]["uid"], uid, "its pod was not replaced for that");
        assert_eq!(ids(&cluster).await, before, "nobody was removed for that");
        clients.were_told_the_truth().await;
    });
}

#[test]
fn a_hung_etcd_that_is_alone_is_restarted_on_its_own_data() {
    beside_others(async |bed| {
        let spec = json!({ "replicas": 1, "recovery": { "notReadyGracePeriod": "10s" } });
        let cluster = Cluster::create(&bed, "hung-alone", spec).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 10).await;
        let uid = cluster.pod(0).await["metadata"]["uid"].clone();
        faults::signal(&cluster, 0, Program::Etcd, Signal::STOP).await;
        eventually("it gets a new pod", async || {
            let pod = cluster.find(Kind::Pod, &cluster.member(0)).await?;
            (pod["metadata"]["uid"] != uid).then_some(())
        })
        .await;
        cluster.is_whole().await;
        keys.is_held_by_all(&cluster).await;
    });
}

#[test]
fn two_hung_members_of_three_are_restarted_though_there_is_no_quorum() {
    beside_others(async |bed| {
        let spec = json!({ "replicas": 3, "recovery": { "notReadyGracePeriod": "10s" } });
        let cluster = Cluster::create(&bed, "hung-majority", spec).await;
        cluster.is_whole().await;
        let before = cluster.status().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 10).await;
        for ordinal in [0, 2] {
            faults::signal(&cluster, ordinal, Program::Etcd, Signal::STOP).await;
        }
        cluster.becomes(ConditionType::Ready, "False").await;
        cluster.is_whole().await;
        keys.write(&cluster, 5).await;
        keys.is_held_by_all(&cluster).await;
        let after = cluster.status().await;
        let incarnation = |status: &EtcdClusterStatus| (status.cluster_id.clone(), status.epoch);
        assert_eq!(incarnation(&after), incarnation(&before), "volumes that are intact are nothing to begin anew from");
        assert!(after.data_loss.is_none());
    });
}

#[test]
fn nobody_is_evicted_while_a_member_is_cut_off_from_its_peers_though_its_pod_is_ready() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "peer-cut", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let victim = cluster.leader().await;
        let other = cluster.member((victim + 1) % 3);
        let allowed = async || {
            let budget = cluster.find(Kind::DisruptionBudget, &names::disruption_budget(&cluster.name)).await?;
            Some(3 - budget["spec"]["minAvailable"].as_i64()?)
        };
        let becomes = async |most: i64| {
            let what = format!("{most} may be evicted");
            eventually(&what, async || (allowed().await == Some(most)).then_some(())).await;
        };
        becomes(1).await;

        let cut = faults::isolate_from_peers(&cluster, victim).await;
        becomes(0).await;
        let ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        assert!(ready(&cluster.pod(victim).await), "its kubelet sees nothing of it");
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": other, "namespace": cluster.namespace },
        });
        let path = format!("{}/eviction", cluster.path(Kind::Pod, &other));
        let evict = async || bed.kubernetes.try_create(&path, &eviction).await.map_err(|refusal| refusal.code);
        // The controller of budgets looks at them a moment later.
        eventually("an eviction is refused", async || match evict().await {
            Err(429) => Some(()),
            Err(code) => panic!("refused for another reason: {code}"),
            Ok(_) => panic!("a member was evicted while another was cut off"),
        })
        .await;
        cut.mend();
        cluster.is_whole().await;
        becomes(1).await;
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
