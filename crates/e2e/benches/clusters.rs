//! How fast clusters come and come back, and what they cost while nothing happens.
//!
//! Runs on a bed of its own. `-- forming` and the like run one part. Nothing is asserted: figures belong to a machine.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and stops if it cannot go on")]

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use futures::future::join_all;
use quorate_api::{conditions::ConditionType, names, status::MemberHealth};
use quorate_e2e::{
    Bed, Cluster,
    audit::{position, writes_since},
    cluster::{Kind, client},
    data::put,
    eventually,
    faults::{self, Program},
    figures::runs,
    measure,
};
use quorate_etcd::client::Tls;
use rustix::process::{Signal, kill_process};
use serde_json::json;
use tokio::time::{interval, sleep};

fn main() {
    let parts: [(&str, fn()); 7] = [
        ("forming", || measure(async |bed| forming(&bed).await)),
        ("many", || measure(async |bed| many_and_idle(&bed).await)),
        ("deleted-pod", || measure(async |bed| deleted_pod(&bed).await)),
        ("frozen", || measure(async |bed| frozen(&bed).await)),
        ("dead-node", || measure(async |bed| dead_node(&bed).await)),
        ("leader", || measure(async |bed| killed_leader(&bed).await)),
        ("idle", || measure(async |bed| idle_alone(&bed).await)),
    ];
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, run) in parts {
        if asked.is_empty() || asked.iter().any(|part| part == name) {
            run();
        }
    }
}

/// Until a put through the Service is acknowledged, each attempt on a connection of its own.
async fn put_through_service(cluster: &Cluster) {
    let (address, tls) = (cluster.service_address().await, cluster.tls().await);
    eventually("a put is acknowledged", async || {
        put(&client(&address, Some(tls.clone())), b"key", b"value").await.ok()
    })
    .await;
}

async fn forming(bed: &Bed) {
    let mut taken = Vec::new();
    for run in 0..5 {
        bed.kubernetes.empty_namespace(&format!("forming-{run}")).await;
        let cluster = Cluster::named(bed, &format!("forming-{run}"), "db");
        let began = Instant::now();
        cluster.apply(json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        put_through_service(&cluster).await;
        taken.push(began.elapsed());
        bed.kubernetes.delete(&cluster.own_path()).await;
        eventually("its pods are gone", async || {
            bed.kubernetes.list(&cluster.all(Kind::Pod)).await.is_empty().then_some(())
        })
        .await;
    }
    runs("apply to three members ready and a put through the Service", taken);
}

/// Single-member clusters, all at once, and then what they cost.
async fn many_and_idle(bed: &Bed) {
    bed.kubernetes.empty_namespace("many").await;
    let clusters: Vec<_> = (0..20).map(|number| Cluster::named(bed, "many", &format!("db-{number}"))).collect();
    let began = Instant::now();
    join_all(clusters.iter().map(|cluster| cluster.apply(json!({ "replicas": 1 })))).await;
    join_all(clusters.iter().map(|cluster| cluster.becomes(ConditionType::Ready, "True"))).await;
    runs("20 clusters of one member at once, to the last one ready", vec![began.elapsed()]);
    rest().await;
    let operator = leading_operator(bed).await;
    let mut agents = Vec::new();
    for cluster in &clusters {
        agents.extend(faults::process(cluster, 0, Program::Agent).await.map(|pid| pid.as_raw_nonzero().get()));
    }
    let window = Duration::from_mins(1);
    let before: Vec<_> = agents.iter().map(|pid| processor_time(*pid)).collect();
    let operator_before = processor_time(operator);
    sleep(window).await;
    let percent = |spent: Duration| 100.0 * spent.as_secs_f64() / window.as_secs_f64();
    let spent: Duration =
        agents.iter().zip(before).map(|(pid, before)| processor_time(*pid).saturating_sub(before)).sum();
    let agent = spent / u32::try_from(agents.len()).unwrap();
    println!(
        "operator at 20 clusters: {} KiB resident, {:.2} % of a processor",
        resident(operator),
        percent(processor_time(operator).saturating_sub(operator_before))
    );
    let largest = agents.iter().map(|pid| resident(*pid)).max().unwrap_or_default();
    println!("agents of 20 clusters: at most {largest} KiB resident, {:.2} % of a processor each", percent(agent));

    let more: Vec<_> = (20..50).map(|number| Cluster::named(bed, "many", &format!("db-{number}"))).collect();
    join_all(more.iter().map(|cluster| cluster.apply(json!({ "replicas": 1 })))).await;
    join_all(more.iter().map(|cluster| cluster.becomes(ConditionType::Ready, "True"))).await;
    rest().await;
    idle_writes("50 clusters of one member", "many").await;
}

async fn idle_alone(bed: &Bed) {
    let cluster = Cluster::create(bed, "idle", json!({ "replicas": 1 })).await;
    cluster.is_whole().await;
    rest().await;
    idle_writes("1 cluster of one member", "idle").await;
}

async fn deleted_pod(bed: &Bed) {
    let cluster = Cluster::create(bed, "deleted-pods", json!({ "replicas": 3 })).await;
    cluster.is_whole().await;
    let mut taken = Vec::new();
    for run in 0..5 {
        let victim = run % 3;
        let began = Instant::now();
        replace_pod(&cluster, victim).await;
        cluster.is_whole().await;
        taken.push(began.elapsed());
    }
    runs("pod deleted to all members ready again", taken);
}

/// Deletes a pod and waits until another is there and its member ready.
async fn replace_pod(cluster: &Cluster, ordinal: i32) {
    let uid = cluster.pod(ordinal).await["metadata"]["uid"].clone();
    cluster.kubernetes.delete(&cluster.path(Kind::Pod, &cluster.member(ordinal))).await;
    eventually("the new pod is ready", async || {
        let pod = cluster.find(Kind::Pod, &cluster.member(ordinal)).await?;
        (pod["metadata"]["uid"] != uid && cluster.member_status(ordinal).await?.status == MemberHealth::Ready)
            .then_some(())
    })
    .await;
}

async fn frozen(bed: &Bed) {
    let cluster = Cluster::create(bed, "frozen-members", json!({ "replicas": 3 })).await;
    let (mut shown, mut left, mut back) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..5 {
        cluster.is_whole().await;
        let victim = run % 3;
        let address = cluster.pod(victim).await["status"]["podIP"].as_str().unwrap().to_owned();
        eventually("all are behind the Service", async || (cluster.serving_addresses().await.len() == 3).then_some(()))
            .await;
        let began = Instant::now();
        let pid = faults::signal(&cluster, victim, Program::Etcd, Signal::STOP).await;
        let status = eventually("the status shows it", async || {
            (cluster.member_status(victim).await?.status != MemberHealth::Ready).then(|| began.elapsed())
        });
        let service = eventually("the Service is rid of it", async || {
            (!cluster.serving_addresses().await.contains(&address)).then(|| began.elapsed())
        });
        let (status, service) = tokio::join!(status, service);
        let thawed = Instant::now();
        kill_process(pid, Signal::CONT).unwrap();
        cluster.is_whole().await;
        shown.push(status);
        left.push(service);
        back.push(thawed.elapsed());
    }
    runs("member frozen to the status saying so", shown);
    runs("member frozen to it having left the Service", left);
    runs("member thawed to all members ready", back);
}

/// The power of a node is cut. Not that of the first, from which this is measured, nor that of the acting operator, whose
/// successor would have to take over first.
async fn dead_node(bed: &Bed) {
    let cluster = Cluster::create(bed, "dead-nodes", json!({ "replicas": 3 })).await;
    let (mut shown, mut left) = (Vec::new(), Vec::new());
    for run in 0..4 {
        cluster.is_whole().await;
        let operator = bed.acting_operator().await["spec"]["nodeName"].clone();
        let number = [2 + run % 2, 3 - run % 2].into_iter().find(|number| operator != format!("node{number}")).unwrap();
        let node = format!("node{number}");
        let pods = cluster.kubernetes.list(&cluster.all(Kind::Pod)).await;
        let pod = pods.iter().find(|pod| pod["spec"]["nodeName"] == node).unwrap();
        let victim = names::ordinal_of(&cluster.name, pod["metadata"]["name"].as_str().unwrap()).unwrap();
        let address = pod["status"]["podIP"].as_str().unwrap();
        eventually("all are behind the Service", async || (cluster.serving_addresses().await.len() == 3).then_some(()))
            .await;
        let began = Instant::now();
        let dead = faults::kill_node(number);
        let status = eventually("the status shows it", async || {
            (cluster.member_status(victim).await?.status != MemberHealth::Ready).then(|| began.elapsed())
        });
        let service = eventually("the Service is rid of it", async || {
            (!cluster.serving_addresses().await.iter().any(|other| other == address)).then(|| began.elapsed())
        });
        let (status, service) = tokio::join!(status, service);
        shown.push(status);
        left.push(service);
        dead.mend();
    }
    runs("node killed to the status saying so", shown);
    runs("node killed to its member having left the Service", left);
}

/// A client that begins a put every 50 ms, each on a fresh connection, while the leader is killed.
async fn killed_leader(bed: &Bed) {
    let cluster = Cluster::create(bed, "killed-leaders", json!({ "replicas": 3 })).await;
    let mut taken = Vec::new();
    for _ in 0..20 {
        cluster.is_whole().await;
        let (address, tls) = (cluster.service_address().await, cluster.tls().await);
        put_through_service(&cluster).await;
        let leader = cluster.leader().await;
        let (acknowledged, mut acknowledgements) = tokio::sync::mpsc::unbounded_channel();
        faults::signal(&cluster, leader, Program::Etcd, Signal::KILL).await;
        let began = Instant::now();
        let attempts = tokio::task::spawn_local(attempts(address, tls, acknowledged));
        acknowledgements.recv().await.unwrap();
        taken.push(began.elapsed());
        attempts.abort();
        // A new pod: Kubernetes makes the container of one that was killed before wait longer each time.
        replace_pod(&cluster, leader).await;
    }
    runs("leader killed to the next acknowledged write", taken);
}

async fn attempts(address: String, tls: Tls, acknowledged: tokio::sync::mpsc::UnboundedSender<()>) {
    let mut beat = interval(Duration::from_millis(50));
    loop {
        beat.tick().await;
        let (client, acknowledged) = (client(&address, Some(tls.clone())), acknowledged.clone());
        tokio::task::spawn_local(async move {
            if put(&client, b"key", b"value").await.is_ok() {
                let _ = acknowledged.send(());
            }
        });
    }
}

/// Until the rush is over.
async fn rest() {
    sleep(Duration::from_secs(20)).await;
}

/// Writes of one minute, from the API server's audit log, without those of Kubernetes itself.
async fn idle_writes(what: &str, namespace: &str) {
    let from = position();
    sleep(Duration::from_mins(1)).await;
    let mut counts = BTreeMap::new();
    for write in writes_since(from) {
        let who = if write.user.contains("quorate-system") { "operator" } else { "agents" };
        if who == "operator" || write.user.contains(namespace) {
            *counts.entry((who, write.user_agent, write.resource)).or_insert(0) += 1;
        }
    }
    println!("writes in a minute of {what}:");
    for ((who, agent, resource), count) in counts {
        println!("  {count:5} {resource:<14} by the {who} ({agent})");
    }
}

async fn leading_operator(bed: &Bed) -> i32 {
    let pod = bed.acting_operator().await;
    faults::process_of(pod["metadata"]["uid"].as_str().unwrap(), "operator").unwrap().as_raw_nonzero().get()
}

fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// In user and kernel mode, since the process began. The kernel counts in hundredths of a second.
fn processor_time(pid: i32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
