//! One pass per cluster and wake: observe, decide, act.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use kube::core::error_boundary::InvalidObject;
use kube::runtime::controller::{self, Action as Requeue};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{applier, watcher};
use kube::{Api, Client, ResourceExt};
use quorate_api::EtcdCluster;
use quorate_core::view::Platform;
use quorate_core::{Decision, View, decide};

use crate::act::{Actor, is_written, within};
use crate::caches::{Caches, GuardedCluster, Wakes};
use crate::election::Claim;
use crate::error::{Error, chain};
use crate::events::Events;
use crate::malformed;
use crate::metrics::{ErrorLabels, Metrics, OutcomeLabels, ReasonLabels};
use crate::observe;
use crate::rest::Resting;
use crate::secrets::Certificates;
use crate::wake::ClusterRef;

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
    certificates: Certificates,
    resting: Resting,
    failures: Mutex<HashMap<ObjectRef<GuardedCluster>, u32>>,
}

impl Operator {
    pub fn new(
        client: Client,
        caches: Caches,
        platform: Platform,
        claim: Claim,
        events: Events,
        metrics: Metrics,
    ) -> Self {
        let (certificates, resting, failures) = (Certificates::default(), Resting::default(), Mutex::default());
        Self { client, caches, platform, claim, events, metrics, certificates, resting, failures }
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

    fn lock_failures(&self) -> std::sync::MutexGuard<'_, HashMap<ObjectRef<GuardedCluster>, u32>> {
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

async fn pass(object: Arc<GuardedCluster>, operator: Arc<Operator>) -> Result<Requeue, Error> {
    let started = tokio::time::Instant::now();
    let result = match &object.0 {
        Ok(cluster) => in_time(Box::pin(reconcile(cluster, &operator))).await,
        Err(InvalidObject { error, metadata }) => malformed::report(&operator.client, &operator.claim, metadata, error)
            .await
            .map(|changed| (changed, LAST_RETRY)),
    };
    operator.metrics.reconcile_seconds.observe(started.elapsed().as_secs_f64());
    let outcome = match &result {
        Ok((false, _)) => "settled",
        Ok((true, _)) => "acted",
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

/// Returns whether anything was written, and when to look again.
async fn reconcile(cluster: &EtcdCluster, operator: &Operator) -> Result<(bool, Duration), Error> {
    operator.caches.filled().await?;
    let itself = ClusterRef { namespace: cluster.namespace().unwrap_or_default(), name: cluster.name_any() };
    // Counted before anything is read: what is told meanwhile is news.
    let news = operator.caches.news.count(&itself);
    if let Some(left) = operator.resting.left(&itself, news, &operator.caches.renewals, Timestamp::now()) {
        return Ok((false, wait(left)));
    }
    operator.resting.end(&itself);
    // Most wakes change nothing. That can be told from the caches alone: whatever they have not heard of yet will wake
    // us again.
    let (view, decision) = look(cluster.clone(), operator).await?;
    if is_settled(&view, &decision) {
        operator.resting.begin(itself, news, &decision, LONGEST_REST, Timestamp::now());
        return Ok((false, wait(decision.requeue)));
    }
    let api = Api::<EtcdCluster>::namespaced(operator.client.clone(), &cluster.namespace().unwrap_or_default());
    let live = within("read the EtcdCluster", api.get_opt(&cluster.name_any())).await?;
    let Some(live) = live else {
        operator.certificates.forget(&itself.namespace, &itself.name);
        operator.caches.news.forget(&itself);
        return Ok((false, LAST_RETRY));
    };
    let (mut view, _) = look(live, operator).await?;
    observe::add_unlabelled(&operator.client, &mut view).await?;
    let mut decision = decide(&view, Timestamp::now());
    let doubtful = observe::doubtful(&view, &decision);
    if !doubtful.is_empty() {
        observe::confirm(&operator.client, &operator.caches.renewals, &mut view, &doubtful).await?;
        decision = decide(&view, Timestamp::now());
    }
    if is_settled(&view, &decision) {
        return Ok((false, wait(decision.requeue)));
    }
    act(&view, &decision, operator).await?;
    Ok((true, wait(decision.requeue)))
}

async fn look(cluster: EtcdCluster, operator: &Operator) -> Result<(View, Decision), Error> {
    let mut view = observe::cached(&operator.caches, cluster, operator.platform.clone());
    operator.certificates.add_to(&operator.client, &mut view).await?;
    let decision = decide(&view, Timestamp::now());
    Ok((view, decision))
}

fn is_settled(view: &View, decision: &Decision) -> bool {
    decision.actions.is_empty() && is_written(&view.cluster, &decision.status)
}

async fn act(view: &View, decision: &Decision, operator: &Operator) -> Result<(), Error> {
    let actor = Actor { client: &operator.client, claim: &operator.claim, cluster: &view.cluster };
    if actor.write_status(decision).await? {
        operator.events.changed(&view.cluster, &decision.events);
    }
    let (done, result) = actor.take(&decision.actions).await;
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
    let count = failures.entry(ObjectRef::from_obj(&*object)).or_insert(0);
    let delay = retry_delay(*count);
    *count = count.saturating_add(1);
    Requeue::requeue(delay)
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
    fn a_requeue_that_is_due_does_not_spin() {
        assert_eq!(wait(SignedDuration::from_secs(-5)), SOONEST);
        assert_eq!(wait(SignedDuration::from_secs(7)), Duration::from_secs(7));
    }
}
