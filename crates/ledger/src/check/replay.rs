//! Every key at every revision, as the writes have made it.

use std::collections::HashMap;

use super::epochs::Epochs;
use super::log::{Entry, Key, Log};
use super::watches::delivered_to;
use crate::history::{History, Kv};

/// A key from one revision on.
#[derive(Clone, Copy, Debug)]
pub(super) struct State<'h> {
    pub(super) revision: i64,
    /// Absent while it is deleted.
    pub(super) value: Option<&'h str>,
    pub(super) create_revision: i64,
    pub(super) version: i64,
    pub(super) lease: i64,
    pub(super) write: Option<usize>,
    /// False if a write that nobody saw may have come in between, so that creation and version cannot be told.
    certain: bool,
}

impl State<'_> {
    /// Whether a member that shows this tells the truth.
    pub(super) fn is(&self, kv: &Kv) -> bool {
        self.value == Some(kv.value.as_str())
            && (self.revision, self.lease) == (kv.mod_revision, kv.lease)
            && self.is_as_old_as(kv)
    }

    pub(super) fn is_as_old_as(&self, kv: &Kv) -> bool {
        !self.certain || (self.create_revision, self.version) == (kv.create_revision, kv.version)
    }
}

/// What a key must be at some revision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'r, 'h> {
    /// Absent if the key must not be there.
    pub(super) state: Option<&'r State<'h>>,
    /// Whether a deletion that nobody saw may have ended it.
    perhaps_absent: bool,
}

impl Expected<'_, '_> {
    pub(super) fn admits(&self, found: Option<&Kv>) -> bool {
        match (self.state, found) {
            (Some(state), Some(kv)) => state.is(kv),
            (Some(_), None) => self.perhaps_absent,
            (None, found) => found.is_none(),
        }
    }

    /// Whether it was last changed at this revision, or is not there if that is 0.
    pub(super) fn admits_change_at(&self, revision: i64) -> bool {
        self.state.map_or(0, |state| state.revision) == revision || (revision == 0 && self.perhaps_absent)
    }
}

/// Revisions of an earlier epoch that this one may have kept or not: which keys they changed, and whether by deleting.
#[derive(Clone, Debug)]
struct Zone {
    after: i64,
    until: i64,
    touched: HashMap<Key, bool>,
}

/// What one epoch shows, the part that it took over included.
#[derive(Debug)]
pub(super) struct Replay<'l, 'h> {
    log: &'l Log<'h>,
    timelines: Vec<Vec<State<'h>>>,
    /// Revisions that some watch of everything has delivered, as ranges without overlap, in order.
    covered: Vec<(i64, i64)>,
    zones: Vec<Zone>,
}

impl<'l, 'h> Replay<'l, 'h> {
    pub(super) fn of_all(history: &'h History, epochs: &Epochs<'_>, log: &'l Log<'h>) -> Vec<Self> {
        let mut replays = Vec::with_capacity(epochs.count());
        let (mut entries, mut covered): (Vec<Entry<'h>>, Vec<(i64, i64)>) = (Vec::new(), Vec::new());
        let mut zones = Vec::new();
        for (epoch, own) in log.epochs.iter().enumerate() {
            let kept = epochs.kept(epoch);
            if epoch > 0 {
                let mut touched = HashMap::new();
                for entry in entries.iter().filter(|entry| entry.revision > kept) {
                    *touched.entry(entry.key).or_default() |= entry.value.is_none();
                }
                zones.push(Zone { after: kept, until: epochs.reported_lost(epoch), touched });
            }
            entries.retain(|entry| entry.revision <= kept);
            entries.extend(own);
            entries.sort_by_key(|entry| entry.revision);
            covered.retain_mut(|(from, to)| {
                *to = kept.min(*to);
                from <= to
            });
            let streams = history
                .streams
                .iter()
                .filter(|stream| stream.prefix == history.prefix && epochs.number(stream.cluster) == epoch);
            covered.extend(streams.map(|stream| (stream.start, delivered_to(stream))).filter(|(from, to)| from <= to));
            covered = merged(covered);
            replays.push(Self::of(&entries, log, covered.clone(), zones.clone()));
        }
        replays
    }

    fn of(entries: &[Entry<'h>], log: &'l Log<'h>, covered: Vec<(i64, i64)>, zones: Vec<Zone>) -> Self {
        let timelines = vec![Vec::new(); log.names.len()];
        let mut replay = Self { log, timelines, covered, zones };
        for entry in entries {
            let before = replay.timelines[entry.key as usize].last().copied();
            let since = before.map_or(0, |state| state.revision);
            let clear = !replay.may_have_been_changed(entry.key, since, entry.revision - 1);
            let live = before.filter(|state| state.value.is_some());
            let state = State {
                revision: entry.revision,
                value: entry.value,
                create_revision: live.map_or(entry.revision, |state| state.create_revision),
                version: live.map_or(0, |state| state.version) + 1,
                lease: entry.lease,
                write: entry.write,
                certain: clear && live.is_none_or(|state| state.certain),
            };
            replay.timelines[entry.key as usize].push(state);
        }
        replay
    }

    /// The key at a revision, deleted or not.
    pub(super) fn at(&self, key: Key, revision: i64) -> Option<&State<'h>> {
        let timeline = &self.timelines[key as usize];
        timeline.partition_point(|state| state.revision <= revision).checked_sub(1).map(|n| &timeline[n])
    }

    pub(super) fn expected(&self, key: Key, revision: i64) -> Expected<'_, 'h> {
        let state = self.at(key, revision).filter(|state| state.value.is_some());
        let perhaps_absent = state.is_some_and(|state| self.may_have_been_deleted(key, state.revision, revision));
        Expected { state, perhaps_absent }
    }

    /// Whether a write that nobody ever saw may have changed this key after one revision and up to another.
    fn may_have_been_changed(&self, key: Key, since: i64, until: i64) -> bool {
        let unseen = self.log.unseen_after.get(&key).is_some_and(|after| *after < until);
        (unseen && !self.covers(since + 1, until)) || self.zones(key, since, until).next().is_some()
    }

    fn may_have_been_deleted(&self, key: Key, since: i64, until: i64) -> bool {
        let unseen = self.log.unseen_deletion_after.get(&key).is_some_and(|after| *after < until);
        (unseen && !self.covers(since + 1, until)) || self.zones(key, since, until).any(|deletes| deletes)
    }

    /// The zones between two revisions in which the key was changed: whether by deleting it.
    fn zones(&self, key: Key, since: i64, until: i64) -> impl Iterator<Item = bool> {
        let between = move |zone: &&Zone| since < zone.until && zone.after < until;
        self.zones.iter().filter(between).filter_map(move |zone| zone.touched.get(&key).copied())
    }

    pub(super) fn covers(&self, from: i64, to: i64) -> bool {
        let next = self.covered.partition_point(|(start, _)| *start <= from);
        from > to || next.checked_sub(1).is_some_and(|n| to <= self.covered[n].1)
    }
}

fn merged(mut ranges: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    ranges.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for (from, to) in ranges {
        match merged.last_mut() {
            Some((_, end)) if from <= *end + 1 => *end = to.max(*end),
            _ => merged.push((from, to)),
        }
    }
    merged
}
