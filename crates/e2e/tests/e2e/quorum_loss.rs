//! Volumes that are gone.

use std::time::Duration;

use quorate_api::{conditions::ConditionType, names};
use quorate_e2e::{
    Cluster, Ledger, beside_others,
    cluster::Kind,
    eventually,
    faults::{self, Program},
    stays,
};
use quorate_etcd::pb::rpc::kv::RangeRequest;
use serde_json::json;

/// A new, empty volume in the place of the old one, and a new pod on it.
async fn wipe(cluster: &Cluster, ordinal: i32) {
    let member = cluster.member(ordinal);
    let claim = cluster.path(Kind::VolumeClaim, &names::data_claim(&member));
    let before = cluster.kubernetes.get(&claim).await["metadata"]["uid"].clone();
    cluster.kubernetes.delete(&claim).await;
    cluster.kubernetes.delete(&cluster.path(Kind::Pod, &member)).await;
    eventually("there is a new volume", async || {
        let now = cluster.kubernetes.find(&claim).await?["metadata"]["uid"].clone();
        // A pod that was made while the old claim was going has none and never gets one.
        if now == before && cluster.find(Kind::Pod, &member).await.is_some() {
            let _ = cluster.kubernetes.try_delete(&cluster.path(Kind::Pod, &member)).await;
        }
        (now != before).then_some(())
    })
    .await;
}

async fn reports_empty(cluster: &Cluster, ordinal: i32) {
    eventually("the wiped member reports that it has no data", async || {
        let member = cluster.find(Kind::EtcdMember, &cluster.member(ordinal)).await?;
        let reported = &member["status"];
        (reported["data"]["state"] == "Empty" && reported["etcd"]["running"] == false).then_some(())
    })
    .await;
}

#[test]
fn two_wiped_volumes_of_three_never_start_a_new_cluster() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "two-wiped", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 10).await;
        let id = cluster.status().await.cluster_id;
        let survivor = faults::process(&cluster, 2, Program::Etcd).await;

        tokio::join!(wipe(&cluster, 0), wipe(&cluster, 1));
        reports_empty(&cluster, 0).await;
        reports_empty(&cluster, 1).await;
        cluster.becomes(ConditionType::Ready, "False").await;
        stays("no etcd starts on an empty volume", Duration::from_secs(15), async || {
            faults::process(&cluster, 0, Program::Etcd).await.is_none()
                && faults::process(&cluster, 1, Program::Etcd).await.is_none()
        })
        .await;
        let (_, reason) = cluster.condition(ConditionType::Ready).await.unwrap();
        assert_eq!(reason, "QuorumLost");
        assert!(cluster.is(ConditionType::Degraded, "True").await, "the loss is not named");
        assert_eq!(cluster.status().await.cluster_id, id);
        assert_eq!(faults::process(&cluster, 2, Program::Etcd).await, survivor, "the last copy was touched");
        let last_copy = cluster.connect(2).await;
        let held = last_copy.range(RangeRequest { serializable: true, ..Ledger::everything() }).await.unwrap();
        assert_eq!(held.kvs.len(), ledger.len(), "the last copy holds all that was acknowledged");
    });
}

#[test]
fn one_wiped_volume_of_three_is_reported_and_the_others_go_on() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "one-wiped", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 10).await;
        wipe(&cluster, 1).await;
        reports_empty(&cluster, 1).await;
        ledger.write(&cluster, 10).await;
        cluster.becomes(ConditionType::Degraded, "True").await;
        assert!(cluster.is(ConditionType::Ready, "True").await);
        assert!(faults::process(&cluster, 1, Program::Etcd).await.is_none(), "it started as if it were new");
        let held = cluster.connect(0).await.range(Ledger::everything()).await.unwrap();
        assert_eq!(held.kvs.len(), ledger.len(), "the others hold all that was acknowledged");
    });
}
