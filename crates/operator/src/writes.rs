//! Counts all that the operator changes, in Kubernetes and in etcd, and can die at a chosen write.
//!
//! Crash tests start the operator with `QUORATE_CRASH_AT=3` or `QUORATE_CRASH_AT=3:after` and find it dead before its third
//! write is sent, or when it is done and nobody has heard of it yet. Once it was heard of, nothing else happens until the next
//! write, so that is death before that one. Events do not count: nothing depends on them.

use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::{Method, Request};
use tower::{Layer, Service};

use crate::metrics::{Metrics, WriteLabels};

/// Environment variable with the write to die at.
pub const CRASH_VARIABLE: &str = "QUORATE_CRASH_AT";

/// The write to die at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPoint {
    /// Counted from 1.
    pub write: u64,
    pub moment: Moment,
}

/// On which side of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Before,
    After,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{CRASH_VARIABLE} must be a number from 1, with `:before` or `:after` behind it, and is {0:?}")]
pub struct BadCrashPoint(String);

impl FromStr for CrashPoint {
    type Err = BadCrashPoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadCrashPoint(text.to_owned());
        let (number, moment) = match text.split_once(':') {
            None => (text, Moment::Before),
            Some((number, "before")) => (number, Moment::Before),
            Some((number, "after")) => (number, Moment::After),
            Some(_) => return Err(bad()),
        };
        let write = number.parse().ok().filter(|&write| write > 0).ok_or_else(bad)?;
        Ok(Self { write, moment })
    }
}

/// The count. As a layer it counts what a Kubernetes client writes.
#[derive(Clone, Debug)]
pub struct Writes {
    pub(crate) metrics: Metrics,
    count: Arc<AtomicU64>,
    crash: Option<CrashPoint>,
    die: fn() -> (),
}

impl Default for Writes {
    /// Counted for nobody, and never the last.
    fn default() -> Self {
        Self::new(Metrics::new(), None)
    }
}

impl Writes {
    pub fn new(metrics: Metrics, crash: Option<CrashPoint>) -> Self {
        Self { metrics, count: Arc::default(), crash, die: || std::process::abort() }
    }

    /// Counts a write that is none of Kubernetes, around the call that makes it.
    pub async fn around<T>(&self, verb: &'static str, kind: &str, call: impl Future<Output = T>) -> T {
        let moment = self.count(&Write { verb, kind: kind.to_owned() });
        if moment == Some(Moment::Before) {
            (self.die)();
        }
        let answer = call.await;
        if moment == Some(Moment::After) {
            (self.die)();
        }
        answer
    }

    /// Counts a write, and says whether it is the one to die at.
    fn count(&self, write: &Write) -> Option<Moment> {
        let labels = WriteLabels { verb: write.verb, kind: write.kind.clone() };
        self.metrics.writes.get_or_create(&labels).inc();
        if write.kind == "events" {
            return None;
        }
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let point = self.crash.filter(|point| point.write == number)?;
        tracing::error!(write = number, verb = write.verb, kind = write.kind, "dying as told by {CRASH_VARIABLE}");
        Some(point.moment)
    }
}

impl<S> Layer<S> for Writes {
    type Service = CountWrites<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CountWrites { inner, layer: self.clone() }
    }
}

/// The client below, with its writes counted.
#[derive(Clone, Debug)]
pub struct CountWrites<S> {
    inner: S,
    layer: Writes,
}

impl<S, B> Service<Request<B>> for CountWrites<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let moment = Write::of(request.method(), request.uri().path()).and_then(|write| self.layer.count(&write));
        if moment == Some(Moment::Before) {
            (self.layer.die)();
        }
        let response = self.inner.call(request);
        let die = self.layer.die;
        Box::pin(async move {
            let response = response.await;
            if moment == Some(Moment::After) {
                die();
            }
            response
        })
    }
}

/// A request that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Write {
    verb: &'static str,
    /// The resource, with its subresource: `pods`, `etcdclusters/status`.
    kind: String,
}

impl Write {
    fn of(method: &Method, path: &str) -> Option<Self> {
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => return None,
        };
        Some(Self { verb, kind: resource(path) })
    }
}

/// The resource in a path such as `/apis/apps/v1/namespaces/default/statefulsets/etcd/status`.
fn resource(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>();
    let after_version = match parts.first() {
        Some(&"api") => parts.get(2..),
        _ => parts.get(3..),
    };
    match after_version.unwrap_or_default() {
        ["namespaces", _, kind, _, subresource, ..] => format!("{kind}/{subresource}"),
        ["namespaces", _, kind, ..] | [kind, ..] => (*kind).to_owned(),
        [] => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    static DEATHS: AtomicUsize = AtomicUsize::new(0);

    async fn send(
        service: &mut CountWrites<impl Service<Request<()>, Response = usize, Error = (), Future: Send + 'static>>,
        method: Method,
        path: &str,
    ) -> usize {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        service.call(request).await.unwrap()
    }

    #[tokio::test]
    async fn dies_on_the_chosen_side_of_the_chosen_write_and_nowhere_else() {
        let crash = Some("2:after".parse().unwrap());
        let layer = Writes {
            die: || {
                DEATHS.fetch_add(1, Ordering::SeqCst);
            },
            ..Writes::new(Metrics::new(), crash)
        };
        // Answers with the number of deaths at the time of the request.
        let inner = tower::service_fn(|_: Request<()>| async { Ok::<_, ()>(DEATHS.load(Ordering::SeqCst)) });
        let mut service = layer.layer(inner);
        let pods = "/api/v1/namespaces/default/pods";
        assert_eq!(send(&mut service, Method::GET, pods).await, 0);
        assert_eq!(send(&mut service, Method::POST, "/apis/events.k8s.io/v1/namespaces/default/events").await, 0);
        assert_eq!(send(&mut service, Method::POST, pods).await, 0);
        assert_eq!(DEATHS.load(Ordering::SeqCst), 0, "reads and events do not count");
        assert_eq!(send(&mut service, Method::DELETE, &format!("{pods}/a")).await, 0, "the write itself still happens");
        assert_eq!(DEATHS.load(Ordering::SeqCst), 1);
        send(&mut service, Method::POST, pods).await;
        assert_eq!(DEATHS.load(Ordering::SeqCst), 1);
        let text = layer.metrics.encode().unwrap();
        assert!(text.contains(r#"quorate_operator_writes_total{verb="create",kind="pods"} 2"#), "{text}");
        assert!(text.contains(r#"quorate_operator_writes_total{verb="delete",kind="pods"} 1"#), "{text}");
    }

    #[tokio::test]
    async fn changes_of_etcds_members_are_writes_like_all_others() {
        static DIED: AtomicUsize = AtomicUsize::new(0);
        let die = || {
            DIED.fetch_add(1, Ordering::SeqCst);
        };
        let writes = Writes { die, ..Writes::new(Metrics::new(), Some("2".parse().unwrap())) };
        let deaths = async || DIED.load(Ordering::SeqCst);
        assert_eq!(writes.around("remove", "members", deaths()).await, 0);
        assert_eq!(writes.around("add", "members", deaths()).await, 1, "before the call");
        assert_eq!(writes.around("promote", "members", deaths()).await, 1);
    }

    #[test]
    fn a_path_tells_the_resource() {
        for (path, expected) in [
            ("/api/v1/namespaces/default/secrets", "secrets"),
            ("/api/v1/namespaces/default/secrets/a", "secrets"),
            ("/apis/quorate.dev/v1alpha1/namespaces/default/etcdclusters/a/status", "etcdclusters/status"),
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles/a", "clusterroles"),
            ("/", "unknown"),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
    }

    #[test]
    fn a_bad_crash_point_is_refused_rather_than_ignored() {
        assert_eq!("3".parse(), Ok(CrashPoint { write: 3, moment: Moment::Before }));
        assert_eq!("3:after".parse(), Ok(CrashPoint { write: 3, moment: Moment::After }));
        for text in ["", "0", "x", "3:", "3:during", "-1"] {
            assert!(text.parse::<CrashPoint>().is_err(), "{text}");
        }
    }
}
