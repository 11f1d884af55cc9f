//! What the token of a member pod is good for, and what not.

use quorate_api::names::{self, labels};
use quorate_e2e::{Bed, Cluster, Kubernetes, beside_others, cluster::Kind, eventually};
use serde_json::json;

/// A token as the member's agent gets it: bound to its pod.
async fn token_of(cluster: &Cluster, ordinal: i32) -> Kubernetes {
    let pod = cluster.pod(ordinal).await;
    let account = cluster.path(Kind::ServiceAccount, &names::member_account(&cluster.name));
    let bound = json!({
        "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
    });
    let request = json!({ "spec": { "audiences": [], "boundObjectRef": bound } });
    let answer = cluster.kubernetes.create(&format!("{account}/token"), &request).await;
    cluster.kubernetes.as_token(answer["status"]["token"].as_str().unwrap())
}

/// Sees what the installed operator sees.
async fn operator(bed: &Bed) -> Kubernetes {
    operator_in(bed, "quorate-system").await
}

/// The same account of another namespace.
async fn operator_in(bed: &Bed, namespace: &str) -> Kubernetes {
    let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/quorate-operator/token");
    let answer = bed.kubernetes.create(&account, &json!({ "spec": { "audiences": [] } })).await;
    bed.kubernetes.as_token(answer["status"]["token"].as_str().unwrap())
}

#[test]
fn the_operator_deletes_only_what_carries_the_label_wherever_it_is_installed() {
    beside_others(async |bed| {
        let elsewhere = "operator-elsewhere";
        bed.kubernetes.empty_namespace(elsewhere).await;
        let account = json!({ "metadata": { "name": "quorate-operator" } });
        bed.kubernetes.create(&format!("/api/v1/namespaces/{elsewhere}/serviceaccounts"), &account).await;
        let binding = json!({
            "metadata": { "name": "quorate-operator" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "quorate-operator" },
            "subjects": [{ "kind": "ServiceAccount", "name": "quorate-operator", "namespace": elsewhere }],
        });
        let place = Cluster::named(&bed, elsewhere, "db");
        bed.kubernetes.create(&place.all(Kind::RoleBinding), &binding).await;
        let claim = json!({
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } }
        });
        let set = json!({
            "replicas": 0, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
            "template": {
                "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "db", "image": "db" }] },
            },
        });
        let member = json!({ "cluster": "db", "ordinal": 0, "ticket": { "hold": { "reason": "test" } } });
        let kinds = [
            (Kind::VolumeClaim, "PersistentVolumeClaim", "v1", claim),
            (Kind::StatefulSet, "StatefulSet", "apps/v1", set),
            (Kind::EtcdMember, "EtcdMember", "quorate.dev/v1alpha1", member),
            (Kind::Lease, "Lease", "coordination.k8s.io/v1", json!({})),
        ];
        for (kind, name, version, spec) in &kinds {
            for labelled in [true, false] {
                let labels = if labelled { json!({ labels::CLUSTER: "db" }) } else { json!({ "app": "db" }) };
                let metadata = json!({ "name": format!("labelled-{labelled}"), "labels": labels });
                let object = json!({ "apiVersion": version, "kind": name, "metadata": metadata, "spec": spec });
                bed.kubernetes.create(&place.all(*kind), &object).await;
            }
        }
        for operator in [operator(&bed).await, operator_in(&bed, elsewhere).await] {
            for (kind, name, ..) in &kinds {
                let trial =
                    |labelled: bool| format!("{}?dryRun=All", place.path(*kind, &format!("labelled-{labelled}")));
                operator.try_delete(&trial(true)).await.expect("what belongs to a cluster may go");
                let refusal = operator.try_delete(&trial(false)).await.expect_err("it was let delete anything");
                let words = "may delete only what has the label quorate.dev/cluster";
                assert!(refusal.code == 403 && refusal.message.contains(words), "{name}: {refusal:?}");
            }
        }
    });
}

#[test]
fn the_operator_reads_secrets_only_where_an_etcd_cluster_is_and_only_by_name() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "operators-reach", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let secret = json!({ "metadata": { "name": "password" }, "stringData": { "word": "open" } });
        bed.kubernetes.empty_namespace("out-of-reach").await;
        bed.kubernetes.create("/api/v1/namespaces/out-of-reach/secrets", &secret).await;
        let operator = operator(&bed).await;
        let authority = cluster.path(Kind::Secret, &names::secrets::client_ca(&cluster.name));
        operator.try_get(&authority).await.expect("what it signs with");
        for elsewhere in [
            "/api/v1/namespaces/out-of-reach/secrets/password".to_owned(),
            "/api/v1/namespaces/kube-system/secrets/any".to_owned(),
            "/api/v1/secrets".to_owned(),
            cluster.all(Kind::Secret),
        ] {
            assert_eq!(operator.try_get(&elsewhere).await.expect_err(&elsewhere).code, 403, "{elsewhere}");
        }
        // Of a pod it may change where clients are led, and nothing else.
        let pod = cluster.path(Kind::Pod, &cluster.member(0));
        let leads = |serving: &str| json!({ "metadata": { "labels": { labels::SERVING: serving } } });
        operator.try_patch(&pod, &leads("true")).await.expect("it leads clients by a label");
        for more in [
            json!({ "spec": { "activeDeadlineSeconds": 86400 } }),
            json!({ "metadata": { "labels": { "app.kubernetes.io/component": "other" } } }),
            json!({ "metadata": { "annotations": { "by": "operator" } } }),
        ] {
            let refusal = operator.try_patch(&pod, &more).await.expect_err("it was let change more");
            assert!(refusal.message.contains("only the label"), "{more}: {refusal:?}");
        }
        bed.kubernetes.delete(&cluster.own_path()).await;
        eventually("its right goes with the cluster", async || {
            operator.try_get(&authority).await.is_err_and(|refusal| refusal.code == 403).then_some(())
        })
        .await;
    });
}

#[test]
fn an_agent_cannot_touch_another_member_another_cluster_or_a_secret() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "tokens", json!({ "replicas": 3 })).await;
        let other = Cluster::named(&bed, "tokens", "other");
        other.apply(json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        other.is_whole().await;
        let agent = token_of(&cluster, 0).await;

        // Its own: otherwise the refusals below would prove nothing.
        let member = |cluster: &Cluster, ordinal| cluster.path(Kind::EtcdMember, &cluster.member(ordinal));
        let lease = |cluster: &Cluster, ordinal| cluster.path(Kind::Lease, &cluster.member(ordinal));
        let word = json!({ "metadata": { "annotations": { "test": "word" } } });
        let report = json!({ "status": { "etcd": { "running": true } } });
        agent.try_get(&member(&cluster, 0)).await.unwrap();
        agent.try_patch(&format!("{}/status", member(&cluster, 0)), &report).await.unwrap();
        agent.try_patch(&lease(&cluster, 0), &word).await.unwrap();

        let refused = |what: &str, answer: Result<serde_json::Value, quorate_e2e::kubernetes::Refusal>| {
            let refusal = answer.expect_err(what);
            assert!(refusal.code == 403 || refusal.code == 422, "{what}: {refusal:?}");
        };
        refused("another member's report", agent.try_patch(&format!("{}/status", member(&cluster, 1)), &report).await);
        refused("another member's Lease", agent.try_patch(&lease(&cluster, 1), &word).await);
        refused("another cluster's report", agent.try_patch(&format!("{}/status", member(&other, 0)), &report).await);
        refused("another cluster's Lease", agent.try_patch(&lease(&other, 0), &word).await);
        refused("another cluster's member", agent.try_get(&member(&other, 0)).await);
        let ticket = json!({ "spec": { "ticket": { "hold": { "reason": "mine now" } } } });
        refused("its own ticket", agent.try_patch(&member(&cluster, 0), &ticket).await);
        refused("the cluster", agent.try_get(&cluster.own_path()).await);
        refused("its pod", agent.try_delete(&cluster.path(Kind::Pod, &cluster.member(0))).await);
        for secret in [names::secrets::peer_ca(&cluster.name), names::secrets::client(&cluster.name)] {
            refused("a Secret", agent.try_get(&cluster.path(Kind::Secret, &secret)).await);
        }
        refused("all Secrets", agent.try_get(&cluster.all(Kind::Secret)).await);
        refused("all Leases", agent.try_get(&cluster.all(Kind::Lease)).await);
    });
}
