//! Clusters that are deleted, and come back.

use quorate_api::names;
use quorate_e2e::{Cluster, Keys, beside_others, cluster::Kind, eventually};
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
        let mut keys = Keys::default();
        keys.write(&cluster, 20).await;
        let id = cluster.status().await.cluster_id;
        bed.kubernetes.delete(&cluster.own_path()).await;
        is_gone(&cluster).await;
        let claims = bed.kubernetes.list(&cluster.all(Kind::VolumeClaim)).await;
        assert_eq!(claims.len(), 3);
        assert!(claims.iter().all(|claim| claim["metadata"]["ownerReferences"].is_null()), "{claims:#?}");

        cluster.apply(json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        assert_eq!(cluster.status().await.cluster_id, id, "the same cluster as before");
        keys.is_held_by_all(&cluster).await;
        keys.write(&cluster, 5).await;
        keys.is_held_by_all(&cluster).await;
    });
}

#[test]
fn volumes_are_adopted_by_the_membership_that_they_hold_and_the_wish_is_followed_from_there() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "adopted", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 20).await;
        let id = cluster.status().await.cluster_id;
        for wished in [5, 1] {
            bed.kubernetes.delete(&cluster.own_path()).await;
            is_gone(&cluster).await;
            cluster.apply(json!({ "replicas": wished, "spread": "None" })).await;
            eventually("it goes on from its volumes, and then as wished for", async || {
                let status = cluster.status().await;
                let is_one = status.cluster_id.is_some() && status.cluster_id == id;
                assert!(status.cluster_id.is_none() || is_one, "another cluster was formed");
                (is_one && status.cluster_size == Some(wished) && status.ready_replicas == wished).then_some(())
            })
            .await;
            keys.write(&cluster, 5).await;
            keys.is_held_by_all(&cluster).await;
        }
    });
}

#[test]
fn one_old_volume_is_a_cluster_of_one_and_grows_to_the_three_that_are_wished_for() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "adopted-one", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 10).await;
        let id = cluster.status().await.cluster_id;
        bed.kubernetes.delete(&cluster.own_path()).await;
        is_gone(&cluster).await;
        cluster.apply(json!({ "replicas": 3 })).await;
        eventually("it goes on from the one volume, and then as wished for", async || {
            let status = cluster.status().await;
            assert!(status.cluster_id.as_ref().is_none_or(|now| Some(now) == id.as_ref()), "a new cluster was formed");
            (status.cluster_size == Some(3) && status.ready_replicas == 3).then_some(())
        })
        .await;
        keys.write(&cluster, 5).await;
        keys.is_held_by_all(&cluster).await;
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
        let mut keys = Keys::default();
        keys.write(&other, 5).await;
        bed.kubernetes.delete(&cluster.own_path()).await;
        let claim = cluster.path(Kind::VolumeClaim, &names::data_claim(&cluster.member(0)));
        eventually("its volume is gone", async || bed.kubernetes.is_absent(&claim).await.then_some(())).await;
        eventually("the cluster is gone", async || bed.kubernetes.is_absent(&cluster.own_path()).await.then_some(()))
            .await;
        keys.is_held_by_all(&other).await;
    });
}
