//! Power cuts, pulled cables, and a Kubernetes API that is away.

use quorate_api::{names::labels, status::MemberHealth};
use quorate_e2e::{
    Cluster, Ledger, alone,
    bed::Bed,
    cluster::{Kind, client},
    data::put,
    eventually,
    faults::{self, Program},
};
use rustix::process::Signal;
use serde_json::json;

async fn node_of(cluster: &Cluster, ordinal: i32) -> u8 {
    let pod = cluster.pod(ordinal).await;
    pod["spec"]["nodeName"].as_str().unwrap().trim_start_matches("node").parse().unwrap()
}

async fn nodes_are_ready(bed: &Bed) {
    eventually("all nodes are ready", async || {
        let nodes = bed.kubernetes.find("/api/v1/nodes").await?["items"].as_array()?.clone();
        let ready = |node: &serde_json::Value| {
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        nodes.iter().all(ready).then_some(())
    })
    .await;
}

#[test]
fn the_member_of_a_dead_node_shows_and_returns_with_the_node() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "dead-node", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 20).await;
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
        ledger.write(&cluster, 20).await;
        assert_ne!(cluster.leader().await, victim);

        dead.mend();
        nodes_are_ready(&bed).await;
        cluster.is_whole().await;
        assert_eq!(cluster.member_status(victim).await.unwrap().id, id, "the same member");
        ledger.is_held_by_all(&cluster).await;
        eventually("clients are led to all members again", async || {
            (cluster.serving_addresses().await.len() == 3).then_some(())
        })
        .await;
    });
}

#[test]
fn a_member_that_is_cut_off_is_not_taken_for_dead_and_catches_up() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "cut-off", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 10).await;
        let victim = cluster.leader().await;
        let node = node_of(&cluster, victim).await;
        let etcd = faults::process(&cluster, victim, Program::Etcd).await.unwrap();

        let cut = faults::cut_node(node);
        ledger.write(&cluster, 20).await;
        eventually("the member that is cut off is not called ready", async || {
            (cluster.member_status(victim).await?.status != MemberHealth::Ready).then_some(())
        })
        .await;
        cut.mend();
        nodes_are_ready(&bed).await;
        cluster.is_whole().await;
        assert_eq!(faults::process(&cluster, victim, Program::Etcd).await, Some(etcd), "it went on running");
        ledger.is_held_by_all(&cluster).await;
    });
}

#[test]
fn a_member_restarts_on_its_data_while_the_kubernetes_api_is_away() {
    alone(async |bed| {
        let cluster = Cluster::create(&bed, "api-away", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let mut ledger = Ledger::default();
        ledger.write(&cluster, 20).await;
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
        ledger.is_held_by_all(&cluster).await;
    });
}
