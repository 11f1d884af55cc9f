//! `down` leaves the machine as it was, whatever was killed and when.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::{Bed, cgroup};
use rustix::process::{Pid, Signal, kill_process};
use support::{PATIENCE, TestBed, eventually, text};

const NAME: &str = "crash";

/// Whoever compares the machine before and after must be alone in between.
static MACHINE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

type Reached = Box<dyn Fn() -> bool>;

/// All that a bed could leave behind.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Machine {
    namespaces: BTreeSet<String>,
    mounts: BTreeSet<String>,
    links: BTreeSet<String>,
    cgroups: BTreeSet<PathBuf>,
    processes: BTreeSet<String>,
    ports: BTreeSet<String>,
    loops: BTreeSet<String>,
    directories: BTreeSet<PathBuf>,
    kernel_settings: BTreeSet<String>,
}

impl Machine {
    fn look(bed: &str) -> Self {
        let said =
            |command: &str, arguments: &[&str]| text(&Command::new(command).args(arguments).output().unwrap().stdout);
        let lines = |text: String| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let mut cgroups = BTreeSet::new();
        directories_below(Path::new("/sys/fs/cgroup"), &mut cgroups);
        // Whatever is a bed's or a container runtime's; the machine's own services come and go.
        let marks = ["testbed", "kube", "k8s", "cri", "container", "pod"];
        cgroups.retain(|path| marks.iter().any(|mark| path.to_string_lossy().contains(mark)));
        Machine {
            namespaces: namespaces(),
            mounts: lines(fs::read_to_string("/proc/self/mountinfo").unwrap()),
            links: lines(said("ip", &["-brief", "link"])),
            cgroups,
            processes: processes_of(bed),
            ports: listening_ports(bed),
            loops: lines(said("losetup", &["--list", "--noheadings", "--output", "NAME,BACK-FILE"])),
            directories: places().iter().flat_map(|dir| entries(dir)).collect(),
            kernel_settings: KERNEL_SETTINGS.iter().map(|name| kernel_setting(name)).collect(),
        }
    }

    /// What is there now and was not there before.
    fn new_since(&self, before: &Machine) -> Vec<String> {
        let mut new = Vec::new();
        let mut note =
            |kind: &str, what: Vec<String>| new.extend(what.into_iter().map(|what| format!("{kind} {what}")));
        let added = |now: &BTreeSet<String>, then: &BTreeSet<String>| now.difference(then).cloned().collect::<Vec<_>>();
        let paths = |now: &BTreeSet<PathBuf>, then: &BTreeSet<PathBuf>| {
            now.difference(then).map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        note("namespace", added(&self.namespaces, &before.namespaces));
        note("mount", added(&self.mounts, &before.mounts));
        note("link", added(&self.links, &before.links));
        note("cgroup", paths(&self.cgroups, &before.cgroups));
        note("process", added(&self.processes, &before.processes));
        note("port", added(&self.ports, &before.ports));
        note("kernel setting", added(&self.kernel_settings, &before.kernel_settings));
        note("directory", paths(&self.directories, &before.directories));
        note("loop device", added(&self.loops, &before.loops));
        new
    }
}

/// What a kubelet changes on a machine of its own.
const KERNEL_SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

fn kernel_setting(name: &str) -> String {
    format!("{name}={}", fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap().trim())
}

/// Where daemons and tools leave things when nobody looks.
fn places() -> Vec<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let fixed = ["/etc", "/etc/cni", "/opt", "/run/netns", "/usr/libexec", "/usr/libexec/kubernetes"];
    let covered = ["/var/lib", "/var/lib/cni", "/var/lib/kubelet", "/var/lib/kubelet/device-plugins"];
    let mut all: Vec<_> = fixed.iter().chain(&covered).map(PathBuf::from).collect();
    all.extend([Bed::beds_dir(), home.join(".kube"), home.join(".kube/cache/discovery")]);
    all
}

/// Every namespace that some process is in.
fn namespaces() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        for kind in ["net", "mnt", "pid", "uts", "ipc", "cgroup"] {
            found.extend(fs::read_link(process.path().join("ns").join(kind)).map(|link| link.display().to_string()));
        }
    }
    found
}

/// Processes of a bed, recognised by what they were started with: their cgroup may be what is wrong.
fn processes_of(bed: &str) -> BTreeSet<String> {
    let mark = Bed::beds_dir().join(bed).display().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| {
            let line = text(&fs::read(process.path().join("cmdline")).ok()?).replace('\0', " ");
            line.contains(&mark).then(|| format!("{} {line}", process.file_name().display()))
        })
        .collect()
}

/// Ports that somebody listens on, except those of programs that have nothing to do with the bed: other people may use
/// the machine meanwhile.
fn listening_ports(bed: &str) -> BTreeSet<String> {
    let strangers = sockets_of_others(bed);
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let field = |line: &str, number: usize| line.split_whitespace().nth(number).unwrap_or_default().to_owned();
    let ours = |line: &&str| field(line, 3) == "0A" && !strangers.contains(&format!("socket:[{}]", field(line, 9)));
    sockets.iter().flat_map(|table| table.lines().filter(ours).map(|line| field(line, 1))).collect()
}

fn sockets_of_others(bed: &str) -> BTreeSet<String> {
    let mark = Bed::beds_dir().join(bed).display().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|process| process.path());
    let others = processes.filter(|path| fs::read(path.join("cmdline")).is_ok_and(|line| !text(&line).contains(&mark)));
    let descriptors = others.flat_map(|path| fs::read_dir(path.join("fd")).into_iter().flatten().flatten());
    descriptors.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.display().to_string())).collect()
}

fn directories_below(dir: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.insert(entry.path());
            directories_below(&entry.path(), found);
        }
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn kill(pid: i32) {
    // Already gone is fine.
    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

fn supervisor() -> Option<i32> {
    let bed: Bed = NAME.parse().unwrap();
    cgroup::init_process(&bed.supervisor_cgroup()).unwrap()
}

/// Kernel objects go a moment after the last process; `down` has returned, so a moment must do.
fn assert_as_before(bed: &str, before: &Machine, moment: &str) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let left = Machine::look(bed).new_since(before);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "killed when {moment}; left behind:\n{}", left.join("\n"));
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn down_leaves_nothing_after_the_supervisor_was_killed_at_ten_moments_of_up() {
    let _alone = alone();
    let bed = TestBed::own(NAME);
    let dir = Bed::beds_dir().join(NAME);
    // The machine's preparation (packages, caches) is not the bed's; do it before looking.
    bed.run(&["build"]);
    let before = Machine::look(NAME);
    let exists = |path: &str| {
        let path = dir.join(path);
        move || path.exists()
    };
    let cgroup_exists = || !cgroup::processes(&NAME.parse::<Bed>().unwrap().cgroup()).unwrap().is_empty();
    let moments: [(&str, Reached); 10] = [
        ("the bed's directory appears", Box::new(exists("plan.json"))),
        ("the first process enters the cgroup", Box::new(cgroup_exists)),
        ("the supervisor exists", Box::new(|| supervisor().is_some())),
        ("the certificate authority is written", Box::new(exists("pki/ca.crt"))),
        ("etcd starts", Box::new(exists("etcd"))),
        ("the first node boots", Box::new(exists("nodes/node1/var-log"))),
        ("containerd starts on a node", Box::new(exists("nodes/node1/containerd"))),
        ("a kubelet starts", Box::new(exists("nodes/node1/kubelet/pods"))),
        ("a node has all its images", Box::new(exists("nodes/node1/images-loaded"))),
        ("the bed is complete", Box::new(exists("complete"))),
    ];
    for (number, (moment, reached)) in moments.iter().enumerate() {
        let mut up = bed.command(&["up", "--nodes", "2"]).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !reached() {
            assert!(Instant::now() < deadline, "it never came to this: {moment}");
            thread::yield_now();
        }
        // Both, and the one that starts things first.
        kill(i32::try_from(up.id()).unwrap());
        let supervisor = supervisor();
        assert!(number < 2 || supervisor.is_some(), "there was no supervisor to kill when {moment}");
        supervisor.into_iter().for_each(kill);
        up.wait().unwrap();
        bed.run(&["down"]);
        assert_as_before(NAME, &before, moment);
    }
}

#[test]
fn down_of_a_busy_bed_leaves_nothing() {
    busy_until(|| {});
}

#[test]
fn down_of_a_busy_bed_of_whose_processes_every_other_one_was_killed_leaves_nothing() {
    busy_until(|| {
        let bed = "busy".parse::<Bed>().unwrap();
        let all = cgroup::processes(&bed.cgroup()).unwrap();
        assert!(all.len() > 10, "{all:?}");
        // The first is the supervisor, with whom all would end at once.
        all.into_iter().skip(1).step_by(2).for_each(kill);
    });
}

fn busy_until(end: impl FnOnce()) {
    let _alone = alone();
    let bed = TestBed::own("busy");
    bed.run(&["build"]);
    let before = Machine::look("busy");
    bed.up(&["--nodes", "2"]);
    let namespace = bed.namespace("busy");
    namespace.apply(
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: NAMESPACE}, \
         spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 300Mi}}}}",
    );
    namespace.apply(&support::restricted_pod(
        "writer",
        "while true; do dd if=/dev/zero of=/data/file bs=1M count=50; done",
        "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]",
        "volumeMounts: [{name: data, mountPath: /data}]",
    ));
    namespace.wait_ready("pod/writer");
    eventually("it writes", || namespace.sh("writer", "test -s /data/file"));
    // Somebody looks into the bed and a node while they go.
    let looking = [&["exec", "--", "sleep", "3600"][..], &["exec", "--node", "1", "--", "sleep", "3600"]];
    let mut lookers = looking.map(|arguments| bed.command(arguments).spawn().unwrap());
    end();
    bed.run(&["down"]);
    for looker in &mut lookers {
        assert!(!looker.wait().unwrap().success(), "a command outlived the bed it ran in");
    }
    assert_as_before("busy", &before, "it was busy");
}
