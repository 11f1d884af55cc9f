//! What the API server refuses, with words that help.

use quorate_e2e::{Bed, Cluster, beside_others};
use serde_json::{Value, json};

async fn refusal(bed: &Bed, name: &str, spec: Value) -> String {
    let cluster = Cluster::named(bed, "admission", name);
    let object = json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster", "metadata": { "name": name }, "spec": spec,
    });
    let path = cluster.own_path();
    let all = path.rsplit_once('/').unwrap().0;
    let refusal = bed.kubernetes.try_create(all, &object).await.expect_err("it was accepted");
    assert_eq!(refusal.code, 422, "{refusal:?}");
    refusal.message
}

#[test]
fn an_invalid_spec_is_refused_with_the_field_and_what_is_allowed() {
    beside_others(async |bed| {
        bed.kubernetes.empty_namespace("admission").await;
        for (spec, words) in [
            (json!({ "replicas": 2 }), ["spec.replicas", "1, 3, 5"]),
            (json!({ "replicas": -1 }), ["spec.replicas", "0"]),
            (json!({ "replicas": 1, "version": "3.6" }), ["spec.version", "3."]),
            (json!({ "replicas": 1, "version": "4.0.0" }), ["spec.version", "3"]),
            (json!({ "replicas": 1, "etcd": { "quota": "lots" } }), ["spec.etcd.quota", "quantity"]),
            (
                json!({ "replicas": 1, "podTemplate": { "annotations": { "quorate.dev/mine": "x" } } }),
                ["spec.podTemplate.annotations", "quorate.dev/"],
            ),
            (json!({ "replicas": 1, "etcd": { "defragmentation": { "schedule": "often" } } }), ["schedule", "crontab"]),
            (
                json!({ "replicas": 1, "tls": { "mode": "CertManager", "certManager": { "issuerRef": { "name": "ca" } } } }),
                ["spec.tls", "not supported yet"],
            ),
        ] {
            let said = refusal(&bed, "db", spec.clone()).await;
            assert!(words.iter().all(|word| said.contains(word)), "{spec}: {said}");
        }
        let long = "x".repeat(60);
        let said = refusal(&bed, &long, json!({ "replicas": 1 })).await;
        assert!(said.contains("name") && said.contains("52"), "{said}");
    });
}

#[test]
fn storage_never_shrinks_and_what_is_fixed_at_creation_stays() {
    beside_others(async |bed| {
        bed.kubernetes.empty_namespace("fixed").await;
        let cluster = Cluster::named(&bed, "fixed", "db");
        // Not started: nothing but the words of the API server is of interest.
        cluster.apply(json!({ "replicas": 0 })).await;
        let size = |size: &str| json!({ "spec": { "storage": { "volumeClaimTemplate": { "size": size } } } });
        for (edit, words) in [
            (size("1Gi"), ["size", "shr"]),
            (json!({ "spec": { "tls": { "mode": "Disabled" } } }), ["spec.tls.mode", "cannot be changed"]),
        ] {
            let said = bed.kubernetes.try_patch(&cluster.own_path(), &edit).await.expect_err("it was accepted");
            assert_eq!(said.code, 422, "{said:?}");
            assert!(words.iter().all(|word| said.message.contains(word)), "{edit}: {}", said.message);
        }
    });
}
