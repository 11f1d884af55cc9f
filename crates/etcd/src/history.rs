//! The history of a store up to one revision: a snapshot's entries, then those of the delta events after it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::bbolt::{self, Walk};
use crate::events::{Contiguous, Cut, EventError, EventKind, EventStream};
use crate::keep::{Keep, KeepBuilder};
use crate::mvcc::{Revision, StoredKey, StoredValue, ValueFault};
use crate::schema::{KEY, SchemaError};
use crate::scratch::{ScratchError, Spool, SpoolWriter};
use crate::snapshot::Snapshot;

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("the snapshot's database cannot be read")]
    Base(#[from] bbolt::Error),
    #[error("the snapshot's database cannot be understood")]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Events(#[from] EventError),
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    #[error(
        "bucket `key` has an entry under {key:02x?}, which is no revision; the snapshot is damaged, take another one"
    )]
    Key { key: Vec<u8> },
    #[error("the entry of revision {revision} is damaged; take another snapshot")]
    Value { revision: i64, source: ValueFault },
    #[error("revision {wanted} lies below the snapshot's compaction at {compacted}; use a snapshot taken earlier")]
    Compacted { wanted: i64, compacted: i64 },
    #[error("revision {wanted} is not reached: snapshot and deltas end at {last}; add later deltas or ask for less")]
    NotReached { wanted: i64, last: i64 },
    #[error(
        "the history cannot be compacted at {wanted}: it must be between {lowest} and {highest}; ask for one of those"
    )]
    CompactRange { wanted: i64, lowest: i64, highest: i64 },
}

/// One entry of bucket `key`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// Its place in the history, counted from 0.
    pub(crate) ordinal: u64,
    pub(crate) stored: StoredKey,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Entry<'_> {
    pub(crate) fn main(&self) -> i64 {
        self.stored.revision.main
    }
}

/// A snapshot and the deltas after it, cut at a revision.
#[derive(Debug)]
pub struct History<'s> {
    pub(crate) snapshot: &'s Snapshot,
    deltas: Option<Spool>,
    applied: Applied,
    scratch: PathBuf,
}

impl<'s> History<'s> {
    /// Reads the events once into scratch space under `scratch`, which must be on a disk with room for them.
    pub fn new(
        snapshot: &'s Snapshot,
        events: Option<&mut dyn EventStream>,
        cut: Cut,
        scratch: &Path,
    ) -> Result<Self, HistoryError> {
        Self::collecting(snapshot, events, cut, scratch, Leases::Ignore)
    }

    pub(crate) fn collecting(
        snapshot: &'s Snapshot,
        events: Option<&mut dyn EventStream>,
        cut: Cut,
        scratch: &Path,
        leases: Leases,
    ) -> Result<Self, HistoryError> {
        let base = snapshot.schema.revision();
        check_cut(snapshot, cut)?;
        let applied = Applied { revision: base, ..Applied::default() };
        let mut history = Self { snapshot, deltas: None, applied, scratch: scratch.to_owned() };
        match (cut, events) {
            (Cut::Revision(wanted), _) if wanted <= base => history.applied.revision = wanted,
            (_, Some(events)) => {
                let mut spool = SpoolWriter::new(scratch)?;
                let push = |key: &[u8], value: &[u8]| spool.push(key, value).map_err(HistoryError::from);
                history.applied = apply(events, base, cut, leases, push)?;
                history.deltas = Some(spool.finish()?);
            }
            (Cut::Revision(wanted), None) => return Err(HistoryError::NotReached { wanted, last: base }),
            (Cut::End | Cut::Time(_), None) => {}
        }
        Ok(history)
    }

    /// The revision of the store at the end of this history.
    pub fn revision(&self) -> i64 {
        self.applied.revision
    }

    /// How many delta events it holds.
    pub fn events(&self) -> u64 {
        self.applied.events
    }

    /// What its delta events led to.
    pub(crate) fn applied(&self) -> &Applied {
        &self.applied
    }

    /// The compaction the snapshot brings along.
    pub fn compact_revision(&self) -> Option<i64> {
        self.snapshot.schema.compact_revision()
    }

    /// Checks that compacting at `wanted` makes sense here.
    pub(crate) fn check_compaction(&self, wanted: i64) -> Result<(), HistoryError> {
        let (lowest, highest) = (self.compact_revision().unwrap_or(0), self.applied.revision);
        if (lowest..=highest).contains(&wanted) {
            return Ok(());
        }
        Err(HistoryError::CompactRange { wanted, lowest, highest })
    }

    /// Visits all entries in order.
    pub(crate) fn for_each<E: From<HistoryError>>(
        &self,
        mut visit: impl FnMut(Entry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut ordinal = 0;
        let mut failure = None;
        let mut one = |key: &[u8], value: &[u8]| {
            let stored = StoredKey::decode(key).ok_or_else(|| HistoryError::Key { key: key.to_vec() })?;
            if stored.revision.main > self.applied.revision {
                return Ok(ControlFlow::Break(()));
            }
            let entry = Entry { ordinal, stored, key, value };
            ordinal += 1;
            // The visitor's own error is carried out beside the walk's, which has another type.
            match visit(entry) {
                Ok(()) => Ok(ControlFlow::Continue(())),
                Err(error) => {
                    failure = Some(error);
                    Ok::<_, HistoryError>(ControlFlow::Break(()))
                }
            }
        };
        let db = &self.snapshot.db;
        let bucket = db.bucket(KEY.as_bytes()).map_err(HistoryError::from)?;
        let bucket = bucket.ok_or(HistoryError::Schema(SchemaError::NoBucket(KEY)))?;
        let flow = Walk::new(db).bucket(&bucket, &mut one)?;
        if let (ControlFlow::Continue(()), Some(deltas)) = (flow, &self.deltas) {
            deltas.for_each(&mut one)?;
        }
        failure.map_or(Ok(()), Err)
    }

    /// The newest put of each key among the entries up to `last`.
    pub(crate) fn keep(&self, last: i64) -> Result<Keep, HistoryError> {
        let mut builder = KeepBuilder::new(&self.scratch);
        self.for_each(|entry| -> Result<(), HistoryError> {
            if entry.main() <= last {
                let user_key = StoredValue::user_key(entry.value)
                    .map_err(|source| HistoryError::Value { revision: entry.main(), source })?;
                builder.push(user_key, entry.stored.is_tombstone)?;
            }
            Ok(())
        })?;
        Ok(builder.finish()?)
    }
}

/// Refuses what no delta can help with.
pub(crate) fn check_cut(snapshot: &Snapshot, cut: Cut) -> Result<(), HistoryError> {
    let compacted = snapshot.schema.compact_revision().unwrap_or(0);
    match cut {
        Cut::Revision(wanted) if wanted < compacted.max(1) => Err(HistoryError::Compacted { wanted, compacted }),
        _ => Ok(()),
    }
}

/// Whether to remember the leases that events mention; there may be as many as there are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leases {
    Collect,
    Ignore,
}

/// What applying events led to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Applied {
    pub(crate) revision: i64,
    pub(crate) events: u64,
    /// The leases that puts among them are attached to, if they were to be collected.
    pub(crate) leases: BTreeSet<i64>,
    /// Seconds to live of the leases that the source of the events knew.
    pub(crate) known_leases: BTreeMap<i64, i64>,
}

/// Turns events into entries of bucket `key`, exactly as the server stored them.
pub(crate) fn apply<E: From<HistoryError>>(
    events: &mut dyn EventStream,
    base: i64,
    cut: Cut,
    wanted_leases: Leases,
    mut put: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<Applied, E> {
    let mut events = Contiguous::new(events, base, cut);
    let (mut key, mut value, mut count, mut leases) = (Vec::new(), Vec::new(), 0, BTreeSet::new());
    while events.advance().map_err(HistoryError::from)? {
        let event = events.event();
        let revision = Revision { main: event.mod_revision, sub: events.sub() };
        StoredKey { revision, is_tombstone: event.kind == EventKind::Delete }.encode(&mut key);
        StoredValue::of_event(event).encode(&mut value);
        put(&key, &value)?;
        count += 1;
        if wanted_leases == Leases::Collect && event.lease != 0 {
            leases.insert(event.lease);
        }
    }
    let revision = events.revision();
    match cut {
        Cut::Revision(wanted) if revision < wanted => Err(HistoryError::NotReached { wanted, last: revision }.into()),
        _ => Ok(Applied { revision, events: count, leases, known_leases: events.leases() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{ChangeEvent, Events};

    #[test]
    fn leases_are_remembered_only_where_they_are_wanted() {
        let put = ChangeEvent {
            key: b"k".to_vec(),
            create_revision: 2,
            mod_revision: 2,
            version: 1,
            lease: 7,
            ..ChangeEvent::default()
        };
        for (wanted, expected) in [(Leases::Collect, BTreeSet::from([7])), (Leases::Ignore, BTreeSet::new())] {
            let mut events = Events::new(vec![put.clone()]);
            let applied = apply(&mut events, 1, Cut::End, wanted, |_, _| Ok::<_, HistoryError>(())).unwrap();
            assert_eq!(applied.leases, expected);
        }
    }
}
