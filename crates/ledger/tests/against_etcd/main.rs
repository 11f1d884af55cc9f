//! The whole ledger over real etcd servers: anomalies that etcd itself does not notice, and healthy clusters.

#![cfg(test)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod anomalies;
#[path = "../../../etcd/tests/etcd_process/mod.rs"]
mod etcd_process;
mod healthy;
mod members;
mod restored;

use std::time::{Duration, Instant};

use etcd_process::VERSIONS;
use quorate_ledger::Ledger;

/// Side by side: they mostly wait for elections.
fn on_each_version<F: Future<Output = ()>>(test: impl Fn(&'static str) -> F + Sync) {
    std::thread::scope(|scope| {
        for version in VERSIONS {
            let test = &test;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(test(version));
            });
        }
    });
}

/// Waits until so many more writes were acknowledged.
fn writes_go_on(ledger: &Ledger, more: usize) {
    let (enough, deadline) = (ledger.acknowledged() + more, Instant::now() + Duration::from_mins(2));
    while ledger.acknowledged() < enough {
        assert!(Instant::now() < deadline, "{} of {enough} writes were acknowledged", ledger.acknowledged());
        std::thread::sleep(Duration::from_millis(10));
    }
}
