//! Objects that somebody deletes or edits.

use std::time::Duration;

use quorate_api::{names, status::MemberHealth};
use quorate_e2e::{
    Cluster, Ledger, beside_others,
    cluster::Kind,
    eventually,
    faults::{self, Program},
    stays,
};
use rustix::process::Signal;
use serde_json::{Value, json};

#[test]
fn whatever_belongs_to_a_cluster_comes_back_when_it_is_deleted() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "deleted-objects", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 10).await;
        let name = cluster.name.as_str();
        for (kind, object) in [
            (Kind::Service, names::client_service(name)),
            (Kind::Service, names::peer_service(name)),
            (Kind::DisruptionBudget, names::disruption_budget(name)),
            (Kind::ServiceAccount, names::member_account(name)),
            (Kind::Role, names::member_account(name)),
            (Kind::RoleBinding, names::member_account(name)),
            (Kind::Lease, cluster.member(1)),
            (Kind::EtcdMember, cluster.member(1)),
            (Kind::Secret, names::secrets::client(name)),
            (Kind::StatefulSet, names::stateful_set(name)),
        ] {
            let path = cluster.path(kind, &object);
            let uid = bed.kubernetes.get(&path).await["metadata"]["uid"].clone();
            bed.kubernetes.delete(&path).await;
            eventually(&format!("{kind:?} {object} is back"), async || {
                let found = bed.kubernetes.find(&path).await?;
                (found["metadata"]["uid"] != uid && found["metadata"]["deletionTimestamp"].is_null()).then_some(())
            })
            .await;
        }
        ledger.write(&cluster, 10).await;
        cluster.is_whole().await;
        ledger.is_held_by_all(&cluster).await;
        eventually("the member reports again into its new object", async || {
            let member = cluster.find(Kind::EtcdMember, &cluster.member(1)).await?;
            (member["status"]["data"]["state"] == "Valid" && member["status"]["etcd"]["running"] == true).then_some(())
        })
        .await;
    });
}

#[test]
fn edits_by_hand_are_undone() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "edited-objects", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 3).await;
        let name = cluster.name.as_str();
        let edits: [(Kind, String, Value, &str); 5] = [
            (Kind::StatefulSet, names::stateful_set(name), json!({ "spec": { "replicas": 0 } }), "/spec/replicas"),
            (
                Kind::Service,
                names::client_service(name),
                json!({ "spec": { "selector": { "quorate.dev/cluster": "nobody" } } }),
                "/spec/selector",
            ),
            (
                Kind::Service,
                names::client_service(name),
                json!({ "spec": { "selector": { "added": "by-hand" } } }),
                "/spec/selector",
            ),
            (Kind::Role, names::member_account(name), json!({ "rules": [] }), "/rules"),
            (
                Kind::DisruptionBudget,
                names::disruption_budget(name),
                json!({ "metadata": { "labels": { "quorate.dev/cluster": "nobody" } } }),
                "/metadata/labels",
            ),
        ];
        for (kind, object, edit, part) in edits {
            let path = cluster.path(kind, &object);
            let before = bed.kubernetes.get(&path).await.pointer(part).cloned();
            bed.kubernetes.patch(&path, &edit).await;
            eventually(&format!("the edit of {kind:?} {object} is undone: {edit}"), async || {
                (bed.kubernetes.find(&path).await?.pointer(part).cloned() == before).then_some(())
            })
            .await;
        }
        cluster.is_whole().await;
        ledger.write(&cluster, 3).await;
        ledger.is_held_by_all(&cluster).await;
    });
}

#[test]
fn a_paused_cluster_is_left_alone_and_its_status_goes_on() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "paused", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let paused = |paused: bool| json!({ "spec": { "maintenance": { "paused": paused } } });
        bed.kubernetes.patch(&cluster.own_path(), &paused(true)).await;
        let generation = bed.kubernetes.get(&cluster.own_path()).await["metadata"]["generation"].as_i64();
        eventually("the operator has seen the pause", async || {
            (cluster.status().await.observed_generation == generation).then_some(())
        })
        .await;
        let budget = cluster.path(Kind::DisruptionBudget, &names::disruption_budget(&cluster.name));
        bed.kubernetes.delete(&budget).await;
        let pid = faults::signal(&cluster, 0, Program::Etcd, Signal::STOP).await;
        eventually("the status shows the frozen member", async || {
            (cluster.member_status(0).await?.status != MemberHealth::Ready).then_some(())
        })
        .await;
        stays("nothing is repaired", Duration::from_secs(3), async || bed.kubernetes.is_absent(&budget).await).await;
        rustix::process::kill_process(pid, Signal::CONT).unwrap();
        bed.kubernetes.patch(&cluster.own_path(), &paused(false)).await;
        eventually("the budget is back", async || bed.kubernetes.find(&budget).await).await;
        cluster.is_whole().await;
    });
}
