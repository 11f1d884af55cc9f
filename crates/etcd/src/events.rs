//! Ordered change events: what a chain of delta backups delivers, whatever its file format.
//!
//! A stream lends one event at a time, so that a source can decode half a million of them into the same buffers.
//! [`Contiguous`] is the gate every consumer reads through: it drops what the base already has and refuses a stream
//! that cannot be complete.

use std::collections::BTreeMap;

use jiff::Timestamp;
use thiserror::Error;

use crate::pb::mvcc::{Event, EventType, KeyValue};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    #[default]
    Put,
    Delete,
}

/// One change of one user key, with everything the server stored about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeEvent {
    pub key: Vec<u8>,
    /// Empty for a delete.
    pub value: Vec<u8>,
    pub kind: EventKind,
    pub create_revision: i64,
    pub mod_revision: i64,
    pub version: i64,
    pub lease: i64,
    /// When the capturing process received it; not the moment of the commit.
    pub time: Option<Timestamp>,
}

impl ChangeEvent {
    /// What a watch reported and when it was received. Messages that are fragments need nothing more: a revision goes on
    /// until a message is complete.
    pub fn of_watch(event: Event, received: Timestamp) -> Result<Self, EventError> {
        let invalid = |revision, reason| EventError::Invalid { revision, reason };
        let Some(kv) = event.kv else { return Err(invalid(0, "it names no key")) };
        let KeyValue { key, create_revision, mod_revision, version, value, lease } = kv;
        let kind = match EventType::try_from(event.r#type) {
            Ok(EventType::Put) => EventKind::Put,
            Ok(EventType::Delete) => EventKind::Delete,
            Err(_) => return Err(invalid(mod_revision, "it is neither a put nor a delete")),
        };
        let event = Self { key, value, kind, create_revision, mod_revision, version, lease, time: Some(received) };
        event.check().map(|()| event)
    }

    /// Refuses what no server can have sent.
    pub(crate) fn check(&self) -> Result<(), EventError> {
        let invalid = |reason| Err(EventError::Invalid { revision: self.mod_revision, reason });
        if self.mod_revision < 1 {
            return invalid("its revision is below 1");
        }
        if self.key.is_empty() {
            return invalid("its key is empty");
        }
        if self.kind == EventKind::Delete {
            return Ok(());
        }
        if self.version < 1 {
            return invalid("a put has a version below 1");
        }
        if self.create_revision < 1 || self.create_revision > self.mod_revision {
            return invalid("a put was created outside 1..=its own revision");
        }
        if (self.version == 1) != (self.create_revision == self.mod_revision) {
            return invalid("version 1 and creation do not coincide");
        }
        Ok(())
    }
}

#[derive(Debug, Error)]
pub enum EventError {
    #[error(
        "the delta events start at revision {first}, but the base ends at {base}: revisions {}..={} are missing; \
         add the earlier delta files or use a newer base", base + 1, first - 1
    )]
    StartsTooLate { base: i64, first: i64 },
    #[error(
        "revision gap {previous} -> {found} in the delta events: events were lost; \
         restore to revision {previous} at most, or use a base taken after the gap"
    )]
    Gap { previous: i64, found: i64 },
    #[error("the delta events run backwards, revision {found} after {previous}: the files are not in order")]
    Backwards { previous: i64, found: i64 },
    #[error(
        "the base ends at revision {base}, but revision {revision} came only at {time}, after the moment asked for: \
         use an older base, or cut by revision"
    )]
    BaseTooNew { base: i64, revision: i64, time: Timestamp },
    #[error("the event of revision {revision} is invalid: {reason}")]
    Invalid { revision: i64, reason: &'static str },
    #[error("the delta events cannot be read")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl EventError {
    pub fn source_error(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Source(Box::new(error))
    }
}

/// A fallible pull-stream that lends its current event.
pub trait EventStream {
    /// Moves to the next event; `false` at the end. After an error the stream is of no further use.
    fn advance(&mut self) -> Result<bool, EventError>;

    /// The event that the last successful `advance` moved to.
    fn event(&self) -> &ChangeEvent;

    /// Called when no further event is wanted although there may be some.
    ///
    /// A source whose checksums come after the events must still verify here what it has already lent out.
    fn finish(&mut self) -> Result<(), EventError> {
        Ok(())
    }

    /// Seconds to live of the leases that the source knows; complete once the stream has ended or finished.
    fn leases(&self) -> BTreeMap<i64, i64> {
        BTreeMap::new()
    }
}

impl<S: EventStream + ?Sized> EventStream for &mut S {
    fn advance(&mut self) -> Result<bool, EventError> {
        (**self).advance()
    }

    fn event(&self) -> &ChangeEvent {
        (**self).event()
    }

    fn finish(&mut self) -> Result<(), EventError> {
        (**self).finish()
    }

    fn leases(&self) -> BTreeMap<i64, i64> {
        (**self).leases()
    }
}

/// Events already in memory, in order.
#[derive(Clone, Debug, Default)]
pub struct Events {
    remaining: std::vec::IntoIter<ChangeEvent>,
    current: ChangeEvent,
}

impl Events {
    pub fn new(events: Vec<ChangeEvent>) -> Self {
        Self { remaining: events.into_iter(), current: ChangeEvent::default() }
    }
}

impl EventStream for Events {
    fn advance(&mut self) -> Result<bool, EventError> {
        match self.remaining.next() {
            Some(event) => {
                self.current = event;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn event(&self) -> &ChangeEvent {
        &self.current
    }
}

/// Where a stream is cut. A revision is taken whole or not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    #[default]
    End,
    /// The last revision to take.
    Revision(i64),
    /// Every revision whose first event was received at this moment or before.
    Time(Timestamp),
}

/// Skips what the base holds, checks the rest, numbers changes within a revision, and stops at the cut.
#[derive(Debug)]
pub struct Contiguous<S> {
    stream: S,
    base: i64,
    cut: Cut,
    revision: i64,
    sub: i64,
    seen_any: bool,
    done: bool,
}

impl<S: EventStream> Contiguous<S> {
    pub fn new(stream: S, base: i64, cut: Cut) -> Self {
        Self { stream, base, cut, revision: base, sub: 0, seen_any: false, done: false }
    }

    /// The revision reached so far; the base's while nothing was delivered.
    pub fn revision(&self) -> i64 {
        self.revision.max(self.base)
    }

    /// Position of the current event within its revision, counted from 0.
    pub fn sub(&self) -> i64 {
        self.sub
    }

    /// An event that the base already holds must not be younger than a cut by time.
    fn check_base_predates_cut(&self) -> Result<(), EventError> {
        let &ChangeEvent { mod_revision: revision, time, .. } = self.stream.event();
        match (self.cut, time) {
            (Cut::Time(_), Some(time)) if revision <= self.base => {
                Err(EventError::BaseTooNew { base: self.base, revision, time })
            }
            _ => Ok(()),
        }
    }

    fn beyond_cut(&self, first_of_revision: bool) -> bool {
        let event = self.stream.event();
        match self.cut {
            Cut::End => false,
            Cut::Revision(last) => event.mod_revision > last,
            Cut::Time(moment) => first_of_revision && event.time.is_none_or(|time| time > moment),
        }
    }
}

impl<S: EventStream> EventStream for Contiguous<S> {
    fn advance(&mut self) -> Result<bool, EventError> {
        while !self.done {
            if !self.stream.advance()? {
                break;
            }
            let event = self.stream.event();
            event.check()?;
            let found = event.mod_revision;
            if !self.seen_any {
                if found > self.base.saturating_add(1) {
                    return Err(EventError::StartsTooLate { base: self.base, first: found });
                }
                self.revision = found.saturating_sub(1);
            }
            let first_of_revision = !self.seen_any || found != self.revision;
            if found < self.revision {
                return Err(EventError::Backwards { previous: self.revision, found });
            }
            if found > self.revision.saturating_add(1) {
                return Err(EventError::Gap { previous: self.revision, found });
            }
            if self.beyond_cut(first_of_revision) {
                self.check_base_predates_cut()?;
                self.stream.finish()?;
                break;
            }
            self.seen_any = true;
            self.sub = if first_of_revision { 0 } else { self.sub.saturating_add(1) };
            self.revision = found;
            if found > self.base {
                return Ok(true);
            }
        }
        self.done = true;
        Ok(false)
    }

    fn event(&self) -> &ChangeEvent {
        self.stream.event()
    }

    fn finish(&mut self) -> Result<(), EventError> {
        self.done = true;
        self.stream.finish()
    }

    fn leases(&self) -> BTreeMap<i64, i64> {
        self.stream.leases()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(revision: i64) -> ChangeEvent {
        ChangeEvent {
            key: format!("k{revision}").into_bytes(),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            time: Timestamp::from_second(revision * 10).ok(),
            ..ChangeEvent::default()
        }
    }

    fn read(revisions: &[i64], base: i64, cut: Cut) -> Result<Vec<(i64, i64)>, EventError> {
        let events = Events::new(revisions.iter().copied().map(put).collect());
        let mut stream = Contiguous::new(events, base, cut);
        let mut out = Vec::new();
        while stream.advance()? {
            out.push((stream.event().mod_revision, stream.sub()));
        }
        Ok(out)
    }

    #[test]
    fn an_overlapping_start_is_skipped_and_changes_of_one_revision_are_numbered() {
        assert_eq!(read(&[3, 4, 4, 5, 6, 6, 6, 7], 4, Cut::End).unwrap(), [(5, 0), (6, 0), (6, 1), (6, 2), (7, 0)]);
    }

    #[test]
    fn a_lost_revision_is_refused_wherever_it_was() {
        assert!(matches!(read(&[3], 1, Cut::End), Err(EventError::StartsTooLate { base: 1, first: 3 })));
        assert!(matches!(read(&[2, 3, 5], 1, Cut::End), Err(EventError::Gap { previous: 3, found: 5 })));
        assert!(matches!(read(&[2, 4, 5], 9, Cut::End), Err(EventError::Gap { previous: 2, found: 4 })));
    }

    #[test]
    fn events_out_of_order_are_refused() {
        assert!(matches!(read(&[2, 3, 2], 1, Cut::End), Err(EventError::Backwards { previous: 3, found: 2 })));
    }

    #[test]
    fn a_cut_takes_whole_revisions_only() {
        assert_eq!(read(&[2, 3, 3, 4], 1, Cut::Revision(3)).unwrap(), [(2, 0), (3, 0), (3, 1)]);
        let moment = Timestamp::from_second(35).unwrap();
        assert_eq!(read(&[2, 3, 3, 4], 1, Cut::Time(moment)).unwrap(), [(2, 0), (3, 0), (3, 1)]);
        assert_eq!(read(&[2, 3], 1, Cut::Revision(1)).unwrap(), []);
    }

    #[test]
    fn a_base_that_holds_changes_after_the_moment_asked_for_is_refused() {
        let moment = Timestamp::from_second(25).unwrap();
        assert!(matches!(
            read(&[2, 3, 4], 3, Cut::Time(moment)),
            Err(EventError::BaseTooNew { base: 3, revision: 3, .. })
        ));
    }

    #[test]
    fn a_stream_that_ended_stays_ended() {
        let mut stream = Contiguous::new(Events::new(vec![put(2), put(3)]), 1, Cut::Revision(2));
        assert!(stream.advance().unwrap());
        assert!(!stream.advance().unwrap());
        assert!(!stream.advance().unwrap());
        assert_eq!(stream.revision(), 2);
    }

    #[test]
    fn watch_events_are_taken_over_whole_or_refused() {
        let kv =
            KeyValue { key: b"k2".to_vec(), create_revision: 2, mod_revision: 2, version: 1, ..KeyValue::default() };
        let time = Timestamp::from_second(20).unwrap();
        let event = |r#type, kv| ChangeEvent::of_watch(Event { r#type, kv, prev_kv: None }, time);
        assert_eq!(event(0, Some(kv.clone())).unwrap(), put(2));
        assert_eq!(event(1, Some(kv.clone())).unwrap().kind, EventKind::Delete);
        for refused in [event(0, None), event(7, Some(kv)), event(0, Some(KeyValue::default()))] {
            assert!(matches!(refused, Err(EventError::Invalid { .. })));
        }
    }

    #[test]
    fn an_event_no_server_can_have_sent_is_refused() {
        for spoil in [
            |e: &mut ChangeEvent| e.key.clear(),
            |e: &mut ChangeEvent| e.version = 0,
            |e: &mut ChangeEvent| e.version = 2,
            |e: &mut ChangeEvent| e.create_revision = 0,
            |e: &mut ChangeEvent| e.create_revision = 9,
            |e: &mut ChangeEvent| e.mod_revision = 0,
        ] {
            let mut event = put(2);
            spoil(&mut event);
            let mut stream = Contiguous::new(Events::new(vec![event]), 1, Cut::End);
            assert!(matches!(stream.advance(), Err(EventError::Invalid { .. })));
        }
    }
}
