//! Users, roles and passwords survive every way to restore, on every release.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod etcd_process;
mod gateway;
mod workload;

use std::path::Path;
use std::process::{Command, Output};

use etcd_process::{Running, Server, VERSIONS, binary};
use gateway::{Gateway, watch};
use quorate_etcd::compact::Compact;
use quorate_etcd::events::{Cut, EventStream, Events};
use quorate_etcd::membership::InitialCluster;
use quorate_etcd::restore::{CompactAt, Restore};
use quorate_etcd::snapshot::{DigestPolicy, Snapshot};
use workload::Workload;

/// etcdctl as a user, whatever comes of it.
fn as_user(running: &Running, user: &str, arguments: &[&str]) -> Output {
    Command::new(binary(&running.server.version, "etcdctl"))
        .args(["--endpoints", &running.server.client_url, "--user", user])
        .args(arguments)
        .output()
        .unwrap()
}

fn allowed(running: &Running, user: &str, arguments: &[&str]) -> String {
    let output = as_user(running, user, arguments);
    assert!(output.status.success(), "{user} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn denied(running: &Running, user: &str, arguments: &[&str]) -> String {
    let output = as_user(running, user, arguments);
    assert!(!output.status.success(), "{user} may {arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A user who may use `/app/`, one who may nothing, and root; then nobody else.
fn enable_auth(running: &Running) {
    for arguments in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "app"],
        &["role", "grant-permission", "app", "readwrite", "/app/", "--prefix"],
        &["user", "add", "reader:open"],
        &["user", "grant-role", "reader", "app"],
        &["user", "add", "stranger:open"],
        &["auth", "enable"],
    ] {
        running.etcdctl(arguments);
    }
}

fn check_users(running: &Running, name: &str) {
    let text = allowed(running, "reader:open", &["get", "/app/key", "--print-value-only"]);
    assert_eq!(text.trim(), "after the snapshot", "{name}");
    allowed(running, "reader:open", &["put", "/app/new", name]);
    assert!(denied(running, "reader:open", &["get", "/other"]).contains("permission denied"), "{name}");
    assert!(denied(running, "stranger:open", &["get", "/app/key"]).contains("permission denied"), "{name}");
    assert!(denied(running, "reader:wrong", &["get", "/app/key"]).contains("authentication failed"), "{name}");
    let users = allowed(running, "root:secret", &["user", "list"]);
    assert_eq!(users.split_whitespace().collect::<Vec<_>>(), ["reader", "root", "stranger"], "{name}");
}

fn restore_and_check(version: &str, snapshot: &Path, events: Option<Events>, data_dir: &Path, rewrite: bool) {
    let server = Server::single(version, data_dir);
    let cluster = InitialCluster::parse(&server.initial_cluster, "token").unwrap();
    let member = cluster.own_member("default", std::slice::from_ref(&server.peer_url)).unwrap();
    let mut restore = Restore::new(snapshot, data_dir, &cluster, member);
    restore.rewrite = rewrite;
    let mut events = events;
    restore.run(events.as_mut().map(|events| events as &mut dyn EventStream)).unwrap();
    check_users(&server.start(), &format!("{version} {}", data_dir.display()));
}

#[test]
fn a_restored_cluster_lets_in_whom_the_lost_one_did_and_nobody_else() {
    for (version, seed) in VERSIONS.into_iter().zip(60..) {
        let dir = tempfile::tempdir().unwrap();
        let source = Server::single(version, &dir.path().join("source")).start();
        Workload::new(seed).run(&mut Gateway::to(&source), 50);
        enable_auth(&source);
        allowed(&source, "reader:open", &["put", "/app/key", "before the snapshot"]);
        let snapshot = dir.path().join("snapshot.db");
        allowed(&source, "root:secret", &["snapshot", "save", snapshot.to_str().unwrap()]);
        let schema = Snapshot::open(&snapshot).unwrap().schema;
        assert!(schema.auth_enabled, "{version}");
        allowed(&source, "reader:open", &["put", "/app/key", "after the snapshot"]);
        // The events are read without a password, as the gateway does everything.
        allowed(&source, "root:secret", &["auth", "disable"]);
        let events = || Events::new(watch(&source, schema.revision() + 1, schema.revision() + 1));

        restore_and_check(version, &snapshot, Some(events()), &dir.path().join("append"), false);
        restore_and_check(version, &snapshot, Some(events()), &dir.path().join("rewrite"), true);
        let output = dir.path().join("compacted.db");
        let digest = DigestPolicy::Require;
        let compact = Compact { snapshot: &snapshot, output: &output, cut: Cut::End, at: CompactAt::Head, digest };
        compact.run(Some(&mut events())).unwrap();
        restore_and_check(version, &output, None, &dir.path().join("compacted"), false);
    }
}
