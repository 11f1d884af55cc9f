//! What the API server refuses, with words that help.

use quorate_e2e::{Cluster, beside_others, cluster::Kind, kubernetes::Refusal};
use serde_json::{Value, json};

use crate::specs::{self, Judge};

/// Asked for, and never stored.
const ON_TRIAL: &str = "?dryRun=All";

async fn create(cluster: &Cluster, spec: &Value) -> Result<Value, Refusal> {
    let metadata = json!({ "name": cluster.name });
    let object = json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster", "metadata": metadata, "spec": spec,
    });
    cluster.kubernetes.try_create(&format!("{}{ON_TRIAL}", cluster.all(Kind::EtcdCluster)), &object).await
}

/// One sentence for each defect; none if it was accepted.
fn sentences(answer: Result<Value, Refusal>) -> Vec<String> {
    let Err(refusal) = answer else { return Vec::new() };
    assert_eq!(refusal.code, 422, "{refusal:?}");
    // Rules are not asked about what is not even well formed, and the server says so.
    let about_rules = |cause: &String| cause.contains("some validation rules were not checked");
    refusal.causes.into_iter().filter(|cause| !about_rules(cause)).collect()
}

#[test]
fn the_api_server_answers_to_each_spec_as_the_table_says() {
    beside_others(async |bed| {
        bed.kubernetes.empty_namespace("admission").await;
        let mut differences = Vec::new();
        for (number, line) in specs::table().into_iter().enumerate() {
            let before = Cluster::named(&bed, "admission", &format!("change-{number}"));
            if let Some(mut spec) = line.from.clone() {
                // Nothing but the words of the API server is of interest.
                spec["maintenance"] = json!({ "paused": true });
                before.apply(spec).await;
            }
            for (name, spec) in line.cases() {
                let answer = if line.from.is_some() {
                    bed.kubernetes.try_replace(&format!("{}{ON_TRIAL}", before.own_path()), "/spec", spec).await
                } else {
                    create(&Cluster::named(&bed, "admission", name), spec).await
                };
                differences.extend(line.difference(Judge::Admission, (name, spec), &sentences(answer)));
            }
        }
        assert_eq!(differences, Vec::<String>::new());
    });
}

#[test]
fn a_quota_that_the_volume_cannot_hold_is_refused_with_the_figures() {
    beside_others(async |bed| {
        bed.kubernetes.empty_namespace("quota").await;
        let spec = json!({ "etcd": { "quota": "8Gi" }, "storage": { "volumeClaimTemplate": { "size": "4Gi" } } });
        let refusal = create(&Cluster::named(&bed, "quota", "db"), &spec).await.expect_err("it was accepted");
        let words = format!("spec.etcd.quota is 8Gi: {}", quorate_api::quota::too_large("4Gi"));
        assert!(refusal.message.contains(&words), "{refusal:?}");
    });
}

#[test]
fn a_cluster_cannot_be_scaled_past_the_rules() {
    beside_others(async |bed| {
        bed.kubernetes.empty_namespace("scale").await;
        let cluster = Cluster::named(&bed, "scale", "db");
        cluster.apply(json!({ "replicas": 3, "maintenance": { "paused": true } })).await;
        let scale = format!("{}/scale{ON_TRIAL}", cluster.own_path());
        for replicas in [0, 1, 5, 7] {
            bed.kubernetes.patch(&scale, &json!({ "spec": { "replicas": replicas } })).await;
        }
        for replicas in [-1, 2, 4, 9] {
            let refusal = bed.kubernetes.try_patch(&scale, &json!({ "spec": { "replicas": replicas } })).await;
            let refusal = refusal.expect_err("it was accepted");
            assert!(refusal.message.contains("spec.replicas"), "{refusal:?}");
        }
    });
}
