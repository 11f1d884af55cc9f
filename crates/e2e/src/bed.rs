//! The bed that all end-to-end tests share, with the operator installed as users install it.

use std::{
    fs::File,
    os::fd::AsFd,
    panic::{AssertUnwindSafe, resume_unwind},
    path::{Path, PathBuf},
    process::Command,
    sync::{OnceLock, PoisonError, RwLock},
    thread,
    time::Duration,
};

use futures::FutureExt;
use quorate_testbed::cgroup;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::{kubernetes::Kubernetes, report};

const NAME: &str = "e2e";
/// A test that hangs must not take the others with it.
const LIMIT: Duration = Duration::from_mins(10);
const FOR_REPORT: Duration = Duration::from_secs(30);

/// Who breaks nodes or the control plane breaks them for everybody.
static TAKEN: RwLock<()> = RwLock::new(());

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
    let _taken = TAKEN.read().unwrap_or_else(PoisonError::into_inner);
    run(Place::ControlPlane, LIMIT, test);
}

/// Runs a test that breaks what others stand on.
pub fn alone(test: impl AsyncFnOnce(Bed) + Send + 'static) {
    let _taken = TAKEN.write().unwrap_or_else(PoisonError::into_inner);
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
        let test = tokio::time::timeout(limit, test(Bed { kubernetes: kubernetes.clone() }));
        let ended = AssertUnwindSafe(test).catch_unwind().await;
        if !matches!(ended, Ok(Ok(()))) {
            let _ = tokio::time::timeout(FOR_REPORT, report::print(&kubernetes, &kubernetes.namespaces())).await;
        }
        // Also after a failure: what it leaves running would slow down all others.
        kubernetes.remove_namespaces().await;
        if place != Place::ControlPlane {
            // What is still on its way out would be measured with the next.
            kubernetes.namespaces_are_gone().await;
        }
        ended.unwrap_or_else(|panic| resume_unwind(panic)).expect("it takes too long");
    });
}

/// Runs something on a thread in one of the bed's networks.
pub fn inside<T: Send + 'static>(place: Place, work: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    let worker = thread::spawn(move || {
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

/// The directory with the programs that were built beside this one.
pub fn programs() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.ancestors().find(|dir| dir.join("testbed").is_file()).expect("make builds testbed first").to_owned()
}

/// The name, which other runs on this machine can change to stay apart.
pub fn testbed() -> quorate_testbed::Bed {
    std::env::var("QUORATE_E2E_BED").unwrap_or_else(|_| NAME.to_owned()).parse().unwrap()
}

fn install_once() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        command(&["up"]);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-quorate");
        let mut install = Command::new(script);
        must_succeed(install.arg(programs().join("testbed")).arg(testbed().name()));
    });
}

/// Runs the testbed's command on this bed and returns what it printed.
pub fn command(arguments: &[&str]) -> String {
    must_succeed(Command::new(programs().join("testbed")).args(["--name", testbed().name()]).args(arguments))
}

fn must_succeed(command: &mut Command) -> String {
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
