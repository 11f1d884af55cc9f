//! What each fuzz target does with its bytes.
//!
//! Plain functions, so that the workspace's tests run them over the kept seeds on a stable compiler too. A target
//! fails by panicking; that includes the claims checked here.

use std::fs;
use std::path::Path;

use quorate_etcd::events::{Contiguous, Cut, EventStream};
use quorate_etcd::foreign::{BackupName, DeltaStream};
use quorate_etcd::hash::{hash_kv, status_hash};
use quorate_etcd::history::History;
use quorate_etcd::membership::{InitialCluster, Member};
use quorate_etcd::mvcc::{StoredKey, StoredValue};
use quorate_etcd::snap::{Snap, SnapName};
use quorate_etcd::snapshot::Snapshot;
use quorate_etcd::validate::{self, Tier};
use quorate_etcd::wal::{SegmentName, Tail, read_metadata, scan_dir};
use sha2::{Digest, Sha256};

/// Gives `use_file` a directory with one file in it.
fn with_file(name: &str, data: &[u8], use_file: impl FnOnce(&Path, &Path)) {
    let Ok(dir) = tempfile::tempdir() else { return };
    let path = dir.path().join(name);
    if fs::write(&path, data).is_ok() {
        use_file(dir.path(), &path);
    }
}

/// A log of one segment: whatever is accepted names its owner and ends within the file.
pub fn wal(data: &[u8]) {
    with_file(&SegmentName::FIRST.to_string(), data, |dir, _| {
        let Ok(scan) = scan_dir(dir) else { return };
        assert!(scan.node_id != 0 && scan.cluster_id != 0);
        assert!(scan.bytes <= data.len() as u64);
        if let Tail::Torn { offset, .. } | Tail::Residue { offset, .. } = scan.tail {
            assert_eq!(offset, scan.bytes);
        }
        assert_eq!(read_metadata(dir).ok().and_then(|metadata| metadata.node_id), Some(scan.node_id));
    });
}

/// A snap file: whatever is accepted can be written and read again.
pub fn snap(data: &[u8]) {
    if let Ok(snap) = Snap::decode(data)
        && let Ok(bytes) = snap.encode()
    {
        assert_eq!(Snap::decode(&bytes).map(|read| read.name()).ok(), Some(snap.name()));
    }
}

/// A delta file. The first byte chooses the compression; an odd second byte adds the digest that mutation breaks.
pub fn deltas(data: &[u8]) {
    let [compression, wrap, content @ ..] = data else { return };
    let suffix = [".gz", ".zlib", ".Z", ""][usize::from(compression % 4)];
    let mut content = content.to_vec();
    if wrap % 2 == 1 {
        let digest = Sha256::digest(&content);
        content.extend_from_slice(&digest);
    }
    with_file(&format!("Incr-00000011-00000014-1704164645{suffix}"), &content, |dir, _| {
        for cut in [Cut::End, Cut::Revision(12)] {
            let Ok(stream) = DeltaStream::open(dir, 10, None) else { return };
            let mut stream = Contiguous::new(stream, 10, cut);
            let mut last = (10, 0);
            while let Ok(true) = stream.advance() {
                let place = (stream.event().mod_revision, stream.sub());
                assert!(place > last && place.0 <= last.0 + 1, "{last:?} -> {place:?}");
                last = place;
            }
        }
    });
}

/// A snapshot file, through everything that reads one.
pub fn snapshot(data: &[u8]) {
    with_file("snapshot.db", data, |dir, path| {
        for tier in [Tier::Instant, Tier::Full] {
            let _ = validate::snapshot(path, tier);
        }
        let Ok(snapshot) = Snapshot::open(path) else { return };
        let Ok(history) = History::new(&snapshot, None, Cut::End, dir) else { return };
        let _ = hash_kv(&history, None);
        let _ = status_hash(&history);
        let _ = quorate_etcd::keys::count_live_keys(&history);
    });
}

/// Names, initial clusters and members: whatever is accepted prints as it was.
pub fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.lines() {
        if let Some(name) = SegmentName::parse(line) {
            assert_eq!(name.to_string(), line);
        }
        if let Some(name) = SnapName::parse(line) {
            assert_eq!(SnapName::parse(&name.to_string()), Some(name));
        }
        let _ = BackupName::parse(line);
        if let Ok(cluster) = InitialCluster::parse(line, "token") {
            for member in cluster.members() {
                let json = member.to_json().unwrap_or_default();
                assert_eq!(Member::from_json(&json).ok().as_ref(), Some(member));
            }
        }
        let _ = Member::from_json(line.as_bytes());
    }
}

/// Keys and values of bucket `key`: the strict decoder accepts only what it would write.
pub fn stored_value(data: &[u8]) {
    if let Some(key) = StoredKey::decode(data) {
        let mut out = Vec::new();
        key.encode(&mut out);
        assert_eq!(out, data);
    }
    if let Ok(value) = StoredValue::decode(data) {
        let mut out = Vec::new();
        value.encode(&mut out);
        assert_eq!(out, data);
    }
}
