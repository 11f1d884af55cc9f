//! Restore, compaction and verification beside etcdutl, on the same inputs in one run.
//!
//! `QUORATE_ETCD_BINARIES` names the directory of etcd's tools; `QUORATE_BENCH_DIR` where to work (default: the
//! temporary directory), `QUORATE_BENCH_GIB` the size of the large snapshot (default 2), `QUORATE_BENCH_ETCD` the
//! release to compare with (default 3.6). Each figure is the median of `QUORATE_BENCH_RUNS` runs (default 3).
//!
//! Other modes, which need no etcdutl: `flat [GIB...]` shows peak memory over the size of the database, `instant` the
//! time of the instant tier of verification. `--prepare DIR` only writes the inputs, `--operation` runs one of ours on
//! them, for a profiler.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, reason = "a bench prints and may stop")]

mod flat;
mod inputs;
mod instant;
mod measure;
mod operations;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use measure::{Cost, median};

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    // Cargo adds `--bench` to whatever it was given.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let gib = variable("QUORATE_BENCH_GIB", "2").parse().unwrap();
    let (mode, rest) = arguments.split_first().map_or(("", &[][..]), |(mode, rest)| (mode.as_str(), rest));
    match (mode, rest) {
        ("--operation", rest) => operations::run(rest),
        ("--prepare", [dir]) => drop(inputs::all(Path::new(dir), gib)),
        ("flat", sizes) => flat::run(workplace().path(), sizes)?,
        ("instant", []) => {
            let work = workplace();
            let large = work.path().join("large.db");
            inputs::large_snapshot(&large, gib);
            instant::run(work.path(), &large);
        }
        ("", _) => {
            let binaries = std::env::var("QUORATE_ETCD_BINARIES").expect("QUORATE_ETCD_BINARIES names etcd's tools");
            let version = variable("QUORATE_BENCH_ETCD", "3.6");
            let etcdutl = Path::new(&binaries).join(&version).join("etcdutl");
            let runs = variable("QUORATE_BENCH_RUNS", "3").parse().unwrap();
            let work = workplace();
            Bench { dir: work.path().to_owned(), etcdutl, runs }.run(&version, gib);
        }
        _ => return Err(format!("no such mode: {}", arguments.join(" "))),
    }
    Ok(())
}

/// A directory that is removed with everything in it when the bench ends.
fn workplace() -> tempfile::TempDir {
    let parent = variable("QUORATE_BENCH_DIR", &std::env::temp_dir().display().to_string());
    tempfile::Builder::new().prefix("quorate-bench-").tempdir_in(parent).unwrap()
}

struct Bench {
    dir: PathBuf,
    etcdutl: PathBuf,
    runs: usize,
}

impl Bench {
    fn run(&self, version: &str, gib: f64) {
        println!("preparing {gib} GiB, 400 MB and 500,000 events of 1 KB over 300,000 keys");
        let [large, base, deltas] = inputs::all(&self.dir, gib);

        println!("{:<44}{:>9}{:>9}{:>10}{:>9}", "", "time s", "CPU s", "peak MiB", "ratio");
        let official = self.official("restore", &large);
        report(&format!("etcdutl {version} restore, {gib} GiB"), official, None);
        report("quorate restore, same", self.ours("restore", &large, None), Some(official));
        report("quorate restore --rewrite, same", self.ours("rewrite", &large, None), Some(official));

        let official = self.official("restore", &base);
        report(&format!("etcdutl {version} restore, 400 MB"), official, None);
        report("quorate restore, 400 MB + 500,000 events", self.ours("restore", &base, Some(&deltas)), Some(official));
        report("quorate compact, 400 MB + 500,000 events", self.ours("compact", &base, Some(&deltas)), Some(official));

        let official = self.official("status", &large);
        report(&format!("etcdutl {version} snapshot status, {gib} GiB"), official, None);
        report("quorate, structure alone", self.ours("structure", &large, None), Some(official));
        report("quorate verify --full, SHA-256 included", self.ours("verify", &large, None), Some(official));
        report("quorate hash (HashKV)", self.ours("hash", &large, None), Some(official));
        instant::run(&self.dir, &large);
    }

    fn official(&self, action: &str, snapshot: &Path) -> Cost {
        self.median(|| {
            let mut command = Command::new(&self.etcdutl);
            command.arg("snapshot").arg(action).arg(snapshot);
            if action == "restore" {
                command.arg("--data-dir").arg(self.output());
            }
            command
        })
    }

    fn ours(&self, action: &str, snapshot: &Path, deltas: Option<&Path>) -> Cost {
        self.median(|| our_operation(action, snapshot, &self.output(), deltas))
    }

    fn output(&self) -> PathBuf {
        self.dir.join("output")
    }

    fn median(&self, command: impl Fn() -> Command) -> Cost {
        let runs = (0..self.runs).map(|_| {
            // What the run before left to be written must not slow this one down.
            rustix::fs::sync();
            let cost = measure::run(&mut command());
            remove(&self.output());
            cost
        });
        median(runs.collect())
    }
}

/// One of ours in a process of its own, so that its peak of memory is its own too.
fn our_operation(action: &str, snapshot: &Path, output: &Path, deltas: Option<&Path>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--operation").arg(action).arg(snapshot).arg(output).args(deltas);
    command
}

/// Removes what an operation wrote, if it wrote anything.
fn remove(output: &Path) {
    let removed = if output.is_dir() { std::fs::remove_dir_all(output) } else { std::fs::remove_file(output) };
    drop(removed);
}

fn report(what: &str, cost: Cost, official: Option<Cost>) {
    let ratio = official.map_or(String::new(), |official| format!("{:.2}x", cost.seconds / official.seconds));
    println!("{what:<44}{:>9.2}{:>9.2}{:>10.1}{ratio:>9}", cost.seconds, cost.cpu_seconds, cost.peak_mib);
}
