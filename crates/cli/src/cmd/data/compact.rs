//! `quorate data compact`.

use std::path::Path;

use anyhow::{Context, Result};
use quorate_etcd::compact::Compact;
use quorate_etcd::events::Cut;
use quorate_etcd::restore::CompactAt;
use quorate_etcd::snapshot::DigestPolicy;
use serde::Serialize;

use crate::args;
use crate::printer::{Printer, compaction, hex, size};
use crate::source::{SnapshotFile, scratch_beside};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    file: &'a Path,
    revision: i64,
    compact_revision: i64,
    events: u64,
    entries: u64,
    size: u64,
    sha256: String,
}

pub(super) fn run(printer: Printer, arguments: &args::Compact) -> Result<()> {
    let output = arguments.file().context("--output must name one file for the new snapshot")?;
    let file = SnapshotFile::find(&arguments.snapshot, &scratch_beside(output))?;
    let base = file.open()?.schema.revision();
    let mut deltas = file.deltas(printer, &arguments.deltas, base, Cut::End)?;
    let compact = Compact {
        snapshot: file.path(),
        output,
        cut: Cut::End,
        at: CompactAt::Head,
        digest: if arguments.skip_hash_check { DigestPolicy::IfPresent } else { DigestPolicy::Require },
    };
    let compacted = compact.run(Some(&mut deltas))?;
    drop(deltas);
    let report = Report {
        file: output,
        revision: compacted.revision,
        compact_revision: compacted.compact_revision,
        events: compacted.events,
        entries: compacted.entries,
        size: compacted.bytes,
        sha256: hex(&compacted.digest),
    };
    printer.facts(&report, || {
        vec![
            ("file", report.file.display().to_string()),
            ("revision", report.revision.to_string()),
            ("compact revision", compaction(report.compact_revision)),
            ("delta events", report.events.to_string()),
            ("entries", report.entries.to_string()),
            ("size", size(report.size)),
            ("sha256", report.sha256.clone()),
        ]
    })
}
