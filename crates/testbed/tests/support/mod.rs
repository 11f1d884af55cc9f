//! The vocabulary of the tests that run on beds.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(unreachable_pub, reason = "a module of several test programs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    io::Write,
    process::{Command, Output, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

pub const BUSYBOX: &str = "docker.io/library/busybox:1";
/// The bed that tests share, each in a namespace of its own. It stays up between test files; `make test` removes it.
const SHARED: &str = "test";

/// Longer than anything should take on a busy machine; what matters is the condition.
pub const PATIENCE: Duration = Duration::from_mins(2);

#[derive(Debug, Clone)]
pub struct TestBed {
    pub name: String,
}

/// A bed of a test's own, removed when the test ends, however it ends.
#[derive(Debug)]
pub struct OwnBed(pub TestBed);

impl Drop for OwnBed {
    fn drop(&mut self) {
        let down = self.0.testbed(&["down"]);
        assert!(down.status.success() || thread::panicking(), "{}", text(&down.stderr));
    }
}

impl std::ops::Deref for OwnBed {
    type Target = TestBed;

    fn deref(&self) -> &TestBed {
        &self.0
    }
}

/// A namespace of a test's own, removed when the test ends.
#[derive(Debug)]
pub struct Namespace {
    pub bed: TestBed,
    pub name: String,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.bed.testbed(&["kubectl", "delete", "namespace", &self.name, "--wait=false"]);
    }
}

impl TestBed {
    pub fn shared() -> Self {
        static UP: OnceLock<()> = OnceLock::new();
        let bed = TestBed { name: SHARED.to_owned() };
        UP.get_or_init(|| bed.up(&[]));
        bed
    }

    /// A bed that is not up yet. Leftovers of an earlier run are removed.
    pub fn own(name: &str) -> OwnBed {
        let bed = TestBed { name: name.to_owned() };
        bed.run(&["down"]);
        OwnBed(bed)
    }

    pub fn up(&self, arguments: &[&str]) {
        self.run(&[&["up"], arguments].concat());
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
        command.args(["--name", &self.name]).args(arguments).stdin(Stdio::null());
        command
    }

    pub fn testbed(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed and returns what it printed.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.testbed(arguments);
        assert!(output.status.success(), "testbed {}: {}", arguments.join(" "), text(&output.stderr));
        text(&output.stdout)
    }

    /// What a command says when it fails, which it must.
    pub fn refusal(&self, arguments: &[&str]) -> String {
        let output = self.testbed(arguments);
        assert!(!output.status.success(), "testbed {} succeeded", arguments.join(" "));
        text(&output.stderr)
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.run(&[&["kubectl"], arguments].concat())
    }

    pub fn get(&self, arguments: &[&str]) -> Value {
        let json = self.kubectl(&[&["get", "-o", "json"], arguments].concat());
        serde_json::from_str(&json).unwrap()
    }

    pub fn apply(&self, manifest: &str) {
        let output = self.try_apply(manifest);
        assert!(output.status.success(), "{}\n{manifest}", text(&output.stderr));
    }

    pub fn try_apply(&self, manifest: &str) -> Output {
        let mut kubectl = self.command(&["kubectl", "apply", "-f", "-"]);
        let mut kubectl = kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        kubectl.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
        kubectl.wait_with_output().unwrap()
    }

    /// A fresh namespace in which only restricted pods are admitted.
    pub fn namespace(&self, name: &str) -> Namespace {
        let missing = || self.kubectl(&["get", "namespace", name, "--ignore-not-found"]).is_empty();
        eventually(&format!("an old namespace {name} is gone"), || missing().then_some(()));
        self.apply(&format!(
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels:\n    \
             pod-security.kubernetes.io/enforce: restricted\n"
        ));
        let namespace = Namespace { bed: self.clone(), name: name.to_owned() };
        eventually("the namespace has its account", || namespace.try_kubectl(&["get", "serviceaccount", "default"]));
        namespace
    }

    pub fn node_is_ready(&self, node: &str) -> bool {
        let node = self.get(&["node", node]);
        let conditions = node["status"]["conditions"].as_array().unwrap().clone();
        conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    }
}

impl Namespace {
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.bed.kubectl(&[&["-n", &self.name], arguments].concat())
    }

    pub fn try_kubectl(&self, arguments: &[&str]) -> Option<String> {
        let output = self.bed.testbed(&[&["kubectl", "-n", &self.name], arguments].concat());
        output.status.success().then(|| text(&output.stdout))
    }

    pub fn get(&self, arguments: &[&str]) -> Value {
        self.bed.get(&[&["-n", &self.name], arguments].concat())
    }

    pub fn apply(&self, manifest: &str) {
        self.bed.apply(&manifest.replace("NAMESPACE", &self.name));
    }

    /// Runs a shell line in a pod; nothing if it fails.
    pub fn sh(&self, pod: &str, line: &str) -> Option<String> {
        self.try_kubectl(&["exec", pod, "--", "sh", "-c", line]).map(|said| said.trim().to_owned())
    }

    pub fn wait_ready(&self, what: &str) {
        self.kubectl(&["wait", "--for=condition=Ready", what, "--timeout=120s"]);
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asks again until there is an answer.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = condition() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain until {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// A pod that the restricted profile admits, with the given fields added to its spec and its container.
pub fn restricted_pod(name: &str, script: &str, spec: &str, container: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: NAMESPACE, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 0
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {{type: RuntimeDefault}}
  {spec}
  containers:
  - name: main
    image: {BUSYBOX}
    command: [sh, -c, "{script}"]
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {{drop: [ALL]}}
    {container}
"#
    )
}
