//! Flips and truncations at every kind of place: refused, found, or without effect; never a panic, never half a result.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod golden;

use std::ops::ControlFlow;
use std::path::Path;

use golden::{ALL, COMPACTED, restore};
use quorate_etcd::bbolt::{Db, Error, Walk};
use quorate_etcd::compact::Compact;
use quorate_etcd::data_dir::DataDir;
use quorate_etcd::events::Cut;
use quorate_etcd::mvcc::{Revision, StoredKey, StoredValue};
use quorate_etcd::restore::CompactAt;
use quorate_etcd::snapshot::DigestPolicy;
use quorate_etcd::validate::{self, Tier};
use sha2::{Digest, Sha256};

/// Deterministic, and coprime to page and element sizes, so that every field of a page is hit somewhere.
const STRIDE: usize = 97;

#[test]
fn any_flip_or_cut_of_a_snapshot_is_refused_and_leaves_nothing() {
    let mut cases = 0;
    for golden in ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = golden.write_to(dir.path());
        let sound = std::fs::read(&path).unwrap();
        let data_dir = dir.path().join("data");
        let mut refuse = |bytes: &[u8], what: &str| {
            std::fs::write(&path, bytes).unwrap();
            // Rewriting syncs before it knows the digest: a quarter of the cases will do for that mode.
            for rewrite in [false, true].into_iter().take(if cases % 4 == 0 { 2 } else { 1 }) {
                let refused = restore(&path, &data_dir, |restore| restore.rewrite = rewrite);
                assert!(refused.is_err(), "{} {what} rewrite {rewrite}", golden.version);
            }
            let findings = validate::snapshot(&path, Tier::Instant).unwrap();
            // A cut that leaves whole sectors looks like a copied db file without a digest; structure tells.
            assert!(!findings.list.is_empty(), "{} {what}", golden.version);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{} {what}", golden.version);
            cases += 1;
        };
        for at in (0..sound.len()).step_by(STRIDE) {
            let mut damaged = sound.clone();
            damaged[at] ^= 1 << (at % 8);
            refuse(&damaged, &format!("flip at {at}"));
        }
        for length in (0..sound.len()).step_by(STRIDE * 17) {
            refuse(&sound[..length], &format!("cut to {length}"));
        }
        for length in [sound.len() - 1, sound.len() - 32, sound.len() - 33, sound.len() - 512, sound.len() - 4096] {
            refuse(&sound[..length], &format!("cut to {length}"));
        }
    }
    assert!(cases > 2000, "{cases}");
}

/// The changes of the history: revision, number within it, kind, and the revision the value names.
///
/// What is left of a compacted revision may have any number within it, so there it is not compared.
fn changes(database: &Path) -> Result<Vec<(i64, i64, bool, i64)>, Error> {
    let db = Db::open(database)?;
    let mut changes = Vec::new();
    if let Some(bucket) = db.bucket(b"key")? {
        let _ = Walk::new(&db).bucket(&bucket, |key, value| {
            let stored = StoredKey::decode(key).unwrap();
            let modified = StoredValue::decode(value).map_or(-1, |value| value.mod_revision);
            let Revision { main, sub } = stored.revision;
            changes.push((main, if main > COMPACTED { sub } else { 0 }, stored.is_tombstone, modified));
            Ok::<_, Error>(ControlFlow::Continue(()))
        })?;
    }
    Ok(changes)
}

/// A database has no checksums: inside keys, values and the small buckets' numbers a flip can make another sound
/// database. What must never happen is that entries vanish, appear, or change places unnoticed.
#[test]
fn no_flip_in_a_database_loses_or_invents_a_revision_unnoticed() {
    let (mut cases, mut found) = (0, 0);
    for golden in ALL {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        restore(&golden.write_to(dir.path()), &data_dir, |restore| restore.rewrite = true).unwrap();
        let database = DataDir::new(&data_dir).db();
        let sound = std::fs::read(&database).unwrap();
        let before = changes(&database).unwrap();
        for at in (0..sound.len()).step_by(STRIDE / 2) {
            let mut damaged = sound.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&database, &damaged).unwrap();
            let (findings, _) = validate::data_dir(&data_dir, Tier::Full).unwrap();
            cases += 1;
            if findings.list.is_empty() {
                assert_eq!(changes(&database).unwrap(), before, "{} flip at {at}", golden.version);
            } else {
                found += 1;
            }
        }
        for length in (0..sound.len()).step_by(STRIDE * 5) {
            std::fs::write(&database, &sound[..length]).unwrap();
            let (findings, _) = validate::data_dir(&data_dir, Tier::Instant).unwrap();
            assert!(findings.is_damaged(), "{} cut to {length}", golden.version);
            cases += 1;
        }
    }
    assert!(cases > 2000 && found > 100, "{found} of {cases}");
}

/// Only flips that validation cannot see either pass.
#[test]
fn a_damaged_copy_of_a_database_is_not_restored() {
    damaged_before_it_was_copied(<[u8]>::to_vec);
}

/// A member whose database is rotten makes snapshots with the right digest.
#[test]
fn a_snapshot_of_a_damaged_database_is_not_restored_though_its_digest_is_right() {
    damaged_before_it_was_copied(|bytes| [bytes, &<[u8; 32]>::from(Sha256::digest(bytes))].concat());
}

fn damaged_before_it_was_copied(sealed: impl Fn(&[u8]) -> Vec<u8>) {
    let golden = &ALL[1];
    let dir = tempfile::tempdir().unwrap();
    let path = golden.write_to(dir.path());
    let sound = std::fs::read(&path).unwrap();
    let sound = &sound[..sound.len() - 32];
    let mut refused = 0;
    for at in (0..sound.len()).step_by(STRIDE) {
        let mut damaged = sound.to_vec();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, sealed(&damaged)).unwrap();
        let data_dir = dir.path().join("data");
        let is_damaged = validate::snapshot(&path, Tier::Full).unwrap().is_damaged();
        let digest = DigestPolicy::IfPresent;
        for rewrite in [false, true] {
            let outcome = restore(&path, &data_dir, |restore| (restore.digest, restore.rewrite) = (digest, rewrite));
            if outcome.is_ok() {
                std::fs::remove_dir_all(&data_dir).unwrap();
            }
            assert!(outcome.is_err() || !is_damaged, "flip at {at}, rewrite {rewrite}");
            refused += usize::from(outcome.is_err());
        }
        let output = dir.path().join("compacted");
        let compact = Compact { snapshot: &path, output: &output, cut: Cut::End, at: CompactAt::Head, digest };
        let outcome = compact.run(None);
        if outcome.is_ok() {
            std::fs::remove_file(&output).unwrap();
        }
        assert!(outcome.is_err() || !is_damaged, "flip at {at}, compacted");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "flip at {at}");
    }
    assert!(refused > 10, "{refused}");
}
