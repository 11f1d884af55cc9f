//! An operator that dies at every write it makes.

use std::{
    os::unix::process::ExitStatusExt,
    panic::AssertUnwindSafe,
    process::{ExitStatus, Stdio},
};

use futures::FutureExt;
use quorate_e2e::{Bed, Cluster, Ledger, alone, audit, bed, cluster::Kind, eventually};
use rustix::process::Signal;
use serde_json::json;
use tokio::process::{Child, Command};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/quorate-system/deployments/quorate-operator";
/// How many clusters form at a time.
const BATCH: u32 = 6;

/// An operator of this test's own, for one namespace, in the bed's network like this thread.
fn operator(namespace: &str, die_at: Option<&str>) -> Child {
    let mut command = Command::new(bed::programs().join("quorate-operator"));
    command
        .args(["--namespaces", namespace, "--http-port", "0", "--log", "error"])
        .args(["--service-account", "quorate-system/quorate-operator"])
        .env("KUBECONFIG", bed::testbed().inner_kubeconfig("admin"))
        .env_remove("QUORATE_CRASH_AT")
        .envs(die_at.map(|point| ("QUORATE_CRASH_AT", point)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command.spawn().unwrap()
}

/// An operator that ends for any other reason proves nothing.
fn died_as_told(ended: ExitStatus) -> bool {
    assert_eq!(ended.signal(), Some(Signal::ABORT.as_raw()), "{ended}");
    true
}

async fn scale_installed_operator(bed: &Bed, replicas: i32) {
    bed.kubernetes.patch(DEPLOYMENT, &json!({ "spec": { "replicas": replicas } })).await;
    eventually("the installed operator has that many replicas", async || {
        let pods = bed.kubernetes.find("/api/v1/namespaces/quorate-system/pods").await?;
        let ready = bed.kubernetes.get(DEPLOYMENT).await["status"]["readyReplicas"].as_i64().unwrap_or_default();
        (pods["items"].as_array()?.len() == usize::try_from(replicas).unwrap() && ready == i64::from(replicas))
            .then_some(())
    })
    .await;
}

/// Runs a test in which nobody but its own operators acts. The installed one comes back also if the test fails.
async fn without_installed_operator(bed: Bed, test: impl AsyncFnOnce(&Bed)) {
    scale_installed_operator(&bed, 0).await;
    let ended = AssertUnwindSafe(test(&bed)).catch_unwind().await;
    scale_installed_operator(&bed, 2).await;
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// One cluster id, the one in the status, and every member started once.
async fn formed_once(cluster: &Cluster) {
    let status = cluster.status().await;
    let known = cluster.connect(0).await.member_list(true).await.unwrap();
    let live = format!("{:x}", known.header.unwrap().cluster_id);
    assert_eq!(status.cluster_id.as_ref(), Some(&live), "{}", cluster.namespace);
    for ordinal in 0..cluster.size().await {
        let member = cluster.get(Kind::EtcdMember, &cluster.member(ordinal)).await;
        let data = &member["status"]["data"];
        assert_eq!(
            (data["bootCount"].as_i64(), data["clusterID"].as_str()),
            (Some(1), Some(live.as_str())),
            "{member:#}"
        );
    }
}

/// Forms a cluster under an operator that dies at a write and is then started again. Whether it came to die.
async fn survives_death(bed: &Bed, point: &str) -> bool {
    let cluster = Cluster::create(bed, &format!("dies-{}", point.replace(':', "-")), json!({ "replicas": 1 })).await;
    let mut mortal = operator(&cluster.namespace, Some(point));
    let died = tokio::select! {
        ended = mortal.wait() => died_as_told(ended.unwrap()),
        () = cluster.is_whole() => false,
    };
    // Also if it was too late to die: it might do so at the next blink of a member, and nobody would keep the status.
    drop(mortal);
    let _successor = operator(&cluster.namespace, None);
    cluster.is_whole().await;
    formed_once(&cluster).await;
    let mut ledger = Ledger::default();
    ledger.write(&cluster, 2).await;
    ledger.is_held_by_all(&cluster).await;
    bed.kubernetes.delete(&cluster.own_path()).await;
    died
}

#[test]
fn a_cluster_forms_exactly_once_whichever_write_the_operator_dies_at() {
    alone(async |bed| {
        without_installed_operator(bed, every_write).await;
    });
}

/// How many writes it takes if nobody dies.
async fn writes_of_a_long_life(bed: &Bed) -> usize {
    let began = audit::position();
    let cluster = Cluster::create(bed, "lives-on", json!({ "replicas": 1 })).await;
    let _operator = operator(&cluster.namespace, None);
    cluster.is_whole().await;
    let by_operator =
        |write: &audit::Write| write.namespace == cluster.namespace && write.user_agent.starts_with("quorate-operator");
    let count = audit::writes_since(began).iter().filter(|write| by_operator(write)).count();
    bed.kubernetes.delete(&cluster.own_path()).await;
    count
}

async fn every_write(bed: &Bed) {
    let writes = writes_of_a_long_life(bed).await;
    assert!(writes > 0, "the audit log names its writes");
    let mut deaths = 0;
    for first in (1..).step_by(usize::try_from(BATCH).unwrap()) {
        let points = (first..first + BATCH).flat_map(|write| [format!("{write}:before"), format!("{write}:after")]);
        let mut died = Vec::new();
        let points: Vec<_> = points.collect();
        for pair in points.chunks(4) {
            let runs = pair.iter().map(|point| survives_death(bed, point));
            died.extend(futures::future::join_all(runs).await);
        }
        deaths += died.iter().filter(|died| **died).count();
        if !died.iter().all(|died| *died) {
            break;
        }
    }
    // Before and after each, so twice as many; passes that were merged by chance make it a few less.
    assert!(deaths > writes, "only {deaths} deaths, though forming a cluster takes {writes} writes");
}

#[test]
fn three_members_form_exactly_once_under_operators_that_live_for_one_write() {
    alone(async |bed| {
        without_installed_operator(bed, lives_of_one_write).await;
    });
}

async fn lives_of_one_write(bed: &Bed) {
    let cluster = Cluster::create(bed, "one-write-lives", json!({ "replicas": 3 })).await;
    let mut lives = 0;
    loop {
        let mut mortal = operator(&cluster.namespace, Some("1:after"));
        let died = tokio::select! {
            ended = mortal.wait() => died_as_told(ended.unwrap()),
            () = cluster.is_whole() => false,
        };
        if !died {
            break;
        }
        lives += 1;
        assert!(lives < 500, "the operator never gets to rest");
    }
    assert!(lives >= 20, "only {lives} lives: forming three members takes more writes than that");
    formed_once(&cluster).await;
    let mut ledger = Ledger::default();
    ledger.write(&cluster, 5).await;
    ledger.is_held_by_all(&cluster).await;
}
