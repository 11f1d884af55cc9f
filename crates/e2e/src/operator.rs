//! Operators of a test's own, which live for as long as the test says.

use std::{
    net::{Ipv4Addr, TcpListener},
    os::unix::process::ExitStatusExt,
    panic::{AssertUnwindSafe, resume_unwind},
    path::Path,
    process::Stdio,
};

use futures::FutureExt;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
};

use crate::{Bed, Gate, bed, eventually};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/quorate-system/deployments/quorate-operator";
const WRITES: &str = "quorate_operator_writes_total{";

/// An operator for one namespace, in the bed's network like the thread that starts it.
#[derive(Debug)]
pub struct OwnOperator {
    process: Child,
    port: u16,
}

impl OwnOperator {
    /// It dies at the given write: `3:before`, `3:after`.
    pub fn start(namespace: &str, die_at: Option<&str>) -> Self {
        Self::start_with(namespace, die_at, &bed::testbed().inner_kubeconfig("admin"))
    }

    /// All that it asks of the API server goes through a gate.
    pub fn start_behind(gate: &Gate, namespace: &str) -> Self {
        Self::start_with(namespace, None, gate.kubeconfig())
    }

    fn start_with(namespace: &str, die_at: Option<&str>, kubeconfig: &Path) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut command = Command::new(bed::programs().join("quorate-operator"));
        command
            .args(["--namespaces", namespace, "--http-port", &port.to_string(), "--log", "error"])
            .args(["--service-account", "quorate-system/quorate-operator"])
            .env("KUBECONFIG", kubeconfig)
            .env_remove("QUORATE_CRASH_AT")
            .envs(die_at.map(|point| ("QUORATE_CRASH_AT", point)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        Self { process: command.spawn().unwrap(), port }
    }

    /// Waits for its death. One that ends for any other reason than that it was told to proves nothing.
    pub async fn died_as_told(&mut self) {
        let ended = self.process.wait().await.unwrap();
        assert_eq!(ended.signal(), Some(Signal::ABORT.as_raw()), "{ended}");
    }

    /// How often it has changed something, in Kubernetes or in etcd. Events do not count.
    pub async fn writes(&self) -> usize {
        let ask = async || {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = eventually("the operator tells its metrics", ask).await;
        let counts = answer.lines().filter(|line| line.starts_with(WRITES) && !line.contains(r#"kind="events""#));
        counts.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
    }
}

/// Runs a test in which nobody but its own operators acts. The installed one comes back also if the test fails.
pub async fn without_installed_operator(bed: Bed, test: impl AsyncFnOnce(&Bed)) {
    scale_installed_operator(&bed, 0).await;
    let ended = AssertUnwindSafe(test(&bed)).catch_unwind().await;
    scale_installed_operator(&bed, 2).await;
    ended.unwrap_or_else(|panic| resume_unwind(panic));
}

async fn scale_installed_operator(bed: &Bed, replicas: i32) {
    bed.kubernetes.patch(DEPLOYMENT, &json!({ "spec": { "replicas": replicas } })).await;
    eventually("the installed operator has that many replicas", async || {
        let pods = bed.kubernetes.find("/api/v1/namespaces/quorate-system/pods").await?;
        let ready = bed.kubernetes.get(DEPLOYMENT).await["status"]["readyReplicas"].as_i64().unwrap_or_default();
        (pods["items"].as_array()?.len() == usize::try_from(replicas).unwrap() && ready == i64::from(replicas))
            .then_some(())
    })
    .await;
}
