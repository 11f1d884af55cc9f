//! `quorate data hash`.

use anyhow::Result;
use quorate_etcd::events::EventStream;
use quorate_etcd::hash::hash_kv;
use quorate_etcd::history::History;
use quorate_etcd::snapshot::DigestPolicy;
use serde::Serialize;

use crate::args;
use crate::printer::{Printer, compaction};
use crate::progress::Progress;
use crate::source::{SnapshotFile, cut_at, scratch};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    hash: u32,
    revision: i64,
    compact_revision: i64,
}

pub(super) fn run(printer: Printer, arguments: &args::Hash) -> Result<()> {
    let file = SnapshotFile::find(&arguments.path, &scratch())?;
    let snapshot = file.open()?;
    snapshot.verify_digest(DigestPolicy::IfPresent)?;
    let (base, cut) = (snapshot.schema.revision(), cut_at(arguments.revision));
    let mut deltas = match &arguments.deltas {
        Some(dir) => Some(file.deltas(printer, dir, base, cut)?),
        None => None,
    };
    let events = deltas.as_mut().map(|deltas| deltas as &mut dyn EventStream);
    let history = History::new(&snapshot, events, cut, &scratch())?;
    let progress = Progress::start(printer, "hashing");
    let hash = hash_kv(&history, arguments.compact_revision)?;
    drop(progress);
    let report = Report { hash: hash.hash, revision: hash.revision, compact_revision: hash.compact_revision };
    printer.facts(&report, || {
        vec![
            ("hash", report.hash.to_string()),
            ("revision", report.revision.to_string()),
            ("compact revision", compaction(report.compact_revision)),
        ]
    })
}
