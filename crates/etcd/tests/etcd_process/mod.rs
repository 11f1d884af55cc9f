//! Real etcd servers and tools for tests: found by `QUORATE_ETCD_BINARIES`, on loopback, ended when dropped.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) const VERSIONS: [&str; 3] = ["3.5", "3.6", "3.7"];

pub(crate) fn binary(version: &str, name: &str) -> PathBuf {
    let dir = std::env::var_os("QUORATE_ETCD_BINARIES").unwrap_or_else(|| {
        panic!("set QUORATE_ETCD_BINARIES to a directory with 3.5/etcd, 3.5/etcdctl, 3.5/etcdutl, 3.6/..., 3.7/...")
    });
    let path = Path::new(&dir).join(version).join(name);
    assert!(path.is_file(), "{} is missing: QUORATE_ETCD_BINARIES must hold {version}/{name}", path.display());
    path
}

/// Below the ports that the kernel gives to connections, which would take one before etcd does; and never the same twice.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let port = 10_000 + u16::try_from(offset).unwrap();
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// How one server is started.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) version: String,
    pub(crate) name: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) client_url: String,
    pub(crate) peer_url: String,
    pub(crate) initial_cluster: String,
    pub(crate) extra: Vec<String>,
}

impl Server {
    pub(crate) fn single(version: &str, data_dir: &Path) -> Self {
        let peer_url = format!("http://127.0.0.1:{}", free_port());
        Self {
            version: version.to_owned(),
            name: "default".to_owned(),
            data_dir: data_dir.to_owned(),
            client_url: format!("http://127.0.0.1:{}", free_port()),
            initial_cluster: format!("default={peer_url}"),
            peer_url,
            extra: Vec::new(),
        }
    }

    fn log_path(&self) -> PathBuf {
        self.data_dir.with_extension("log")
    }

    fn spawn(&self) -> Child {
        let log = File::create(self.log_path()).unwrap();
        Command::new(binary(&self.version, "etcd"))
            .arg("--name")
            .arg(&self.name)
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(["--listen-client-urls", &self.client_url, "--advertise-client-urls", &self.client_url])
            .args(["--listen-peer-urls", &self.peer_url, "--initial-advertise-peer-urls", &self.peer_url])
            .args(["--initial-cluster", &self.initial_cluster])
            .args(&self.extra)
            .env_clear()
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Starts the server and waits until it says that it serves clients.
    pub(crate) fn start(&self) -> Running {
        match self.try_start() {
            Ok(running) => running,
            Err(log) => panic!("etcd {} did not start:\n{log}", self.version),
        }
    }

    /// The server's log if it ended instead.
    pub(crate) fn try_start(&self) -> Result<Running, String> {
        self.try_start_within(Duration::from_mins(1))
    }

    /// The same if it has neither ended nor begun to serve by then.
    pub(crate) fn try_start_within(&self, patience: Duration) -> Result<Running, String> {
        let mut running = Running { server: self.clone(), child: self.spawn() };
        let deadline = Instant::now() + patience;
        loop {
            let log = fs::read_to_string(self.log_path()).unwrap_or_default();
            if log.contains("ready to serve client requests") {
                return Ok(running);
            }
            if running.child.try_wait().unwrap().is_some() || Instant::now() > deadline {
                return Err(log);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) server: Server,
    child: Child,
}

impl Running {
    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> Output {
        run(Command::new(binary(&self.server.version, "etcdctl"))
            .arg("--endpoints")
            .arg(&self.server.client_url)
            .args(arguments))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.server.log_path()).unwrap_or_default()
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Makes the server fall silent without closing anything.
    pub(crate) fn freeze(&self) {
        run(Command::new("kill").arg("-STOP").arg(self.child.id().to_string()));
    }

    /// Ends the server as a crash would.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

pub(crate) fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
