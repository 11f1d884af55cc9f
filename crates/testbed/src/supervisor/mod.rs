//! The first process of a bed: it makes the network, runs the control plane, boots the nodes, serves volumes, and
//! answers questions. When it ends, the kernel ends the rest of the bed.

mod api;
mod control_plane;
mod forward;
mod network;
mod nodes;
mod process;
mod server;

use std::{net::TcpListener, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{
    bed::{Bed, Plan},
    command::sh,
    control::{Phase, State},
    error::{Error, Result, While, read_file, write_file},
    machine::tell,
    pki, volumes,
};
use nodes::Nodes;
use process::Process;

/// How long each stage may take before the bed is declared failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// Reads what `up` decided for this bed.
pub fn plan_of(bed: &Bed) -> Result<Plan> {
    serde_json::from_str(&read_file(&bed.plan_file())?).while_(|| bed.plan_file().display().to_string())
}

#[derive(Debug)]
struct Supervisor {
    bed: Bed,
    plan: Plan,
    started: Timestamp,
    state: watch::Sender<State>,
    components: Vec<Process>,
    nodes: Nodes,
}

/// Runs a bed until this process is killed. `host_listener` was opened in the host's network namespace.
pub async fn run(bed: Bed, host_listener: TcpListener) -> Result<()> {
    let started = Timestamp::now();
    let plan = plan_of(&bed)?;
    sh("mount --make-rshared /")?;
    let name = format!("testbed-{bed}");
    rustix::system::sethostname(name.as_bytes()).while_(|| "setting the host name".to_owned())?;
    network::make(plan.ip_families)?;
    pki::ensure(&bed, &plan)?;
    pki::write_host_kubeconfig(&bed, plan.port)?;
    volumes::mount_existing(&bed)?;

    // The last run's does not count.
    let _ = std::fs::remove_file(bed.api_served_file());
    let components = control_plane::start(&bed, &plan)?;
    let nodes = Nodes::boot(&bed, &plan);
    let state = watch::Sender::new(State::default());
    let families = plan.ip_families;
    let supervisor = Arc::new(Supervisor { bed, plan, started, state, components, nodes });
    tokio::spawn(forward::run(host_listener, families)?);
    let answering = server::listen(supervisor.clone())?;

    if let Err(error) = supervisor.complete().await {
        supervisor.report(Phase::Failed, &error.to_string());
    }
    // When the machine shuts down it asks first; the first process of a namespace hears only what it listens for.
    let mut asked_to_stop = signal(SignalKind::terminate()).while_(|| "listening for signals".to_owned())?;
    tokio::select! {
        ended = answering => ended.map_err(std::io::Error::from).while_(|| "answering requests".to_owned()),
        _ = asked_to_stop.recv() => Ok(()),
    }
}

impl Supervisor {
    /// From running processes to a cluster that can be used.
    async fn complete(&self) -> Result<()> {
        self.report(Phase::Starting, "waiting for the API server");
        let admin = api::connect(&self.bed, "admin").await?;
        within("the API server", api::ready(&admin)).await?;
        write_file(&self.bed.api_served_file(), "")?;
        self.components.iter().for_each(Process::start);
        api::apply_manifests(&admin).await?;
        tokio::spawn(volumes::provision(self.bed.clone(), api::connect(&self.bed, "volumes").await?));
        self.report(Phase::Starting, "waiting for the nodes");
        within("the nodes", api::nodes_ready(&admin, self.plan.nodes, self.started)).await?;
        self.report(Phase::Starting, "all nodes are ready; waiting for images, accounts and DNS");
        within("the nodes' images", self.nodes.images_loaded()).await?;
        within("the default service account", api::default_account(&admin)).await?;
        within("DNS", api::dns_answers(self.plan.ip_families)).await?;
        write_file(&self.bed.complete_file(), "")?;
        self.report(Phase::Ready, "ready");
        Ok(())
    }

    fn report(&self, phase: Phase, step: &str) {
        let since_start = Timestamp::now().duration_since(self.started);
        tell(&format!("{:.1} s: {step}", since_start.as_secs_f64()));
        self.state.send_modify(|state| {
            state.phase = phase;
            step.clone_into(&mut state.step);
        });
    }

    /// All that is known at this moment.
    async fn state(&self) -> State {
        let mut state = self.state.borrow().clone();
        state.components = self.components.iter().map(Process::state).collect();
        state.nodes = self.nodes.states();
        let readiness = async { api::readiness(&api::connect(&self.bed, "admin").await?).await };
        if let Ok(Ok(ready)) = tokio::time::timeout(Duration::from_secs(2), readiness).await {
            for node in &mut state.nodes {
                node.ready = ready.get(&node.name).copied();
            }
        }
        state
    }
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(PATIENCE, work).await.map_err(|_| {
        Error::refused(format!("{what} did not become ready within {} s", PATIENCE.as_secs()), "look at `testbed logs`")
    })
}
