//! What a path may be, and what the files themselves must show before they are believed. Needs no etcd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const SNAPSHOT: &[u8] = include_bytes!("../../../fuzz/seeds/snapshot/etcd-3.6.db");
const SEGMENT: &[u8] = include_bytes!("../../../fuzz/seeds/wal/server-3.6.wal");

fn quorate(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.current_dir(dir).arg("data").args(arguments).args(["--output", "json"]).output().unwrap()
}

/// The JSON a successful run prints.
fn report(dir: &Path, arguments: &[&str]) -> Value {
    let output = quorate(dir, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A snapshot under some name and a directory for deltas beside it.
struct Backup {
    dir: tempfile::TempDir,
    snapshot: PathBuf,
    base: i64,
}

impl Backup {
    fn new(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("deltas")).unwrap();
        let snapshot = dir.path().join(name);
        fs::write(&snapshot, SNAPSHOT).unwrap();
        let base = report(dir.path(), &["inspect", name])["revision"].as_i64().unwrap();
        Self { dir, snapshot, base }
    }

    /// A delta file of puts, one a revision, received in the second of 2026 that their revision counts.
    fn delta(&self, first: i64, last: i64) {
        let event = |revision: i64| {
            let kv = json!({ "key": "a2V5", "create_revision": revision, "mod_revision": revision, "version": 1 });
            json!({ "etcdEvent": { "kv": kv }, "time": format!("2026-01-01T00:{:02}:{:02}Z", revision / 60, revision % 60) })
        };
        let mut bytes = serde_json::to_vec(&(first..=last).map(event).collect::<Vec<_>>()).unwrap();
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        let name = format!("Incr-{first:08}-{last:08}-1767225600");
        fs::write(self.dir.path().join("deltas").join(name), bytes).unwrap();
    }

    /// The restored revision, or the error.
    fn at(&self, moment: &str) -> Result<i64, String> {
        let target = self.dir.path().join("target");
        let paths = [&self.snapshot, &target].map(|path| path.to_str().unwrap());
        let arguments = ["restore", paths[0], "--deltas", "deltas", "--time", moment, "--data-dir", paths[1]];
        let output = quorate(self.dir.path(), &arguments);
        if !output.status.success() {
            assert!(!target.exists());
            return Err(String::from_utf8(output.stderr).unwrap());
        }
        fs::remove_dir_all(&target).unwrap();
        Ok(serde_json::from_slice::<Value>(&output.stdout).unwrap()["revision"].as_i64().unwrap())
    }
}

const LONG_BEFORE: &str = "2001-01-01T00:00:00Z";
const LONG_AFTER: &str = "2027-01-01T00:00:00Z";

#[test]
fn a_moment_before_everything_is_refused_when_no_delta_reaches_past_the_base() {
    let backup = Backup::new("s.db");
    backup.delta(2, backup.base);
    let error = backup.at(LONG_BEFORE).unwrap_err();
    assert!(error.contains("older snapshot"), "{error}");
    // The last file ends with the base, and tells when that was received.
    assert_eq!(backup.at(LONG_AFTER), Ok(backup.base));
}

#[test]
fn deltas_that_end_before_the_base_say_nothing_about_its_age() {
    let backup = Backup::new("s.db");
    backup.delta(1, backup.base - 1);
    for moment in [LONG_BEFORE, LONG_AFTER] {
        let error = backup.at(moment).unwrap_err();
        assert!(error.contains("older snapshot"), "{error}");
    }
}

#[test]
fn a_snapshot_whose_name_tells_its_age_needs_no_delta_that_does() {
    // Taken on 2026-06-01.
    let backup = Backup::new("Full-00000000-00000009-1780272000");
    backup.delta(1, backup.base - 1);
    assert!(backup.at("2026-05-31T00:00:00Z").is_err());
    assert_eq!(backup.at("2026-06-02T00:00:00Z"), Ok(backup.base));
}

#[test]
fn events_after_the_base_date_it_as_before() {
    let backup = Backup::new("s.db");
    backup.delta(backup.base + 1, backup.base + 3);
    assert!(backup.at(LONG_BEFORE).is_err());
    assert_eq!(backup.at(LONG_AFTER), Ok(backup.base + 3));
}

#[test]
fn a_file_that_a_running_etcd_holds_is_left_alone_under_any_name() {
    let backup = Backup::new("db");
    let held = File::open(&backup.snapshot).unwrap();
    held.lock().unwrap();
    for (verb, code) in [("inspect", 1), ("hash", 1), ("keys", 1), ("verify", 2)] {
        let output = quorate(backup.dir.path(), &[verb, "db"]);
        assert_eq!(output.status.code(), Some(code), "{verb}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("running etcd"), "{verb}: {text}");
    }
    drop(held);
    assert_eq!(report(backup.dir.path(), &["verify", "db"])["sound"], true);
}

#[test]
fn a_data_directory_in_use_is_refused_before_its_log_is_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("member/snap")).unwrap();
    fs::create_dir_all(dir.path().join("member/wal")).unwrap();
    let database = dir.path().join("member/snap/db");
    fs::write(&database, SNAPSHOT).unwrap();
    let held = File::open(&database).unwrap();
    held.lock().unwrap();
    let text = String::from_utf8(quorate(dir.path(), &["inspect", "."]).stderr).unwrap();
    assert!(text.contains("running etcd"), "{text}");
}

#[test]
fn the_bare_name_of_a_segment_means_the_log_it_is_in() {
    let dir = tempfile::tempdir().unwrap();
    let name = "0000000000000000-0000000000000000.wal";
    fs::write(dir.path().join(name), SEGMENT).unwrap();
    assert_eq!(report(dir.path(), &["inspect", name])["kind"], "wal");
    assert_eq!(report(dir.path(), &["verify", name])["sound"], true);
}

#[test]
fn a_compressed_backup_is_unpacked_beside_the_target_and_not_under_a_name() {
    let backup = Backup::new("Full-00000000-00000009-1780272000");
    assert!(Command::new("gzip").arg(&backup.snapshot).status().unwrap().success());
    let compressed = format!("{}.gz", backup.snapshot.to_str().unwrap());
    let restore = |tmp: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.current_dir(backup.dir.path()).env("TMPDIR", tmp).args(["data", "restore", &compressed]);
        command.args(["--data-dir", "target"]).output().unwrap()
    };
    let output = restore(&backup.dir.path().join("absent"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut names: Vec<_> = fs::read_dir(backup.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["Full-00000000-00000009-1780272000.gz", "deltas", "target"]);
}

#[test]
fn a_bumped_restore_reports_the_compaction_that_clients_will_find() {
    let backup = Backup::new("s.db");
    let bumped = ["restore", "s.db", "--data-dir", "d", "--bump-revision", "100", "--mark-compacted"];
    let report = report(backup.dir.path(), &bumped);
    assert_eq!(report["revision"], backup.base + 100);
    assert_eq!(report["compactRevision"], backup.base + 100);
}

#[test]
fn bytes_behind_the_end_of_a_log_may_be_lost_writes_so_nothing_is_called_sound() {
    let dir = tempfile::tempdir().unwrap();
    let name = "0000000000000000-0000000000000000.wal";
    let mut bytes = include_bytes!("../../../fuzz/seeds/wal/restored-3.6.wal").to_vec();
    fs::write(dir.path().join(name), &bytes).unwrap();
    assert_eq!(quorate(dir.path(), &["verify", name]).status.code(), Some(0));
    let end = bytes.len() - 40;
    bytes[end] = 0xff;
    fs::write(dir.path().join(name), &bytes).unwrap();
    let output = quorate(dir.path(), &["verify", name]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
}
