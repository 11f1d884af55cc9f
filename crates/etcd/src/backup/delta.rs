//! Delta backups: watch events in, a stream of events out.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use jiff::Timestamp;

use super::describe::{Start, head_and_key};
use super::format::{BLOCK, BlockEntry, Header, Kind, LeaseEntry, ObjectError, Trailer, nanoseconds};
use super::keyring::Keyring;
use super::reader::ObjectReader;
use super::record::{self, Cursor, Records};
use super::writer::{Finished, ObjectWriter, WriteOptions};
use crate::events::{ChangeEvent, EventError, EventStream};
use crate::snapshot::Digest256;

/// Takes changes in order. When to end it is up to the caller, but never in the middle of a revision.
#[derive(Debug)]
pub struct DeltaWriter<W> {
    object: ObjectWriter<W>,
    block: Vec<u8>,
    /// Of the block under construction.
    entry: BlockEntry,
    cursor: Cursor,
    /// Every change up to this revision was pushed.
    complete: i64,
    covered_through: i64,
    events: u64,
    blocks: Vec<BlockEntry>,
    leases: BTreeMap<i64, i64>,
}

impl<W: Write> DeltaWriter<W> {
    /// `covered_before` is what the object before this one covered: time goes on from there.
    pub fn begin(
        out: W,
        header: Header,
        covered_before: Timestamp,
        options: &WriteOptions,
    ) -> Result<Self, ObjectError> {
        if header.known_kind() != Some(Kind::Delta) {
            return Err(ObjectError::Kind { wanted: "delta", found: "full" });
        }
        let (revision, time) = (header.first_revision.saturating_sub(1), nanoseconds(covered_before));
        Ok(Self {
            object: ObjectWriter::begin(out, header, options)?,
            block: Vec::with_capacity(BLOCK),
            entry: BlockEntry::default(),
            cursor: Cursor { revision, time },
            complete: revision,
            covered_through: time,
            events: 0,
            blocks: Vec::new(),
            leases: BTreeMap::new(),
        })
    }

    pub fn get_mut(&mut self) -> &mut W {
        self.object.get_mut()
    }

    pub fn header(&self) -> &Header {
        self.object.header()
    }

    /// How large the object would be at most if it ended now.
    pub fn bytes(&self) -> u64 {
        self.object.bytes() + self.block.len() as u64
    }

    /// The revision of the last change pushed.
    pub fn revision(&self) -> i64 {
        self.cursor.revision
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    pub fn push(&mut self, event: &ChangeEvent) -> Result<(), ObjectError> {
        let (last, found) = (self.cursor.revision, event.mod_revision);
        let refuse = |reason| Err(ObjectError::Order { last, found, reason });
        if event.check().is_err() {
            return refuse("no server can have sent such a change");
        }
        match found.checked_sub(last) {
            Some(1) => {}
            Some(0) if last > self.complete => {}
            Some(0) => return refuse("that revision was complete already"),
            Some(2..) => return refuse("changes in between were lost"),
            _ => return refuse("changes run backwards"),
        }
        if self.block.is_empty() {
            record::put_start(&mut self.block, self.cursor);
            self.entry = BlockEntry {
                first_revision: found,
                first_time: event.time.map_or(self.cursor.time, nanoseconds).max(self.cursor.time),
                continues: found == last,
                ..BlockEntry::default()
            };
        }
        record::put(&mut self.block, &mut self.cursor, event);
        self.events += 1;
        self.covered_through = self.covered_through.max(self.cursor.time);
        if self.block.len() >= BLOCK { self.end_block() } else { Ok(()) }
    }

    /// Every change up to `revision` was pushed: the server said so, or the last message was whole.
    pub fn complete(&mut self, revision: i64) -> Result<(), ObjectError> {
        if revision > self.cursor.revision {
            let reason = "the server says that it sent this revision, and it never came";
            return Err(ObjectError::Order { last: self.cursor.revision, found: revision, reason });
        }
        self.complete = self.complete.max(revision);
        Ok(())
    }

    /// Nothing was committed between the last change and this moment.
    pub fn covered(&mut self, through: Timestamp) {
        self.covered_through = self.covered_through.max(nanoseconds(through));
    }

    pub fn covered_through(&self) -> Timestamp {
        super::format::timestamp(self.covered_through)
    }

    /// How long a lease lasts that changes mention.
    pub fn lease(&mut self, id: i64, ttl: i64) {
        self.leases.insert(id, ttl);
    }

    fn end_block(&mut self) -> Result<(), ObjectError> {
        if self.block.is_empty() {
            return Ok(());
        }
        let offset = self.object.block(&self.block)?;
        let Cursor { revision: last_revision, time: last_time } = self.cursor;
        self.blocks.push(BlockEntry { offset, last_revision, last_time, ..self.entry });
        self.block.clear();
        Ok(())
    }

    pub fn finish(mut self) -> Result<(W, Finished), ObjectError> {
        if self.complete != self.cursor.revision {
            let (last, found) = (self.complete, self.cursor.revision);
            return Err(ObjectError::Order { last, found, reason: "a delta cannot end with half of a revision" });
        }
        self.end_block()?;
        let trailer = Trailer {
            last_revision: self.cursor.revision,
            covered_through: self.covered_through,
            events: self.events,
            blocks: self.blocks,
            leases: self.leases.into_iter().map(|(id, ttl)| LeaseEntry { id, ttl }).collect(),
            ..Trailer::default()
        };
        self.object.finish(trailer)
    }
}

/// The events of one delta.
#[derive(Debug)]
pub struct DeltaReader<R> {
    object: ObjectReader<R>,
    block: Vec<u8>,
    records: Option<Records>,
    event: ChangeEvent,
    /// Events and the last revision so far, to be compared with what the trailer promises.
    events: u64,
    last: i64,
    from_start: bool,
}

impl<R: Read> DeltaReader<R> {
    pub fn open(input: R, keys: &Keyring) -> Result<Self, ObjectError> {
        let object = ObjectReader::open(input, keys)?;
        let last = object.header().first_revision.saturating_sub(1);
        Self::of(object, last, true)
    }

    /// Reads from a block in the middle: `first` are the object's first bytes, and `input` begins where `start` says.
    ///
    /// Each block is still checked, and that it is this one of this object; the digest of the whole is not.
    pub fn open_at(first: &[u8], start: Start, input: R, keys: &Keyring) -> Result<Self, ObjectError> {
        let (head, sealer) = head_and_key(first, keys)?;
        Self::of(ObjectReader::at(input, head, sealer, start.block, start.offset)?, 0, false)
    }

    fn of(object: ObjectReader<R>, last: i64, from_start: bool) -> Result<Self, ObjectError> {
        if object.header().known_kind() != Some(Kind::Delta) {
            return Err(ObjectError::Kind { wanted: "delta", found: "full" });
        }
        let (block, event) = (Vec::new(), ChangeEvent::default());
        Ok(Self { object, block, records: None, event, events: 0, last, from_start })
    }

    pub fn header(&self) -> &Header {
        self.object.header()
    }

    pub fn end(&self) -> Option<(&Trailer, &Digest256)> {
        self.object.end()
    }

    pub(crate) fn pull(&mut self) -> Result<bool, ObjectError> {
        loop {
            if let Some(records) = &mut self.records
                && !records.is_at_end(&self.block)
            {
                records.next(&self.block, &mut self.event)?;
                self.events += 1;
                self.last = self.event.mod_revision;
                return Ok(true);
            }
            if !self.next_block()? {
                return Ok(false);
            }
        }
    }

    fn next_block(&mut self) -> Result<bool, ObjectError> {
        let bad = |reason| Err(ObjectError::damaged(0, reason));
        self.block.clear();
        match self.object.next_block()? {
            Some(block) => self.block.extend_from_slice(block),
            None => {
                return match self.object.end() {
                    Some((trailer, _))
                        if trailer.last_revision != self.last && (self.from_start || self.events > 0) =>
                    {
                        bad("its changes do not lead to the revision that its trailer says")
                    }
                    Some((trailer, _)) if trailer.events != self.events && self.from_start => {
                        bad("it has another number of changes than its trailer says")
                    }
                    _ => Ok(false),
                };
            }
        }
        let records = Records::begin(&self.block)?;
        if self.from_start && records.cursor.revision != self.last {
            return bad("a block of changes does not continue the one before it");
        }
        self.records = Some(records);
        Ok(true)
    }

    /// Reads the rest for its checksums alone.
    pub(crate) fn drain(&mut self) -> Result<(), ObjectError> {
        while self.pull()? {}
        Ok(())
    }

    pub(crate) fn current(&self) -> &ChangeEvent {
        &self.event
    }

    pub(crate) fn known_leases(&self) -> BTreeMap<i64, i64> {
        let leases = self.object.end().map(|(trailer, _)| trailer.leases.as_slice()).unwrap_or_default();
        leases.iter().map(|lease| (lease.id, lease.ttl)).collect()
    }
}

impl<R: Read> EventStream for DeltaReader<R> {
    fn advance(&mut self) -> Result<bool, EventError> {
        self.pull().map_err(EventError::source_error)
    }

    fn event(&self) -> &ChangeEvent {
        &self.event
    }

    fn finish(&mut self) -> Result<(), EventError> {
        self.drain().map_err(EventError::source_error)
    }

    fn leases(&self) -> BTreeMap<i64, i64> {
        self.known_leases()
    }
}
