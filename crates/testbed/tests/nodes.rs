//! Nodes fail like machines: killed, rebooted, cut off, rejoined.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpStream},
    os::fd::AsFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use quorate_testbed::{Bed, cgroup};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
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

/// Opens connections to the API server from a node until it is told to stop, and keeps what went wrong. The kernel answers
/// these by itself, however busy the API server is, so one that takes longer than this was lost.
struct Caller {
    made: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    calling: JoinHandle<Vec<String>>,
}

const LOST: Duration = Duration::from_secs(3);
const BETWEEN_CALLS: Duration = Duration::from_millis(20);
const ENOUGH_CALLS: usize = 20;

impl Caller {
    fn on(bed: &TestBed, node: u8) -> Self {
        let api = SocketAddr::from(([10, 90, 0, 1], 6443));
        let node = bed.name.parse::<Bed>().unwrap().node(node);
        let (made, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stopped) = (made.clone(), stop.clone());
        let calling = thread::spawn(move || {
            let init = cgroup::init_process(&node.system_cgroup()).unwrap().unwrap();
            let network = File::open(format!("/proc/{init}/ns/net")).unwrap();
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            eventually("a node that has just booted has a network", || TcpStream::connect_timeout(&api, LOST).ok());
            let mut failures = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                if let Err(error) = TcpStream::connect_timeout(&api, LOST) {
                    failures.push(error.to_string());
                }
                counted.fetch_add(1, Ordering::SeqCst);
                thread::sleep(BETWEEN_CALLS);
            }
            failures
        });
        Caller { made, stop, calling }
    }

    fn goes_on(&self) {
        let before = self.made.load(Ordering::SeqCst);
        eventually("it has called", || {
            (self.calling.is_finished() || self.made.load(Ordering::SeqCst) >= before + ENOUGH_CALLS).then_some(())
        });
    }

    fn failures(self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        self.calling.join().unwrap()
    }
}

#[test]
fn a_node_that_dies_returns_or_is_cut_off_leaves_the_other_nodes_their_way_to_the_api_server() {
    let _alone = alone();
    let bed = TestBed::shared();
    for victim in 1..=3u8 {
        let callers = (1..=3).filter(|node| *node != victim).map(|node| (node, Caller::on(&bed, node)));
        let callers = callers.collect::<Vec<_>>();
        let goes_on = || callers.iter().for_each(|(_, caller)| caller.goes_on());
        let (name, number) = (format!("node{victim}"), victim.to_string());
        goes_on();
        for fault in ["kill", "start", "cut", "heal"] {
            bed.run(&["node", fault, &number]);
            if fault == "kill" {
                let cable = || bed.testbed(&["exec", "--", "ip", "link", "show", &name]).status.success();
                eventually("the cable of the dead node is gone", || (!cable()).then_some(()));
            }
            goes_on();
        }
        for (node, caller) in callers {
            let failures = caller.failures();
            assert!(failures.is_empty(), "node{node} lost the API server by the faults of {name}: {failures:?}");
        }
        eventually("it is ready again", || bed.node_is_ready(&name).then_some(()));
    }
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
