//! One change in a delta's block.
//!
//! Revisions and times are told by their distance from the change before; a block begins with both in full, so it can be
//! read alone. Keys are written whole: what they share is left to zstd.

use super::format::{ObjectError, nanoseconds, timestamp};
use crate::events::{ChangeEvent, EventKind};

const DELETE: u8 = 1;
const NEXT_REVISION: u8 = 2;
const TIME: u8 = 4;
const CREATED: u8 = 8;
const LEASE: u8 = 16;
const KNOWN: u8 = DELETE | NEXT_REVISION | TIME | CREATED | LEASE;

/// Where in the history the next record begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) revision: i64,
    pub(crate) time: i64,
}

pub(crate) fn put_start(block: &mut Vec<u8>, cursor: Cursor) {
    block.extend_from_slice(&cursor.revision.to_le_bytes());
    block.extend_from_slice(&cursor.time.to_le_bytes());
}

/// Appends an event that may follow the cursor; the cursor then stands on it.
pub(crate) fn put(block: &mut Vec<u8>, cursor: &mut Cursor, event: &ChangeEvent) {
    let is_delete = event.kind == EventKind::Delete;
    // A clock that was set back must not make time run backwards here: a moment is looked up by its order.
    let time = event.time.map_or(cursor.time, nanoseconds).max(cursor.time);
    let flags = [
        (is_delete, DELETE),
        (event.mod_revision != cursor.revision, NEXT_REVISION),
        (time != cursor.time, TIME),
        (!is_delete && event.version == 1, CREATED),
        (!is_delete && event.lease != 0, LEASE),
    ];
    let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag);
    block.push(flags);
    if flags & TIME != 0 {
        put_number(block, time.abs_diff(cursor.time));
    }
    put_bytes(block, &event.key);
    if !is_delete {
        if flags & CREATED == 0 {
            put_number(block, event.mod_revision.abs_diff(event.create_revision));
            put_number(block, event.version.unsigned_abs());
        }
        if flags & LEASE != 0 {
            put_number(block, event.lease.cast_unsigned());
        }
        put_bytes(block, &event.value);
    }
    *cursor = Cursor { revision: event.mod_revision, time };
}

fn put_number(block: &mut Vec<u8>, number: u64) {
    prost::encoding::encode_varint(number, block);
}

fn put_bytes(block: &mut Vec<u8>, bytes: &[u8]) {
    put_number(block, bytes.len() as u64);
    block.extend_from_slice(bytes);
}

/// Reads the records of one block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Records {
    pub(crate) cursor: Cursor,
    position: usize,
}

fn bad(reason: &'static str) -> ObjectError {
    ObjectError::damaged(0, reason)
}

impl Records {
    /// Reads the start of a block.
    pub(crate) fn begin(block: &[u8]) -> Result<Self, ObjectError> {
        let number = |at: usize| Some(i64::from_le_bytes(*block.get(at..)?.first_chunk()?));
        match (number(0), number(8)) {
            (Some(revision), Some(time)) if revision >= 0 => {
                Ok(Self { cursor: Cursor { revision, time }, position: 16 })
            }
            _ => Err(bad("a block of changes does not say where it begins")),
        }
    }

    pub(crate) fn is_at_end(&self, block: &[u8]) -> bool {
        self.position >= block.len()
    }

    /// Reads the next record into `event`.
    pub(crate) fn next(&mut self, block: &[u8], event: &mut ChangeEvent) -> Result<(), ObjectError> {
        let mut rest = block.get(self.position..).unwrap_or_default();
        let (flags, behind) = rest.split_first().ok_or_else(|| bad("a change is cut off"))?;
        let flags = *flags;
        rest = behind;
        if flags & !KNOWN != 0 || flags & DELETE != 0 && flags & (CREATED | LEASE) != 0 {
            return Err(bad("a change has unknown flags"));
        }
        let overflow = || bad("a change lies outside the range of revisions and times");
        if flags & NEXT_REVISION != 0 {
            self.cursor.revision = self.cursor.revision.checked_add(1).ok_or_else(overflow)?;
        }
        if flags & TIME != 0 {
            self.cursor.time = self.cursor.time.checked_add_unsigned(number(&mut rest)?).ok_or_else(overflow)?;
        }
        event.mod_revision = self.cursor.revision;
        event.time = Some(timestamp(self.cursor.time));
        bytes(&mut rest, &mut event.key)?;
        (event.create_revision, event.version, event.lease) = (0, 0, 0);
        event.value.clear();
        event.kind = EventKind::Delete;
        if flags & DELETE == 0 {
            event.kind = EventKind::Put;
            (event.create_revision, event.version) = (event.mod_revision, 1);
            if flags & CREATED == 0 {
                let age = number(&mut rest)?;
                event.create_revision = event.mod_revision.checked_sub_unsigned(age).ok_or_else(overflow)?;
                event.version = i64::try_from(number(&mut rest)?).map_err(|_| overflow())?;
            }
            if flags & LEASE != 0 {
                event.lease = number(&mut rest)?.cast_signed();
            }
            bytes(&mut rest, &mut event.value)?;
        }
        self.position = block.len() - rest.len();
        Ok(())
    }
}

fn number(rest: &mut &[u8]) -> Result<u64, ObjectError> {
    prost::encoding::decode_varint(rest).map_err(|_| bad("a number in a change is cut off"))
}

fn bytes(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), ObjectError> {
    let length = usize::try_from(number(rest)?).ok();
    let split = length.and_then(|length| rest.split_at_checked(length));
    let (bytes, behind) = split.ok_or_else(|| bad("a change is cut off"))?;
    out.clear();
    out.extend_from_slice(bytes);
    *rest = behind;
    Ok(())
}
