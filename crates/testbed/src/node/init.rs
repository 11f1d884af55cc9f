//! The first process of a node. It makes the node's mounts and network, starts its daemons, reaps what they orphan,
//! and restarts those that end. When it is killed the kernel ends every other process of the node: a power cut.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, WaitOptions, wait};

use super::config::{self, CONTAINERD_SOCKET};
use crate::{
    bed::{Node, Plan},
    cgroup,
    command::{command, run, sh},
    error::{Error, Result, While, create_dir, write_file},
    machine::{COVERED, tell},
};

const STARTING: Duration = Duration::from_mins(1);
const BEFORE_RESTART: Duration = Duration::from_secs(1);

/// Never returns while the node lives.
pub fn boot(node: &Node, plan: &Plan) -> Result<()> {
    // A machine forgets its cgroups when it goes down. Left alone, the kubelet would wait for the pods they held.
    cgroup::remove(&node.cgroup(), STARTING)?;
    cgroup::create(&node.system_cgroup())?;
    cgroup::join(&node.system_cgroup())?;
    mounts(node)?;
    network(node, plan)?;
    config::write(node, plan)?;

    let mut daemons = Daemons::default();
    daemons.start("containerd", containerd(node, plan))?;
    wait_until("containerd answers", || UnixStream::connect(CONTAINERD_SOCKET).is_ok())?;
    let (pause, others) = plan.images.split_first().map_or((None, plan.images.as_slice()), |(p, rest)| (Some(p), rest));
    import_images(&plan.ctr, pause)?;
    wait_until("the API server serves", || node.bed.api_served_file().exists())?;
    daemons.start("kube-proxy", kube_proxy(node, plan))?;
    daemons.start("kubelet", kubelet(node, plan))?;
    import_images(&plan.ctr, others)?;
    for archive in loaded_later(node) {
        // Not the bed's own: a bad one must not keep the node from booting.
        if let Err(error) = import_images(&plan.ctr, [&archive]) {
            tell(&format!("{}: {error}", archive.display()));
        }
    }
    write_file(&node.images_loaded_file(), "")?;
    daemons.keep_running()
}

/// A view of the host's file system in which whatever daemons write at fixed places lands in the node's directory.
fn mounts(node: &Node) -> Result<()> {
    sh("mount --make-rshared /")?;
    sh("mount -t tmpfs -o mode=755 tmpfs /run")?;
    for directory in ["/run/containerd", "/run/cni-addresses", "/run/lock"] {
        create_dir(Path::new(directory))?;
    }
    for place in COVERED {
        let own = node.dir().join(place.trim_start_matches('/').replace('/', "-"));
        create_dir(&own)?;
        run(command(["mount", "--bind"]).arg(&own).arg(place))?;
    }
    pretend_kernel_settings()?;
    create_dir(&node.dir().join("tmp"))?;
    rustix::system::sethostname(node.name().as_bytes()).while_(|| "setting the host name".to_owned())
}

/// Settings of the machine's one kernel that a kubelet would change. It writes only where it reads something else, so it
/// is shown what it wants to see.
const KERNEL_SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

fn pretend_kernel_settings() -> Result<()> {
    for (setting, wanted) in KERNEL_SETTINGS {
        let shown = Path::new("/run/kernel-settings").join(setting);
        write_file(&shown, wanted)?;
        run(command(["mount", "--bind"]).arg(&shown).arg(Path::new("/proc/sys").join(setting)))?;
    }
    Ok(())
}

/// The bed hands over one end of a cable as `eth0`; the rest is this node's business.
fn network(node: &Node, plan: &Plan) -> Result<()> {
    // /proc/net follows the process's network namespace, unlike /sys, which is the host's.
    let cable = || fs::read_to_string("/proc/net/dev").is_ok_and(|devices| devices.contains("eth0:"));
    wait_until("the node's cable is plugged in", cable)?;
    sh("ip link set lo up")?;
    for family in plan.ip_families.all() {
        family.join_node_network(&family.node(node.number), "eth0")?;
    }
    sh("ip link set eth0 up")?;
    for family in plan.ip_families.all() {
        for other in (1..=plan.nodes).filter(|number| *number != node.number) {
            sh(&format!("{} route add {} via {}", family.ip, family.pods_of_node(other), family.node(other)))?;
        }
        // Ends at the control plane's namespace, which has no way out.
        sh(&format!("{} route add default via {}", family.ip, family.control_plane))?;
    }
    Ok(())
}

fn containerd(node: &Node, plan: &Plan) -> Command {
    let mut daemon = command([plan.containerd.as_os_str(), "--config".as_ref()]);
    daemon.arg(node.dir().join("containerd.toml")).logging_to(node, "containerd");
    daemon
}

fn kube_proxy(node: &Node, plan: &Plan) -> Command {
    let mut daemon = command([plan.kube.as_os_str(), "kube-proxy".as_ref(), "--config".as_ref()]);
    daemon.arg(node.dir().join("kube-proxy.json")).logging_to(node, "kube-proxy");
    daemon
}

fn kubelet(node: &Node, plan: &Plan) -> Command {
    let dir = node.dir();
    let addresses = plan.ip_families.each(|family| family.node(node.number));
    let mut daemon = command([plan.kube.as_os_str(), "kubelet".as_ref()]);
    daemon
        .arg(format!("--config={}", dir.join("kubelet.json").display()))
        .arg(format!("--kubeconfig={}", node.bed.inner_kubeconfig(&node.name()).display()))
        .arg(format!("--hostname-override={}", node.name()))
        .arg(format!("--node-ip={}", addresses.join(",")))
        .arg(format!("--root-dir={}", dir.join("kubelet").display()))
        .arg(format!("--cert-dir={}", dir.join("kubelet/pki").display()))
        .arg(format!("--node-labels=topology.kubernetes.io/zone={},topology.kubernetes.io/region=testbed", node.zone()))
        .logging_to(node, "kubelet");
    daemon
}

trait Logged {
    fn logging_to(&mut self, node: &Node, component: &str);
}

impl Logged for Command {
    fn logging_to(&mut self, node: &Node, component: &str) {
        self.env("TMPDIR", node.dir().join("tmp"));
        // A daemon without a log still runs; `testbed logs` then says that there is none.
        if let Ok(log) = File::options().create(true).append(true).open(node.log(component)) {
            if let Ok(same) = log.try_clone() {
                self.stderr(same);
            }
            self.stdout(Stdio::from(log));
        }
    }
}

/// Images that were loaded into the running bed: a rebooted node needs them again only if its disk was lost, and
/// importing what is there costs little.
fn loaded_later(node: &Node) -> Vec<PathBuf> {
    let entries = fs::read_dir(node.bed.images_dir()).into_iter().flatten().flatten();
    let mut archives: Vec<_> = entries.map(|entry| entry.path()).collect();
    archives.sort();
    archives
}

/// Loads archives into the node in whose namespaces the caller runs.
fn import_images<'a>(ctr: &Path, archives: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    for archive in archives {
        // Unpacking waits until a container wants the image.
        run(command([ctr]).args(["-n", "k8s.io", "images", "import", "--no-unpack"]).arg(archive))?;
    }
    Ok(())
}

fn wait_until(what: &str, condition: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + STARTING;
    while !condition() {
        if Instant::now() > deadline {
            return Err(Error::refused(
                format!("waited {} s until {what}, in vain", STARTING.as_secs()),
                "look at `testbed logs`",
            ));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The daemons by process id. The handles that `spawn` returns are dropped: this process reaps everything itself.
#[derive(Default)]
struct Daemons {
    running: HashMap<Pid, (&'static str, Command)>,
}

impl Daemons {
    fn start(&mut self, name: &'static str, mut daemon: Command) -> Result<()> {
        let child = daemon.spawn().while_(|| format!("starting {name}"))?;
        self.running.insert(Pid::from_child(&child), (name, daemon));
        Ok(())
    }

    fn keep_running(&mut self) -> Result<()> {
        loop {
            let ended = wait(WaitOptions::empty()).while_(|| "waiting for children".to_owned())?;
            let Some((pid, status)) = ended else { continue };
            if let Some((name, daemon)) = self.running.remove(&pid) {
                tell(&format!("{name} ended ({status:?}), starting it again"));
                thread::sleep(BEFORE_RESTART);
                self.start(name, daemon)?;
            }
        }
    }
}
