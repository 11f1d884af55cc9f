//! `quorate data keys`.

use anyhow::Result;
use quorate_etcd::history::History;
use quorate_etcd::keys::live_keys;
use quorate_etcd::mvcc::StoredValue;
use quorate_etcd::snapshot::DigestPolicy;
use serde::{Serialize, Serializer};

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

/// What is listed of a key. There may be millions, so its bytes are held once and spelt only when printed.
struct Key {
    bytes: Vec<u8>,
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    lease: i64,
    value_size: usize,
}

/// A key is text in practice, but etcd allows any bytes; those come in hex.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KeyJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    lease: i64,
    value_size: usize,
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let key = std::str::from_utf8(&self.bytes).ok();
        let &Self { create_revision, mod_revision, version, lease, value_size, .. } = self;
        let key_hex = key.is_none().then(|| hex(&self.bytes));
        KeyJson { key, key_hex, create_revision, mod_revision, version, lease, value_size }.serialize(serializer)
    }
}

impl Key {
    fn new(stored: &StoredValue<'_>) -> Self {
        Self {
            bytes: stored.key.to_vec(),
            create_revision: stored.create_revision,
            mod_revision: stored.mod_revision,
            version: stored.version,
            lease: stored.lease,
            value_size: stored.value.len(),
        }
    }

    fn row(&self) -> [String; 6] {
        [
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
    let file = SnapshotFile::find(&arguments.path, &scratch())?;
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
    keys.sort_unstable_by(|one: &Key, other| one.bytes.cmp(&other.bytes));
    drop(progress);
    let report = Report { revision: history.revision(), count: keys.len(), keys };
    let header = ["KEY", "MODIFIED", "CREATED", "VERSION", "LEASE", "SIZE"];
    printer.table(&report, header, || report.keys.iter().map(Key::row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_spelt_as_text_or_in_hex_and_never_both() {
        let key = |bytes: &[u8]| Key {
            bytes: bytes.to_vec(),
            create_revision: 2,
            mod_revision: 3,
            version: 4,
            lease: 5,
            value_size: 6,
        };
        let rest = r#""createRevision":2,"modRevision":3,"version":4,"lease":5,"valueSize":6}"#;
        let json = |bytes| serde_json::to_string(&key(bytes)).unwrap_or_default();
        assert_eq!(json("/größe".as_bytes()), format!(r#"{{"key":"/größe",{rest}"#));
        assert_eq!(json(&[0xff, 0]), format!(r#"{{"keyHex":"ff00",{rest}"#));
    }
}
