//! Objects that somebody deletes or edits.

use std::time::Duration;

use quorate_api::{names, status::MemberHealth};
use quorate_e2e::{
    Cluster, Keys, beside_others,
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
        let mut keys = Keys::default();
        keys.write(&cluster, 10).await;
        let name = cluster.name.as_str();
        for (kind, object) in [
            (Kind::Service, names::client_service(name)),
            (Kind::Service, names::peer_service(name)),
            (Kind::DisruptionBudget, names::disruption_budget(name)),
            (Kind::Role, names::member_account(name)),
            (Kind::RoleBinding, names::member_account(name)),
            (Kind::RoleBinding, names::operator_binding(name)),
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
        keys.write(&cluster, 10).await;
        cluster.is_whole().await;
        keys.is_held_by_all(&cluster).await;
        eventually("the member reports again into its new object", async || {
            let member = cluster.find(Kind::EtcdMember, &cluster.member(1)).await?;
            (member["status"]["data"]["state"] == "Valid" && member["status"]["etcd"]["running"] == true).then_some(())
        })
        .await;
    });
}

#[test]
fn members_get_new_pods_one_at_a_time_when_their_account_was_made_anew() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "new-account", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 10).await;
        let uids = async || {
            let pods = bed.kubernetes.list(&cluster.all(Kind::Pod)).await;
            pods.iter().map(|pod| pod["metadata"]["uid"].to_string()).collect::<Vec<_>>()
        };
        let before = uids().await;
        // Times are in whole seconds, and an account of the same second would pass for the old one.
        tokio::time::sleep(Duration::from_secs(1)).await;
        bed.kubernetes.delete(&cluster.path(Kind::ServiceAccount, &names::member_account(&cluster.name))).await;
        eventually("every pod is another one", async || {
            let now = uids().await;
            let away = 3 - now.len();
            assert!(away <= 1, "{away} pods are away at once");
            (away == 0 && now.iter().all(|uid| !before.contains(uid))).then_some(())
        })
        .await;
        keys.write(&cluster, 10).await;
        cluster.is_whole().await;
        keys.is_held_by_all(&cluster).await;
    });
}

#[test]
fn a_certificate_that_was_edited_by_hand_is_issued_anew() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "edited-secret", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let secret = cluster.path(Kind::Secret, &names::secrets::client(&cluster.name));
        let serial = async || {
            let annotations = bed.kubernetes.get(&secret).await["metadata"]["annotations"].clone();
            annotations[names::annotations::CERTIFICATE_SERIAL].clone()
        };
        let before = serial().await;
        bed.kubernetes.patch(&secret, &json!({ "data": { "tls.key": "bm9uc2Vuc2U=" } })).await;
        let after = eventually("another certificate is there", async || {
            let after = serial().await;
            (after != before).then_some(after)
        })
        .await;
        stays("it is issued once", Duration::from_secs(10), async || serial().await == after).await;
        let mut keys = Keys::default();
        keys.write(&cluster, 3).await;
        keys.is_held_by_all(&cluster).await;
    });
}

#[test]
fn edits_by_hand_are_undone() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "edited-objects", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 3).await;
        let name = cluster.name.as_str();
        let edits: [(Kind, String, Value, &str); 10] = [
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
            (
                Kind::Service,
                names::peer_service(name),
                json!({ "spec": { "publishNotReadyAddresses": false } }),
                "/spec/publishNotReadyAddresses",
            ),
            (Kind::Role, names::member_account(name), json!({ "rules": [] }), "/rules"),
            (Kind::RoleBinding, names::member_account(name), json!({ "subjects": [] }), "/subjects"),
            (Kind::RoleBinding, names::operator_binding(name), json!({ "subjects": [] }), "/subjects"),
            (
                Kind::ServiceAccount,
                names::member_account(name),
                json!({ "automountServiceAccountToken": true }),
                "/automountServiceAccountToken",
            ),
            (
                Kind::EtcdMember,
                cluster.member(0),
                json!({ "spec": { "ticket": { "resume": null, "hold": { "reason": "by hand" } } } }),
                "/spec/ticket",
            ),
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
        keys.write(&cluster, 3).await;
        keys.is_held_by_all(&cluster).await;
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
