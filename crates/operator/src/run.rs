//! The life of the process: probes from the start, passes while it leads, an orderly end.

use std::time::Duration;

use anyhow::Context;
use http::{HeaderValue, header::USER_AGENT};
use kube::client::ClientBuilder;
use kube::{Client, Config};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::caches::Caches;
use crate::controller::Operator;
use crate::election::{Claim, Election};
use crate::events::Events;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::probes::{self, Readiness};
use crate::writes::{CRASH_VARIABLE, CrashPoint, WriteLayer};

/// How long passes may take to finish at the end; Kubernetes waits for 30 s.
const FAREWELL: Duration = Duration::from_secs(20);

/// When a connection counts as dead, also under the first list of a watch, which has no limit of its own. Longer than the
/// API server keeps a watch open without a word.
const LONGEST_SILENCE: Duration = Duration::from_secs(310);

/// Runs until told to stop, or until the right to act is lost.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let (stop_sender, stop) = watch::channel(false);
    let metrics = Metrics::new();
    let readiness = Readiness::default();
    let listener = probes::listen(options.http_port)
        .await
        .with_context(|| format!("cannot listen on port {}", options.http_port))?;
    let probes = tokio::spawn(probes::serve(listener, metrics.clone(), readiness.clone(), stopped(stop.clone())));

    let mut config = Config::infer().await.context("cannot find a Kubernetes API server")?;
    config.read_timeout = Some(LONGEST_SILENCE);
    config.reset_reader_on_write = true;
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(concat!("quorate-operator/", env!("CARGO_PKG_VERSION")))));
    let crash = std::env::var(CRASH_VARIABLE).ok().map(|text| text.parse::<CrashPoint>()).transpose()?;
    let counted = WriteLayer::new(metrics.clone(), crash);
    let client = ClientBuilder::try_from(config.clone())?.with_layer(&counted).build();
    let identity = options.identity.clone().unwrap_or_else(host_and_process);

    // The election outlives the passes: while they finish, nobody else may begin.
    let (release_sender, release) = watch::channel(false);
    let (mut claim, election) = if options.leader_election {
        let (election, claim) =
            Election::new(Client::try_from(config)?, &options.leader_election_namespace, identity.clone());
        (claim, Some(tokio::spawn(election.run(stopped(release)))))
    } else {
        (Claim::always(), None)
    };

    readiness.set(true);
    tracing::info!(identity, version = env!("CARGO_PKG_VERSION"), "started");
    let signal = tokio::spawn(on_signal(stop_sender.clone()));
    let mut result = Ok(());
    tokio::select! {
        () = claim.held() => result = lead(&options, &client, &claim, identity, &metrics, &readiness, stop.clone()).await,
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
    metrics: &Metrics,
    readiness: &Readiness,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    tracing::info!(identity, "leading");
    metrics.leading.set(1);
    readiness.set(false);
    let events = Events::start(client.clone(), identity);
    let mut workers = JoinSet::new();
    let mut all_caches = Vec::new();
    for namespace in options.scopes() {
        let (caches, wakes) = Caches::watch(client, namespace.as_deref());
        all_caches.push(caches.clone());
        let operator =
            Operator::new(client.clone(), caches, options.platform(), claim.clone(), events.clone(), metrics.clone());
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
