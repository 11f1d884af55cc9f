//! Power cuts, pulled cables, and a Kubernetes API that is away.

use std::{panic::catch_unwind, time::Duration};

use quorate_api::{
    names::{annotations, labels},
    status::MemberHealth,
};
use quorate_e2e::{
    Clients, Cluster, Keys, alone,
    bed::Bed,
    cluster::{Kind, client},
    data::put,
    eventually,
    faults::{self, Program},
    stays,
};
use rustix::process::Signal;
use serde_json::{Value, json};

async fn node_of(cluster: &Cluster, ordinal: i32) -> u8 {
    let pod = cluster.pod(ordinal).await;
    pod["spec"]["nodeName"].as_str().unwrap().trim_start_matches("node").parse().unwrap()
}

/// What the API server says of a node at this moment.
async fn is_ready(bed: &Bed, node: u8) -> bool {
    let node = bed.kubernetes.get(&format!("/api/v1/nodes/node{node}")).await;
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Three members on three nodes, whatever the scheduler thinks of a node that is just coming back.
fn one_member_on_each_node() -> Value {
    let selector = json!({ "matchLabels": { labels::CLUSTER: "db" } });
    let apart = json!({
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    });
    json!({ "replicas": 3, "podTemplate": { "topologySpreadConstraints": [apart] } })
}

#[test]
fn the_member_of_a_dead_node_shows_and_returns_with_the_node() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "dead-node", one_member_on_each_node()).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 20).await;
        // Not the acting operator's node: its successor would have to take over first.
        let operator = bed.acting_operator().await["spec"]["nodeName"].clone();
        let mut elsewhere = Vec::new();
        for ordinal in 0..3 {
            let node = node_of(&cluster, ordinal).await;
            if operator != format!("node{node}") {
                elsewhere.push((ordinal, node));
            }
        }
        let leader = cluster.leader().await;
        let (victim, node) = *elsewhere.iter().find(|(ordinal, _)| *ordinal == leader).unwrap_or(&elsewhere[0]);
        let id = cluster.member_status(victim).await.unwrap().id;
        let address = cluster.pod(victim).await["status"]["podIP"].as_str().unwrap().to_owned();
        assert!(cluster.serving_addresses().await.contains(&address));

        let dead = faults::kill_node(node);
        eventually("clients are led away from the dead node's member by the operator", async || {
            let pod = cluster.find(Kind::Pod, &cluster.member(victim)).await?;
            let hidden = pod["metadata"]["labels"][labels::SERVING] == "false";
            (hidden && !cluster.serving_addresses().await.contains(&address)).then_some(())
        })
        .await;
        eventually("the dead node's member is not called ready", async || {
            (cluster.member_status(victim).await?.status != MemberHealth::Ready).then_some(())
        })
        .await;
        keys.write(&cluster, 20).await;
        assert_ne!(cluster.leader().await, victim);

        dead.mend();
        bed.nodes_are_ready().await;
        cluster.is_whole().await;
        assert_eq!(cluster.member_status(victim).await.unwrap().id, id, "the same member");
        keys.is_held_by_all(&cluster).await;
        eventually("clients are led to all members again", async || {
            (cluster.serving_addresses().await.len() == 3).then_some(())
        })
        .await;
    });
}

#[test]
fn a_member_that_is_cut_off_is_not_taken_for_dead_and_catches_up() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "cut-off", one_member_on_each_node()).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 10).await;
        let victim = cluster.leader().await;
        let node = node_of(&cluster, victim).await;
        let etcd = faults::process(&cluster, victim, Program::Etcd).await.unwrap();

        let cut = faults::cut_node(node);
        keys.write(&cluster, 20).await;
        eventually("the member that is cut off is not called ready", async || {
            (cluster.member_status(victim).await?.status != MemberHealth::Ready).then_some(())
        })
        .await;
        cut.mend();
        bed.nodes_are_ready().await;
        cluster.is_whole().await;
        assert_eq!(faults::process(&cluster, victim, Program::Etcd).await, Some(etcd), "it went on running");
        keys.is_held_by_all(&cluster).await;
    });
}

#[test]
fn a_member_restarts_on_its_data_while_the_kubernetes_api_is_away() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "api-away", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 20).await;
        let address = cluster.pod(0).await["status"]["podIP"].as_str().unwrap().to_owned();
        let tls = cluster.tls().await;
        let etcd = faults::process(&cluster, 0, Program::Etcd).await.unwrap();
        let agent = faults::process(&cluster, 0, Program::Agent).await.unwrap();

        let away = faults::stop_api_server();
        for program in [agent, etcd] {
            rustix::process::kill_process(program, Signal::KILL).unwrap();
        }
        eventually("the member serves again without the Kubernetes API", async || {
            put(&client(&address, Some(tls.clone())), b"written/without-api", b"yes").await.ok()
        })
        .await;
        bed.kubernetes.try_get("/version").await.expect_err("the Kubernetes API was not away");
        away.mend();
        cluster.is_whole().await;
        keys.is_held_by_all(&cluster).await;
    });
}

#[test]
fn data_that_has_gone_back_does_not_start_while_the_kubernetes_api_is_away() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "gone-back", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let victim = (cluster.leader().await + 1) % 3;
        let before = cluster.member_status(victim).await.unwrap().id;
        let volume = faults::volume(&cluster, victim).await;
        let (data, old) = (volume.join("data"), volume.join("quarantine-old"));
        let etcd = faults::signal(&cluster, victim, Program::Etcd, Signal::STOP).await;
        faults::copy(&data, &old);
        rustix::process::kill_process(etcd, Signal::CONT).unwrap();
        clients.have_written(50).await;
        cluster.is_whole().await;
        let applied = cluster.connect(victim).await.status().await.unwrap().raft_applied_index;
        eventually("how far it has got is on record", async || {
            let lease = cluster.find(Kind::Lease, &cluster.member(victim)).await?;
            let recorded = lease["metadata"]["annotations"][annotations::LAST_INDEX].as_str()?.parse::<u64>().ok()?;
            (recorded >= applied).then_some(())
        })
        .await;

        // Its agent sees nothing of the exchange, and then asks an API that does not answer.
        let uid = cluster.pod(victim).await["metadata"]["uid"].as_str().unwrap().to_owned();
        let agent = faults::signal(&cluster, victim, Program::Agent, Signal::STOP).await;
        let away = faults::stop_api_server();
        rustix::process::kill_process(faults::process_of(&uid, "etcd").unwrap(), Signal::KILL).unwrap();
        eventually("the killed etcd is gone", async || faults::process_of(&uid, "etcd").is_none().then_some(())).await;
        std::fs::rename(&data, volume.join("quarantine-new")).unwrap();
        std::fs::rename(&old, &data).unwrap();
        rustix::process::kill_process(agent, Signal::CONT).unwrap();
        stays("no etcd starts on data that has gone back", Duration::from_secs(20), async || {
            faults::process_of(&uid, "etcd").is_none()
        })
        .await;
        away.mend();
        eventually("the member is fenced, and says so", async || {
            let member = cluster.find(Kind::EtcdMember, &cluster.member(victim)).await?;
            (member["status"]["data"]["state"] == "Fenced").then_some(())
        })
        .await;
        clients.have_written(50).await;
        eventually("another member has taken its place", async || {
            let now = cluster.member_status(victim).await?;
            (now.id != before && now.status == MemberHealth::Ready).then_some(())
        })
        .await;
        cluster.is_whole().await;
        clients.were_told_the_truth().await;
    });
}

#[test]
fn a_test_that_fails_while_a_node_is_dead_leaves_a_bed_of_ready_nodes_to_the_next() {
    let failed = catch_unwind(|| {
        alone(async |bed| {
            // Where no operator runs: the report of the failure would wait for its log, and the node with it.
            let operators = bed.kubernetes.list("/api/v1/namespaces/quorate-system/pods").await;
            let staying =
                operators.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect::<Vec<_>>();
            let unused = |node: &u8| staying.iter().all(|pod| pod["spec"]["nodeName"] != format!("node{node}"));
            let node = (1..=3).find(unused).expect("two operators leave a node of three alone");
            let _dead = faults::kill_node(node);
            eventually("the dead node shows", async || (!is_ready(&bed, node).await).then_some(())).await;
            std::panic::panic_any("as a test does that fails");
        });
    });
    let failure = failed.expect_err("the failure was lost");
    assert_eq!(failure.downcast_ref(), Some(&"as a test does that fails"));
    alone(async |bed| {
        for node in 1..=3 {
            assert!(is_ready(&bed, node).await, "node{node} is not back");
        }
    });
}
