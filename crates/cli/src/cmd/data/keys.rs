//! `quorate data keys`.

use anyhow::Result;
use quorate_etcd::history::History;
use quorate_etcd::keys::live_keys;
use quorate_etcd::mvcc::StoredValue;
use quorate_etcd::snapshot::DigestPolicy;
use serde::Serialize;

use crate::args;
use crate::printer::{Printer, hex};
use crate::progress::Progress;
use crate::source::{SnapshotFile, cut_at, scratch};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    revision: i64,
    count: usize,
    keys: Vec<Key>,
}

/// A key is text in practice, but etcd allows any bytes; those come in hex.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Key {
    #[serde(rename = "key", skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(rename = "keyHex", skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    lease: i64,
    value_size: usize,
    #[serde(skip)]
    bytes: Vec<u8>,
}

impl Key {
    fn new(stored: &StoredValue<'_>) -> Self {
        let text = std::str::from_utf8(stored.key).ok().map(str::to_owned);
        Self {
            hex: text.is_none().then(|| hex(stored.key)),
            text,
            create_revision: stored.create_revision,
            mod_revision: stored.mod_revision,
            version: stored.version,
            lease: stored.lease,
            value_size: stored.value.len(),
            bytes: stored.key.to_vec(),
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.bytes.escape_ascii().to_string(),
            self.mod_revision.to_string(),
            self.create_revision.to_string(),
            self.version.to_string(),
            if self.lease == 0 { "-".to_owned() } else { format!("{:x}", self.lease) },
            self.value_size.to_string(),
        ]
    }
}

pub(super) fn run(printer: Printer, arguments: &args::Keys) -> Result<()> {
    let file = SnapshotFile::find(&arguments.path)?;
    let snapshot = file.open()?;
    snapshot.verify_digest(DigestPolicy::IfPresent)?;
    let history = History::new(&snapshot, None, cut_at(arguments.revision), &scratch())?;
    let progress = Progress::start(printer, "reading keys");
    let mut keys = Vec::new();
    live_keys(&history, |stored| -> Result<()> {
        if stored.key.starts_with(arguments.prefix.as_bytes()) {
            keys.push(Key::new(stored));
        }
        Ok(())
    })?;
    keys.sort_by(|one, other| one.bytes.cmp(&other.bytes));
    drop(progress);
    let report = Report { revision: history.revision(), count: keys.len(), keys };
    let header = ["KEY", "MODIFIED", "CREATED", "VERSION", "LEASE", "SIZE"];
    printer.table(&report, &header, report.keys.iter().map(Key::row))
}
