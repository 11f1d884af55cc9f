//! Nodes fail like machines: killed, rebooted, cut off, rejoined.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::{
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
};

use support::{Namespace, TestBed, eventually, restricted_pod};

/// Only one node may be in trouble at a time.
static TROUBLE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    TROUBLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pod on a node whose process can be recognised on the host.
fn start_on(namespace: &Namespace, node: &str, mark: &str) {
    let spec = format!("nodeSelector: {{kubernetes.io/hostname: {node}}}");
    namespace.apply(&restricted_pod("victim", &format!("exec sleep {mark}"), &spec, ""));
    namespace.wait_ready("pod/victim");
}

fn is_running(mark: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let wanted = format!("sleep\0{mark}\0").into_bytes();
    processes.into_iter().any(|process| fs::read(process.path().join("cmdline")).is_ok_and(|line| line == wanted))
}

fn uid(bed: &TestBed, node: &str) -> String {
    bed.get(&["node", node])["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[test]
fn a_killed_node_loses_its_pods_at_that_instant_turns_not_ready_and_comes_back() {
    let _alone = alone();
    let bed = TestBed::shared();
    let namespace = bed.namespace("power-cut");
    start_on(&namespace, "node2", "710001");
    assert!(is_running("710001"), "the pod's process cannot be seen on the host");
    let identity = uid(&bed, "node2");

    bed.run(&["node", "kill", "2"]);
    assert!(!is_running("710001"), "a process of the killed node is still there");
    eventually("node2 is not ready", || (!bed.node_is_ready("node2")).then_some(()));

    bed.run(&["node", "start", "2"]);
    eventually("node2 is ready again", || bed.node_is_ready("node2").then_some(()));
    eventually("its pod runs again", || is_running("710001").then_some(()));
    assert_eq!(uid(&bed, "node2"), identity, "it came back as another node");
    let restarts = eventually("the restart is counted", || {
        let pod = namespace.get(&["pod", "victim"]);
        pod["status"]["containerStatuses"][0]["restartCount"].as_u64().filter(|count| *count > 0)
    });
    assert_eq!(restarts, 1);
}

#[test]
fn a_cut_node_keeps_running_and_rejoins() {
    let _alone = alone();
    let bed = TestBed::shared();
    let namespace = bed.namespace("cut-off");
    start_on(&namespace, "node3", "710002");

    bed.run(&["node", "cut", "3"]);
    eventually("node3 is not ready", || (!bed.node_is_ready("node3")).then_some(()));
    assert!(is_running("710002"), "the pod died although its node was only cut off");
    assert!(bed.run(&["status"]).contains("cut off"), "the status does not say so");

    bed.run(&["node", "heal", "3"]);
    eventually("node3 is ready again", || bed.node_is_ready("node3").then_some(()));
    assert!(is_running("710002"));
    let pod = namespace.get(&["pod", "victim"]);
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "the pod was restarted");
}

#[test]
fn a_stopped_api_server_takes_no_pod_with_it() {
    let _alone = alone();
    let bed = TestBed::shared();
    let namespace = bed.namespace("headless-brain");
    start_on(&namespace, "node1", "710003");
    bed.run(&["component", "stop", "kube-apiserver"]);
    assert!(bed.testbed(&["kubectl", "get", "--raw", "/readyz"]).status.code() != Some(0), "the API server answers");
    assert!(is_running("710003"));
    bed.run(&["component", "start", "kube-apiserver"]);
    eventually("the API server answers again", || namespace.try_kubectl(&["get", "pod", "victim"]));
    assert!(is_running("710003"));
}

#[test]
fn a_fault_in_a_node_that_does_not_exist_is_refused() {
    let bed = TestBed::shared();
    let said = bed.refusal(&["node", "kill", "7"]);
    assert!(said.contains("there is no node 7") && said.contains("1 to 3"), "{said}");
}
