//! How long it takes until members have come and gone, and until what was lost is whole again, while clients write.
//!
//! Runs on a bed of its own. `-- scaling` and the like run one part. Nothing is asserted but that no write is lost: figures
//! belong to a machine.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and stops if it cannot go on")]

use std::time::{Duration, Instant};

use quorate_api::status::{ClusterPhase, EtcdClusterStatus};
use quorate_e2e::{Bed, Clients, Cluster, cluster::Kind, data::put, eventually, faults, figures::runs, measure};
use quorate_ledger::Epoch;
use serde_json::json;

const RUNS: usize = 5;
/// So many values of a mebibyte are a database of 100 MB.
const VALUES: usize = 100;

fn main() {
    let parts: [(&str, fn()); 4] = [
        ("scaling", || measure(async |bed| scaling(&bed).await)),
        ("volume", || measure(async |bed| lost_volume(&bed).await)),
        ("quorum", || measure(async |bed| lost_quorum(&bed).await)),
        ("pods", || measure(async |bed| lost_pods(&bed).await)),
    ];
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, run) in parts {
        if asked.is_empty() || asked.iter().any(|part| part == name) {
            run();
        }
    }
}

async fn is_whole_at(cluster: &Cluster, size: i32) {
    eventually("it is whole", async || {
        let EtcdClusterStatus { cluster_size, ready_replicas, phase, .. } = cluster.status().await;
        (cluster_size == Some(size) && ready_replicas == size && phase == Some(ClusterPhase::Running)).then_some(())
    })
    .await;
}

async fn scales(cluster: &Cluster, size: i32) -> Duration {
    let began = Instant::now();
    let change = json!({ "spec": { "replicas": size } });
    cluster.kubernetes.patch(&format!("{}/scale", cluster.own_path()), &change).await;
    is_whole_at(cluster, size).await;
    eventually("its pods are as many", async || {
        let pods = cluster.kubernetes.list(&cluster.all(Kind::Pod)).await.len();
        (i32::try_from(pods) == Ok(size)).then_some(())
    })
    .await;
    began.elapsed()
}

async fn scaling(bed: &Bed) {
    let cluster = Cluster::create(bed, "scaling", json!({ "replicas": 1 })).await;
    cluster.is_whole().await;
    let (mut up, mut down, mut pauses, mut acknowledged) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..RUNS {
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        up.push(scales(&cluster, 3).await);
        down.push(scales(&cluster, 1).await);
        let verdict = clients.were_told_the_truth().await;
        pauses.extend(verdict.longest_pause.map(|pause| pause.length));
        acknowledged += verdict.acknowledged;
    }
    runs("one member to three, all with a vote and ready", up);
    runs("three members to one", down);
    runs("longest pause of acknowledged writes while scaling", pauses);
    println!("{acknowledged} acknowledged writes, none lost");
}

/// A database of about 100 MB.
async fn fill(cluster: &Cluster) {
    let client = cluster.connect(cluster.leader().await).await;
    let value = vec![b'x'; 1 << 20];
    for number in 0..VALUES {
        let key = format!("filling/{number}");
        eventually("a value is stored", async || put(&client, key.as_bytes(), &value).await.ok()).await;
    }
}

async fn lost_volume(bed: &Bed) {
    let cluster = Cluster::create(bed, "lost-volumes", json!({ "replicas": 3 })).await;
    cluster.is_whole().await;
    fill(&cluster).await;
    let mut taken = Vec::new();
    for run in 0..RUNS {
        let victim = i32::try_from(run % 3).unwrap();
        let id = cluster.member_status(victim).await.unwrap().id;
        let began = Instant::now();
        faults::wipe(&cluster, victim).await;
        eventually("another member has taken its place", async || {
            (cluster.member_status(victim).await?.id != id).then_some(())
        })
        .await;
        is_whole_at(&cluster, 3).await;
        taken.push(began.elapsed());
    }
    runs("pod and volume of a member lost to whole again, 100 MB", taken);
}

async fn lost_quorum(bed: &Bed) {
    let (mut serving, mut whole, mut acknowledged) = (Vec::new(), Vec::new(), 0);
    for run in 0..RUNS {
        let cluster = Cluster::create(bed, &format!("lost-quorum-{run}"), json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(100).await;
        let began = Instant::now();
        tokio::join!(faults::wipe(&cluster, 0), faults::wipe(&cluster, 1));
        let loss = eventually("it is recovered", async || cluster.status().await.data_loss).await;
        clients.declare(Epoch { kept: loss.revision, reported_lost: loss.raised_to });
        clients.have_written(1).await;
        serving.push(began.elapsed());
        is_whole_at(&cluster, 3).await;
        whole.push(began.elapsed());
        acknowledged += clients.were_told_the_truth().await.acknowledged;
        bed.kubernetes.delete(&cluster.own_path()).await;
    }
    runs("two of three volumes lost to the next acknowledged write", serving);
    runs("two of three volumes lost to whole again", whole);
    println!("{acknowledged} acknowledged writes, none lost but what was declared");
}

async fn lost_pods(bed: &Bed) {
    let cluster = Cluster::create(bed, "lost-pods", json!({ "replicas": 3 })).await;
    let mut taken = Vec::new();
    for _ in 0..RUNS {
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let began = Instant::now();
        for ordinal in 0..3 {
            cluster.kubernetes.delete(&cluster.path(Kind::Pod, &cluster.member(ordinal))).await;
        }
        eventually("all pods end", async || (cluster.status().await.ready_replicas == 0).then_some(())).await;
        clients.have_written(1).await;
        taken.push(began.elapsed());
        is_whole_at(&cluster, 3).await;
        clients.were_told_the_truth().await;
    }
    runs("all pods deleted to the next acknowledged write", taken);
}
