//! The life of the process: probes from the start, passes while it leads, an orderly end.

use std::time::Duration;

use anyhow::Context;
use kube::Client;
use kube::client::ClientBuilder;
use quorate_core::election::Terms;
use quorate_runtime::election::{Claim, Election};
use quorate_runtime::kubernetes;
use quorate_runtime::listen::listen;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::caches::Caches;
use crate::cluster_domain::RESOLV_CONF;
use crate::controller::Operator;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::probes::{self, Readiness};
use crate::writes::{CRASH_VARIABLE, CrashPoint, Writes};

/// How long passes may take to finish at the end; Kubernetes waits for 30 s.
const FAREWELL: Duration = Duration::from_secs(20);

/// Name of the Lease that the acting replica holds, and how long a dead one keeps the others waiting.
const LEASE: &str = "quorate-operator";
const TERMS: Terms = Terms::of_seconds(12);

/// When a connection counts as dead, also under the first list of a watch, which has no limit of its own. Longer than the
/// API server keeps a watch open without a word.
const LONGEST_SILENCE: Duration = Duration::from_secs(310);

/// Runs until told to stop, or until the right to act is lost.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let (stop_sender, stop) = watch::channel(false);
    let metrics = Metrics::new();
    let readiness = Readiness::default();
    let listener =
        listen(options.http_port).await.with_context(|| format!("cannot listen on port {}", options.http_port))?;
    let probes = tokio::spawn(probes::serve(listener, metrics.clone(), readiness.clone(), stopped(stop.clone())));

    let user_agent = concat!("quorate-operator/", env!("CARGO_PKG_VERSION"));
    let mut config = kubernetes::config(user_agent).await.context("cannot find a Kubernetes API server")?;
    config.read_timeout = Some(LONGEST_SILENCE);
    config.reset_reader_on_write = true;
    let crash = std::env::var(CRASH_VARIABLE).ok().map(|text| text.parse::<CrashPoint>()).transpose()?;
    let writes = Writes::new(metrics.clone(), crash);
    let client = ClientBuilder::try_from(config.clone())?.with_layer(&writes).build();
    let identity = options.identity.clone().unwrap_or_else(host_and_process);

    // The election outlives the passes: while they finish, nobody else may begin.
    let (release_sender, release) = watch::channel(false);
    let (mut claim, election) = if options.leader_election {
        // Its client is one that no test makes die: renewals come by the clock.
        let client = Client::try_from(config)?;
        let namespace = &options.leader_election_namespace;
        let (election, claim) = Election::new(client, namespace, LEASE, identity.clone(), TERMS);
        (claim, Some(tokio::spawn(election.run(stopped(release)))))
    } else {
        (Claim::always(), None)
    };

    readiness.set(true);
    tracing::info!(identity, version = env!("CARGO_PKG_VERSION"), "started");
    let signal = tokio::spawn(on_signal(stop_sender.clone()));
    let mut result = Ok(());
    tokio::select! {
        () = claim.held() => result = lead(&options, &client, &claim, identity, &writes, &readiness, stop.clone()).await,
        () = stopped(stop.clone()) => {}
    }
    stop_sender.send_replace(true);
    release_sender.send_replace(true);
    if let Some(election) = election
        && election.await.is_err()
    {
        result = result.and(Err(anyhow::anyhow!("the election was aborted")));
    }
    probes.await.context("the probes were aborted")?.context("the probes failed")?;
    signal.abort();
    tracing::info!("stopped");
    result
}

/// Works until it is told to stop. Losing the claim ends the process: what it holds in memory is then of no use, and its
/// next life begins as a standby.
async fn lead(
    options: &Options,
    client: &Client,
    claim: &Claim,
    identity: String,
    writes: &Writes,
    readiness: &Readiness,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let metrics = &writes.metrics;
    tracing::info!(identity, fencing_number = claim.fencing_number(), "leading");
    metrics.leading.set(1);
    readiness.set(false);
    let platform = options.platform(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default());
    if platform.is_domain_assumed {
        tracing::warn!(
            assumed = platform.cluster_domain,
            "the DNS domain of this Kubernetes cluster is not in {RESOLV_CONF}; if it is another one, say so with --cluster-domain"
        );
    }
    let events = Events::start(client.clone(), identity);
    let mut workers = JoinSet::new();
    let mut all_caches = Vec::new();
    for namespace in options.scopes() {
        let (caches, wakes) = Caches::watch(client, namespace.as_deref());
        all_caches.push(caches.clone());
        let operator =
            Operator::new(client.clone(), caches, platform.clone(), claim.clone(), events.clone(), writes.clone());
        workers.spawn(operator.run(wakes, stopped(stop.clone())));
    }
    let readiness = readiness.clone();
    tokio::spawn(async move {
        for caches in all_caches {
            if caches.filled().await.is_err() {
                return;
            }
        }
        readiness.set(true);
    });
    let mut lost = claim.clone();
    let all_done = async { while workers.join_next().await.is_some() {} };
    tokio::pin!(all_done);
    let result = tokio::select! {
        () = &mut all_done => Err(anyhow::anyhow!("all watches have ended")),
        () = lost.lost() => Err(anyhow::anyhow!("the Lease of the leader was lost; starting anew as a standby")),
        () = stopped(stop.clone()) => {
            if tokio::time::timeout(FAREWELL, all_done).await.is_err() {
                tracing::warn!("passes did not finish in time");
            }
            Ok(())
        }
    };
    metrics.leading.set(0);
    if *stop.borrow() { Ok(()) } else { result }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // A sender that is gone will never say go on.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn on_signal(stop: watch::Sender<bool>) {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    tracing::info!("told to stop");
    stop.send_replace(true);
}

fn host_and_process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}-{}", host.trim(), std::process::id())
}
