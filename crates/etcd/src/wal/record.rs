//! Names of segments, framing of records.

use std::fmt;

/// Low 56 bits of a frame's length field; the byte above holds the padding.
const LENGTH_MASK: u64 = (1 << 56) - 1;
const PADDED: u64 = 1 << 63;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    Metadata,
    Entry,
    State,
    Crc,
    Snapshot,
}

impl RecordType {
    pub fn number(self) -> i64 {
        match self {
            Self::Metadata => 1,
            Self::Entry => 2,
            Self::State => 3,
            Self::Crc => 4,
            Self::Snapshot => 5,
        }
    }

    pub fn from_number(number: i64) -> Option<Self> {
        [Self::Metadata, Self::Entry, Self::State, Self::Crc, Self::Snapshot]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// What a frame's first eight bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) record: u64,
    pub(super) padding: u64,
}

impl Frame {
    pub(super) const HEADER: u64 = 8;

    pub(super) fn of_record(record: u64) -> Self {
        Self { record, padding: (8 - record % 8) % 8 }
    }

    pub(super) fn decode(field: u64) -> Self {
        let padding = if field & PADDED == 0 { 0 } else { (field >> 56) & 7 };
        Self { record: field & LENGTH_MASK, padding }
    }

    pub(super) fn encode(self) -> u64 {
        let padding = if self.padding == 0 { 0 } else { PADDED | (self.padding << 56) };
        self.record | padding
    }

    /// Bytes after the header.
    pub(super) fn body(self) -> u64 {
        self.record + self.padding
    }
}

/// `<sequence>-<first raft index>.wal`, both in sixteen hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    pub sequence: u64,
    pub index: u64,
}

impl SegmentName {
    pub const FIRST: Self = Self { sequence: 0, index: 0 };

    /// `None` for anything else that lives in the directory, such as `0.tmp` or `*.broken`.
    pub fn parse(name: &str) -> Option<Self> {
        let (sequence, index) = name.strip_suffix(".wal")?.split_once('-')?;
        let number = |digits: &str| {
            let hex = digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if hex { u64::from_str_radix(digits, 16).ok() } else { None }
        };
        Some(Self { sequence: number(sequence)?, index: number(index)? })
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}.wal", self.sequence, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_ends_on_eight_bytes_and_survives_its_header() {
        for record in 1..100 {
            let frame = Frame::of_record(record);
            assert_eq!((Frame::HEADER + frame.body()) % 8, 0);
            assert_eq!(Frame::decode(frame.encode()), frame);
        }
    }

    #[test]
    fn only_whole_segment_names_count() {
        let name = SegmentName { sequence: 10, index: 0xabc };
        assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
        for other in [
            "0.tmp",
            "db",
            "000000000000000a-0000000000000abc.wal.broken",
            "a-abc.wal",
            "-.wal",
            "+00000000000000a-0000000000000abc.wal",
            "000000000000000A-0000000000000abc.wal",
        ] {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
    }
}
