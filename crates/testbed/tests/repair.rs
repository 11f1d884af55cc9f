//! `up` is safe to repeat, and brings back what was there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use quorate_testbed::{Bed, cgroup};
use rustix::process::{Pid, Signal, kill_process};
use support::{TestBed, eventually, restricted_pod, text};

fn kill_supervisor(bed: &TestBed) {
    let name: Bed = bed.name.parse().unwrap();
    let pid = cgroup::init_process(&name.supervisor_cgroup()).unwrap().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    eventually("all its processes are gone", || cgroup::processes(&name.cgroup()).unwrap().is_empty().then_some(()));
}

#[test]
fn up_on_a_running_bed_says_so_and_switches_on_a_node_that_was_off() {
    let bed = TestBed::own("again");
    bed.up(&["--nodes", "1"]);
    let second = bed.testbed(&["up"]);
    assert!(second.status.success());
    assert!(text(&second.stderr).contains("is running already"), "{}", text(&second.stderr));
    bed.run(&["node", "kill", "1"]);
    bed.up(&[]);
    assert!(!bed.run(&["status"]).contains(" off"), "the node was left off");
    let said = bed.refusal(&["up", "--nodes", "2"]);
    assert!(said.contains("has 1 nodes") && said.contains("down"), "{said}");
}

#[test]
fn up_after_everything_was_killed_brings_back_objects_and_volumes() {
    let bed = TestBed::own("repaired");
    bed.up(&["--nodes", "1"]);
    let namespace = bed.namespace("kept");
    namespace.apply(
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: NAMESPACE}, \
         spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 300Mi}}}}",
    );
    namespace.apply(&restricted_pod(
        "keeper",
        "exec sleep 3600",
        "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]",
        "volumeMounts: [{name: data, mountPath: /data}]",
    ));
    namespace.wait_ready("pod/keeper");
    namespace.sh("keeper", "echo precious > /data/file && sync").unwrap();
    let kubeconfig = std::fs::read_to_string(bed.run(&["kubeconfig"]).trim()).unwrap();

    kill_supervisor(&bed);
    let said = bed.refusal(&["status"]);
    assert!(said.contains("is not running") && said.contains("testbed up"), "{said}");
    let up = bed.testbed(&["up"]);
    assert!(text(&up.stderr).contains("running again, with all it held"), "{}", text(&up.stderr));
    let content = eventually("the pod runs again", || namespace.sh("keeper", "cat /data/file"));
    assert_eq!(content, "precious");
    let after = std::fs::read_to_string(bed.run(&["kubeconfig"]).trim()).unwrap();
    assert_eq!(after, kubeconfig, "a kubeconfig that was handed out is worth nothing any more");
}

#[test]
fn up_after_a_crash_half_way_begins_afresh() {
    let bed = TestBed::own("half-way");
    let name: Bed = bed.name.parse().unwrap();
    let mut up = bed.command(&["up", "--nodes", "1"]).spawn().unwrap();
    eventually("the first node boots", || name.node(1).dir().exists().then_some(()));
    kill_supervisor(&bed);
    assert!(!up.wait().unwrap().success(), "`up` called a dead bed ready");
    let second = bed.testbed(&["up", "--nodes", "1"]);
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert!(bed.node_is_ready("node1"));
}
