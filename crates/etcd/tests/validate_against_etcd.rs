//! Directories of real servers are found sound, damaged ones are not, and what a re-seed can repair it repairs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod etcd_process;
mod gateway;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};

use etcd_process::{Server, VERSIONS, copy_dir};
use gateway::{Gateway, base64};
use quorate_etcd::data_dir::DataDir;
use quorate_etcd::restore::reseed;
use quorate_etcd::schema::Schema;
use quorate_etcd::validate::{self, DirFacts, FindingKind, Findings, Severity, Tier};
use serde_json::json;
use workload::Workload;

fn check(dir: &Path) -> (Findings, DirFacts) {
    validate::data_dir(dir, Tier::Full).unwrap()
}

fn kinds(dir: &Path) -> Vec<FindingKind> {
    check(dir).0.list.into_iter().map(|finding| finding.kind).collect()
}

/// The directory of a server that was killed in the middle of its work.
fn killed_server(version: &str, dir: &Path, seed: u64) -> Server {
    let mut server = Server::single(version, &dir.join("source"));
    server.extra.extend(["--snapshot-count".to_owned(), "100".to_owned()]);
    let running = server.start();
    let mut gateway = Gateway::to(&running);
    Workload::new(seed).run(&mut gateway, 250);
    let revision = gateway.revision();
    gateway.compact(revision / 2);
    gateway.post("auth/user/add", &json!({ "name": "root", "password": "secret" }));
    gateway.post("auth/role/add", &json!({ "name": "root" }));
    running.kill();
    server
}

#[test]
fn a_killed_servers_directory_is_sound_and_its_snapshot_too() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let server = killed_server(version, dir.path(), 5);
        let (findings, facts) = check(&server.data_dir);
        assert_ne!(findings.worst(), Some(Severity::Damage), "{version}: {findings:?}");
        let schema = facts.schema.unwrap();
        assert_eq!(schema.members.len(), 1, "{version}");
        assert_eq!(schema.members[0].id, facts.log.unwrap().node_id, "{version}");

        let running = server.start();
        let snapshot = dir.path().join("snapshot.db");
        running.etcdctl(&["snapshot", "save", snapshot.to_str().unwrap()]);
        assert!(validate::data_dir(&server.data_dir, Tier::Instant).is_err(), "a running server's directory is in use");
        assert_eq!(validate::snapshot(&snapshot, Tier::Full).unwrap(), Findings::default(), "{version}");
    }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(dir.join("member").join("wal")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    paths.sort();
    paths
}

/// The log of a member's first minute around the database of its last: what a lost or restored volume looks like.
fn log_behind_database(version: &str, dir: &Path) -> Server {
    let server = Server::single(version, &dir.join("member-dir"));
    let running = server.start();
    let mut gateway = Gateway::to(&running);
    let mut workload = Workload::new(7);
    workload.run(&mut gateway, 20);
    running.kill();
    copy_dir(&server.data_dir.join("member").join("wal"), &dir.join("old-wal"));
    let running = server.start();
    let mut gateway = Gateway::to(&running);
    workload.run(&mut gateway, 200);
    // A snapshot of the store makes the database commit what it has applied.
    running.etcdctl(&["snapshot", "save", dir.join("unused.db").to_str().unwrap()]);
    running.kill();
    fs::remove_dir_all(server.data_dir.join("member").join("wal")).unwrap();
    copy_dir(&dir.join("old-wal"), &server.data_dir.join("member").join("wal"));
    server
}

#[test]
fn a_log_that_ends_before_the_database_is_found_and_a_reseed_makes_the_member_writable_again() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let server = log_behind_database(version, dir.path());
        assert!(kinds(&server.data_dir).contains(&FindingKind::IndexAheadOfLog), "{version}");
        let db = quorate_etcd::bbolt::Db::open(&DataDir::new(&server.data_dir).db()).unwrap();
        let before = Schema::read(&db).unwrap();

        let reseeded = reseed(&server.data_dir).unwrap();
        assert_eq!(reseeded.revision, before.revision(), "{version}");
        assert_eq!(reseeded.member_id, before.members[0].id, "{version}");
        assert!(DataDir::new(&server.data_dir).db().exists() && reseeded.replaced.exists());
        assert!(check(&server.data_dir).0.list.is_empty(), "{version}: {:?}", check(&server.data_dir));

        let running = server.start();
        let mut gateway = Gateway::to(&running);
        assert_eq!(gateway.revision(), before.revision(), "{version}");
        gateway.post("kv/put", &json!({ "key": base64(b"after"), "value": base64(b"re-seed") }));
        assert_eq!(gateway.revision(), before.revision() + 1, "{version}");
    }
}

#[test]
fn a_reseed_refuses_a_running_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::single("3.6", &dir.path().join("source"));
    let running = server.start();
    assert!(reseed(&server.data_dir).unwrap_err().to_string().contains("running etcd"));
    running.kill();
}

#[test]
fn each_kind_of_damage_has_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let server = killed_server("3.6", dir.path(), 9);
    let damaged = |name: &str, damage: &dyn Fn(&Path)| {
        let copy = dir.path().join(name);
        copy_dir(&server.data_dir, &copy);
        damage(&copy);
        kinds(&copy)
    };
    let flip = |path: &Path, at: usize| {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 0x10;
        fs::write(path, bytes).unwrap();
    };
    let database = |dir: &Path| DataDir::new(dir).db();
    assert_eq!(
        damaged("no wal", &|dir| fs::remove_dir_all(dir.join("member").join("wal")).unwrap()),
        [FindingKind::LayoutIncomplete]
    );
    assert!(damaged("no db", &|dir| fs::remove_file(database(dir)).unwrap()).contains(&FindingKind::LayoutIncomplete));
    assert!(damaged("torn meta", &|dir| flip(&database(dir), 40)).contains(&FindingKind::MetaTorn));
    assert!(
        damaged("both metas", &|dir| {
            flip(&database(dir), 40);
            flip(&database(dir), 4096 + 40);
        })
        .contains(&FindingKind::DatabaseUnreadable)
    );
    assert!(
        damaged("short db", &|dir| {
            fs::File::options().write(true).open(database(dir)).unwrap().set_len(20_000).unwrap();
        })
        .contains(&FindingKind::DatabaseUnreadable)
    );
    assert!(damaged("log", &|dir| flip(&segments(dir)[0], 200)).contains(&FindingKind::LogDamaged));
    let snaps = |dir: &Path| -> Vec<PathBuf> {
        let paths = fs::read_dir(dir.join("member").join("snap")).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "snap")).collect()
    };
    assert!(!snaps(&server.data_dir).is_empty());
    assert!(
        damaged("snaps", &|dir| snaps(dir).iter().for_each(|path| flip(path, 30))).contains(&FindingKind::SnapDamaged)
    );
    let removed = damaged("leaf", &|dir| {
        let db = quorate_etcd::bbolt::Db::open(&database(dir)).unwrap();
        let quorate_etcd::bbolt::BucketRoot::Page(root) = db.bucket(b"key").unwrap().unwrap().root else {
            panic!("inline");
        };
        flip(&database(dir), usize::try_from(root).unwrap() * 4096 + 10);
    });
    assert!(removed.contains(&FindingKind::PageDamaged), "{removed:?}");
}
