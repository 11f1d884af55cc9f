//! The processes of a member pod on loopback: the agent, the launcher, and the etcd that it starts.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use quorate_api::{
    etcd::{CompactionMode, MetricsDetail},
    member::{DataState, Peer, Ticket},
    settings::MemberSettings,
};

use crate::{
    api::Api,
    mount::{Mount, copy_dir},
};

/// Together with the peer domain it makes an address that needs no DNS: `127.0.0.1`.
pub(crate) const MEMBER: &str = "127";

pub(crate) struct Pod {
    pub(crate) api: Api,
    pub(crate) settings: MemberSettings,
    /// More arguments for the agent.
    pub(crate) arguments: Vec<&'static str>,
    pub(crate) minor: &'static str,
    agent: Option<Child>,
    launcher: Option<Child>,
    /// Unmounted before the directory goes.
    mount: Option<Mount>,
    dir: tempfile::TempDir,
}

/// An etcd that has lost its launcher.
pub(crate) struct Orphan(u32);

impl Drop for Orphan {
    fn drop(&mut self) {
        signal("KILL", self.0);
    }
}

/// Below the ports that the kernel gives to connections, which would take one before etcd does; and never the same twice.
pub(crate) fn free_port() -> i32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let port = 10_000 + u16::try_from(offset).unwrap();
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port.into();
        }
    }
}

/// Waits for a condition, not for a time; the time is only that after which nobody believes in it any more.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !holds() {
        assert!(Instant::now() < deadline, "it never happened that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn binary(minor: &str, name: &str) -> PathBuf {
    let dir = std::env::var_os("QUORATE_ETCD_BINARIES").unwrap_or_else(|| {
        panic!("set QUORATE_ETCD_BINARIES to a directory with 3.5/etcd, 3.5/etcdctl, 3.6/..., 3.7/...")
    });
    Path::new(&dir).join(minor).join(name)
}

impl Pod {
    /// A member with an empty volume that may start a new cluster of one. Nothing runs yet.
    pub(crate) fn new(minor: &'static str) -> Self {
        Self::create(minor, false)
    }

    pub(crate) fn with_tls(minor: &'static str) -> Self {
        let pod = Self::create(minor, true);
        crate::certificates::write(&pod.path("tls"));
        pod
    }

    /// The same with a volume of its own, an ext4 of this many MiB.
    pub(crate) fn with_volume_of(minor: &'static str, mebibytes: u64) -> Self {
        let mut pod = Self::create(minor, false);
        pod.mount = Some(Mount::new(&pod.path("image"), &pod.path("volume"), mebibytes));
        pod
    }

    fn create(minor: &'static str, tls: bool) -> Self {
        let settings = MemberSettings {
            cluster: "db".to_owned(),
            namespace: "default".to_owned(),
            version: format!("{minor}.99"),
            peer_domain: "0.0.1".to_owned(),
            client_domain: "localhost".to_owned(),
            client_port: free_port(),
            peer_port: free_port(),
            agent_port: free_port(),
            tls,
            quota_bytes: 1 << 30,
            metrics: MetricsDetail::Basic,
            compaction_mode: CompactionMode::Periodic,
            compaction_retention: "30m".to_owned(),
            snapshot_count: 10_000,
            heartbeat_milliseconds: 100,
            election_milliseconds: 1_000,
        };
        let scheme = if tls { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{}", settings.peer_port);
        let initial_cluster = vec![Peer { name: MEMBER.to_owned(), url }];
        let api = Api::start(Ticket::Bootstrap { epoch: 1, token: "token".to_owned(), initial_cluster });
        let dir = tempfile::tempdir().unwrap();
        for name in ["volume", "run", "tls"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://127.0.0.1:{}", api.port)}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        fs::write(dir.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Pod { api, settings, arguments: Vec::new(), minor, agent: None, launcher: None, mount: None, dir }
    }

    /// The same, running and known to its API; from now on it resumes.
    pub(crate) fn running(minor: &'static str) -> Self {
        Self::new(minor).run()
    }

    pub(crate) fn run(mut self) -> Self {
        self.start_agent();
        self.start_launcher();
        self.is_settled();
        self.api.set_ticket(&Ticket::Resume { epoch: 1 });
        self
    }

    #[track_caller]
    pub(crate) fn is_settled(&self) {
        eventually("the member serves and its record is written", || {
            let report = self.api.report();
            let lease = self.api.lease();
            report.data.is_some_and(|data| data.state == DataState::Valid && data.member_id == lease.member_id)
                && report.etcd.is_some_and(|etcd| etcd.running)
                && lease.last_index.is_some()
                && self.probe("/readyz") == Some(200)
        });
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn start_agent(&mut self) {
        let log = File::options().create(true).append(true).open(self.path("agent.log")).unwrap();
        let agent = Command::new(env!("CARGO_BIN_EXE_agent"))
            .args(["run", "--member", MEMBER, "--settings", &serde_json::to_string(&self.settings).unwrap()])
            .arg("--volume")
            .arg(self.path("volume"))
            .arg("--run")
            .arg(self.path("run"))
            .arg("--tls")
            .arg(self.path("tls"))
            .args(&self.arguments)
            .env_clear()
            .env("KUBECONFIG", self.path("kubeconfig"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn();
        self.agent = Some(agent.unwrap());
    }

    pub(crate) fn start_launcher(&mut self) {
        let log = File::options().create(true).append(true).open(self.path("etcd.log")).unwrap();
        let launcher = Command::new(env!("CARGO_BIN_EXE_launch"))
            .arg(self.path("run"))
            .env_clear()
            .env("PATH", binary(self.minor, "etcd").parent().unwrap())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.launcher = Some(launcher.unwrap());
    }

    /// What the kubelet does with a container that has ended. Its exit code, if it had.
    pub(crate) fn restart_ended_launcher(&mut self) -> Option<i32> {
        let ended = self.ended_launcher()?;
        self.start_launcher();
        ended.code()
    }

    pub(crate) fn ended_launcher(&mut self) -> Option<ExitStatus> {
        self.launcher.as_mut()?.try_wait().unwrap()
    }

    pub(crate) fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    pub(crate) fn terminate_agent(&mut self) -> Option<i32> {
        let mut agent = self.agent.take().unwrap();
        signal("TERM", agent.id());
        agent.wait().unwrap().code()
    }

    /// etcd first, so that the launcher ends as it does in a pod. Its exit code.
    pub(crate) fn kill_etcd(&mut self) -> Option<i32> {
        let etcd = self.etcd();
        let mut launcher = self.launcher.take()?;
        match etcd {
            Some(etcd) => signal("KILL", etcd),
            None => launcher.kill().unwrap(),
        }
        launcher.wait().unwrap().code()
    }

    /// An etcd that only applies its log: its launcher goes on.
    pub(crate) fn kill_replay(&self) {
        signal("KILL", self.etcd().unwrap());
    }

    /// Everything in the container at once, whatever it is busy with.
    pub(crate) fn kill_container(&mut self) {
        // No child is missed that way.
        let etcd = self.etcd().map(Orphan);
        if let Some(mut launcher) = self.launcher.take() {
            let _ = launcher.kill();
            let _ = launcher.wait();
        }
        drop(etcd);
    }

    /// Only the launcher ends: its etcd runs on, and nobody is left who could stop it.
    pub(crate) fn orphan_etcd(&mut self) -> Orphan {
        let etcd = Orphan(self.etcd().unwrap());
        let mut launcher = self.launcher.take().unwrap();
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        etcd
    }

    /// Whether the launcher has said what is to be done about a signal.
    pub(crate) fn launcher_catches(&self, signal: u32) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.launcher.as_ref().unwrap().id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
    }

    pub(crate) fn terminate_launcher(&mut self) -> Option<i32> {
        let mut launcher = self.launcher.take().unwrap();
        signal("TERM", launcher.id());
        launcher.wait().unwrap().code()
    }

    /// As when a pod is deleted: everything on it ends.
    pub(crate) fn stop(&mut self) {
        self.kill_etcd();
        eventually("the agent has noticed", || self.probe("/readyz") == Some(503));
        self.terminate_agent();
    }

    /// The same, after the agent has written down how far etcd got.
    pub(crate) fn stop_in_order(&mut self) {
        self.kill_etcd();
        eventually("it is on the volume", || self.reached_index() >= self.api.lease().last_index);
        self.terminate_agent();
    }

    /// The process of the etcd that the launcher has started.
    pub(crate) fn etcd(&self) -> Option<u32> {
        let launcher = self.launcher.as_ref()?;
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", launcher.id())).ok()?;
        let child = children.split_whitespace().next()?.parse().ok()?;
        // One that has ended and waits to be seen is not there any more.
        let state = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        (!state.contains(") Z ")).then_some(child)
    }

    /// The status of an answer to a probe; nothing if there is none.
    pub(crate) fn probe(&self, path: &str) -> Option<u16> {
        let mut agent = TcpStream::connect(("127.0.0.1", u16::try_from(self.settings.agent_port).unwrap())).ok()?;
        agent.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        write!(agent, "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        agent.read_to_string(&mut answer).ok()?;
        answer.split_whitespace().nth(1)?.parse().ok()
    }

    pub(crate) fn client_url(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.settings.tls { "https" } else { "http" }, self.settings.client_port)
    }

    pub(crate) fn etcd_log(&self) -> String {
        fs::read_to_string(self.path("etcd.log")).unwrap()
    }

    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> String {
        self.etcdctl_at(&self.client_url(), arguments)
    }

    pub(crate) fn try_etcdctl(&self, arguments: &[&str]) -> Output {
        self.try_etcdctl_at(&self.client_url(), arguments)
    }

    /// To another member.
    pub(crate) fn etcdctl_at(&self, url: &str, arguments: &[&str]) -> String {
        let output = self.try_etcdctl_at(url, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn try_etcdctl_at(&self, url: &str, arguments: &[&str]) -> Output {
        self.etcdctl_command(url, arguments).output().unwrap()
    }

    pub(crate) fn etcdctl_command(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary(self.minor, "etcdctl"));
        command
            .args(["--endpoints", url])
            .args(self.settings.tls.then(|| format!("--cacert={}", self.path("tls/server/ca.crt").display())))
            .args(self.settings.tls.then(|| format!("--cert={}", self.path("tls/agent/tls.crt").display())))
            .args(self.settings.tls.then(|| format!("--key={}", self.path("tls/agent/tls.key").display())))
            .args(arguments);
        command
    }

    /// Writes, and waits until the record says that the member holds it.
    pub(crate) fn put(&self, value: &str) {
        self.etcdctl(&["put", "key", value]);
        let status = self.etcdctl(&["endpoint", "status", "--write-out=json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let index = status[0]["Status"]["raftAppliedIndex"].as_i64();
        assert!(index.is_some(), "{status}");
        eventually("the record has risen", || self.api.lease().last_index >= index);
    }

    /// How far etcd is known to have got, on the volume.
    fn reached_index(&self) -> Option<i64> {
        let text = fs::read(self.path("volume/quorate.json")).ok()?;
        serde_json::from_slice::<serde_json::Value>(&text).ok()?["record"]["reachedIndex"].as_i64()
    }

    pub(crate) fn copy_volume(&self, to: &str) {
        copy_dir(&self.path("volume"), &self.path(to));
    }

    /// Puts a copy in the place of the volume, or of a part of it.
    pub(crate) fn put_back(&self, copy: &str, part: &str) {
        let (from, to) = (self.path(copy).join(part), self.path("volume").join(part));
        fs::remove_dir_all(&to).unwrap();
        copy_dir(&from, &to);
    }

    pub(crate) fn data_state(&self) -> Option<DataState> {
        self.api.report().data.map(|data| data.state)
    }

    /// Waits until the agent has asked the API twice more, and so has decided at least once on what there is now.
    pub(crate) fn agent_has_decided(&self) {
        let before = self.api.asked();
        eventually("the agent has decided", || self.api.asked() >= before + 3);
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.kill_agent();
        self.kill_container();
        if std::thread::panicking() {
            let log = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
            let last = |text: String| text.lines().rev().take(25).map(str::to_owned).collect::<Vec<_>>().join("\n");
            let text = format!("agent, newest first:\n{}\netcd:\n{}\n", last(log("agent.log")), last(log("etcd.log")));
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }
}

fn signal(name: &str, pid: u32) {
    let _ = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
}
