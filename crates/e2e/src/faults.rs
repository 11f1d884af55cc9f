//! What can happen to a member, a node or the control plane.

use std::{
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use quorate_api::names;
use rustix::process::{Pid, Signal, kill_process};

use crate::{Cluster, bed, cluster::Kind, eventually};

/// A program of a member's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Etcd,
    Agent,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Etcd => "etcd",
            Program::Agent => "agent",
        }
    }
}

/// Sends a signal to a program of a member and returns its process number on this machine.
pub async fn signal(cluster: &Cluster, ordinal: i32, program: Program, signal: Signal) -> Pid {
    let pid = process(cluster, ordinal, program).await.expect("the program runs");
    kill_process(pid, signal).unwrap();
    pid
}

/// The bed's processes are this machine's; a pod's are known by their cgroup.
pub async fn process(cluster: &Cluster, ordinal: i32, program: Program) -> Option<Pid> {
    let pod = cluster.pod(ordinal).await;
    process_of(pod["metadata"]["uid"].as_str().unwrap(), program.name())
}

/// By the identifier of its pod and its own name.
pub fn process_of(pod: &str, program: &str) -> Option<Pid> {
    let numbers = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number: &i32| {
            let read = |file: &str| fs::read_to_string(format!("/proc/{number}/{file}")).unwrap_or_default();
            read("comm").trim() == program && read("cgroup").contains(pod)
        })
        .find_map(Pid::from_raw)
}

/// A process that stands still until it is thawed or the test ends, also one that fails.
#[derive(Debug)]
#[must_use]
pub struct Frozen(Pid);

pub fn freeze(process: Pid) -> Frozen {
    let frozen = Frozen(process);
    kill_process(process, Signal::STOP).unwrap();
    frozen
}

impl Frozen {
    pub fn thaw(self) {
        drop(self);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Somebody else may have ended it meanwhile.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// A member's volume while nobody uses it: etcd is dead, and the agent sees nothing of what happens.
#[derive(Debug)]
#[must_use]
pub struct Halted {
    pub volume: PathBuf,
    agent: Frozen,
}

pub async fn halt(cluster: &Cluster, ordinal: i32) -> Halted {
    let volume = volume(cluster, ordinal).await;
    let agent = freeze(process(cluster, ordinal, Program::Agent).await.expect("the agent runs"));
    let pod = cluster.pod(ordinal).await["metadata"]["uid"].as_str().unwrap().to_owned();
    if let Some(etcd) = process_of(&pod, Program::Etcd.name()) {
        kill_process(etcd, Signal::KILL).unwrap();
    }
    eventually("the killed etcd is gone", async || process_of(&pod, Program::Etcd.name()).is_none().then_some(()))
        .await;
    Halted { volume, agent }
}

impl Halted {
    /// A new agent comes to the volume as it is now, and knows nothing but what is there and what the API says.
    pub fn resume(self) {
        kill_process(self.agent.0, Signal::KILL).unwrap();
    }
}

/// All that a volume tells: the data, and whose it is.
const CONTENT: [&str; 2] = ["data", "quorate.json"];

/// A copy of what is on a volume, kept on it where nobody looks. Its etcd must stand still.
pub fn keep(volume: &Path) -> PathBuf {
    let kept = volume.join("quarantine-kept");
    fs::create_dir(&kept).unwrap();
    for name in CONTENT {
        copy(&volume.join(name), &kept.join(name));
    }
    kept
}

/// The whole volume goes back to what was kept.
pub fn put_back(volume: &Path, kept: &Path) {
    let newer = volume.join("quarantine-newer");
    fs::create_dir(&newer).unwrap();
    for name in CONTENT {
        fs::rename(volume.join(name), newer.join(name)).unwrap();
        fs::rename(kept.join(name), volume.join(name)).unwrap();
    }
}

/// Each volume gets what the other had.
pub fn exchange(one: &Path, other: &Path) {
    let between = one.join("quarantine-between");
    fs::create_dir(&between).unwrap();
    // They are different mounts, across which nothing can be renamed.
    let move_into = |from: &Path, to: &Path| run("mv", &[&from.display().to_string(), &to.display().to_string()]);
    for name in CONTENT {
        move_into(&one.join(name), &between);
        move_into(&other.join(name), one);
        move_into(&between.join(name), other);
    }
    fs::remove_dir(between).unwrap();
}

/// A member's volume, as its agent sees it.
pub async fn volume(cluster: &Cluster, ordinal: i32) -> PathBuf {
    let agent = process(cluster, ordinal, Program::Agent).await.expect("the agent runs");
    Path::new("/proc").join(agent.as_raw_nonzero().to_string()).join("root/var/lib/etcd")
}

/// A new, empty volume in the place of the old one, and a new pod on it.
pub async fn wipe(cluster: &Cluster, ordinal: i32) {
    let member = cluster.member(ordinal);
    let claim = cluster.path(Kind::VolumeClaim, &names::data_claim(&member));
    let before = cluster.kubernetes.get(&claim).await["metadata"]["uid"].clone();
    cluster.kubernetes.delete(&claim).await;
    cluster.kubernetes.delete(&cluster.path(Kind::Pod, &member)).await;
    eventually("there is a new volume", async || {
        let now = cluster.kubernetes.find(&claim).await?["metadata"]["uid"].clone();
        // A pod that was made while the old claim was going has none and never gets one.
        if now == before && cluster.find(Kind::Pod, &member).await.is_some() {
            let _ = cluster.kubernetes.try_delete(&cluster.path(Kind::Pod, &member)).await;
        }
        (now != before).then_some(())
    })
    .await;
}

/// A copy of a directory, as a volume snapshot would be: etcd does not run while it is made.
pub fn copy(from: &Path, to: &Path) {
    run("cp", &["--archive", &from.display().to_string(), &to.display().to_string()]);
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A member whose packets do not all arrive.
#[derive(Debug)]
#[must_use]
pub struct Isolated {
    network: String,
}

/// Drops what comes to a member's port for clients from outside of its pod, as a network policy does.
pub async fn close_to_clients(cluster: &Cluster, ordinal: i32) -> Isolated {
    Isolated::by(cluster, ordinal, &[("input", "iifname != lo tcp dport 2379")]).await
}

/// Drops what comes to that port from inside of the pod, so that the agent does not reach its etcd.
pub async fn close_to_agent(cluster: &Cluster, ordinal: i32) -> Isolated {
    Isolated::by(cluster, ordinal, &[("input", "iifname lo tcp dport 2379")]).await
}

/// Drops what goes to and from a member's peer port.
pub async fn isolate_from_peers(cluster: &Cluster, ordinal: i32) -> Isolated {
    let ports = ["tcp dport 2380", "tcp sport 2380"];
    let rules = ["input", "output"].into_iter().flat_map(|way| ports.map(|port| (way, port)));
    Isolated::by(cluster, ordinal, &rules.collect::<Vec<_>>()).await
}

/// Drops what others begin to say to a member: it reaches its peers, and they do not reach it.
pub async fn deafen(cluster: &Cluster, ordinal: i32) -> Isolated {
    Isolated::by(cluster, ordinal, &[("input", "tcp dport 2380")]).await
}

/// Drops almost every third packet between a member and its peers.
pub async fn lose_packets(cluster: &Cluster, ordinal: i32) -> Isolated {
    let rules = ["tcp dport 2380", "tcp sport 2380"].map(|port| format!("{port} numgen random mod 100 < 30"));
    Isolated::by(cluster, ordinal, &rules.each_ref().map(|rule| ("input", rule.as_str()))).await
}

/// Drops all that a member asks of DNS.
pub async fn without_names(cluster: &Cluster, ordinal: i32) -> Isolated {
    Isolated::by(cluster, ordinal, &[("output", "udp dport 53"), ("output", "tcp dport 53")]).await
}

impl Isolated {
    /// Each rule is a way, into the pod or out of it, and what is dropped there.
    async fn by(cluster: &Cluster, ordinal: i32, rules: &[(&str, &str)]) -> Self {
        let etcd = process(cluster, ordinal, Program::Etcd).await.expect("etcd runs");
        let isolated = Isolated { network: format!("--net=/proc/{}/ns/net", etcd.as_raw_nonzero()) };
        isolated.nft("add table inet cut");
        for way in ["input", "output"] {
            isolated.nft(&format!("add chain inet cut {way} {{ type filter hook {way} priority 0; }}"));
        }
        for (way, dropped) in rules {
            isolated.nft(&format!("add rule inet cut {way} {dropped} drop"));
        }
        isolated
    }

    fn nft(&self, rule: &str) {
        run("nsenter", &[&self.network, "nft", rule]);
    }

    pub fn mend(self) {
        self.nft("delete table inet cut");
    }
}

/// What is broken for everybody on the bed. It is mended at the end, also of a test that fails.
#[derive(Debug)]
#[must_use]
pub struct Broken {
    mend: Vec<Vec<String>>,
}

impl Broken {
    fn by(fault: &[&str], mend: &[&[&str]]) -> Self {
        let words = |command: &[&str]| command.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        Self::by_words(&words(fault), mend.iter().map(|command| words(command)).collect())
    }

    /// What is half done is mended too.
    fn by_words(fault: &[String], mend: Vec<Vec<String>>) -> Self {
        let broken = Broken { mend };
        bed::command(fault);
        broken
    }

    pub fn mend(self) {
        drop(self);
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        for command in &self.mend {
            if thread::panicking() {
                // A second panic would end all tests.
                let _ = catch_unwind(|| bed::command(command));
            } else {
                bed::command(command);
            }
        }
    }
}

/// A power cut.
pub fn kill_node(number: u8) -> Broken {
    Broken::by(&["node", "kill", &number.to_string()], &[&["node", "start", &number.to_string()]])
}

/// A power cut, after which somebody says that the machine does not come back.
pub fn remove_node(number: u8) -> Broken {
    let dead = kill_node(number);
    bed::command(&bed::kubectl(&["delete", "node", &format!("node{number}")]));
    dead
}

/// A node is emptied, as before a reboot. Its pods go as their budgets let them, and come back elsewhere.
pub fn drain_node(number: u8) -> Broken {
    let node = format!("node{number}");
    let gently = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=170s"];
    let drain = bed::kubectl(&[&["drain", &node], &gently[..]].concat());
    Broken::by_words(&drain, vec![bed::kubectl(&["uncordon", &node])])
}

/// A pulled cable.
pub fn cut_node(number: u8) -> Broken {
    Broken::by(&["node", "cut", &number.to_string()], &[&["node", "heal", &number.to_string()]])
}

/// Whoever watches waits up to half a minute before it tries again, and a controller manager that does not see the nodes'
/// Leases meanwhile declares living nodes dead. New ones see at once what is.
pub fn stop_api_server() -> Broken {
    Broken::by(
        &["component", "stop", "kube-apiserver"],
        &[
            &["component", "stop", "kube-controller-manager"],
            &["component", "stop", "kube-scheduler"],
            &["component", "start", "kube-apiserver"],
            &["component", "start", "kube-controller-manager"],
            &["component", "start", "kube-scheduler"],
        ],
    )
}
