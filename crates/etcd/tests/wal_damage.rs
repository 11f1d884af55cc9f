//! Damage to a log at every kind of place: refused, cut as torn, or without any effect; never a different answer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::fs;

use quorate_etcd::membership::InitialCluster;
use quorate_etcd::pb::raft::{Entry, EntryType, HardState, WalMetadata, WalSnapshot};
use quorate_etcd::wal::{SegmentName, Tail, WalEncoder, WalError, WalScan, bootstrap_segment, scan_dir};

const METADATA: WalMetadata = WalMetadata { node_id: Some(7), cluster_id: Some(9) };

fn entry(index: u64, length: usize) -> Entry {
    Entry {
        r#type: Some(EntryType::Normal.into()),
        term: Some(2),
        index: Some(index),
        data: Some((0..length).map(|n| u8::try_from(n % 251 + 1).unwrap()).collect()),
    }
}

fn segment(previous_crc: u32, entries: std::ops::RangeInclusive<u64>) -> Vec<u8> {
    let mut wal = WalEncoder::new(Vec::new(), previous_crc).unwrap();
    wal.metadata(&METADATA).unwrap();
    if previous_crc == 0 {
        wal.snapshot(&WalSnapshot { index: Some(0), term: Some(0), conf_state: None }).unwrap();
    }
    for index in entries {
        wal.entry(&entry(index, usize::try_from(index * 37 % 200).unwrap())).unwrap();
        wal.state(&HardState { term: Some(2), vote: Some(7), commit: Some(index) }).unwrap();
    }
    wal.finish()
}

/// The running checksum at the end of a segment: the field of its last record.
fn last_crc(segment: &[u8]) -> u32 {
    let mut offset = 0;
    let mut crc = 0;
    while offset < segment.len() {
        let field = u64::from_le_bytes(segment[offset..offset + 8].try_into().unwrap());
        let (record, padding) = (field & ((1 << 56) - 1), if field >> 63 == 1 { field >> 56 & 7 } else { 0 });
        let body = &segment[offset + 8..offset + 8 + usize::try_from(record).unwrap()];
        crc = <quorate_etcd::pb::raft::Record as prost::Message>::decode(body).unwrap().crc.unwrap();
        offset += 8 + usize::try_from(record + padding).unwrap();
    }
    crc
}

/// Where each record's frame starts.
fn frames(segment: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut offset = 0;
    while offset < segment.len() {
        starts.push(offset);
        let field = u64::from_le_bytes(segment[offset..offset + 8].try_into().unwrap());
        let padding = if field >> 63 == 1 { field >> 56 & 7 } else { 0 };
        offset += 8 + usize::try_from((field & ((1 << 56) - 1)) + padding).unwrap();
    }
    starts
}

struct Log {
    dir: tempfile::TempDir,
    names: [SegmentName; 2],
    segments: [Vec<u8>; 2],
}

impl Log {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let first = segment(0, 1..=4);
        let second = segment(last_crc(&first), 5..=9);
        let names = [SegmentName::FIRST, SegmentName { sequence: 1, index: 5 }];
        let log = Self { dir, names, segments: [first, second] };
        log.write(0, &log.segments[0]);
        log.write(1, &log.segments[1]);
        log
    }

    fn write(&self, which: usize, bytes: &[u8]) {
        fs::write(self.dir.path().join(self.names[which].to_string()), bytes).unwrap();
    }

    fn scan(&self) -> Option<WalScan> {
        scan_dir(self.dir.path()).ok()
    }
}

/// A damaged log may be shorter than the sound one, but then it must say so.
fn assert_honest(sound: &WalScan, damaged: Option<&WalScan>, is_last: bool, what: &str) {
    let Some(damaged) = damaged else { return };
    if damaged.tail == Tail::Clean {
        assert_eq!(damaged, sound, "{what}");
    } else {
        assert!(is_last, "{what}: only the last segment can be torn, got {:?}", damaged.tail);
        assert!(damaged.last_index <= sound.last_index && damaged.bytes < sound.bytes, "{what}");
        // A crash tears only what was written last: whoever says so must not have lost more.
        if matches!(damaged.tail, Tail::Torn { .. }) {
            assert!(damaged.last_index + 1 >= sound.last_index, "{what}: {damaged:?}");
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_refused_or_without_effect() {
    let log = Log::new();
    let sound = log.scan().unwrap();
    assert_eq!((sound.last_index, sound.entries, sound.tail), (9, 9, Tail::Clean));
    let mut cases = 0;
    for which in [0, 1] {
        let bytes = &log.segments[which];
        for position in 0..bytes.len() {
            for bit in [0, 1, 2, 4, 7] {
                let mut damaged = bytes.clone();
                damaged[position] ^= 1 << bit;
                log.write(which, &damaged);
                let what = format!("segment {which}, byte {position}, bit {bit}");
                assert_honest(&sound, log.scan().as_ref(), which == 1, &what);
                cases += 1;
            }
        }
        log.write(which, bytes);
    }
    assert!(cases > 5000, "{cases}");
}

#[test]
fn a_cut_anywhere_is_torn_at_the_end_and_refused_before() {
    let log = Log::new();
    let sound = log.scan().unwrap();
    for which in [0, 1] {
        let bytes = &log.segments[which];
        for length in 0..bytes.len() {
            log.write(which, &bytes[..length]);
            let scan = log.scan();
            if which == 0 {
                assert!(scan.is_none(), "cut at {length}");
            } else if let Some(scan) = scan {
                assert!(scan.last_index <= sound.last_index);
                let boundary = scan.bytes == (log.segments[0].len() + length) as u64;
                assert_eq!(scan.tail == Tail::Clean, boundary, "cut at {length}: {:?}", scan.tail);
            }
        }
        log.write(which, bytes);
    }
}

#[test]
fn zeros_in_the_middle_are_never_taken_for_the_end_without_a_word() {
    let log = Log::new();
    let sound = log.scan().unwrap();
    let bytes = &log.segments[1];
    for position in (0..bytes.len() - 8).step_by(8) {
        let mut damaged = bytes.clone();
        damaged[position..position + 8].fill(0);
        log.write(1, &damaged);
        assert_honest(&sound, log.scan().as_ref(), true, &format!("zeros at {position}"));
    }
}

#[test]
fn a_record_behind_zeros_is_damage_and_never_the_end() {
    let log = Log::new();
    let sound = &log.segments[1];
    let starts: Vec<usize> = frames(sound);
    // The last record has none behind it that could tell.
    for pair in starts.windows(2).skip(2) {
        for zeroed in [pair[0]..pair[0] + 8, pair[0]..pair[1]] {
            let mut damaged = sound.clone();
            damaged[zeroed.clone()].fill(0);
            damaged.resize(damaged.len() + 70_000, 0);
            log.write(1, &damaged);
            match scan_dir(log.dir.path()) {
                Err(WalError::Hole { offset, record, .. }) => {
                    assert_eq!((offset, record), (pair[0] as u64, pair[1] as u64), "{zeroed:?}");
                }
                other => panic!("{zeroed:?}: {other:?}"),
            }
        }
    }
    let mut damaged = sound.clone();
    let last = starts[starts.len() - 1];
    damaged[last..last + 8].fill(0);
    log.write(1, &damaged);
    assert!(matches!(log.scan().unwrap().tail, Tail::Residue { .. }), "a body without its frame could be anything");
}

#[test]
fn preallocated_zeros_are_the_clean_end() {
    let log = Log::new();
    let mut bytes = log.segments[1].clone();
    bytes.resize(bytes.len() + 100_000, 0);
    log.write(1, &bytes);
    assert_eq!(log.scan().unwrap().tail, Tail::Clean);
}

#[test]
fn entries_may_be_replaced_but_not_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(SegmentName::FIRST.to_string());
    for (indexes, last) in [(vec![1, 2, 3, 2], Some(2)), (vec![1, 3], None), (vec![2], None), (vec![0], None)] {
        let mut wal = WalEncoder::new(Vec::new(), 0).unwrap();
        wal.metadata(&METADATA).unwrap();
        for index in &indexes {
            wal.entry(&entry(*index, 5)).unwrap();
        }
        fs::write(&path, wal.finish()).unwrap();
        assert_eq!(scan_dir(dir.path()).ok().map(|scan| scan.last_index), last, "{indexes:?}");
    }
}

#[test]
fn a_received_snapshot_moves_the_index_forward() {
    let dir = tempfile::tempdir().unwrap();
    let mut wal = WalEncoder::new(Vec::new(), 0).unwrap();
    wal.metadata(&METADATA).unwrap();
    wal.snapshot(&WalSnapshot { index: Some(100), term: Some(3), conf_state: None }).unwrap();
    wal.entry(&entry(101, 5)).unwrap();
    fs::write(dir.path().join(SegmentName::FIRST.to_string()), wal.finish()).unwrap();
    assert_eq!(scan_dir(dir.path()).unwrap().last_index, 101);
}

#[test]
fn a_restored_member_s_log_is_sound() {
    let cluster = InitialCluster::parse("a=http://a:1,b=http://b:1", "t").unwrap();
    let own = cluster.members()[1].id;
    let dir = tempfile::tempdir().unwrap();
    let bytes = bootstrap_segment(own, cluster.cluster_id(), cluster.members()).unwrap();
    fs::write(dir.path().join(SegmentName::FIRST.to_string()), bytes).unwrap();
    let scan = scan_dir(dir.path()).unwrap();
    assert_eq!((scan.node_id, scan.cluster_id, scan.last_index), (own, cluster.cluster_id(), 2));
    assert_eq!(scan.usable_snapshots().count(), 2);
}
