//! What real servers said about these snapshots we say too, and restore keeps it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod golden;

use std::path::Path;

use golden::{ALL, COMPACTED, REVISION, restore};
use quorate_etcd::compact::{Compact, CompactError, Compacted};
use quorate_etcd::data_dir::DataDir;
use quorate_etcd::events::{ChangeEvent, Cut, EventStream, Events};
use quorate_etcd::hash::{HashKv, hash_kv, status_hash};
use quorate_etcd::history::{History, HistoryError};
use quorate_etcd::restore::{CompactAt, Mode, RestoreError};
use quorate_etcd::schema::{MinorVersion, Schema};
use quorate_etcd::snapshot::{DigestPolicy, Snapshot};
use quorate_etcd::staging::StagingError;
use quorate_etcd::validate::{self, Findings, Tier};

fn compact(snapshot: &Path, output: &Path) -> Result<Compacted, CompactError> {
    let digest = DigestPolicy::Require;
    Compact { snapshot, output, cut: Cut::End, at: CompactAt::Head, digest }.run(None)
}

fn hash_of(database: &Path, cut: Cut, compact: Option<i64>) -> HashKv {
    let snapshot = Snapshot::open(database).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    hash_kv(&History::new(&snapshot, None, cut, scratch.path()).unwrap(), compact).unwrap()
}

#[test]
fn hashes_are_the_servers() {
    let dir = tempfile::tempdir().unwrap();
    for golden in ALL {
        let path = golden.write_to(dir.path());
        let snapshot = Snapshot::open(&path).unwrap();
        snapshot.verify_digest(DigestPolicy::Require).unwrap();
        let history = History::new(&snapshot, None, Cut::End, dir.path()).unwrap();
        assert_eq!(status_hash(&history).unwrap(), golden.status, "{}", golden.version);
        for (cut, revision, hash) in [(Cut::End, REVISION, golden.head), (Cut::Revision(25), 25, golden.at_25)] {
            let expected = HashKv { hash, revision, compact_revision: COMPACTED };
            assert_eq!(hash_of(&path, cut, None), expected, "{}", golden.version);
        }
        assert_eq!(validate::snapshot(&path, Tier::Full).unwrap(), Findings::default(), "{}", golden.version);
    }
}

#[test]
fn every_mode_restores_the_same_contents() {
    for golden in ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = golden.write_to(dir.path());
        for (name, rewrite, mode) in [("copied", false, Mode::Append), ("rewritten", true, Mode::Rewrite)] {
            let data_dir = dir.path().join(name);
            let restored = restore(&path, &data_dir, |restore| restore.rewrite = rewrite).unwrap();
            assert_eq!((restored.revision, restored.mode), (REVISION, mode));
            let database = DataDir::new(&data_dir).db();
            assert_eq!(hash_of(&database, Cut::End, None).hash, golden.head, "{} {name}", golden.version);
            let (findings, facts) = validate::data_dir(&data_dir, Tier::Full).unwrap();
            assert_eq!(findings, Findings::default(), "{} {name}", golden.version);
            let (schema, before) = (facts.schema.unwrap(), Snapshot::open(&path).unwrap().schema);
            assert_eq!((schema.consistent_index, schema.term), (1, Some(1)));
            assert_eq!(schema.members.len(), 1);
            assert_eq!((schema.auth_enabled, schema.auth_revision), (before.auth_enabled, before.auth_revision));
            assert_eq!(schema.storage_version, before.storage_version);
        }
    }
}

#[test]
fn compaction_during_restore_keeps_what_is_alive() {
    let dir = tempfile::tempdir().unwrap();
    let path = ALL[1].write_to(dir.path());
    let data_dir = dir.path().join("compacted");
    restore(&path, &data_dir, |restore| restore.compact = Some(CompactAt::Head)).unwrap();
    let database = DataDir::new(&data_dir).db();
    assert_eq!(hash_of(&database, Cut::End, None), hash_of(&path, Cut::End, Some(REVISION)));
    let snapshot = Snapshot::open(&database).unwrap();
    assert_eq!(snapshot.schema.compact_revision(), Some(REVISION));
}

#[test]
fn revisions_that_cannot_be_had_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = ALL[0].write_to(dir.path());
    let data_dir = dir.path().join("restored");
    let refused = |cut| restore(&path, &data_dir, |restore| restore.cut = cut).unwrap_err();
    assert!(matches!(
        refused(Cut::Revision(COMPACTED - 1)),
        RestoreError::History(HistoryError::Compacted { wanted: 8, compacted: 9 })
    ));
    assert!(matches!(
        refused(Cut::Revision(REVISION + 1)),
        RestoreError::History(HistoryError::NotReached { wanted: 39, last: 38 })
    ));
    let compact =
        |at| restore(&path, &data_dir, |restore| restore.compact = Some(CompactAt::Revision(at))).unwrap_err();
    for revision in [COMPACTED - 1, REVISION + 1] {
        assert!(matches!(compact(revision), RestoreError::History(HistoryError::CompactRange { .. })));
    }
    let bump = restore(&path, &data_dir, |restore| restore.bump_revision = Some(i64::MAX)).unwrap_err();
    assert!(matches!(bump, RestoreError::Rebuild(_)), "{bump}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing but the snapshot");
}

#[test]
fn a_bumped_restore_says_where_its_history_begins() {
    let dir = tempfile::tempdir().unwrap();
    let path = ALL[1].write_to(dir.path());
    for rewrite in [false, true] {
        let data_dir = dir.path().join(format!("rewrite {rewrite}"));
        let restored = restore(&path, &data_dir, |restore| {
            (restore.rewrite, restore.bump_revision) = (rewrite, Some(1000));
        })
        .unwrap();
        assert_eq!((restored.revision, restored.compact_revision), (REVISION + 1000, Some(REVISION + 1000)));
    }
}

#[test]
fn a_file_of_a_newer_release_is_refused_for_an_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let newest = ALL[2].write_to(dir.path());
    let data_dir = dir.path().join("restored");
    let target = |minor| Some(MinorVersion::new(3, minor));
    let refused = restore(&newest, &data_dir, |restore| restore.target_version = target(6)).unwrap_err();
    assert!(matches!(refused, RestoreError::Version { .. }), "{refused}");
    assert!(!data_dir.exists());
    let older = ALL[1].write_to(dir.path());
    restore(&older, &data_dir, |restore| restore.target_version = target(5)).unwrap();
    let db = quorate_etcd::bbolt::Db::open(&DataDir::new(&data_dir).db()).unwrap();
    let schema = Schema::read(&db).unwrap();
    assert_eq!((schema.storage_version, schema.cluster_version), (None, None), "3.5 decides its version anew");
}

#[test]
fn an_existing_directory_is_never_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = ALL[0].write_to(dir.path());
    let data_dir = dir.path().join("data");
    std::fs::create_dir(&data_dir).unwrap();
    // Empty is fine: it may be the mount point of a new volume.
    restore(&path, &data_dir, |_| {}).unwrap();
    let database = std::fs::read(DataDir::new(&data_dir).db()).unwrap();
    let refused = restore(&path, &data_dir, |_| {}).unwrap_err();
    assert!(matches!(refused, RestoreError::Staging(StagingError::NotEmpty { .. })), "{refused}");
    assert_eq!(std::fs::read(DataDir::new(&data_dir).db()).unwrap(), database);
    let file = dir.path().join("a file");
    std::fs::write(&file, "precious").unwrap();
    assert!(restore(&path, &file, |_| {}).is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn what_a_killed_restore_left_is_cleared_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = ALL[0].write_to(dir.path());
    let leftover = dir.path().join("data.part").join("member").join("snap");
    std::fs::create_dir_all(&leftover).unwrap();
    std::fs::write(leftover.join("db"), "half a database").unwrap();
    let unmarked = restore(&path, &dir.path().join("data"), |_| {}).unwrap_err();
    assert!(matches!(unmarked, RestoreError::Staging(StagingError::Foreign { .. })), "{unmarked}");
    assert_eq!(std::fs::read_to_string(leftover.join("db")).unwrap(), "half a database");
    std::fs::write(dir.path().join("data.part").join(".quorate-part"), "").unwrap();
    restore(&path, &dir.path().join("data"), |_| {}).unwrap();
    assert!(!dir.path().join("data.part").exists());
    let (findings, _) = validate::data_dir(&dir.path().join("data"), Tier::Full).unwrap();
    assert_eq!(findings, Findings::default());
    assert_eq!(std::fs::read_dir(dir.path().join("data")).unwrap().count(), 1, "the mark is gone");
}

#[test]
fn compaction_never_writes_over_a_file_of_somebody_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = ALL[0].write_to(dir.path());
    let (output, other) = (dir.path().join("small.db"), dir.path().join("small.db.part"));
    std::fs::write(&other, "precious").unwrap();
    let refused = compact(&path, &output).unwrap_err();
    assert!(matches!(refused, CompactError::Staging(StagingError::Foreign { .. })), "{refused}");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
    std::fs::remove_file(&other).unwrap();
    compact(&path, &output).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "the snapshot and its compaction");
}

#[test]
fn files_and_directories_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = ALL[0].write_to(dir.path());
    let data_dir = dir.path().join("data");
    restore(&path, &data_dir, |_| {}).unwrap();
    let output = dir.path().join("compacted.db");
    compact(&path, &output).unwrap();
    let mut pending = vec![data_dir, output];
    while let Some(path) = pending.pop() {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        if path.is_dir() {
            assert_eq!(mode, 0o700, "{}", path.display());
            pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            assert_eq!(mode, 0o600, "{}", path.display());
        }
    }
}

#[test]
fn a_lost_event_is_noticed_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = ALL[1].write_to(dir.path());
    let put = |revision: i64| ChangeEvent {
        key: b"k".to_vec(),
        create_revision: 39,
        mod_revision: revision,
        version: revision - 38,
        ..ChangeEvent::default()
    };
    let snapshot = Snapshot::open(&path).unwrap();
    let mut complete = Events::new((39..50).map(put).collect());
    let complete: &mut dyn EventStream = &mut complete;
    assert_eq!(History::new(&snapshot, Some(complete), Cut::End, dir.path()).unwrap().revision(), 49);
    let mut holed = Events::new((39..50).filter(|revision| *revision != 44).map(put).collect());
    let holed: &mut dyn EventStream = &mut holed;
    assert!(matches!(History::new(&snapshot, Some(holed), Cut::End, dir.path()), Err(HistoryError::Events(_))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "scratch space has no names");
}
