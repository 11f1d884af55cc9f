//! Booting, killing and cutting off nodes.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::process::{Child, Command};

use super::{
    network,
    process::{AfterExit, Process},
};
use crate::{
    bed::{Bed, Node, Plan},
    cgroup,
    control::{NodeAction, NodeState},
    error::{Error, Result, While, create_dir},
    ip::IpFamilies,
};

const ENDING: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<(Node, Process)>,
    ctr: PathBuf,
}

impl Nodes {
    pub(super) fn boot(bed: &Bed, plan: &Plan) -> Self {
        let families = plan.ip_families;
        let boot = |number| {
            let node = bed.node(number);
            let booted = node.clone();
            // A node that dies stays dead until somebody starts it, like a machine.
            let process = Process::keep(node.name(), AfterExit::StayDown, move || boot(&booted, families));
            process.start();
            (node, process)
        };
        Nodes { nodes: (1..=plan.nodes).map(boot).collect(), ctr: plan.ctr.clone() }
    }

    pub(super) async fn act(&self, number: u8, action: NodeAction) -> Result<String> {
        let (node, process) = self.nodes.iter().find(|(node, _)| node.number == number).ok_or_else(|| {
            Error::refused(format!("there is no node {number}"), format!("nodes are 1 to {}", self.nodes.len()))
        })?;
        let name = node.name();
        match action {
            NodeAction::Kill => {
                // All of it, and its init first: whoever asked may look at once.
                tokio::task::block_in_place(|| cgroup::kill_all(&node.cgroup(), ENDING))?;
                process.want(false).await?;
            }
            NodeAction::Start => process.want(true).await?,
            NodeAction::Cut | NodeAction::Heal if !process.is_running() => {
                return Err(Error::refused(format!("{name} is off"), format!("`testbed node start {number}` first")));
            }
            NodeAction::Cut => network::connect(node, false)?,
            NodeAction::Heal => network::connect(node, true)?,
        }
        Ok(match action {
            NodeAction::Kill => format!("{name} is off"),
            NodeAction::Start => format!("{name} is booting"),
            NodeAction::Cut => format!("{name} is cut off"),
            NodeAction::Heal => format!("{name} is connected"),
        })
    }

    pub(super) fn states(&self) -> Vec<NodeState> {
        let state = |(node, process): &(Node, Process)| NodeState {
            name: node.name(),
            running: process.is_running(),
            connected: network::is_connected(node),
            ready: None,
        };
        self.nodes.iter().map(state).collect()
    }

    /// Waits until every node that runs has loaded all images.
    pub(super) async fn images_loaded(&self) {
        let loaded = |(node, process): &(Node, Process)| !process.is_running() || node.images_loaded_file().exists();
        while !self.nodes.iter().all(loaded) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Loads an image archive into every running node.
    pub(super) async fn load_image(&self, archive: &Path) -> Result<String> {
        let mut names = Vec::new();
        for (node, _) in self.nodes.iter().filter(|(_, process)| process.is_running()) {
            let inside = cgroup::init_process(&node.system_cgroup())?
                .ok_or_else(|| Error::refused(format!("{} is still booting", node.name()), "try again in a moment"))?;
            let mut import = Command::new("nsenter");
            import.stdin(Stdio::null()).args(["--target", &inside.to_string(), "--mount", "--net", "--"]);
            import.arg(&self.ctr).args(["-n", "k8s.io", "images", "import"]).arg(archive);
            let said = import.output().await.while_(|| format!("loading an image into {}", node.name()))?;
            if !said.status.success() {
                let output = String::from_utf8_lossy(&said.stderr).trim().to_owned();
                return Err(Error::Command { command: format!("ctr images import on {}", node.name()), output });
            }
            names.push(node.name());
        }
        if names.is_empty() {
            return Err(Error::refused("no node is running", "`testbed node start 1` first"));
        }
        Ok(format!("loaded into {}", names.join(", ")))
    }
}

/// A node is this program as the first process of its own namespaces. Mounts of the bed (volumes) reach it, its own
/// stay with it.
fn boot(node: &Node, families: IpFamilies) -> Result<Child> {
    create_dir(&node.dir())?;
    // Before anybody can wait for it: the last boot's does not count.
    let _ = fs::remove_file(node.images_loaded_file());
    let log_file = node.log("init");
    let log = File::options().create(true).append(true).open(&log_file);
    let log = log.while_(|| format!("opening {}", log_file.display()))?;
    let errors = log.try_clone().while_(|| format!("opening {}", log_file.display()))?;
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--mount", "--propagation", "slave", "--uts", "--ipc", "--net"])
        .args(["--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"])
        .arg(node.bed.program())
        .args(["--name", node.bed.name(), "run-node", &node.number.to_string()])
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .kill_on_drop(true);
    let mut child = unshare.spawn().while_(|| format!("booting {}", node.name()))?;
    if let Some(pid) = child.id()
        && let Err(error) = network::plug_in(node, families, pid)
    {
        let _ = child.start_kill();
        return Err(error);
    }
    Ok(child)
}
