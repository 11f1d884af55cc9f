//! Volumes that are gone.

use std::time::Duration;

use quorate_api::{
    conditions::ConditionType,
    names::annotations,
    status::{DataLossStatus, MemberHealth},
};
use quorate_e2e::{
    Clients, Cluster, beside_others,
    cluster::Kind,
    eventually,
    faults::{self, Program},
    stays,
};
use quorate_ledger::Epoch;
use serde_json::json;

async fn reports_empty(cluster: &Cluster, ordinal: i32) {
    eventually("the wiped member reports that it has no data", async || {
        let member = cluster.find(Kind::EtcdMember, &cluster.member(ordinal)).await?;
        let reported = &member["status"];
        (reported["data"]["state"] == "Empty" && reported["etcd"]["running"] == false).then_some(())
    })
    .await;
}

/// What the status says was lost, once it has been recovered.
async fn recovered(cluster: &Cluster) -> DataLossStatus {
    eventually("the quorum is recovered", async || cluster.status().await.data_loss).await
}

#[test]
fn two_wiped_volumes_of_three_start_nothing_without_consent_and_with_it_the_last_copy_goes_on() {
    beside_others(async |bed| {
        let spec = json!({ "replicas": 3, "recovery": { "quorumLoss": "Manual" } });
        let cluster = Cluster::create(&bed, "two-wiped", spec).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let id = cluster.status().await.cluster_id;
        let survivor = faults::process(&cluster, 2, Program::Etcd).await;

        tokio::join!(faults::wipe(&cluster, 0), faults::wipe(&cluster, 1));
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
        let (state, reason) = cluster.condition(ConditionType::Stalled).await.unwrap();
        assert_eq!((state.as_str(), reason.as_str()), ("True", "RecoveryNeedsConsent"));
        assert_eq!(cluster.status().await.cluster_id, id);
        assert_eq!(faults::process(&cluster, 2, Program::Etcd).await, survivor, "the last copy was touched");

        let consent = json!({ "metadata": { "annotations": { annotations::RECOVER_QUORUM: "1" } } });
        cluster.kubernetes.patch(&cluster.own_path(), &consent).await;
        let loss = recovered(&cluster).await;
        assert_eq!((&loss.from, loss.epoch), (&cluster.member(2), 2));
        cluster.is_whole().await;
        assert_ne!(cluster.status().await.cluster_id, id, "a new incarnation");
        clients.declare(Epoch { kept: loss.revision, reported_lost: loss.raised_to });
        clients.have_written(50).await;
        clients.were_told_the_truth().await;
    });
}

#[test]
fn a_quorum_that_is_lost_while_clients_write_is_recovered_and_says_what_may_be_missing() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "recovered", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(100).await;
        let leader = cluster.leader().await;
        let (first, second) = (leader, (leader + 1) % 3);

        tokio::join!(faults::wipe(&cluster, first), faults::wipe(&cluster, second));
        let loss = recovered(&cluster).await;
        assert_eq!(loss.from, cluster.member((leader + 2) % 3), "the last copy");
        assert!(loss.raised_to > loss.highest_known_revision, "{loss:?}");
        cluster.becomes(ConditionType::DataLoss, "True").await;
        cluster.is_whole().await;
        clients.declare(Epoch { kept: loss.revision, reported_lost: loss.raised_to });
        clients.have_written(100).await;
        clients.were_told_the_truth().await;

        let noted = json!({ "metadata": { "annotations": { annotations::ACKNOWLEDGE_DATA_LOSS: "2" } } });
        cluster.kubernetes.patch(&cluster.own_path(), &noted).await;
        cluster.becomes(ConditionType::DataLoss, "False").await;
    });
}

#[test]
fn the_member_of_a_wiped_volume_is_replaced_while_the_others_go_on() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "one-wiped", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let before = cluster.member_status(1).await.unwrap().id;
        faults::wipe(&cluster, 1).await;
        eventually("another member has taken its place", async || {
            let now = cluster.member_status(1).await?;
            (now.id != before && now.status == MemberHealth::Ready).then_some(())
        })
        .await;
        cluster.is_whole().await;
        cluster.becomes(ConditionType::Degraded, "False").await;
        clients.were_told_the_truth().await;
    });
}
