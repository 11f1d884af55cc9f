//! One pass per cluster and wake: observe, decide, act.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::controller::{self, Action as Requeue};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{applier, watcher};
use quorate_api::EtcdCluster;
use quorate_core::view::Platform;
use quorate_core::{ClusterIdentity, Decision, Effect, View, decide};
use quorate_runtime::election::Claim;
use quorate_runtime::error::chain;

use crate::act::Actor;
use crate::caches::{Caches, GuardedCluster, Wakes};
use crate::error::Error;
use crate::etcd::EtcdClients;
use crate::events::Events;
use crate::hashing::Hashing;
use crate::malformed;
use crate::metrics::{ErrorLabels, Metrics, OutcomeLabels, ReasonLabels};
use crate::nodes::Nodes;
use crate::observe::{self, Sources, Whereabouts};
use crate::refusals::Refusals;
use crate::rest::Resting;
use crate::secrets::Certificates;
use crate::wake::ClusterRef;
use crate::writes::Writes;

const CONCURRENCY: u16 = 16;
/// Gathers the events of one change, and lets our own writes come back before the next pass.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Somebody else was faster: look again soon.
const AFTER_CONFLICT: Duration = Duration::from_millis(200);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_mins(1);
/// Each request has its own limit; this is for all of them together.
const LONGEST_PASS: Duration = Duration::from_mins(1);
/// Secrets are not watched, so they are looked at now and then.
const LONGEST_REST: SignedDuration = SignedDuration::from_secs(60);
/// A requeue for a moment in the past, or right now, would spin.
const SOONEST: Duration = Duration::from_millis(100);

/// Everything that a pass needs.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Operator {
    pub client: Client,
    pub caches: Caches,
    pub platform: Platform,
    pub claim: Claim,
    pub events: Events,
    pub metrics: Metrics,
    writes: Writes,
    certificates: Certificates,
    etcd: Arc<EtcdClients>,
    hashing: Hashing,
    nodes: Nodes,
    refusals: Refusals,
    resting: Resting,
    failures: Mutex<HashMap<ObjectRef<GuardedCluster>, Failures>>,
}

/// Passes of a cluster that have failed in a row.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    /// When a member falls silent unless it renews its Lease. Clients are led away from it however badly the rest goes.
    silence: Option<Duration>,
}

impl Operator {
    pub fn new(
        client: Client,
        caches: Caches,
        platform: Platform,
        claim: Claim,
        events: Events,
        writes: Writes,
    ) -> Self {
        Self {
            client,
            caches,
            platform,
            claim,
            events,
            metrics: writes.metrics.clone(),
            writes,
            certificates: Certificates::default(),
            etcd: Arc::default(),
            hashing: Hashing::default(),
            nodes: Nodes::default(),
            refusals: Refusals::default(),
            resting: Resting::default(),
            failures: Mutex::default(),
        }
    }

    /// Works until `stop`, and then finishes the passes that have begun.
    pub async fn run(self, wakes: Wakes, stop: impl Future<Output = ()> + Send + 'static) {
        let store = self.caches.clusters.clone();
        let config = controller::Config::default().concurrency(CONCURRENCY).debounce(DEBOUNCE);
        let passes = applier(
            // Each pass is a task of its own, so that they use all cores.
            |object, operator| spawned(pass(object, operator)).boxed(),
            after_error,
            Arc::new(self),
            store,
            wakes.take_until(Box::pin(stop)),
            config,
        );
        passes.for_each(|result| async move { log(&result) }).await;
    }

    fn sources(&self) -> Sources<'_> {
        Sources {
            client: &self.client,
            renewals: &self.caches.renewals,
            certificates: &self.certificates,
            etcd: &self.etcd,
            hashing: &self.hashing,
            nodes: &self.nodes,
        }
    }

    fn lock_failures(&self) -> std::sync::MutexGuard<'_, HashMap<ObjectRef<GuardedCluster>, Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn spawned(pass: impl Future<Output = Result<Requeue, Error>> + Send + 'static) -> Result<Requeue, Error> {
    tokio::spawn(pass).await.unwrap_or(Err(Error::PassDied))
}

type Outcome = Result<(ObjectRef<GuardedCluster>, Requeue), controller::Error<Error, watcher::Error>>;

fn log(result: &Outcome) {
    match result {
        // The objects of a deleted cluster are heard of after it is gone.
        Ok(_) | Err(controller::Error::ObjectNotFound(_)) => {}
        Err(controller::Error::ReconcilerFailed(error, cluster)) if error.is_expected() => {
            tracing::debug!(cluster = cluster.name, error = chain(error), "looking again");
        }
        Err(controller::Error::ReconcilerFailed(error, cluster)) => {
            tracing::warn!(
                cluster = cluster.name,
                namespace = cluster.namespace,
                error = chain(error),
                "a pass failed"
            );
        }
        Err(error) => tracing::warn!(error = chain(error), "a watch failed and is tried again"),
    }
}

/// What a pass has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Settled,
    Acted,
    /// etcd does not take a change yet.
    Waiting,
}

async fn pass(object: Arc<GuardedCluster>, operator: Arc<Operator>) -> Result<Requeue, Error> {
    let started = tokio::time::Instant::now();
    let result = match &object.0 {
        Ok(cluster) => in_time(Box::pin(reconcile(cluster, &operator))).await,
        Err(InvalidObject { error, metadata }) => malformed::report(&operator.client, &operator.claim, metadata, error)
            .await
            .map(|changed| (if changed { Came::Acted } else { Came::Settled }, LAST_RETRY)),
    };
    operator.metrics.reconcile_seconds.observe(started.elapsed().as_secs_f64());
    let outcome = match &result {
        Ok((Came::Settled, _)) => "settled",
        Ok((Came::Acted, _)) => "acted",
        Ok((Came::Waiting, _)) => "waiting",
        Err(_) => "failed",
    };
    operator.metrics.reconciles.get_or_create(&OutcomeLabels { outcome }).inc();
    match result {
        Ok((_, requeue)) => {
            operator.lock_failures().remove(&ObjectRef::from_obj(&*object));
            Ok(Requeue::requeue(requeue))
        }
        Err(error) => {
            operator.metrics.errors.get_or_create(&ErrorLabels { kind: error.kind() }).inc();
            Err(error)
        }
    }
}

/// A pass that hangs would be the last of its cluster: there is only one at a time.
async fn in_time<T>(pass: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = Error::Deadline { what: "finish a pass".to_owned(), limit: LONGEST_PASS };
    tokio::time::timeout(LONGEST_PASS, pass).await.unwrap_or(Err(late))
}

/// Returns what it has come to, and when to look again.
async fn reconcile(cluster: &EtcdCluster, operator: &Operator) -> Result<(Came, Duration), Error> {
    operator.caches.filled().await?;
    let identity = ClusterIdentity::of(&cluster.metadata)?;
    let itself = ClusterRef { namespace: identity.namespace().to_owned(), name: identity.name().to_owned() };
    // Counted before anything is read: what is told meanwhile is news.
    let news = operator.caches.news.count(&itself);
    if let Some(left) = operator.resting.left(&itself, news, &operator.caches.renewals, Timestamp::now()) {
        return Ok((Came::Settled, wait(left)));
    }
    operator.resting.end(&itself);
    // Most wakes change nothing. That can be told from the caches alone: whatever they have not heard of yet will wake
    // us again.
    let mut view = observe::cached(&operator.caches, cluster.clone(), operator.platform.clone())?;
    operator.certificates.add_remembered(&mut view);
    view.refusal = operator.refusals.last(identity.uid());
    let decision = loop {
        let decision = decide(&view, Timestamp::now());
        if decision.reads.is_empty() {
            break decision;
        }
        if observe::read(&operator.sources(), &mut view, &decision.reads).await? == Whereabouts::Gone {
            operator.certificates.forget(&itself.namespace, &itself.name);
            operator.caches.news.forget(&itself);
            operator.refusals.forget(identity.uid());
            return Ok((Came::Settled, LAST_RETRY));
        }
    };
    if decision.is_settled() {
        operator.refusals.forget(identity.uid());
        operator.resting.begin(itself, news, &decision, LONGEST_REST, Timestamp::now());
        return Ok((Came::Settled, wait(decision.requeue)));
    }
    let result = act(&view, &decision, operator).await;
    operator.refusals.note(identity.uid(), &result);
    let came = came_of(result, &view.identity);
    if came.is_err() {
        let silence = (decision.requeue < decision.rest).then(|| wait(decision.requeue));
        let cluster = ObjectRef::new(identity.name()).within(identity.namespace());
        operator.lock_failures().entry(cluster).or_default().silence = silence;
    }
    Ok((came?, wait(decision.requeue)))
}

/// That etcd does not take a change yet is no failure: the core has said when to try again.
fn came_of(result: Result<(), Error>, cluster: &ClusterIdentity) -> Result<Came, Error> {
    match result {
        Ok(()) => Ok(Came::Acted),
        Err(error @ Error::NotYet { .. }) => {
            tracing::info!(cluster = cluster.name(), namespace = cluster.namespace(), error = chain(&error), "waiting");
            Ok(Came::Waiting)
        }
        Err(error) => Err(error),
    }
}

async fn act(view: &View, decision: &Decision, operator: &Operator) -> Result<(), Error> {
    let Operator { client, claim, etcd, writes, .. } = operator;
    let actor = Actor { client, claim, etcd, writes, identity: &view.identity, cluster: &view.cluster };
    if actor.write_status(decision).await? {
        operator.events.changed(&view.cluster, &decision.events);
    }
    let (done, result) = actor.take(&decision.actions).await;
    if decision.actions.iter().any(|action| matches!(action.effect, Effect::IssueCertificate(_))) {
        // What was known about them is old now, and would have them issued once more.
        operator.certificates.forget(view.identity.namespace(), view.identity.name());
    }
    for action in &done {
        operator.metrics.actions.get_or_create(&ReasonLabels { reason: action.reason.as_str() }).inc();
    }
    operator.events.acted(&view.cluster, &done);
    result
}

fn wait(requeue: SignedDuration) -> Duration {
    Duration::try_from(requeue).unwrap_or_default().max(SOONEST)
}

/// Waits longer after each failure in a row.
#[expect(clippy::needless_pass_by_value, reason = "the signature is given")]
fn after_error(object: Arc<GuardedCluster>, error: &Error, operator: Arc<Operator>) -> Requeue {
    if error.is_expected() {
        return Requeue::requeue(AFTER_CONFLICT);
    }
    let mut failures = operator.lock_failures();
    let known = failures.entry(ObjectRef::from_obj(&*object)).or_default();
    let delay = retry_delay(known.count);
    known.count = known.count.saturating_add(1);
    Requeue::requeue(known.silence.take().map_or(delay, |silence| silence.min(delay)))
}

fn retry_delay(failures: u32) -> Duration {
    FIRST_RETRY.saturating_mul(2_u32.saturating_pow(failures)).min(LAST_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_slow_down_and_never_stop() {
        let delays = [0, 1, 2, 10, u32::MAX].map(retry_delay);
        assert_eq!(delays.map(|delay| delay.as_secs()), [1, 2, 4, 60, 60]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_hangs_ends_and_is_tried_again() {
        let result = in_time(std::future::pending::<Result<(), Error>>()).await;
        assert!(matches!(result, Err(Error::Deadline { .. })), "{result:?}");
        assert!(!result.unwrap_err().is_expected(), "with a growing pause");
    }

    #[test]
    fn a_change_that_etcd_does_not_take_yet_is_no_failure_and_a_missing_right_is_one() {
        let mut cluster = EtcdCluster::new("etcd", quorate_api::EtcdClusterSpec::default());
        cluster.metadata.namespace = Some("default".to_owned());
        cluster.metadata.uid = Some("uid".to_owned());
        let identity = ClusterIdentity::of(&cluster.metadata).unwrap();
        let (what, cause) = ("give etcd-1 a vote".to_owned(), "it is behind".to_owned());
        let behind = Error::NotYet { what: what.clone(), cause: cause.clone() };
        assert_eq!(came_of(Err(behind), &identity).unwrap(), Came::Waiting);
        let forbidden = came_of(Err(Error::NotAllowed { what, cause }), &identity).unwrap_err();
        assert!(!forbidden.is_expected() && forbidden.kind() == "etcd-forbidden", "{forbidden}");
    }

    #[test]
    fn a_requeue_that_is_due_does_not_spin() {
        assert_eq!(wait(SignedDuration::from_secs(-5)), SOONEST);
        assert_eq!(wait(SignedDuration::from_secs(7)), Duration::from_secs(7));
    }
}
