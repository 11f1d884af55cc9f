//! What this machine must have before a bed can start, installed where possible, else said in one line.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    build::Progress,
    command::{command, find_program, run, sh},
    error::{Error, Result, create_dir},
};

/// Programs that a bed runs, and the Debian packages that bring them.
const PROGRAMS: [(&str, &str); 12] = [
    ("conntrack", "conntrack"),
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("losetup", "mount"),
    ("mkfs.xfs", "xfsprogs"),
    ("mount", "mount"),
    ("nft", "nftables"),
    ("runc", "runc"),
    ("unshare", "util-linux"),
    ("xfs_growfs", "xfsprogs"),
];

const CNI_PLUGINS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];
const CNI_PACKAGE: &str = "containernetworking-plugins";
/// Where daemons write without being asked. Nodes cover these with directories of their own, which needs a place to
/// mount on; making it belongs to the machine's preparation like a package.
pub const COVERED: [&str; 3] = ["/var/lib/cni", "/var/lib/kubelet", "/var/log"];

/// The machine's programs that a bed refers to by path.
#[derive(Debug)]
pub struct Programs {
    pub containerd: PathBuf,
    pub ctr: PathBuf,
    pub cni_plugins: PathBuf,
}

/// Checks the machine and installs what is missing.
pub fn prepare() -> Result<Programs> {
    require_root()?;
    let missing = missing_packages();
    if !missing.is_empty() {
        install(&missing)?;
    }
    require_kernel()?;
    COVERED.iter().try_for_each(|place| create_dir(Path::new(place)))?;
    let program = |name: &str| {
        find_program(name).ok_or_else(|| Error::refused(format!("{name} is not installed"), "install it and run again"))
    };
    let cni_plugins = cni_plugins()
        .ok_or_else(|| Error::refused("the CNI plugins are not installed", format!("install {CNI_PACKAGE}")))?;
    Ok(Programs { containerd: program("containerd")?, ctr: program("ctr")?, cni_plugins })
}

pub fn require_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::refused(
        "a bed makes namespaces and mounts, which takes root",
        "run it as root or with sudo; without root `make lint` and `make test-unit` still work",
    ))
}

fn cni_plugins() -> Option<PathBuf> {
    CNI_PLUGINS
        .iter()
        .map(PathBuf::from)
        .find(|dir| ["ptp", "host-local", "portmap"].iter().all(|p| dir.join(p).is_file()))
}

fn missing_packages() -> Vec<&'static str> {
    let absent = PROGRAMS.iter().filter(|(program, _)| find_program(program).is_none());
    let mut packages: Vec<_> = absent.map(|(_, package)| *package).collect();
    if cni_plugins().is_none() {
        packages.push(CNI_PACKAGE);
    }
    packages.dedup();
    packages
}

fn install(packages: &[&str]) -> Result<()> {
    let list = packages.join(" ");
    if find_program("apt-get").is_none() {
        return Err(Error::refused(
            format!("this machine lacks {list}, and it has no apt-get to install them with"),
            "install them with the system's package manager and run again",
        ));
    }
    let progress = Progress::begin(format!("installing {list}"), None);
    let install = || {
        let mut apt = command(["apt-get", "install", "-y", "-qq", "--no-install-recommends"]);
        run(apt.args(packages).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    // A fresh machine has no package lists; one with old lists asks for files that are gone.
    let installed = install().or_else(|_| sh("apt-get update -qq").and_then(|_| install()));
    match installed {
        Ok(_) => {
            progress.done();
            Ok(())
        }
        Err(Error::Command { output, .. }) => Err(Error::refused(
            format!("apt-get cannot install {list}: {}", last_line(&output)),
            "check the package sources and the network (`apt-get update`), and run again",
        )),
        Err(error) => Err(error),
    }
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default()
}

/// File systems a bed mounts, and what it needs them for.
const FILE_SYSTEMS: [(&str, &str); 2] = [("overlay", "containers"), ("xfs", "volumes")];

fn require_kernel() -> Result<()> {
    for module in ["overlay", "xfs", "loop", "veth", "bridge", "nf_tables"] {
        // Built in or loaded already: the checks below tell.
        let _ = run(&mut command(["modprobe", "-q", module]));
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    for (file_system, purpose) in FILE_SYSTEMS {
        if !known.lines().any(|line| line.split_whitespace().last() == Some(file_system)) {
            return Err(lacks(file_system, purpose, "it is not in /proc/filesystems"));
        }
    }
    for (feature, purpose, trial) in [
        ("virtual Ethernet (veth)", "nodes", "ip link add a0 type veth peer name a1"),
        ("bridging", "the node network", "ip link add b0 type bridge"),
        ("nftables", "Services", "nft add table inet trial"),
    ] {
        // Tried in a network namespace that ends with the command, so the machine's own network is not touched.
        run(&mut within_new_network(trial)).map_err(|error| lacks(feature, purpose, &error.to_string()))?;
    }
    if Path::new("/dev/loop-control").exists() {
        return Ok(());
    }
    Err(lacks("loop devices", "volumes", "there is no /dev/loop-control"))
}

fn within_new_network(line: &str) -> Command {
    command(["unshare", "--net", "--"].into_iter().chain(line.split_whitespace()))
}

fn lacks(feature: &str, purpose: &str, sign: &str) -> Error {
    Error::refused(
        format!("this machine has no {feature}, which {purpose} need ({sign})"),
        "use a kernel that has it, or a cluster of your own with config/install.yaml",
    )
}

/// One line on standard error, for a person.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
