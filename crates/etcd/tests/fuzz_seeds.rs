//! Runs the fuzz targets over their seeds and over simple mutations of them, without libFuzzer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a crate of its own elsewhere")]
mod targets;

use std::fs;
use std::path::Path;

/// A small generator with a fixed start: a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }
}

fn mutate(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, 0xff),
            2 if at < bytes.len() => {
                bytes.remove(at);
            }
            3 => {
                let end = (at + 8).min(bytes.len());
                bytes[at.min(end)..end].fill([0, 0xff, 0x7f][random.below(3)]);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    bytes
}

fn exercise(name: &str, mutations: usize, target: impl Fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let mut seeds: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "no seeds for {name}");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for path in seeds {
        let seed = fs::read(path).unwrap();
        target(&seed);
        for _ in 0..mutations {
            target(&mutate(&seed, &mut random));
        }
    }
}

#[test]
fn the_log_reader_survives_its_seeds() {
    exercise("wal", 400, targets::wal);
}

#[test]
fn the_snap_reader_survives_its_seeds() {
    exercise("snap", 5000, targets::snap);
}

#[test]
fn the_delta_reader_survives_its_seeds() {
    exercise("deltas", 200, targets::deltas);
}

#[test]
fn the_snapshot_reader_survives_its_seeds() {
    exercise("snapshot", 500, targets::snapshot);
}

#[test]
fn the_directory_check_survives_its_seeds() {
    exercise("data_dir", 300, targets::data_dir);
}

#[test]
fn what_writes_databases_survives_its_seeds() {
    exercise("restore", 60, targets::restore);
}

#[test]
fn what_reads_and_writes_buckets_survives_its_seeds() {
    exercise("buckets", 60, targets::buckets);
}

#[test]
fn the_reader_of_stored_backups_survives_its_seeds() {
    exercise("object", 300, targets::object);
}

#[test]
fn every_target_has_seeds_and_is_run_here() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let names = |folder: &str| {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().path().with_extension("")).collect();
        names.sort();
        names.into_iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let targets = names("fuzz_targets");
    assert_eq!(targets, names("seeds"));
    let here = include_str!("fuzz_seeds.rs");
    assert!(targets.iter().all(|name| here.contains(&format!("targets::{name});"))), "{targets:?}");
}

#[test]
fn the_name_parsers_survive_their_seeds() {
    exercise("names", 5000, targets::names);
}

#[test]
fn the_value_decoder_survives_its_seeds() {
    exercise("stored_value", 20_000, targets::stored_value);
}
