//! Peak memory over the size of the database.

use std::path::Path;

use crate::{inputs, measure, our_operation, remove};

const SIZES: [&str; 3] = ["0.5", "2", "8"];

/// What is run, and whether on the deltas too.
const OPERATIONS: [(&str, bool); 5] =
    [("restore", false), ("rewrite", false), ("verify", false), ("hash", false), ("compact", true)];

/// One run of each operation on a database of each size in gibibytes. Keys are a fifth of the revisions, so they grow too.
pub(crate) fn run(dir: &Path, sizes: &[String]) -> Result<(), String> {
    let sizes: Vec<&str> = if sizes.is_empty() { SIZES.to_vec() } else { sizes.iter().map(String::as_str).collect() };
    require_space(dir, &sizes)?;
    let mut keys = Vec::new();
    let mut peaks: [Vec<f64>; OPERATIONS.len()] = Default::default();
    for gib in &sizes {
        println!("preparing and measuring {gib} GiB");
        let [snapshot, deltas, output] = ["snapshot.db", "deltas", "output"].map(|name| dir.join(name));
        keys.push(inputs::growing(&snapshot, &deltas, gib.parse().unwrap()));
        for ((action, with_deltas), peaks) in OPERATIONS.iter().zip(&mut peaks) {
            let deltas = with_deltas.then_some(deltas.as_path());
            peaks.push(measure::run(&mut our_operation(action, &snapshot, &output, deltas)).peak_mib);
            remove(&output);
        }
        remove(&snapshot);
        remove(&deltas);
    }
    row("", sizes.iter().map(|gib| format!("{gib} GiB")));
    row("keys", keys.iter().map(u64::to_string));
    for ((action, _), peaks) in OPERATIONS.iter().zip(&peaks) {
        row(&format!("peak memory of {action}, MiB"), peaks.iter().map(|mib| format!("{mib:.1}")));
    }
    Ok(())
}

fn row(title: &str, cells: impl Iterator<Item = String>) {
    print!("{title:<32}");
    for cell in cells {
        print!("{cell:>12}");
    }
    println!();
}

/// The largest database is there twice at most, and beside it deltas and scratch files.
fn require_space(dir: &Path, sizes: &[&str]) -> Result<(), String> {
    let largest = sizes.iter().map(|gib| gib.parse::<f64>().unwrap()).fold(0.0, f64::max);
    let needed = largest * 2.2 + 0.2;
    let disk = rustix::fs::statvfs(dir).unwrap();
    #[allow(clippy::cast_precision_loss, reason = "a size to be shown")]
    let free = (disk.f_bavail * disk.f_frsize) as f64 / f64::from(1 << 30);
    let place = dir.parent().unwrap_or(dir).display();
    let shortage = format!("{needed:.1} GiB are needed in {place} but {free:.1} are free; set QUORATE_BENCH_DIR");
    if free < needed { Err(shortage) } else { Ok(()) }
}
