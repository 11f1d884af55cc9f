//! Probes. They speak of this member alone: a problem of the whole cluster must never take a healthy member out of it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{Router, http::StatusCode, routing::get};
use quorate_runtime::listen::listen;

use crate::error::{Result, While};

/// Whether this member's etcd serves clients: it answers, and is no learner, which turns most of them away.
#[derive(Clone, Debug, Default)]
pub(crate) struct Serving(Arc<AtomicBool>);

impl Serving {
    pub(crate) fn set(&self, serving: bool) {
        self.0.store(serving, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Answers until the process ends.
pub(crate) async fn serve(port: i32, serving: Serving) -> Result<()> {
    let port = u16::try_from(port).unwrap_or_default();
    let listener = listen(port).await.doing(|| format!("listening on port {port}"))?;
    let readiness = async move || {
        if serving.get() {
            (StatusCode::OK, "etcd serves\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "etcd does not serve\n")
        }
    };
    let routes = Router::new().route("/healthz", get(async || "alive\n")).route("/readyz", get(readiness));
    axum::serve(listener, routes).await.doing(|| "answering probes".to_owned())
}
