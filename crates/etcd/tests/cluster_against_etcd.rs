//! Restored by us on one member and by etcdutl on the others: one cluster. And one release's files under another.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod etcd_process;
mod gateway;
mod workload;

use std::path::{Path, PathBuf};
use std::process::Command;

use etcd_process::{Running, Server, VERSIONS, binary, free_port, run};
use gateway::{Gateway, base64, number, watch};
use quorate_etcd::events::Events;
use quorate_etcd::membership::InitialCluster;
use quorate_etcd::restore::{Restore, RestoreError, Restored};
use quorate_etcd::schema::MinorVersion;
use quorate_etcd::snapshot::Snapshot;
use quorate_etcd::validate::{self, Tier};
use serde_json::json;
use workload::Workload;

fn snapshot_of(server: &Running, path: PathBuf) -> PathBuf {
    server.etcdctl(&["snapshot", "save", path.to_str().unwrap()]);
    path
}

fn lived_in(version: &str, dir: &Path, seed: u64) -> PathBuf {
    let server = Server::single(version, &dir.join("source")).start();
    let mut gateway = Gateway::to(&server);
    Workload::new(seed).run(&mut gateway, 150);
    let revision = gateway.revision();
    gateway.compact(revision / 2);
    snapshot_of(&server, dir.join("snapshot.db"))
}

fn restore(
    snapshot: &Path,
    server: &Server,
    token: &str,
    target: Option<MinorVersion>,
) -> Result<Restored, RestoreError> {
    let cluster = InitialCluster::parse(&server.initial_cluster, token).unwrap();
    let member = cluster.own_member(&server.name, std::slice::from_ref(&server.peer_url)).unwrap();
    let mut restore = Restore::new(snapshot, &server.data_dir, &cluster, member);
    restore.target_version = target;
    restore.run(None)
}

fn official_restore(snapshot: &Path, server: &Server, token: &str) {
    run(Command::new(binary(&server.version, "etcdutl"))
        .args(["snapshot", "restore", "--name", &server.name, "--initial-cluster", &server.initial_cluster])
        .args(["--initial-advertise-peer-urls", &server.peer_url, "--initial-cluster-token", token, "--data-dir"])
        .arg(&server.data_dir)
        .arg(snapshot));
}

#[test]
fn members_restored_by_us_and_by_etcdutl_form_one_cluster() {
    for (version, seed) in VERSIONS.into_iter().zip(60..) {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = lived_in(version, dir.path(), seed);
        let peers: Vec<(String, String)> =
            (0..3).map(|n| (format!("m{n}"), format!("http://127.0.0.1:{}", free_port()))).collect();
        let initial_cluster = peers.iter().map(|(name, url)| format!("{name}={url}")).collect::<Vec<_>>().join(",");
        let servers: Vec<Server> = peers
            .into_iter()
            .map(|(name, peer_url)| Server {
                version: version.to_owned(),
                data_dir: dir.path().join(&name),
                client_url: format!("http://127.0.0.1:{}", free_port()),
                initial_cluster: initial_cluster.clone(),
                extra: Vec::new(),
                name,
                peer_url,
            })
            .collect();
        restore(&snapshot, &servers[0], "mixed", None).unwrap();
        official_restore(&snapshot, &servers[1], "mixed");
        official_restore(&snapshot, &servers[2], "mixed");
        // A member is ready only when there is a quorum, so all of them have to start at once.
        let running: Vec<Running> = std::thread::scope(|scope| {
            let starts: Vec<_> = servers.iter().map(|server| scope.spawn(|| server.start())).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        let mut gateways: Vec<Gateway> = running.iter().map(Gateway::to).collect();
        for (n, gateway) in gateways.iter_mut().enumerate() {
            gateway.post("kv/put", &json!({ "key": base64(format!("from {n}").as_bytes()), "value": base64(b"x") }));
        }
        let revision = gateways[0].revision();
        let hashes: Vec<(u32, i64)> = gateways
            .iter_mut()
            .map(|gateway| {
                // A linearizable read first: the member has then applied everything up to it.
                assert_eq!(gateway.revision(), revision, "{version}");
                gateway.hash_kv(revision)
            })
            .collect();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{version}: {hashes:?}");
    }
}

#[test]
fn releases_start_on_the_files_of_others_as_the_matrix_says() {
    for (from, to, seed) in [("3.5", "3.6", 70), ("3.6", "3.7", 71), ("3.6", "3.5", 72)] {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = lived_in(from, dir.path(), seed);
        let server = Server::single(to, &dir.path().join("restored"));
        restore(&snapshot, &server, "token", MinorVersion::parse(to)).unwrap();
        let running = server.start();
        let mut gateway = Gateway::to(&running);
        assert_eq!(gateway.revision(), Snapshot::open(&snapshot).unwrap().schema.revision(), "{from} -> {to}");
        gateway.post("kv/put", &json!({ "key": base64(b"a"), "value": base64(b"b") }));
        running.kill();
        drop(server.start());
    }
    let dir = tempfile::tempdir().unwrap();
    let snapshot = lived_in("3.7", dir.path(), 73);
    let server = Server::single("3.6", &dir.path().join("restored"));
    let refused = restore(&snapshot, &server, "token", MinorVersion::parse("3.6"));
    assert!(matches!(refused, Err(RestoreError::Version { .. })));
    assert!(!server.data_dir.exists());
    // And this is why: the server itself gives up.
    restore(&snapshot, &server, "token", None).unwrap();
    assert!(server.try_start().unwrap_err().contains("3.7"));
}

#[test]
fn a_full_cluster_is_writable_again_after_restore() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let mut source = Server::single(version, &dir.path().join("source"));
        source.extra.extend(["--quota-backend-bytes".to_owned(), (1 << 20).to_string()]);
        let running = source.start();
        let mut gateway = Gateway::to(&running);
        let put = json!({ "key": base64(b"big"), "value": base64(&vec![1; 200_000]) });
        let mut refused = String::new();
        for _ in 0..40 {
            if let Err(error) = gateway.try_post("kv/put", &put) {
                refused = error;
                break;
            }
        }
        assert!(refused.contains("space exceeded"), "{version}: {refused}");
        let snapshot = snapshot_of(&running, dir.path().join("snapshot.db"));
        assert_eq!(Snapshot::open(&snapshot).unwrap().schema.alarms[0].name(), "NOSPACE", "{version}");
        let server = Server::single(version, &dir.path().join("restored"));
        restore(&snapshot, &server, "token", None).unwrap();
        let running = server.start();
        Gateway::to(&running).post("kv/put", &put);
    }
}

#[test]
fn leases_of_snapshot_and_events_still_end_their_keys() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let source = Server::single(version, &dir.path().join("source")).start();
        let mut gateway = Gateway::to(&source);
        let mut put_with_lease = |key: &[u8]| {
            let lease = gateway.post("lease/grant", &json!({ "TTL": 3600 }))["ID"].clone();
            gateway.post("kv/put", &json!({ "key": base64(key), "value": base64(b"x"), "lease": lease }));
            (lease, gateway.revision())
        };
        let (before, base) = put_with_lease(b"before the snapshot");
        let snapshot = snapshot_of(&source, dir.path().join("snapshot.db"));
        let (after, head) = put_with_lease(b"after the snapshot");
        let events = watch(&source, base + 1, head);
        for (name, rewrite) in [("copied", false), ("rewritten", true)] {
            let server = Server::single(version, &dir.path().join(name));
            let cluster = InitialCluster::parse(&server.initial_cluster, "token").unwrap();
            let member = cluster.own_member("default", std::slice::from_ref(&server.peer_url)).unwrap();
            let mut restore = Restore::new(&snapshot, &server.data_dir, &cluster, member);
            restore.rewrite = rewrite;
            restore.lease_ttl = Some(1800);
            restore.run(Some(&mut Events::new(events.clone()))).unwrap();
            let (findings, _) = validate::data_dir(&server.data_dir, Tier::Full).unwrap();
            assert!(findings.list.is_empty(), "{version} {name}: {findings:?}");
            let running = server.start();
            let mut gateway = Gateway::to(&running);
            for (lease, ttl) in [(&before, 3600), (&after, 1800)] {
                let answer = gateway.post("lease/timetolive", &json!({ "ID": lease }));
                assert_eq!(number(&answer["grantedTTL"]), ttl, "{version} {name}");
                gateway.post("lease/revoke", &json!({ "ID": lease }));
            }
            assert!(gateway.everything().is_null(), "{version} {name}: the keys go with their leases");
        }
    }
}
