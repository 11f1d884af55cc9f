//! Inputs of the shapes that `docs/performance.md` speaks of, written with the library's own bulk loader.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use quorate_etcd::bbolt::{Output, TreeWriter};
use quorate_etcd::mvcc::{Revision, StoredValue};
use quorate_etcd::schema::{BUCKETS, CLUSTER, KEY, META};
use quorate_etcd::snapshot::digest_of;
use sha2::{Digest, Sha256};

const KEYS: u64 = 300_000;
const EVENTS: u64 = 500_000;
const EVENTS_PER_FILE: u64 = 10_000;

/// Databases that grow in keys as they grow in bytes have each of them this often.
const ROUNDS: u64 = 5;

/// Values that do not compress and differ from each other.
fn fill(value: &mut [u8], mut seed: u64) {
    for byte in value {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = seed.to_le_bytes()[7];
    }
}

fn key(number: u64) -> String {
    format!("/registry/pods/namespace-{:04}/pod-{:06}", number % 1000, number)
}

/// The large snapshot, the base and the directory of its deltas.
pub(crate) fn all(dir: &Path, gib: f64) -> [PathBuf; 3] {
    let paths = ["large.db", "base.db", "deltas"].map(|name| dir.join(name));
    let [large, base, deltas] = &paths;
    large_snapshot(large, gib);
    let history = History { keys: KEYS, revisions: KEYS };
    snapshot(base, history, 1200);
    write_deltas(deltas, history, EVENTS);
    paths
}

/// Many revisions of 300,000 keys, 1 KiB each.
pub(crate) fn large_snapshot(path: &Path, gib: f64) {
    snapshot(path, History { keys: KEYS, revisions: revisions_in(gib) }, 1024);
}

/// A snapshot whose number of keys grows with its size, and one file of deltas to it. Returns that number.
pub(crate) fn growing(snapshot_path: &Path, deltas: &Path, gib: f64) -> u64 {
    // Deltas step through the keys by seven, so seven must not divide their number.
    let keys = revisions_in(gib) / ROUNDS / 7 * 7 + 1;
    let history = History { keys, revisions: keys * ROUNDS };
    snapshot(snapshot_path, history, 1024);
    write_deltas(deltas, history, EVENTS_PER_FILE);
    keys
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of gibibytes")]
fn revisions_in(gib: f64) -> u64 {
    (gib * f64::from(1 << 20) * 0.745) as u64
}

/// What a snapshot holds: all keys are written in turn, again and again.
#[derive(Clone, Copy)]
struct History {
    keys: u64,
    revisions: u64,
}

fn snapshot(path: &Path, history: History, size: usize) {
    let file = File::options().create_new(true).read(true).write(true).open(path).unwrap();
    let mut output = Output::new(file, 4096, 2).unwrap();
    let mut root = TreeWriter::new(4096);
    for name in BUCKETS {
        let mut tree = TreeWriter::new(4096);
        match name {
            KEY => fill_keys(&mut tree, &mut output, history, size),
            META => tree.push(&mut output, b"consistent_index", &history.revisions.to_be_bytes()).unwrap(),
            CLUSTER => tree.push(&mut output, b"clusterVersion", b"3.5.0").unwrap(),
            _ => {}
        }
        let tree = tree.finish(&mut output).unwrap();
        root.push_bucket(&mut output, name.as_bytes(), &tree).unwrap();
    }
    let root = root.finish_as_pages(&mut output).unwrap();
    let freelist = output.empty_freelist().unwrap();
    let (file, meta) = output.finish(root, freelist, 1).unwrap();
    let digest = digest_of(&file, meta.high_water * 4096).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&*file, &digest, meta.high_water * 4096).unwrap();
}

fn fill_keys(tree: &mut TreeWriter, output: &mut Output, History { keys, revisions }: History, size: usize) {
    let mut value = vec![0; size];
    let mut encoded = Vec::new();
    for number in 0..revisions {
        let main = i64::try_from(number + 2).unwrap();
        fill(&mut value, number);
        let key = key(number % keys);
        let round = i64::try_from(number / keys).unwrap();
        let created = i64::try_from(number % keys + 2).unwrap();
        let stored = StoredValue {
            key: key.as_bytes(),
            create_revision: created,
            mod_revision: main,
            version: round + 1,
            value: &value,
            lease: 0,
        };
        stored.encode(&mut encoded);
        tree.push(output, &Revision { main, sub: 0 }.encode(), &encoded).unwrap();
    }
}

/// Delta files as etcd-backup-restore writes them: a JSON array, then its SHA-256.
fn write_deltas(dir: &Path, History { keys, revisions }: History, events: u64) {
    std::fs::create_dir(dir).unwrap();
    let base = revisions + 1;
    let mut value = vec![0; 1024];
    for start in (0..events).step_by(usize::try_from(EVENTS_PER_FILE).unwrap()) {
        let (first, last) = (base + start + 1, base + start + EVENTS_PER_FILE);
        let mut text = String::from("[");
        for revision in first..=last {
            let number = (revision - base - 1) * 7 % keys;
            fill(&mut value, revision);
            let version = revisions / keys + 1 + (revision - base - 1) / keys;
            let separator = if revision == first { "" } else { "," };
            let _ = write!(
                text,
                "{separator}{{\"etcdEvent\":{{\"kv\":{{\"key\":\"{}\",\"create_revision\":{},\"mod_revision\":{revision},\
                 \"version\":{version},\"value\":\"{}\"}}}},\"time\":\"2026-01-01T00:00:00.000000001Z\"}}",
                BASE64_STANDARD.encode(key(number)),
                number + 2,
                BASE64_STANDARD.encode(&value)
            );
        }
        text.push(']');
        let path = dir.join(format!("Incr-{first:08}-{last:08}-{}", 1_700_000_000 + start));
        let mut file = BufWriter::new(File::create_new(path).unwrap());
        file.write_all(text.as_bytes()).unwrap();
        file.write_all(&Sha256::digest(text.as_bytes())).unwrap();
        file.flush().unwrap();
    }
}
