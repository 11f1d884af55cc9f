//! How long the instant tier of verification takes on a data directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use quorate_etcd::data_dir::DataDir;
use quorate_etcd::pb::raft::{Entry, EntryType, HardState, WalMetadata, WalSnapshot};
use quorate_etcd::validate::{self, Tier};
use quorate_etcd::wal::{BOOTSTRAP_TERM, SegmentName, WalEncoder, read_metadata};

use crate::{operations, remove};

const RUNS: usize = 11;

/// As large as etcd lets a segment become, in entries of 1 KiB.
const LOG_ENTRIES: u64 = 64 << 10;

/// Restores `snapshot` below `dir`, then checks it with the log of a restore and with one of 64 MiB.
pub(crate) fn run(dir: &Path, snapshot: &Path) {
    let data_dir = dir.join("data");
    operations::restore(snapshot, &data_dir, None, false);
    println!("{:<44}{:>12}{:>12}", "instant tier, median, ms", "cold", "cached");
    report("quorate verify, log as restored", &data_dir);
    write_log(&data_dir);
    report("quorate verify, log of 64 MiB", &data_dir);
    remove(&data_dir);
}

fn report(what: &str, data_dir: &Path) {
    rustix::fs::sync();
    let cold = median(data_dir, forget);
    let cached = median(data_dir, |_| {});
    println!("{what:<44}{cold:>12.2}{cached:>12.2}");
}

fn median(data_dir: &Path, before: impl Fn(&Path)) -> f64 {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            before(data_dir);
            let began = Instant::now();
            let (findings, _) = validate::data_dir(data_dir, Tier::Instant).unwrap();
            let taken = began.elapsed().as_secs_f64() * 1000.0;
            assert!(findings.list.is_empty(), "{findings:?}");
            taken
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

/// Has the kernel drop what it keeps of the database and the log.
fn forget(data_dir: &Path) {
    for path in [DataDir::new(data_dir).db(), segment(data_dir)] {
        let file = File::open(path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

fn segment(data_dir: &Path) -> PathBuf {
    data_dir.join("member/wal").join(SegmentName::FIRST.to_string())
}

/// The log of a member that was restored alone and has gone on from there.
fn write_log(data_dir: &Path) {
    let WalMetadata { node_id, cluster_id } = read_metadata(&data_dir.join("member/wal")).unwrap();
    let term = Some(BOOTSTRAP_TERM);
    let out = std::io::BufWriter::new(File::create(segment(data_dir)).unwrap());
    let mut log = WalEncoder::new(out, 0).unwrap();
    log.metadata(&WalMetadata { node_id, cluster_id }).unwrap();
    log.snapshot(&WalSnapshot { index: Some(0), term: Some(0), conf_state: None }).unwrap();
    for index in 1..=LOG_ENTRIES {
        let data = Some(vec![0x5a; 1000]);
        log.entry(&Entry { r#type: Some(EntryType::Normal.into()), term, index: Some(index), data }).unwrap();
        if index == 1 {
            log.snapshot(&WalSnapshot { index: Some(1), term, conf_state: None }).unwrap();
        }
    }
    log.state(&HardState { term, vote: node_id, commit: Some(LOG_ENTRIES) }).unwrap();
    log.finish().into_inner().unwrap().sync_all().unwrap();
}
