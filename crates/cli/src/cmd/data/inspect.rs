//! `quorate data inspect`.

use anyhow::Result;
use quorate_etcd::events::Cut;
use quorate_etcd::history::History;
use quorate_etcd::keys::count_live_keys;
use quorate_etcd::membership::{Member, hex_id};
use quorate_etcd::wal::{self, Tail, WalScan};
use serde::Serialize;

use crate::args;
use crate::printer::{Facts, Printer, compaction, size};
use crate::progress::Progress;
use crate::source::{SnapshotFile, Source, scratch};

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
enum SourceKind {
    /// A database with a SHA-256 behind it.
    Snapshot,
    /// A database without one.
    Database,
    DataDir,
    Wal,
}

/// Everything but `kind` and `size` may be unknown: a log has no keys, a snapshot has no log.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    kind: SourceKind,
    revision: Option<i64>,
    compact_revision: Option<i64>,
    keys: Option<u64>,
    size: u64,
    etcd_version: Option<String>,
    members: Option<Vec<MemberReport>>,
    alarms: Option<Vec<String>>,
    auth_enabled: Option<bool>,
    consistent_index: Option<u64>,
    term: Option<u64>,
    member_id: Option<String>,
    cluster_id: Option<String>,
    wal: Option<WalReport>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MemberReport {
    id: String,
    name: String,
    #[serde(rename = "peerURLs")]
    peer_urls: Vec<String>,
    #[serde(rename = "clientURLs")]
    client_urls: Vec<String>,
    is_learner: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WalReport {
    segments: usize,
    entries: u64,
    last_index: u64,
    last_term: u64,
    commit: u64,
    tail: &'static str,
}

pub(super) fn run(printer: Printer, arguments: &args::Inspect) -> Result<()> {
    let progress = Progress::start(printer, "reading");
    let report = match Source::find(&arguments.path)? {
        Source::File(path) => database(&SnapshotFile::find(&path, &scratch())?)?,
        Source::DataDir(dir) => {
            // The database's lock covers the log: while etcd runs, neither is what it was a moment ago.
            let file = SnapshotFile::find(dir.path(), &scratch())?;
            let scan = wal::scan_dir(&dir.wal())?;
            Report { kind: SourceKind::DataDir, ..database(&file)? }.with_log(&scan)
        }
        Source::Wal(dir) => log_only(&wal::scan_dir(&dir)?),
    };
    drop(progress);
    printer.facts(&report, || facts(&report))
}

fn database(file: &SnapshotFile) -> Result<Report> {
    let snapshot = file.open()?;
    let history = History::new(&snapshot, None, Cut::End, &scratch())?;
    let schema = &snapshot.schema;
    Ok(Report {
        kind: if snapshot.stored_digest().is_some() { SourceKind::Snapshot } else { SourceKind::Database },
        revision: Some(schema.revision()),
        compact_revision: Some(schema.compact_revision().unwrap_or(-1)),
        keys: Some(count_live_keys(&history)?),
        size: file.size()?,
        etcd_version: schema.etcd_version().map(|version| version.to_string()),
        members: Some(schema.members.iter().map(MemberReport::new).collect()),
        alarms: Some(
            schema.alarms.iter().map(|alarm| format!("{} {}", alarm.name(), hex_id(alarm.member_id))).collect(),
        ),
        auth_enabled: Some(schema.auth_enabled),
        consistent_index: Some(schema.consistent_index),
        term: schema.term,
        member_id: None,
        cluster_id: None,
        wal: None,
    })
}

fn log_only(scan: &WalScan) -> Report {
    let nothing = Report {
        kind: SourceKind::Wal,
        revision: None,
        compact_revision: None,
        keys: None,
        size: scan.bytes,
        etcd_version: None,
        members: None,
        alarms: None,
        auth_enabled: None,
        consistent_index: None,
        term: None,
        member_id: None,
        cluster_id: None,
        wal: None,
    };
    nothing.with_log(scan)
}

impl Report {
    fn with_log(self, scan: &WalScan) -> Self {
        let wal = WalReport {
            segments: scan.segments.len(),
            entries: scan.entries,
            last_index: scan.last_index,
            last_term: scan.last_term,
            commit: scan.hard_state.commit.unwrap_or_default(),
            tail: match scan.tail {
                Tail::Clean => "clean",
                Tail::Torn { .. } => "torn",
                Tail::Residue { .. } => "residue",
            },
        };
        let (member_id, cluster_id) = (Some(hex_id(scan.node_id)), Some(hex_id(scan.cluster_id)));
        Self { member_id, cluster_id, wal: Some(wal), ..self }
    }
}

impl MemberReport {
    fn new(member: &Member) -> Self {
        let Member { name, peer_urls, client_urls, is_learner, .. } = member.clone();
        Self { id: member.hex_id(), name, peer_urls, client_urls, is_learner }
    }
}

fn facts(report: &Report) -> Facts {
    let kind = match report.kind {
        SourceKind::Snapshot => "snapshot",
        SourceKind::Database => "database without a digest",
        SourceKind::DataDir => "data directory",
        SourceKind::Wal => "write-ahead log",
    };
    let mut facts = vec![("kind", kind.to_owned())];
    let mut add = |label, value: Option<String>| facts.extend(value.map(|value| (label, value)));
    add("revision", report.revision.map(|n| n.to_string()));
    add("compact revision", report.compact_revision.map(compaction));
    add("keys", report.keys.map(|n| n.to_string()));
    add("size", Some(size(report.size)));
    add("etcd version", report.etcd_version.clone());
    add("member id", report.member_id.clone());
    add("cluster id", report.cluster_id.clone());
    add("raft index", report.consistent_index.map(|n| n.to_string()));
    if let Some(wal) = &report.wal {
        let text = format!(
            "{} entries in {} segments, last index {}, end {}",
            wal.entries, wal.segments, wal.last_index, wal.tail
        );
        add("log", Some(text));
    }
    add("auth", report.auth_enabled.map(|on| if on { "on" } else { "off" }.to_owned()));
    for alarm in report.alarms.iter().flatten() {
        add("alarm", Some(alarm.clone()));
    }
    for member in report.members.iter().flatten() {
        let learner = if member.is_learner { " (learner)" } else { "" };
        add("member", Some(format!("{} {}{learner} {}", member.id, member.name, member.peer_urls.join(","))));
    }
    facts
}
