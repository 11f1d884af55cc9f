//! Inputs of the shapes that `docs/performance.md` speaks of, written with the library's own bulk loader.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use quorate_etcd::bbolt::{Output, TreeWriter};
use quorate_etcd::mvcc::{Revision, StoredValue};
use quorate_etcd::schema::{BUCKETS, CLUSTER, KEY, META};
use quorate_etcd::snapshot::digest_of;
use sha2::{Digest, Sha256};

const KEYS: u64 = 300_000;
const EVENTS: u64 = 500_000;
const EVENTS_PER_FILE: u64 = 10_000;

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
    write_deltas(deltas, snapshot(base, KEYS, 1200));
    paths
}

/// Many revisions of 300,000 keys, 1 KiB each.
fn large_snapshot(path: &Path, gib: f64) {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of gibibytes")]
    let revisions = (gib * f64::from(1 << 20) * 0.745) as u64;
    snapshot(path, revisions, 1024);
}

/// Returns the snapshot's revision.
fn snapshot(path: &Path, revisions: u64, size: usize) -> u64 {
    let file = File::options().create_new(true).read(true).write(true).open(path).unwrap();
    let mut output = Output::new(file, 4096, 2).unwrap();
    let mut root = TreeWriter::new(4096);
    for name in BUCKETS {
        let mut tree = TreeWriter::new(4096);
        match name {
            KEY => fill_keys(&mut tree, &mut output, revisions, size),
            META => tree.push(&mut output, b"consistent_index", &revisions.to_be_bytes()).unwrap(),
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
    revisions + 1
}

fn fill_keys(tree: &mut TreeWriter, output: &mut Output, revisions: u64, size: usize) {
    let mut value = vec![0; size];
    let mut encoded = Vec::new();
    for number in 0..revisions {
        let main = i64::try_from(number + 2).unwrap();
        fill(&mut value, number);
        let key = key(number % KEYS);
        let round = i64::try_from(number / KEYS).unwrap();
        let created = i64::try_from(number % KEYS + 2).unwrap();
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
fn write_deltas(dir: &Path, base: u64) {
    std::fs::create_dir(dir).unwrap();
    let mut value = vec![0; 1024];
    for start in (0..EVENTS).step_by(usize::try_from(EVENTS_PER_FILE).unwrap()) {
        let (first, last) = (base + start + 1, base + start + EVENTS_PER_FILE);
        let mut text = String::from("[");
        for revision in first..=last {
            let number = (revision - base - 1) * 7 % KEYS;
            fill(&mut value, revision);
            let version = 2 + (revision - base - 1) / KEYS;
            let separator = if revision == first { "" } else { "," };
            let _ = write!(
                text,
                "{separator}{{\"etcdEvent\":{{\"kv\":{{\"key\":\"{}\",\"create_revision\":{},\"mod_revision\":{revision},\
                 \"version\":{version},\"value\":\"{}\"}}}},\"time\":\"2026-01-01T00:00:00.000000001Z\"}}",
                base64(key(number).as_bytes()),
                number + 2,
                base64(&value)
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

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len() * 4 / 3 + 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_usize, |word, byte| (word << 8) | usize::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            text.push(if place <= chunk.len() { char::from(ALPHABET[(word >> (18 - 6 * place)) & 63]) } else { '=' });
        }
    }
    text
}
