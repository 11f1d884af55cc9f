//! Each verb of the command line.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::{fd::AsFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    args::{Arguments, Verb},
    bed::Bed,
    build::{self, Cache},
    cgroup, client,
    control::{Answer, NodeState, Phase, Request, State},
    error::{Error, Result, While},
    image::{Image, Layer},
    lifecycle::{self, Outcome, Wanted},
    machine::{self, tell},
    node,
    supervisor::{self, plan_of},
};

pub fn run(arguments: Arguments) -> Result<()> {
    let bed = arguments.name;
    Bed::check_beds_dir()?;
    match arguments.verb {
        Verb::Up { nodes, ip_family, port } => up(&bed, Wanted { nodes, ip_families: ip_family, port }),
        Verb::Down => down(&bed),
        Verb::Status { json } => status(&bed, json),
        Verb::List => list(),
        Verb::Kubeconfig => kubeconfig(&bed),
        Verb::Kubectl { arguments } => kubectl(&bed, &arguments),
        Verb::Image { archive, reference, program } => image(&archive, reference, &program),
        Verb::LoadImage { archive } => load_image(&bed, &archive),
        Verb::Node { action, number } => ask(&bed, &Request::Node { number, action }),
        Verb::Component { action, component } => {
            ask(&bed, &Request::Component { name: component, start: action == "start" })
        }
        Verb::Exec { node, command } => exec(&bed, node, &command),
        Verb::Logs { component, follow } => logs(&bed, component.as_deref(), follow),
        Verb::Build { component } => build_programs(component.as_deref()),
        Verb::EtcdBinaries => etcd_binaries(),
        Verb::StoreServers => store_servers(),
        Verb::EnterBed => enter_bed(&bed),
        Verb::RunBed => run_bed(bed),
        Verb::RunNode { number } => node::boot(&bed.node(number), &plan_of(&bed)?),
    }
}

fn up(bed: &Bed, wanted: Wanted) -> Result<()> {
    let outcome = lifecycle::up(bed, wanted)?;
    tell(&match outcome {
        Outcome::Started => format!("bed {bed} is ready"),
        Outcome::AlreadyRunning => format!("bed {bed} is running already"),
        Outcome::Repaired => format!("bed {bed} is running again, with all it held"),
    });
    tell(&format!("export KUBECONFIG={}", bed.kubeconfig().display()));
    Ok(())
}

fn down(bed: &Bed) -> Result<()> {
    let existed = lifecycle::down(bed)?;
    tell(&if existed { format!("bed {bed} is gone") } else { format!("there is no bed {bed}") });
    Ok(())
}

fn status(bed: &Bed, json: bool) -> Result<()> {
    let state = client::state(bed)?;
    if json {
        let text = serde_json::to_string_pretty(&state).while_(|| "the state".to_owned())?;
        return print(&format!("{text}\n"));
    }
    let memory = cgroup::working_set(&bed.cgroup())? >> 20;
    print(&table(bed, &state, memory))
}

fn table(bed: &Bed, state: &State, memory: u64) -> String {
    let components = state.components.iter().map(|component| {
        let word = match (component.running, component.restarts) {
            (false, _) => "stopped".to_owned(),
            (true, 0) => "running".to_owned(),
            (true, restarts) => format!("running, {restarts} restarts"),
        };
        (&component.name, word)
    });
    let nodes = state.nodes.iter().map(|node| (&node.name, node_word(node).to_owned()));
    let rows = components.chain(nodes).map(|(name, word)| format!("  {name:<24} {word}\n"));
    format!("bed {bed}: {}, {memory} MiB\n{}", phase_word(state), rows.collect::<String>())
}

fn phase_word(state: &State) -> String {
    match state.phase {
        Phase::Starting => format!("starting, {}", state.step),
        Phase::Ready => "ready".to_owned(),
        Phase::Failed => format!("failed: {}", state.step),
    }
}

fn node_word(node: &NodeState) -> &'static str {
    match (node.running, node.connected, node.ready) {
        (false, _, _) => "off",
        (true, false, _) => "cut off",
        (true, true, Some(true)) => "ready",
        (true, true, Some(false)) => "not ready",
        (true, true, None) => "running, readiness unknown",
    }
}

fn list() -> Result<()> {
    let lines = lifecycle::list().into_iter().map(|(bed, phase)| {
        let phase = phase.map_or("not running", |phase| match phase {
            Phase::Starting => "starting",
            Phase::Ready => "ready",
            Phase::Failed => "failed",
        });
        format!("{:<24} {phase}\n", bed.name())
    });
    print(&lines.collect::<String>())
}

fn kubeconfig(bed: &Bed) -> Result<()> {
    require_running(bed)?;
    print(&format!("{}\n", bed.kubeconfig().display()))
}

fn require_running(bed: &Bed) -> Result<()> {
    if client::is_answering(bed) {
        return Ok(());
    }
    Err(Error::refused(format!("bed {bed} is not running"), "start it with `make up` or `testbed up`"))
}

fn kubectl(bed: &Bed, arguments: &[String]) -> Result<()> {
    require_running(bed)?;
    let mut kubectl = Command::new(plan_of(bed)?.kube);
    kubectl.arg("kubectl").args(arguments).env("KUBECONFIG", bed.kubeconfig());
    // What kubectl remembers of a bed goes with the bed.
    kubectl.env("KUBECACHEDIR", bed.dir().join("kubectl-cache"));
    become_command(kubectl)
}

/// Runs as nobody in particular, and holds nothing but what it is told.
fn image(archive: &Path, reference: String, programs: &[(String, PathBuf)]) -> Result<()> {
    let entrypoint = programs.first().map(|(path, _)| path.clone());
    let image = Image::new(reference).entrypoint(entrypoint).user("65532:65532");
    // A layer each: a change of one program leaves the others as they are.
    let image = programs
        .iter()
        .fold(image, |image, (path, source)| image.layer(Layer::new().file(path.as_str(), source.as_path(), 0o755)));
    let written = image.write(archive)?;
    print(&format!("{}\n", written.digest))
}

fn load_image(bed: &Bed, archive: &Path) -> Result<()> {
    require_running(bed)?;
    let file = archive.file_name().map(|name| name.to_string_lossy().into_owned()).ok_or_else(|| {
        Error::refused(format!("{} is not a file", archive.display()), "name an archive, as `docker save` writes it")
    })?;
    let incoming = bed.incoming_dir().join(&file);
    fs::copy(archive, &incoming).while_(|| format!("copying {}", archive.display()))?;
    let loaded = ask(bed, &Request::LoadImage { file });
    // After a success the supervisor has moved it.
    let _ = fs::remove_file(&incoming);
    loaded
}

fn ask(bed: &Bed, request: &Request) -> Result<()> {
    if let Answer::Done { what } = client::ask(bed, request)? {
        tell(&what);
    }
    Ok(())
}

fn exec(bed: &Bed, node: Option<u8>, command: &[String]) -> Result<()> {
    require_running(bed)?;
    let (cgroup, who) = match node {
        Some(number) => (bed.node(number).system_cgroup(), bed.node(number).name()),
        None => (bed.supervisor_cgroup(), format!("bed {bed}")),
    };
    let inside = cgroup::init_process(&cgroup)?
        .ok_or_else(|| Error::refused(format!("{who} is not running"), "see `testbed status`"))?;
    // So that it ends with the node or the bed it looks into.
    cgroup::join(&cgroup)?;
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["--target", &inside.to_string(), "--net", "--"]).args(command);
    become_command(nsenter)
}

fn logs(bed: &Bed, component: Option<&str>, follow: bool) -> Result<()> {
    let entries = fs::read_dir(bed.logs_dir())
        .map_err(|_| Error::refused(format!("there is no bed {bed}"), "start it with `make up` or `testbed up`"))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".log")?.to_owned()))
        .collect();
    names.sort();
    let Some(component) = component else { return print(&format!("{}\n", names.join("\n"))) };
    if !names.iter().any(|name| name == component) {
        return Err(Error::refused(
            format!("there is no log of {component}"),
            format!("there are {}", names.join(", ")),
        ));
    }
    let mut tail = Command::new("tail");
    tail.args(["-n", "+1"]).args(follow.then_some("-F")).arg(bed.log(component));
    become_command(tail)
}

/// Compiling takes no root; the machine is prepared by whoever has it.
fn build_programs(only: Option<&str>) -> Result<()> {
    let cache = Cache::open()?;
    for component in build::ALL.iter().filter(|component| only.is_none_or(|only| only == component.name)) {
        build::build(component, &cache)?;
    }
    if only.is_none() && machine::require_root().is_ok() {
        machine::prepare()?;
        build::standard_images(&cache)?;
    }
    Ok(())
}

/// A directory with `3.5/etcd`, `3.5/etcdctl` and so on: what tests of the file formats compare with.
fn etcd_binaries() -> Result<()> {
    let cache = Cache::open()?;
    let mut built = Vec::new();
    for component in build::ETCD {
        built.push((component.name.trim_start_matches("etcd-"), build::build(&component, &cache)?));
    }
    print_together(&cache, "etcd-releases", &built)
}

/// A directory with `s3/versitygw` and `azurite/node_modules`.
fn store_servers() -> Result<()> {
    let cache = Cache::open()?;
    let built = [("s3", build::build(&build::S3, &cache)?), ("azurite", build::azurite(&cache)?)];
    print_together(&cache, "store-servers", &built)
}

/// Makes one directory of links to these, and prints it.
fn print_together(cache: &Cache, name: &str, built: &[(&str, PathBuf)]) -> Result<()> {
    let paths: Vec<_> = built.iter().map(|(_, dir)| dir.as_os_str().as_encoded_bytes()).collect();
    let all = cache.get(name, &paths, |dir| {
        built.iter().try_for_each(|(link, target)| {
            std::os::unix::fs::symlink(target, dir.join(link)).while_(|| format!("linking {}", target.display()))
        })
    })?;
    print(&format!("{}\n", all.display()))
}

/// In the cgroup first: from here on `down` finds whatever comes of this process. If `down` was faster, the cgroup is
/// gone and nothing starts.
fn enter_bed(bed: &Bed) -> Result<()> {
    cgroup::join(&bed.supervisor_cgroup())?;
    let mut unshare = Command::new("setsid");
    unshare
        .args(["unshare", "--mount", "--propagation", "private", "--uts", "--ipc", "--net"])
        .args(["--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"])
        .arg(bed.program())
        .args(["--name", bed.name(), "run-bed"]);
    become_command(unshare)
}

fn run_bed(bed: Bed) -> Result<()> {
    let listener = std::io::stdin().as_fd().try_clone_to_owned().while_(|| "taking the listener".to_owned())?;
    let runtime = tokio::runtime::Runtime::new().while_(|| "starting the runtime".to_owned())?;
    runtime.block_on(supervisor::run(bed, TcpListener::from(listener)))
}

/// Replaces this process; returns only if that fails.
fn become_command(mut command: Command) -> Result<()> {
    let line = crate::command::line_of(&command);
    Err(command.exec()).while_(|| format!("starting `{line}`"))
}

fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).while_(|| "writing the answer".to_owned())
}
