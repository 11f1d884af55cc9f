//! From nothing to a bed and back.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use crate::{
    bed::{Bed, Plan},
    build::{self, Cache, Progress},
    cgroup, client,
    command::search_path,
    control::{NodeAction, Phase, Request},
    error::{Error, Result, While, create_dir, read_file, write_file},
    ip::IpFamilies,
    machine::{self, tell},
    supervisor::plan_of,
};

const ANSWERING: Duration = Duration::from_secs(20);
const ENDING: Duration = Duration::from_secs(20);

/// What `up` was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub nodes: Option<u8>,
    pub ip_families: Option<IpFamilies>,
    /// Of the API server on the host's loopback; any free one unless given.
    pub port: Option<u16>,
}

const DEFAULT_NODES: u8 = 3;

/// What a bed's processes get to see of the caller's environment.
const ENVIRONMENT: [&str; 5] = ["HOME", "LANG", "QUORATE_TESTBED_DIR", "RUST_BACKTRACE", "SUDO_UID"];

/// How `up` found the bed, which is what it did about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Started,
    AlreadyRunning,
    /// It was running once and its state was kept.
    Repaired,
}

/// Brings a bed up, whatever state it was in. Returns when it can be used.
pub fn up(bed: &Bed, wanted: Wanted) -> Result<Outcome> {
    let programs = machine::prepare()?;
    if is_running(bed)? {
        return rejoin(bed, wanted);
    }
    let cache = Cache::open()?;
    let kube = build::build(&build::KUBE, &cache)?.join("kube");
    let coredns = build::build(&build::COREDNS, &cache)?.join("coredns");
    let etcd = build::build(&build::DEFAULT_ETCD, &cache)?.join("etcd");
    let images = build::standard_images(&cache)?;

    let progress = Progress::begin(format!("starting bed {bed}"), None);
    let lock = Lock::take(bed)?;
    if is_running(bed)? {
        return rejoin(bed, wanted);
    }
    let kept = kept_plan(bed)?;
    if kept.is_none() {
        // Never complete: whatever is there is worth nothing and may be half-made.
        remove_all(bed)?;
    } else {
        cgroup::kill_all(&bed.cgroup(), ENDING)?;
    }
    if let Some(plan) = &kept {
        wanted.require_same(bed, plan)?;
    }
    let nodes = kept.as_ref().map(|plan| plan.nodes).or(wanted.nodes).unwrap_or(DEFAULT_NODES);
    let ip_families = kept.as_ref().map(|plan| plan.ip_families).or(wanted.ip_families).unwrap_or_default();
    let listener = listen(wanted.port, kept.as_ref().map(|plan| plan.port))?;
    let port = listener.local_addr().while_(|| "reading the listener's address".to_owned())?.port();
    let machine::Programs { containerd, ctr, cni_plugins } = programs;
    let plan = Plan { nodes, ip_families, port, kube, etcd, coredns, containerd, ctr, cni_plugins, images };
    let mut child = launch(bed, &plan, listener)?;
    wait_for_answers(bed, &mut child)?;
    drop(lock);
    client::follow(bed, |state| progress.note(&state.step))?;
    progress.done();
    Ok(if kept.is_some() { Outcome::Repaired } else { Outcome::Started })
}

/// The bed runs already: wait until it is ready, and switch on nodes that are off.
fn rejoin(bed: &Bed, wanted: Wanted) -> Result<Outcome> {
    wanted.require_same(bed, &plan_of(bed)?)?;
    client::follow(bed, |_| {})?;
    for (number, node) in (1..).zip(client::state(bed)?.nodes) {
        if !node.running {
            tell(&format!("{} was off", node.name));
            client::ask(bed, &Request::Node { number, action: NodeAction::Start })?;
        }
    }
    Ok(Outcome::AlreadyRunning)
}

impl Wanted {
    /// What a bed was made with stays.
    fn require_same(self, bed: &Bed, plan: &Plan) -> Result<()> {
        let other = |what: String| {
            let next = "`testbed down` first to change that, or use another --name";
            Err(Error::refused(format!("bed {bed} has {what}"), next))
        };
        if self.nodes.is_some_and(|nodes| nodes != plan.nodes) {
            return other(format!("{} nodes", plan.nodes));
        }
        if self.ip_families.is_some_and(|families| families != plan.ip_families) {
            return other(format!("addresses of {}", plan.ip_families));
        }
        Ok(())
    }
}

/// Removes a bed with all it holds, whatever state it is in. Nothing to remove is fine.
pub fn down(bed: &Bed) -> Result<bool> {
    machine::require_root()?;
    let existed = bed.dir().exists() || !cgroup::processes(&bed.cgroup())?.is_empty();
    let lock = Lock::take(bed)?;
    remove_all(bed)?;
    lock.remove();
    // Gone with the last bed.
    let _ = fs::remove_dir(Bed::beds_dir());
    Ok(existed)
}

fn remove_all(bed: &Bed) -> Result<()> {
    cgroup::kill_all(&bed.cgroup(), ENDING)?;
    wait_for_loop_devices(bed)?;
    cgroup::remove(&bed.cgroup(), ENDING)?;
    refuse_other_directories(bed)?;
    refuse_mounts_below(&bed.dir())?;
    match fs::remove_dir_all(bed.dir()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).while_(|| format!("removing {}", bed.dir().display()))
        }
        _ => Ok(()),
    }
}

/// Whether a bed is there that can be joined. One that gave up starting is started again instead.
pub fn is_running(bed: &Bed) -> Result<bool> {
    if cgroup::init_process(&bed.supervisor_cgroup())?.is_none() || !client::is_answering(bed) {
        return Ok(false);
    }
    Ok(client::state(bed).map_or(true, |state| state.phase != Phase::Failed))
}

/// The plan of a bed that was complete once, whose state is worth keeping.
fn kept_plan(bed: &Bed) -> Result<Option<Plan>> {
    if !bed.complete_file().exists() {
        return Ok(None);
    }
    plan_of(bed).map(Some).map_err(|error| {
        Error::refused(
            format!("bed {bed} holds objects and volumes, but its plan cannot be read: {error}"),
            "`testbed down` discards it all",
        )
    })
}

/// A port that was printed once keeps its meaning where possible.
fn listen(asked: Option<u16>, before: Option<u16>) -> Result<TcpListener> {
    let open = |port| TcpListener::bind(("127.0.0.1", port));
    if let Some(port) = asked {
        return open(port).map_err(|error| {
            Error::refused(
                format!("port {port} cannot be used: {error}"),
                "choose another --port, or none for any free one",
            )
        });
    }
    let again = before.and_then(|port| open(port).ok());
    again.map_or_else(|| open(0), Ok).while_(|| "opening a port on the loopback".to_owned())
}

fn launch(bed: &Bed, plan: &Plan, listener: TcpListener) -> Result<Child> {
    write_file(&bed.marker_file(), "")?;
    for dir in [bed.logs_dir(), bed.images_dir(), bed.incoming_dir()] {
        create_dir(&dir)?;
    }
    let plan = serde_json::to_string_pretty(plan).while_(|| "the plan".to_owned())?;
    // Whole or not at all: a torn plan would make a bed worth keeping unreadable.
    let unfinished = bed.plan_file().with_extension("part");
    write_file(&unfinished, plan)?;
    fs::rename(&unfinished, bed.plan_file()).while_(|| format!("writing {}", bed.plan_file().display()))?;
    copy_program(bed)?;
    cgroup::create(&bed.supervisor_cgroup())?;
    let path = bed.log("supervisor");
    let log = File::options().create(true).append(true).open(&path);
    let log = log.while_(|| format!("opening {}", path.display()))?;
    let errors = log.try_clone().while_(|| format!("opening {}", path.display()))?;
    // The caller's proxies and secrets are none of the bed's business.
    let passed_on = std::env::vars_os().filter(|(name, _)| ENVIRONMENT.iter().any(|known| name == known));
    Command::new(bed.program())
        .env_clear()
        .envs(passed_on)
        .env("PATH", search_path())
        .args(["--name", bed.name(), "enter-bed"])
        .current_dir("/")
        // The listener travels as standard input: the one descriptor that survives every exec on the way.
        .stdin(OwnedFd::from(listener))
        .stdout(log)
        .stderr(errors)
        .spawn()
        .while_(|| "starting the supervisor".to_owned())
}

fn copy_program(bed: &Bed) -> Result<()> {
    let own = std::env::current_exe().while_(|| "finding this program".to_owned())?;
    let (program, unfinished) = (bed.program(), bed.program().with_extension("part"));
    create_dir(program.parent().unwrap_or(&program))?;
    let copy = || fs::copy(&own, &unfinished).and_then(|_| fs::rename(&unfinished, &program));
    copy().while_(|| format!("copying {} to {}", own.display(), program.display()))
}

fn wait_for_answers(bed: &Bed, supervisor: &mut Child) -> Result<()> {
    let deadline = Instant::now() + ANSWERING;
    while !client::is_answering(bed) {
        let ended = supervisor.try_wait().while_(|| "looking at the supervisor".to_owned())?;
        if ended.is_some() || Instant::now() > deadline {
            let log = read_file(&bed.log("supervisor")).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it said nothing");
            return Err(Error::refused(
                format!("the supervisor of bed {bed} did not start: {last}"),
                "see `testbed logs supervisor`",
            ));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Loop devices go when the last mount namespace that used them is taken down, a moment after the last process.
fn wait_for_loop_devices(bed: &Bed) -> Result<()> {
    let ours = format!("{}/", bed.volumes_dir().display());
    let deadline = Instant::now() + ENDING;
    loop {
        let busy: Vec<_> = loop_devices().into_iter().filter(|(_, file)| file.starts_with(&ours)).collect();
        let Some((device, file)) = busy.first() else { return Ok(()) };
        if Instant::now() > deadline {
            return Err(Error::refused(
                format!("{device} still holds {file}"),
                format!("`losetup --detach {device}`, then `testbed down` again"),
            ));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn loop_devices() -> Vec<(String, String)> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices
        .filter_map(|device| {
            let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
            Some((format!("/dev/{}", device.file_name().display()), file.trim().to_owned()))
        })
        .collect()
}

/// What was not made as a bed is not removed as one.
fn refuse_other_directories(bed: &Bed) -> Result<()> {
    let dir = bed.dir();
    let holds_something = fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some());
    if holds_something && !bed.marker_file().exists() {
        return Err(Error::refused(
            format!("{} is not a bed", dir.display()),
            "choose another --name, or move that directory away",
        ));
    }
    Ok(())
}

/// A bed mounts nothing in the host's namespace; if somebody else did, removing the tree would empty their file system.
fn refuse_mounts_below(dir: &Path) -> Result<()> {
    let prefix = format!("{}/", dir.display());
    let mounts = read_file(Path::new("/proc/self/mounts"))?;
    match mounts.lines().filter_map(|line| line.split(' ').nth(1)).find(|point| point.starts_with(&prefix)) {
        None => Ok(()),
        Some(point) => Err(Error::refused(
            format!("{point} is mounted inside the bed's directory"),
            format!("`umount {point}`, then `testbed down` again"),
        )),
    }
}

/// One `up` or `down` of a bed at a time.
struct Lock {
    path: std::path::PathBuf,
    _file: File,
}

impl Lock {
    fn take(bed: &Bed) -> Result<Self> {
        let path = bed.lock_file();
        loop {
            create_dir(&Bed::beds_dir())?;
            let file = match File::create(&path) {
                // The directory went with the last bed, right now.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                file => file.while_(|| format!("creating {}", path.display()))?,
            };
            if file.try_lock().is_err() {
                tell(&format!("another testbed command works on bed {bed}: waiting for it"));
                file.lock().while_(|| format!("waiting for {}", path.display()))?;
            }
            // Whoever held it before may have removed the file; a lock on a removed file protects nothing.
            let same = |a: fs::Metadata, b: fs::Metadata| a.ino() == b.ino();
            if let (Ok(held), Ok(named)) = (file.metadata(), fs::metadata(&path))
                && same(held, named)
            {
                return Ok(Lock { path, _file: file });
            }
        }
    }

    fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// All beds of this machine, by directory, with what each is doing.
pub fn list() -> Vec<(Bed, Option<Phase>)> {
    let entries = fs::read_dir(Bed::beds_dir()).into_iter().flatten().flatten();
    let mut beds: Vec<Bed> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    beds.sort_by(|a, b| a.name().cmp(b.name()));
    beds.into_iter().map(|bed| (bed.clone(), client::state(&bed).ok().map(|state| state.phase))).collect()
}
