//! Operators that freeze, are away, or are told one thing and then another.

use std::time::Duration;

use quorate_api::conditions::ConditionType;
use quorate_e2e::{
    Clients, Cluster, alone, audit,
    bed::aside,
    beside_others, eventually,
    faults::{self, process_of},
    operator::without_installed_operator,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::scaling::{ids, scale, settles_at};

/// Until etcd itself lists so many members, learners included.
async fn lists(cluster: &Cluster, members: usize) {
    let client = cluster.connect(0).await;
    eventually("that many members are listed", async || {
        (client.member_list(false).await.ok()?.members.len() >= members).then_some(())
    })
    .await;
}

#[test]
fn an_operator_that_wakes_after_another_has_taken_over_changes_nothing_any_more() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "frozen-operator", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let began = audit::position();
        let old = bed.acting_operator().await;
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
        let frozen = faults::freeze(process_of(old["metadata"]["uid"].as_str().unwrap(), "operator").unwrap());
        // It will wake with the wish for one member in mind.
        scale(&cluster, 3).await;
        let new = eventually("another operator has taken over", async || {
            let now = bed.acting_operator().await;
            (name(&now) != name(&old)).then_some(now)
        })
        .await;
        lists(&cluster, 2).await;
        clients.have_written(50).await;
        let woken = audit::position();
        frozen.thaw();
        settles_at(&cluster, 3).await;
        clients.were_told_the_truth().await;

        assert_eq!(name(&bed.acting_operator().await), name(&new), "one has acted since");
        let by = |pod: &Value, since: audit::Position| {
            let writes = audit::writes_since(since).into_iter();
            let of_pod = writes.filter(|write| write.namespace == cluster.namespace && write.pod == name(pod));
            of_pod.collect::<Vec<_>>()
        };
        assert!(!by(&new, began).is_empty(), "the audit log does not tell who wrote");
        assert_eq!(by(&old, woken), [], "it has written after another had taken over");
    });
}

#[test]
fn an_operator_that_was_away_follows_the_last_wish_and_lets_a_deleted_namespace_go() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "unattended", json!({ "replicas": 1, "spread": "None" })).await;
        let deleted = Cluster::create(&bed, "deleted-unattended", json!({ "replicas": 1 })).await;
        let with_volumes = Cluster::named(&bed, &deleted.namespace, "with-volumes");
        let retention = json!({ "retention": { "onDelete": "Delete" } });
        with_volumes.apply(json!({ "replicas": 1, "storage": retention })).await;
        for one in [&cluster, &deleted, &with_volumes] {
            one.is_whole().await;
        }
        let clients = Clients::of(&cluster).await;
        let (before, namespace) = (ids(&cluster).await, format!("/api/v1/namespaces/{}", deleted.namespace));
        without_installed_operator(bed.clone(), async |bed| {
            bed.kubernetes.delete(&namespace).await;
            for wish in [5, 1, 3] {
                scale(&cluster, wish).await;
                clients.have_written(50).await;
            }
            assert_eq!(ids(&cluster).await, before, "somebody acts who should be away");
        })
        .await;
        settles_at(&cluster, 3).await;
        assert!(before.is_subset(&ids(&cluster).await));
        clients.were_told_the_truth().await;
        eventually("the deleted namespace is gone", async || bed.kubernetes.is_absent(&namespace).await.then_some(()))
            .await;
    });
}

#[test]
#[ignore = "takes minutes: make campaign"]
fn members_go_on_joining_after_the_kubernetes_api_was_away_in_the_middle_of_it() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "api-away-midway", json!({ "replicas": 1, "spread": "None" })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let before = ids(&cluster).await;
        let operator = bed.acting_operator().await["metadata"]["uid"].as_str().unwrap().to_owned();
        let acting = process_of(&operator, "operator");
        scale(&cluster, 3).await;
        lists(&cluster, 2).await;
        let away = aside(faults::stop_api_server).await;
        clients.have_written(50).await;
        // So long that nobody may act any more on what was known before.
        eventually("the operator has ended because its Lease is lost", async || {
            (process_of(&operator, "operator") != acting).then_some(())
        })
        .await;
        clients.have_written(50).await;
        aside(move || away.mend()).await;
        settles_at(&cluster, 3).await;
        assert!(before.is_subset(&ids(&cluster).await), "who was there is still there");
        clients.were_told_the_truth().await;
    });
}

#[test]
#[ignore = "takes minutes: make campaign"]
fn two_who_wish_for_different_numbers_never_cost_the_quorum() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "two-wishes", json!({ "replicas": 3, "spread": "None" })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let before = ids(&cluster).await;
        let until = Instant::now() + Duration::from_mins(1);
        let insists_on = async |replicas: i32, from: Duration| {
            sleep(from).await;
            while Instant::now() < until {
                scale(&cluster, replicas).await;
                // What is tested: each wish is another's before much can have come of it.
                sleep(Duration::from_secs(4)).await;
            }
        };
        let looks = async || {
            while Instant::now() < until {
                let ready = cluster.condition(ConditionType::Ready).await;
                assert!(ready.as_ref().is_none_or(|(state, _)| state != "False"), "{ready:?}");
                sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::join!(insists_on(5, Duration::ZERO), insists_on(3, Duration::from_secs(2)), looks());
        clients.have_written(50).await;
        let last = cluster.size().await;
        settles_at(&cluster, last).await;
        assert!(before.is_subset(&ids(&cluster).await), "those that were there are still there");
        clients.were_told_the_truth().await;
    });
}
