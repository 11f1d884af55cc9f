//! What each fuzz target does with its bytes.
//!
//! Plain functions, so that the workspace's tests run them over the kept seeds too. A target fails by panicking; that
//! includes the claims checked here.

mod seal;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use flate2::Compression;
use flate2::read::{GzEncoder, ZlibEncoder};
use quorate_etcd::backup::{
    DeltaReader, Described, FullReader, FullWriter, Header, Keyring, Kind, ObjectName, ObjectWriter, Trailer,
    WriteOptions, describe,
};
use quorate_etcd::bbolt::{Output, TreeWriter};
use quorate_etcd::compact::Compact;
use quorate_etcd::data_dir::DataDir;
use quorate_etcd::events::{Contiguous, Cut, EventStream};
use quorate_etcd::foreign::{BackupName, Base, DeltaStream};
use quorate_etcd::hash::{HashKv, hash_kv, status_hash};
use quorate_etcd::history::History;
use quorate_etcd::membership::{InitialCluster, Member};
use quorate_etcd::mvcc::{StoredKey, StoredValue};
use quorate_etcd::restore::{CompactAt, Restore, reseed};
use quorate_etcd::schema::BUCKETS;
use quorate_etcd::snap::{Snap, SnapName};
use quorate_etcd::snapshot::{DigestPolicy, Snapshot};
use quorate_etcd::validate::{self, FindingKind, Tier};
use quorate_etcd::wal::{SegmentName, Tail, read_metadata, scan_dir};

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
    for data in [data, &seal::log(data, 0).0] {
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
}

/// A snap file: whatever is accepted can be written and read again.
pub fn snap(data: &[u8]) {
    for data in [data, &seal::snap(data)] {
        if let Ok(snap) = Snap::decode(data)
            && let Ok(bytes) = snap.encode()
        {
            assert_eq!(Snap::decode(&bytes).map(|read| read.name()).ok(), Some(snap.name()));
        }
    }
}

/// A stored backup as it is; then as the changes of a sound one, and as the database of a full one.
pub fn object(data: &[u8]) {
    let keys = Keyring::none();
    let size = data.len() as u64;
    if let Ok(Described::Done(description)) = describe(data, data, size, &keys) {
        assert_eq!(description.bytes, size);
        let _ = (description.start_of_revision(5), description.start_of_time(5));
    }
    read_object(data);
    let header = |kind: Kind| Header { kind: kind.into(), first_revision: 11, ..Header::default() };
    let options = WriteOptions::default();
    let Ok(mut writer) = ObjectWriter::begin(Vec::new(), header(Kind::Delta), &options) else { return };
    for block in data.split(|byte| *byte == 0xfe) {
        assert!(writer.block(block).is_ok());
    }
    if let Ok((object, _)) = writer.finish(Trailer { last_revision: 12, events: 2, ..Trailer::default() }) {
        read_object(&object);
    }
    let Ok(mut writer) = FullWriter::begin(Vec::new(), header(Kind::Full), &options) else { return };
    let snapshot = seal::with_digest(&seal::database(data));
    if writer.push(&snapshot).is_ok()
        && let Ok((object, _)) = writer.finish()
    {
        let mut back = Vec::new();
        assert!(FullReader::open(object.as_slice(), &keys).is_ok_and(|mut full| full.read_to_end(&mut back).is_ok()));
        assert!(back == snapshot);
    }
}

fn read_object(data: &[u8]) {
    let keys = Keyring::none();
    if let Ok(mut full) = FullReader::open(data, &keys) {
        let whole = full.read_to_end(&mut Vec::new()).is_ok();
        assert_eq!(whole, full.end().is_some());
    }
    let Ok(delta) = DeltaReader::open(data, &keys) else { return };
    let mut stream = Contiguous::new(delta, 10, Cut::End);
    let mut last = (10, 0);
    while let Ok(true) = stream.advance() {
        let place = (stream.event().mod_revision, stream.sub());
        assert!(place > last && place.0 <= last.0 + 1, "{last:?} -> {place:?}");
        last = place;
    }
}

/// Delta files. The first byte chooses the compression. The second says by its lowest bit that what follows is still
/// plain and gets the digest and the compression here, and by its next bit that a zero in it begins a second file.
pub fn deltas(data: &[u8]) {
    let [compression, wrap, content @ ..] = data else { return };
    let suffix = [".gz", ".zlib", ".Z", ""][usize::from(compression % 4)];
    let split = if wrap & 2 == 2 { content.iter().position(|byte| *byte == 0) } else { None };
    let (first, second) = match split {
        Some(zero) => (&content[..zero], Some(&content[zero + 1..])),
        None => (content, None),
    };
    let Ok(dir) = tempfile::tempdir() else { return };
    let names = ["Incr-00000011-00000014-1704164645", "Incr-00000014-00000016-1704164646"];
    for (name, content) in names.into_iter().zip([first].into_iter().chain(second)) {
        let (suffix, content) = if wrap & 1 == 1 { wrapped(suffix, content) } else { (suffix, content.to_vec()) };
        if fs::write(dir.path().join(format!("{name}{suffix}")), content).is_err() {
            return;
        }
    }
    for cut in [Cut::End, Cut::Revision(12)] {
        let Ok(stream) = DeltaStream::open(dir.path(), Base::at(10), cut) else { return };
        let mut stream = Contiguous::new(stream, 10, cut);
        let mut last = (10, 0);
        while let Ok(true) = stream.advance() {
            let place = (stream.event().mod_revision, stream.sub());
            assert!(place > last && place.0 <= last.0 + 1, "{last:?} -> {place:?}");
            last = place;
        }
    }
}

/// Appends the digest and compresses both together; nothing here writes LZW, so that stays plain.
fn wrapped<'a>(suffix: &'a str, content: &[u8]) -> (&'a str, Vec<u8>) {
    let plain = seal::with_digest(content);
    let mut packed = Vec::new();
    let done = match suffix {
        ".gz" => GzEncoder::new(plain.as_slice(), Compression::fast()).read_to_end(&mut packed),
        ".zlib" => ZlibEncoder::new(plain.as_slice(), Compression::fast()).read_to_end(&mut packed),
        _ => return ("", plain),
    };
    assert!(done.is_ok());
    (suffix, packed)
}

/// A snapshot file, through everything that reads one.
pub fn snapshot(data: &[u8]) {
    for data in [data, &seal::snapshot(data)] {
        with_file("snapshot.db", data, read_database);
    }
}

fn read_database(dir: &Path, path: &Path) {
    for tier in [Tier::Instant, Tier::Full] {
        let _ = validate::snapshot(path, tier);
    }
    let Ok(snapshot) = Snapshot::open(path) else { return };
    let Ok(history) = History::new(&snapshot, None, Cut::End, dir) else { return };
    let _ = hash_kv(&history, None);
    let _ = status_hash(&history);
    let _ = quorate_etcd::keys::count_live_keys(&history);
}

/// A data directory of two log segments, a snap file and a database, each behind its length: whatever is called sound
/// could be read as a whole, and a log that was rebuilt fits its database.
pub fn data_dir(data: &[u8]) {
    let mut rest = data;
    let files = [(); 4].map(|()| {
        let (length, behind) = rest.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX).min(behind.len());
        let (content, behind) = behind.split_at(length);
        rest = behind;
        content.to_vec()
    });
    check_data_dir(&files);
    let [first, second, snap, database] = &files;
    let (first, crc) = seal::log(first, 0);
    check_data_dir(&[first, seal::log(second, crc).0, seal::snap(snap), seal::database(database)]);
}

fn check_data_dir(files: &[Vec<u8>; 4]) {
    let Ok(root) = tempfile::tempdir() else { return };
    let dir = root.path().join("data");
    let names = [
        "wal/0000000000000000-0000000000000000.wal",
        "wal/0000000000000001-0000000000000002.wal",
        "snap/0000000000000001-0000000000000001.snap",
        "snap/db",
    ];
    for (name, content) in names.into_iter().zip(files) {
        let path = dir.join("member").join(name);
        let written = path.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok())
            && (content.is_empty() || fs::write(path, content).is_ok());
        if !written {
            return;
        }
    }
    for tier in [Tier::Instant, Tier::Full] {
        let Ok((findings, facts)) = validate::data_dir(&dir, tier) else { return };
        assert!(findings.is_damaged() || (facts.log.is_some() && facts.schema.is_some()));
    }
    if reseed(&dir).is_ok() {
        let (findings, facts) = validate::data_dir(&dir, Tier::Full).unwrap();
        assert!(facts.log.is_some() && facts.schema.is_some(), "{findings:?}");
        let unfit = [
            FindingKind::PageDamaged,
            FindingKind::LogDamaged,
            FindingKind::LogTorn,
            FindingKind::IndexBehindSnap,
            FindingKind::IndexAheadOfLog,
        ];
        assert!(!findings.list.iter().any(|finding| unfit.contains(&finding.kind)), "{findings:?}");
    }
}

/// A database without a digest, through everything that writes a new one from it: what comes out is sound and has the
/// same contents.
pub fn restore(data: &[u8]) {
    with_file("db", &seal::database(data), rewrite_database);
}

fn rewrite_database(dir: &Path, path: &Path) {
    let Ok(cluster) = InitialCluster::parse("default=http://localhost:2380", "token") else { return };
    let Some(member) = cluster.members().first() else { return };
    for (name, rewrite, bump_revision) in [("append", false, None), ("rewrite", true, None), ("bump", true, Some(1000))]
    {
        let data_dir = dir.join(name);
        let mut restore = Restore::new(path, &data_dir, &cluster, member);
        restore.digest = DigestPolicy::IfPresent;
        restore.rewrite = rewrite;
        restore.bump_revision = bump_revision;
        if restore.run(None).is_ok() {
            let (findings, _) = validate::data_dir(&data_dir, Tier::Full).unwrap();
            assert!(!findings.is_damaged(), "{name}: {findings:?}");
            if bump_revision.is_none() {
                assert_eq!(hash(&DataDir::new(&data_dir).db(), None), hash(path, None), "{name}");
            }
        }
    }
    let output = dir.join("compacted");
    let digest = DigestPolicy::IfPresent;
    let compact = Compact { snapshot: path, output: &output, cut: Cut::End, at: CompactAt::Head, digest };
    if let Ok(compacted) = compact.run(None) {
        let findings = validate::snapshot(&output, Tier::Full).unwrap();
        assert!(!findings.is_damaged(), "compacted: {findings:?}");
        assert_eq!(hash(&output, None), hash(path, Some(compacted.compact_revision)));
    }
}

fn hash(path: &Path, compact: Option<i64>) -> HashKv {
    let snapshot = Snapshot::open(path).unwrap();
    let history = History::new(&snapshot, None, Cut::End, path.parent().unwrap()).unwrap();
    hash_kv(&history, compact).unwrap()
}

/// Entries of etcd's buckets, written as a sound bbolt file: whatever they hold, its pages are never the problem.
///
/// The first byte chooses the page size. Each entry is the number of its bucket, the lengths of key and value in one and
/// two bytes, and both.
pub fn buckets(data: &[u8]) {
    let Some((size, mut rest)) = data.split_first() else { return };
    let mut buckets = BUCKETS.map(|name| (name, BTreeMap::new()));
    while let Some(([number, key_length, low, high], behind)) = rest.split_first_chunk::<4>() {
        let value_length = usize::from(u16::from_le_bytes([*low, *high]));
        let (key, behind) = behind.split_at(usize::from(*key_length).min(behind.len()));
        let (value, behind) = behind.split_at(value_length.min(behind.len()));
        rest = behind;
        if !key.is_empty() {
            buckets[usize::from(*number) % buckets.len()].1.insert(key, value);
        }
    }
    with_file("db", &[], |dir, path| {
        write_buckets(path, 1024 << (size % 7), &buckets);
        let findings = validate::snapshot(path, Tier::Full).unwrap();
        let unfit = [FindingKind::DatabaseUnreadable, FindingKind::PageDamaged, FindingKind::BucketMissing];
        assert!(!findings.list.iter().any(|finding| unfit.contains(&finding.kind)), "{findings:?}");
        read_database(dir, path);
        rewrite_database(dir, path);
    });
}

/// A bucket's name and what is in it.
type Bucket<'a> = (&'a str, BTreeMap<&'a [u8], &'a [u8]>);

fn write_buckets(path: &Path, page_size: usize, buckets: &[Bucket<'_>]) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut output = Output::new(file, page_size, 2).unwrap();
    let mut root = TreeWriter::new(page_size);
    for (name, entries) in buckets {
        let mut tree = TreeWriter::new(page_size);
        for (key, value) in entries {
            tree.push(&mut output, key, value).unwrap();
        }
        let tree = tree.finish(&mut output).unwrap();
        root.push_bucket(&mut output, name.as_bytes(), &tree).unwrap();
    }
    let root = root.finish_as_pages(&mut output).unwrap();
    let freelist = output.empty_freelist().unwrap();
    output.finish(root, freelist, 1).unwrap();
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
        if let Some(name) = ObjectName::parse(line) {
            assert_eq!(name.to_string(), line);
        }
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
