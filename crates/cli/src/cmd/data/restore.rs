//! `quorate data restore`.

use std::path::Path;

use anyhow::Result;
use quorate_etcd::events::{Cut, EventStream};
use quorate_etcd::membership::{InitialCluster, hex_id};
use quorate_etcd::restore::{CompactAt, Mode, Restore};
use quorate_etcd::snapshot::DigestPolicy;
use serde::Serialize;

use crate::args;
use crate::printer::{Printer, compaction, size};
use crate::progress::Progress;
use crate::source::{SnapshotFile, cut_at, scratch_beside};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    data_dir: &'a Path,
    revision: i64,
    compact_revision: i64,
    events: u64,
    size: u64,
    mode: &'static str,
    member_id: String,
    cluster_id: String,
}

pub(super) fn run(printer: Printer, arguments: &args::Restore) -> Result<()> {
    let cluster = InitialCluster::parse(&arguments.initial_cluster, &arguments.initial_cluster_token)?;
    let member = cluster.own_member(&arguments.name, &arguments.initial_advertise_peer_urls)?;
    let file = SnapshotFile::find(&arguments.snapshot, &scratch_beside(&arguments.data_dir))?;
    let cut = arguments.time.map_or_else(|| cut_at(arguments.revision), Cut::Time);
    let mut deltas = match &arguments.deltas {
        Some(dir) => Some(file.deltas(printer, dir, file.open()?.schema.revision(), cut)?),
        None => None,
    };
    let restore = Restore {
        snapshot: file.path(),
        data_dir: &arguments.data_dir,
        cluster: &cluster,
        member,
        cut,
        compact: arguments.compact.then_some(CompactAt::Head),
        bump_revision: arguments.bump_revision,
        lease_ttl: arguments.lease_ttl,
        digest: if arguments.skip_hash_check { DigestPolicy::IfPresent } else { DigestPolicy::Require },
        target_version: arguments.etcd_version,
        rewrite: false,
    };
    let progress = deltas.is_none().then(|| Progress::start(printer, "restoring"));
    let restored = restore.run(deltas.as_mut().map(|deltas| deltas as &mut dyn EventStream))?;
    drop((progress, deltas));
    let report = Report {
        data_dir: &arguments.data_dir,
        revision: restored.revision,
        // The server compacts at the bumped revision when it starts, so that is what clients will find.
        compact_revision: arguments
            .bump_revision
            .map_or(restored.compact_revision.unwrap_or(-1), |_| restored.revision),
        events: restored.events,
        size: restored.database_bytes,
        mode: match restored.mode {
            Mode::Append => "append",
            Mode::Rewrite => "rewrite",
        },
        member_id: hex_id(member.id),
        cluster_id: hex_id(cluster.cluster_id()),
    };
    printer.facts(&report, || {
        vec![
            ("data dir", report.data_dir.display().to_string()),
            ("revision", report.revision.to_string()),
            ("compact revision", compaction(report.compact_revision)),
            ("delta events", report.events.to_string()),
            ("size", size(report.size)),
            ("member id", report.member_id.clone()),
            ("cluster id", report.cluster_id.clone()),
        ]
    })
}
