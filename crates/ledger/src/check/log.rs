//! The one order of all changes, from everything that shows any of them.

use std::collections::HashMap;

use super::epochs::{Epochs, acknowledgements};
use super::order::Known;
use super::{Findings, Rule};
use crate::history::{Change, History, Kv, Message, Outcome};

/// A key, by its number.
pub(super) type Key = u32;

/// One key changed at one revision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'h> {
    pub(super) revision: i64,
    pub(super) key: Key,
    /// Who showed it: acknowledgements come before hearsay.
    witness: Witness,
    /// Absent for a deletion.
    pub(super) value: Option<&'h str>,
    pub(super) lease: i64,
    /// Which write it is, if that is known.
    pub(super) write: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Witness {
    Acknowledgement,
    Watch,
    Read,
}

#[derive(Debug)]
pub(super) struct Log<'h> {
    numbers: HashMap<&'h str, Key>,
    pub(super) names: Vec<&'h str>,
    /// For each epoch what was written in it, by revision and key.
    pub(super) epochs: Vec<Vec<Entry<'h>>>,
    /// For each write the epoch and the revision where it took effect.
    pub(super) places: Vec<Option<(usize, i64)>>,
    /// For each key the lowest revision that a write of unknown fate, never seen, may have come after.
    pub(super) unseen_after: HashMap<Key, i64>,
    /// The same for deletions, seen or not: which of them was seen cannot always be told.
    pub(super) unseen_deletion_after: HashMap<Key, i64>,
}

impl<'h> Log<'h> {
    pub(super) fn of(history: &'h History, epochs: &Epochs<'h>, known: &Known, findings: &mut Findings) -> Self {
        let mut log = Self {
            numbers: HashMap::new(),
            names: Vec::new(),
            epochs: vec![Vec::new(); epochs.count()],
            places: vec![None; history.writes.len()],
            unseen_after: HashMap::new(),
            unseen_deletion_after: HashMap::new(),
        };
        log.take_acknowledgements(history, epochs);
        log.take_events(history, epochs);
        log.take_reads(history, epochs);
        for entries in &mut log.epochs {
            entries.sort_unstable_by_key(|entry| (entry.revision, entry.key, entry.witness));
        }
        log.merge_witnesses(findings);
        log.attribute_puts(history, epochs, findings);
        log.attribute_deletions(history, known, findings);
        log.check_one_write_per_revision(history, findings);
        log
    }

    pub(super) fn number(&self, key: &str) -> Option<Key> {
        self.numbers.get(key).copied()
    }

    fn intern(&mut self, key: &'h str) -> Key {
        let (numbers, names) = (&mut self.numbers, &mut self.names);
        *numbers.entry(key).or_insert_with(|| {
            names.push(key);
            // Four billion keys do not fit into a history.
            Key::try_from(names.len() - 1).unwrap_or(Key::MAX)
        })
    }

    fn take_acknowledgements(&mut self, history: &'h History, epochs: &Epochs<'_>) {
        for (n, position, _) in acknowledgements(history) {
            let epoch = epochs.number(position.cluster);
            self.places[n] = Some((epoch, position.revision));
            for Change { key, value, lease } in &history.writes[n].changes {
                let key = self.intern(key);
                self.epochs[epoch].push(Entry {
                    revision: position.revision,
                    key,
                    witness: Witness::Acknowledgement,
                    value: value.as_deref(),
                    lease: *lease,
                    write: Some(n),
                });
            }
        }
    }

    fn take_events(&mut self, history: &'h History, epochs: &Epochs<'_>) {
        for stream in &history.streams {
            let epoch = epochs.number(stream.cluster);
            for message in &stream.messages {
                let Message::Events { events, .. } = &message.body else { continue };
                for event in events {
                    let value = (!event.deleted).then_some(event.kv.value.as_str());
                    self.see(epochs, epoch, Witness::Watch, &event.kv, value);
                    if let Some(previous) = &event.previous {
                        self.see(epochs, epoch, Witness::Read, previous, Some(&previous.value));
                    }
                }
            }
        }
    }

    fn take_reads(&mut self, history: &'h History, epochs: &Epochs<'_>) {
        let reads = history.reads.iter().map(|read| (read.at.cluster, &read.found));
        let finals = history.finals.iter().map(|last| (last.at.cluster, &last.found));
        for (cluster, found) in reads.chain(finals) {
            let epoch = epochs.number(cluster);
            for kv in found {
                self.see(epochs, epoch, Witness::Read, kv, Some(&kv.value));
            }
        }
    }

    fn see(&mut self, epochs: &Epochs<'_>, epoch: usize, witness: Witness, kv: &'h Kv, value: Option<&'h str>) {
        let key = self.intern(&kv.key);
        let home = epochs.home(epoch, kv.mod_revision);
        self.epochs[home].push(Entry { revision: kv.mod_revision, key, witness, value, lease: kv.lease, write: None });
    }

    /// Leaves one entry for each key and revision; they must not contradict each other.
    fn merge_witnesses(&mut self, findings: &mut Findings) {
        let names = &self.names;
        for entries in &mut self.epochs {
            entries.dedup_by(|other, first| {
                if (other.revision, other.key) != (first.revision, first.key) {
                    return false;
                }
                if (other.value, other.lease) != (first.value, first.lease) {
                    findings.add(Rule::OneWritePerRevision, || {
                        let name = names[first.key as usize];
                        format!("revision {} of {name} is {} and also {}", first.revision, told(first), told(other))
                    });
                }
                true
            });
        }
    }

    fn attribute_puts(&mut self, history: &'h History, epochs: &Epochs<'_>, findings: &mut Findings) {
        let mut writers: HashMap<&str, (usize, &str)> = HashMap::new();
        for (n, write) in history.writes.iter().enumerate() {
            for change in &write.changes {
                if let Some(value) = &change.value {
                    writers.insert(value, (n, &change.key));
                }
            }
        }
        for (epoch, entries) in self.epochs.iter_mut().enumerate() {
            for entry in entries.iter_mut() {
                let (Some(value), name) = (entry.value, self.names[entry.key as usize]) else { continue };
                let revision = entry.revision;
                let Some((n, key)) = writers.get(value).copied().filter(|(_, key)| *key == name) else {
                    findings.add(Rule::NothingUnasked, || {
                        format!("revision {revision} of {name} is `{value}`, which nobody wrote there")
                    });
                    continue;
                };
                entry.write = Some(n);
                let write = &history.writes[n];
                if matches!(write.outcome, Outcome::Failed | Outcome::Declined) {
                    findings.add(Rule::NothingUnasked, || {
                        let (by, called) = (&write.by, write.called);
                        format!("{key} is `{value}` at revision {revision}; what {by} asked for at {called} had failed")
                    });
                }
                match self.places[n] {
                    None => self.places[n] = Some((epoch, revision)),
                    Some(place) if place == (epoch, revision) => {}
                    // Reported as perhaps lost, and kept.
                    Some((before, same))
                        if before < epoch && same == revision && revision <= epochs.reported_lost(epoch) => {}
                    Some((_, other)) => findings.add(Rule::AtMostOnce, || {
                        format!(
                            "the write of `{value}` to {key} by {} is revision {other} and also {revision}",
                            write.by
                        )
                    }),
                }
            }
        }
    }

    /// A deletion carries no mark of whose it is, so those that no acknowledgement explains are given to writes of unknown
    /// fate: each to at most one, and none to a write that began after something later was known.
    fn attribute_deletions(&mut self, history: &'h History, known: &Known, findings: &mut Findings) {
        let mut unknown: Vec<HashMap<Key, Vec<i64>>> = vec![HashMap::new(); self.epochs.len()];
        for (n, write) in history.writes.iter().enumerate().filter(|(_, write)| write.outcome == Outcome::Unknown) {
            let after: Vec<i64> = (0..self.epochs.len()).map(|epoch| known.before(epoch, write.called)).collect();
            let earliest = after.iter().copied().min().unwrap_or_default();
            for change in &write.changes {
                let key = self.intern(&change.key);
                if change.value.is_none() {
                    for (unknown, after) in unknown.iter_mut().zip(&after) {
                        unknown.entry(key).or_default().push(*after);
                    }
                    lower(&mut self.unseen_deletion_after, key, earliest);
                }
                if change.value.is_none() || self.places[n].is_none() {
                    lower(&mut self.unseen_after, key, earliest);
                }
            }
        }
        for (entries, unknown) in self.epochs.iter().zip(&mut unknown) {
            for after in unknown.values_mut() {
                after.sort_unstable();
            }
            let mut explained: HashMap<Key, usize> = HashMap::new();
            for entry in entries.iter().filter(|entry| entry.value.is_none() && entry.write.is_none()) {
                let next = explained.entry(entry.key).or_default();
                let explanation = unknown.get(&entry.key).and_then(|after| after.get(*next));
                if explanation.is_some_and(|after| *after < entry.revision) {
                    *next += 1;
                    continue;
                }
                let name = self.names[entry.key as usize];
                findings.add(Rule::NothingUnasked, || {
                    format!("revision {} deletes {name}, which nobody asked for then", entry.revision)
                });
            }
        }
    }

    fn check_one_write_per_revision(&self, history: &History, findings: &mut Findings) {
        for entries in &self.epochs {
            for group in entries.chunk_by(|a, b| a.revision == b.revision) {
                let Some(n) = group.iter().find_map(|entry| entry.write) else { continue };
                let write = &history.writes[n];
                for entry in group {
                    let name = self.names[entry.key as usize];
                    let stranger = entry.write.is_some_and(|other| other != n);
                    if stranger || !write.changes.iter().any(|change| change.key == name) {
                        findings.add(Rule::OneWritePerRevision, || {
                            let mine = write.changes.first().map_or("nothing", |change| change.key.as_str());
                            format!(
                                "revision {} is the write of {} to {mine} and also {} to {name}",
                                entry.revision,
                                write.by,
                                told(entry)
                            )
                        });
                    }
                }
            }
        }
    }
}

fn lower(bounds: &mut HashMap<Key, i64>, key: Key, bound: i64) {
    let lowest = bounds.entry(key).or_insert(bound);
    *lowest = bound.min(*lowest);
}

fn told(entry: &Entry<'_>) -> String {
    let what = entry.value.map_or_else(|| "a deletion".to_owned(), |value| format!("`{value}`"));
    let who = match entry.witness {
        Witness::Acknowledgement => "acknowledged",
        Witness::Watch => "watched",
        Witness::Read => "read",
    };
    format!("{what} ({who}, lease {:x})", entry.lease)
}
