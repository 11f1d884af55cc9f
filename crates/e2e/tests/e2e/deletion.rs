//! Clusters that are deleted, and come back.

use quorate_api::names;
use quorate_e2e::{Cluster, Ledger, beside_others, cluster::Kind, eventually};
use serde_json::json;

async fn is_gone(cluster: &Cluster) {
    eventually("the cluster is gone", async || cluster.kubernetes.is_absent(&cluster.own_path()).await.then_some(()))
        .await;
    for kind in [Kind::Pod, Kind::StatefulSet, Kind::Service, Kind::Lease, Kind::EtcdMember, Kind::DisruptionBudget] {
        eventually(&format!("its {kind:?}s are gone"), async || {
            let left = cluster.kubernetes.find(&cluster.all(kind)).await?;
            left["items"].as_array()?.is_empty().then_some(())
        })
        .await;
    }
}

#[test]
fn a_deleted_cluster_leaves_its_volumes_and_an_identical_one_serves_the_old_keys() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "recreated", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 20).await;
        let id = cluster.status().await.cluster_id;
        bed.kubernetes.delete(&cluster.own_path()).await;
        is_gone(&cluster).await;
        let claims = bed.kubernetes.list(&cluster.all(Kind::VolumeClaim)).await;
        assert_eq!(claims.len(), 3);
        assert!(claims.iter().all(|claim| claim["metadata"]["ownerReferences"].is_null()), "{claims:#?}");

        cluster.apply(json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        assert_eq!(cluster.status().await.cluster_id, id, "the same cluster as before");
        ledger.is_held_by_all(&cluster).await;
        ledger.write(&cluster, 5).await;
        ledger.is_held_by_all(&cluster).await;
    });
}

#[test]
fn volumes_go_with_a_cluster_that_says_so_and_others_stay() {
    beside_others(async |bed| {
        let spec = json!({ "replicas": 1, "storage": { "retention": { "onDelete": "Delete" } } });
        let cluster = Cluster::create(&bed, "deleted-all", spec).await;
        let other = Cluster::named(&bed, "deleted-all", "other");
        other.apply(json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        other.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&other, 5).await;
        bed.kubernetes.delete(&cluster.own_path()).await;
        let claim = cluster.path(Kind::VolumeClaim, &names::data_claim(&cluster.member(0)));
        eventually("its volume is gone", async || bed.kubernetes.is_absent(&claim).await.then_some(())).await;
        eventually("the cluster is gone", async || bed.kubernetes.is_absent(&cluster.own_path()).await.then_some(()))
            .await;
        ledger.is_held_by_all(&other).await;
    });
}
