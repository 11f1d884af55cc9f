//! The whole ledger over real etcd servers: anomalies that etcd itself does not notice, and healthy clusters.

#![cfg(test)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod anomalies;
mod damaged;
#[path = "../../../etcd/tests/damages/mod.rs"]
mod damages;
mod disks;
#[path = "../../../etcd/tests/etcd_process/mod.rs"]
mod etcd_process;
mod healthy;
mod members;
mod restored;
mod wiped;

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

/// Waits for a condition; the time is only that after which nobody believes in it any more.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !holds() {
        assert!(Instant::now() < deadline, "it never happened that {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until so many more writes were acknowledged.
fn writes_go_on(ledger: &Ledger, more: usize) {
    let enough = ledger.acknowledged() + more;
    eventually(&format!("{enough} writes were acknowledged"), || ledger.acknowledged() >= enough);
}
