//! What the operator counts. Label values come from short fixed lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WriteLabels {
    pub verb: &'static str,
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ErrorLabels {
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabels {
    pub reason: &'static str,
}

/// All metrics. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// Passes: `settled` had nothing to do, `acted` did something, `waiting` was put off by etcd, `failed` ended early.
    pub reconciles: Family<OutcomeLabels, Counter<u64, AtomicU64>>,
    pub reconcile_seconds: Histogram,
    pub writes: Family<WriteLabels, Counter<u64, AtomicU64>>,
    pub errors: Family<ErrorLabels, Counter<u64, AtomicU64>>,
    pub actions: Family<ReasonLabels, Counter<u64, AtomicU64>>,
    pub leading: Gauge<i64, AtomicI64>,
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("quorate_operator");
        let reconciles = Family::default();
        let reconcile_seconds = Histogram::new([0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0]);
        let writes = Family::default();
        let errors = Family::default();
        let actions = Family::default();
        let leading = Gauge::default();
        registry.register("reconciles", "Passes over an EtcdCluster, by outcome", reconciles.clone());
        registry.register("reconcile_duration_seconds", "Time of a pass", reconcile_seconds.clone());
        registry.register("writes", "Writes to the Kubernetes API, by verb and kind", writes.clone());
        registry.register("errors", "Passes that ended early, by kind of error", errors.clone());
        registry.register("actions", "Actions taken, by reason", actions.clone());
        registry.register("leading", "1 if this replica acts, 0 if it stands by", leading.clone());
        Self { registry: Arc::new(registry), reconciles, reconcile_seconds, writes, errors, actions, leading }
    }

    /// All of them in the text format of Prometheus.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
