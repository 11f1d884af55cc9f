//! The beds of the end-to-end tests, with the operator installed as users install it: one that most tests share, and one
//! for those that break what others stand on.

use std::{
    cell::Cell,
    ffi::OsStr,
    fs::File,
    os::fd::AsFd,
    panic::{AssertUnwindSafe, resume_unwind},
    path::{Path, PathBuf},
    process::Command,
    sync::{Condvar, Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use futures::FutureExt;
use quorate_testbed::cgroup;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::{eventually, kubernetes::Kubernetes, report};

const NAME: &str = "e2e";
/// How many tests run beside each other. They wait most of the time.
const AT_A_TIME: usize = 3;
const NODES: usize = 3;
/// A test that hangs must not take the others with it.
const LIMIT: Duration = Duration::from_mins(10);
const FOR_REPORT: Duration = Duration::from_secs(30);

static SHARED: Turns = Turns::of(AT_A_TIME);
/// Who breaks nodes or the control plane breaks them for everybody.
static BREAKABLE: Turns = Turns::of(1);

thread_local! {
    static ON: Cell<Ground> = const { Cell::new(Ground::Shared) };
}

/// Which of the beds a thread's test is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    Shared,
    Breakable,
    Ipv6,
}

impl Ground {
    const fn suffix(self) -> &'static str {
        match self {
            Ground::Shared => "",
            Ground::Breakable => "-alone",
            Ground::Ipv6 => "-ipv6",
        }
    }
}

/// Lets in so many at a time. The harness has a thread for each test, so that those that wait here keep nobody else.
struct Turns {
    free: Mutex<usize>,
    freed: Condvar,
}

struct Turn<'a>(&'a Turns);

impl Turns {
    const fn of(free: usize) -> Self {
        Self { free: Mutex::new(free), freed: Condvar::new() }
    }

    fn take(&self) -> Turn<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// The bed, seen from inside its network.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Bed {
    pub kubernetes: Kubernetes,
}

impl Bed {
    /// The pod of the operator that acts, as opposed to the one that stands by.
    pub async fn acting_operator(&self) -> Value {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/quorate-system/leases/quorate-operator";
        let holder = self.kubernetes.get(lease).await["spec"]["holderIdentity"].as_str().unwrap().to_owned();
        self.kubernetes.get(&format!("/api/v1/namespaces/quorate-system/pods/{holder}")).await
    }

    /// By a report of each that comes after this call: what a node said before a fault does not count.
    pub async fn nodes_are_ready(&self) {
        let reports = async || {
            let nodes = self.kubernetes.find("/api/v1/nodes").await?["items"].as_array()?.clone();
            // One whose Node was deleted comes back as another.
            if nodes.len() < NODES {
                return None;
            }
            let ready = |node: &Value| {
                let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default()
            };
            Some(nodes.iter().map(ready).collect::<Vec<_>>())
        };
        let before = eventually("the API server lists the nodes", reports).await;
        eventually("all nodes are ready", async || {
            let after = |(old, new): (&Value, &Value)| {
                new["status"] == "True" && new["lastHeartbeatTime"] != old["lastHeartbeatTime"]
            };
            before.iter().zip(&reports().await?).all(after).then_some(())
        })
        .await;
    }
}

/// Where in the bed's networks a thread lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Reaches every node and pod.
    ControlPlane,
    /// Reaches Services too, as pods do.
    Node(u8),
}

/// Runs a test while others may run theirs.
pub fn beside_others(test: impl AsyncFnOnce(Bed) + Send + 'static) {
    let _turn = SHARED.take();
    run(Place::ControlPlane, LIMIT, test);
}

/// Runs a test that breaks what others stand on, and leaves nodes that are ready.
pub fn alone(test: impl AsyncFnOnce(Bed) + Send + 'static) {
    alone_for(LIMIT, test);
}

/// The same, for a test that takes longer than others.
pub fn alone_for(limit: Duration, test: impl AsyncFnOnce(Bed) + Send + 'static) {
    let _turn = BREAKABLE.take();
    ON.set(Ground::Breakable);
    run(Place::ControlPlane, limit, test);
}

/// Runs a test where nodes, pods and Services have addresses of IPv6 and no others.
pub fn on_ipv6(test: impl AsyncFnOnce(Bed) + Send + 'static) {
    let _turn = SHARED.take();
    ON.set(Ground::Ipv6);
    run(Place::ControlPlane, LIMIT, test);
}

/// Runs a measurement from where an application would be: on a node, with Services in reach.
pub fn measure(measurement: impl AsyncFnOnce(Bed) + Send + 'static) {
    run(Place::Node(1), Duration::from_hours(1), measurement);
}

fn run(place: Place, limit: Duration, test: impl AsyncFnOnce(Bed) + Send + 'static) {
    install_once();
    inside(place, async move || {
        let kubernetes = Kubernetes::connect(&testbed().inner_kubeconfig("admin")).await;
        let bed = Bed { kubernetes: kubernetes.clone() };
        let test = tokio::time::timeout(limit, test(bed.clone()));
        let ended = AssertUnwindSafe(test).catch_unwind().await;
        if !matches!(ended, Ok(Ok(()))) {
            let _ = tokio::time::timeout(FOR_REPORT, report::print(&kubernetes, &kubernetes.namespaces())).await;
        }
        // Also after a failure: what it leaves running would slow down all others.
        kubernetes.remove_namespaces().await;
        if ON.get() == Ground::Breakable {
            // What it broke is mended by now but not back: the next test's members would crowd on the nodes that are left.
            let _ = AssertUnwindSafe(bed.nodes_are_ready()).catch_unwind().await;
        }
        if place != Place::ControlPlane {
            // What is still on its way out would be measured with the next.
            kubernetes.namespaces_are_gone().await;
        }
        ended.unwrap_or_else(|panic| resume_unwind(panic)).expect("it takes too long");
    });
}

/// Runs something on a thread in one of the bed's networks.
pub fn inside<T: Send + 'static>(place: Place, work: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    let ground = ON.get();
    let worker = thread::spawn(move || {
        ON.set(ground);
        let init = cgroup::init_process(&place.cgroup()).unwrap().expect("it is running");
        let network = File::open(format!("/proc/{init}/ns/net")).unwrap();
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, work())
    });
    worker.join().unwrap_or_else(|panic| resume_unwind(panic))
}

impl Place {
    fn cgroup(self) -> PathBuf {
        match self {
            Place::ControlPlane => testbed().supervisor_cgroup(),
            Place::Node(number) => testbed().node(number).system_cgroup(),
        }
    }
}

/// Runs what blocks on a thread of its own, so that a test's clients go on meanwhile.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let ground = ON.get();
    let worker = tokio::task::spawn_blocking(move || {
        ON.set(ground);
        work()
    });
    worker.await.unwrap_or_else(|failure| resume_unwind(failure.into_panic()))
}

/// The directory with the programs that were built beside this one.
pub fn programs() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.ancestors().find(|dir| dir.join("testbed").is_file()).expect("make builds testbed first").to_owned()
}

/// This thread's bed. Other runs on this machine can change the name to stay apart.
pub fn testbed() -> quorate_testbed::Bed {
    let name = std::env::var("QUORATE_E2E_BED").unwrap_or_else(|_| NAME.to_owned());
    format!("{name}{}", ON.get().suffix()).parse().unwrap()
}

fn install_once() {
    static SHARED: OnceLock<()> = OnceLock::new();
    static BREAKABLE: OnceLock<()> = OnceLock::new();
    static IPV6: OnceLock<()> = OnceLock::new();
    let (installed, up): (_, &[&str]) = match ON.get() {
        Ground::Shared => (&SHARED, &["up"]),
        Ground::Breakable => (&BREAKABLE, &["up"]),
        Ground::Ipv6 => (&IPV6, &["up", "--ip-family", "ipv6"]),
    };
    installed.get_or_init(|| {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        // Every release of etcd: a bed holds those that were built before it starts.
        command(&["build"]);
        command(up);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-quorate");
        let mut install = Command::new(script);
        must_succeed(install.arg(programs().join("testbed")).arg(testbed().name()));
    });
}

/// Runs the testbed's command on this bed and returns what it printed.
pub fn command<S: AsRef<OsStr>>(arguments: &[S]) -> String {
    must_succeed(Command::new(programs().join("testbed")).args(["--name", testbed().name()]).args(arguments))
}

/// Arguments for [`command`] that run kubectl: tests live inside of the bed's network, where the host's kubeconfig leads nowhere.
pub fn kubectl(arguments: &[&str]) -> Vec<String> {
    let way = format!("--kubeconfig={}", testbed().inner_kubeconfig("admin").display());
    ["kubectl", &way].iter().chain(arguments).map(|&word| word.to_owned()).collect()
}

fn must_succeed(command: &mut Command) -> String {
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
