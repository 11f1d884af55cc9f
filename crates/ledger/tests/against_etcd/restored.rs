//! Restores of real servers: clean if they say what they did, and as they did it.

use std::path::{Path, PathBuf};

use quorate_etcd::client::Options;
use quorate_etcd::membership::InitialCluster;
use quorate_etcd::restore::Restore;
use quorate_etcd::snapshot::Snapshot;
use quorate_ledger::{Endpoint, Epoch, Ledger, Load, Rule, Verdict};

use crate::etcd_process::Server;
use crate::{on_each_version, writes_go_on};

/// A member that is restored from a snapshot of some time ago as a new cluster, its revision raised by so much. Returns what
/// may be said about it, and the load that still runs.
fn restored(version: &str, dir: &Path, raise: Option<i64>) -> (Ledger, Epoch, impl Drop + use<>) {
    let server = Server::single(version, &dir.join("first"));
    let running = server.start();
    let endpoint = Endpoint::new("m0", Options::new(&server.client_url));
    let ledger = Ledger::start(vec![endpoint], Load::default());
    writes_go_on(&ledger, 60);
    let snapshot: PathBuf = dir.join("snapshot.db");
    running.etcdctl(&["snapshot", "save", snapshot.to_str().unwrap()]);
    writes_go_on(&ledger, 60);
    running.kill();
    let kept = Snapshot::open(&snapshot).unwrap().schema.revision();
    let server = Server { data_dir: dir.join("second"), ..server };
    let cluster = InitialCluster::parse(&server.initial_cluster, "another epoch").unwrap();
    let member = cluster.own_member(&server.name, std::slice::from_ref(&server.peer_url)).unwrap();
    let mut restore = Restore::new(&snapshot, &server.data_dir, &cluster, member);
    restore.bump_revision = raise;
    let reached = restore.run(None).unwrap().revision;
    let running = server.start();
    writes_go_on(&ledger, 100);
    (ledger, Epoch { kept, reported_lost: reached }, running)
}

async fn verdict(version: &str, raise: Option<i64>, declare: impl FnOnce(&Ledger, Epoch)) -> Verdict {
    let dir = tempfile::tempdir().unwrap();
    let (ledger, epoch, _running) = restored(version, dir.path(), raise);
    declare(&ledger, epoch);
    ledger.stop().await
}

#[test]
fn a_declared_restore_that_raises_the_revision_is_clean() {
    on_each_version(|version| async move {
        let verdict = verdict(version, Some(1_000_000), Ledger::declare).await;
        println!("{version}: {verdict}");
        assert!(verdict.is_clean(), "{version}: {verdict}");
    });
}

#[tokio::test]
async fn a_restore_that_nobody_declared_is_found_out() {
    let verdict = verdict("3.6", Some(1_000_000), |_, _| {}).await;
    let broken = |rule| verdict.violations.iter().any(|violation| violation.rule == rule);
    assert!(broken(Rule::Epochs) && broken(Rule::NothingLost), "{verdict}");
}

#[tokio::test]
async fn a_restore_that_does_not_raise_the_revision_is_found_out() {
    let verdict = verdict("3.6", None, |ledger, epoch| {
        // Whatever it reports as lost.
        ledger.declare(Epoch { reported_lost: i64::MAX, ..epoch });
    });
    let verdict = verdict.await;
    assert!(verdict.violations.iter().any(|violation| violation.rule == Rule::Epochs), "{verdict}");
}
