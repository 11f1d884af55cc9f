//! Decodes one segment record by record, and tells a torn write from damage exactly as etcd does.

use std::io::{self, Read};

use prost::Message;
use thiserror::Error;

use super::record::{Frame, RecordType};
use crate::pb::raft::Record;

/// The unit in which a disk writes: a torn write leaves whole sectors of zeros behind.
const SECTOR: u64 = 512;

/// No raft entry comes near this; a longer record is a damaged length, and must not become an allocation.
const LONGEST_RECORD: u64 = 128 << 20;

/// Why a log is damaged, as opposed to cut short by a crash.
#[derive(Debug, Error)]
pub enum Corruption {
    #[error("the record is not a protobuf message")]
    Record(#[source] prost::DecodeError),
    #[error("the record claims {length} bytes")]
    Length { length: u64 },
    #[error("the record's checksum is {stored:08x} but the chain gives {computed:08x}")]
    Checksum { stored: u32, computed: u32 },
    #[error("the segment continues a chain that ended with checksum {computed:08x}, but says {stored:08x}")]
    Chain { stored: u32, computed: u32 },
    #[error("the record has the unknown type {number}")]
    Type { number: i64 },
    #[error("the {kind:?} record does not hold the message its type promises")]
    Content { kind: RecordType },
    #[error("the segment is cut short although another one follows")]
    CutShort,
    #[error("a {kind:?} record stands where etcd never writes one")]
    Order { kind: RecordType },
    #[error("the metadata record differs from the one before")]
    MetadataConflict,
    #[error("raft index {found} follows {last}: entries are missing")]
    EntryJump { last: u64, found: u64 },
}

/// One step through a segment.
#[derive(Debug)]
pub(super) enum Step {
    Record {
        kind: RecordType,
        data: Vec<u8>,
    },
    /// End of file, or the zeros of preallocated space.
    End,
    /// A write that a crash interrupted; everything before `offset` is sound.
    Torn,
}

#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    Corrupt(Corruption),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Corruption> for ReadError {
    fn from(corruption: Corruption) -> Self {
        Self::Corrupt(corruption)
    }
}

/// Reads one segment. The running checksum comes in from the segment before and goes out to the next.
#[derive(Debug)]
pub(super) struct SegmentReader<R> {
    input: R,
    size: u64,
    /// Just behind the last sound record.
    offset: u64,
    crc: u32,
    is_last: bool,
    body: Vec<u8>,
}

impl<R: Read> SegmentReader<R> {
    pub(super) fn new(input: R, size: u64, crc: u32, is_last: bool) -> Self {
        Self { input, size, offset: 0, crc, is_last, body: Vec::new() }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn crc(&self) -> u32 {
        self.crc
    }

    pub(super) fn into_input(self) -> R {
        self.input
    }

    pub(super) fn step(&mut self) -> Result<Step, ReadError> {
        let mut header = Vec::with_capacity(8);
        self.input.by_ref().take(Frame::HEADER).read_to_end(&mut header)?;
        let Ok(header) = <[u8; 8]>::try_from(header.as_slice()) else {
            return if header.is_empty() { Ok(Step::End) } else { self.torn() };
        };
        let field = u64::from_le_bytes(header);
        if field == 0 {
            return Ok(Step::End);
        }
        let frame = Frame::decode(field);
        if frame.body() > self.size.saturating_sub(self.offset) {
            return self.torn();
        }
        if frame.record > LONGEST_RECORD {
            return Err(Corruption::Length { length: frame.record }.into());
        }
        self.body.clear();
        self.input.by_ref().take(frame.body()).read_to_end(&mut self.body)?;
        let read = u64::try_from(self.body.len()).map_err(io::Error::other)?;
        if read < frame.body() {
            return self.torn();
        }
        let record = usize::try_from(frame.record).ok().and_then(|length| self.body.get(..length)).unwrap_or_default();
        let record = match Record::decode(record) {
            Ok(record) => record,
            Err(_) if self.has_blank_sector() => return Ok(Step::Torn),
            Err(error) => return Err(Corruption::Record(error).into()),
        };
        let step = self.accept(record)?;
        if !matches!(step, Step::Torn) {
            self.offset += Frame::HEADER + frame.body();
        }
        Ok(step)
    }

    fn accept(&mut self, record: Record) -> Result<Step, ReadError> {
        let number = record.r#type.unwrap_or_default();
        let stored = record.crc.unwrap_or_default();
        let data = record.data.unwrap_or_default();
        if number == RecordType::Crc.number() {
            if self.crc != 0 && self.crc != stored {
                return Err(Corruption::Chain { stored, computed: self.crc }.into());
            }
            if !data.is_empty() {
                return Err(Corruption::Content { kind: RecordType::Crc }.into());
            }
            self.crc = stored;
            return Ok(Step::Record { kind: RecordType::Crc, data });
        }
        let computed = crc32c::crc32c_append(self.crc, &data);
        if computed != stored {
            if self.has_blank_sector() {
                return Ok(Step::Torn);
            }
            return Err(Corruption::Checksum { stored, computed }.into());
        }
        self.crc = computed;
        let kind = RecordType::from_number(number).ok_or(Corruption::Type { number })?;
        Ok(Step::Record { kind, data })
    }

    /// A frame that runs past the end of the file can only be an interrupted write in the last segment.
    fn torn(&self) -> Result<Step, ReadError> {
        if self.is_last { Ok(Step::Torn) } else { Err(Corruption::CutShort.into()) }
    }

    fn has_blank_sector(&self) -> bool {
        if !self.is_last {
            return false;
        }
        let start = self.offset + Frame::HEADER;
        let to_boundary = usize::try_from(SECTOR - start % SECTOR).unwrap_or(usize::MAX);
        let (first, rest) = self.body.split_at(to_boundary.min(self.body.len()));
        let blank = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
        (!first.is_empty() && blank(first)) || rest.chunks(512).any(blank)
    }
}
