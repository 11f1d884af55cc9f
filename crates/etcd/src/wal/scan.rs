//! Reads a whole log: whose it is, how far it reaches, whether it is sound.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use prost::Message;
use thiserror::Error;

use super::reader::{Corruption, ReadError, SegmentReader, Step};
use super::record::{Frame, RecordType, SegmentName};
use super::residue::{Residue, is_followed, residue};
use crate::data_dir::is_absent;
use crate::pb::raft::{Entry, EntryType, HardState, WalMetadata, WalSnapshot};

#[derive(Debug, Error)]
pub enum WalError {
    #[error("{} cannot be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} holds no write-ahead log; name a data directory or its member/wal", dir.display())]
    NoSegments { dir: PathBuf },
    #[error("the log in {} misses the segments between {before} and {after}; bring them back or replace the member", dir.display())]
    MissingSegment { dir: PathBuf, before: SegmentName, after: SegmentName },
    #[error(
        "{} is damaged at offset {offset}; etcd refuses it too: \
         replace the member, or rebuild the log if the database is intact", path.display()
    )]
    Corrupt { path: PathBuf, offset: u64, source: Corruption },
    #[error(
        "{} has zeros at offset {offset} and a whole record behind them, at {record}: etcd would take the zeros for the \
         end and drop what it acknowledged; replace the member, or restore it from a backup", path.display()
    )]
    Hole { path: PathBuf, offset: u64, record: u64 },
    #[error("the log in {} does not say which member and cluster it belongs to", dir.display())]
    NoMetadata { dir: PathBuf },
}

/// How the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    Clean,
    /// A crash interrupted the last write. etcd cuts the segment here by itself when it starts.
    Torn {
        segment: SegmentName,
        offset: u64,
    },
    /// The log ends here, yet bytes follow that are no whole record: unsynced writes of a crash, or what damage left of
    /// acknowledged ones. etcd erases them.
    Residue {
        segment: SegmentName,
        offset: u64,
    },
}

/// What a log says, read from its oldest segment to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalScan {
    pub node_id: u64,
    pub cluster_id: u64,
    pub segments: Vec<SegmentName>,
    /// Bytes of sound records.
    pub bytes: u64,
    pub entries: u64,
    /// Index of the last entry, or of the last snapshot if no entry follows it.
    pub last_index: u64,
    pub last_term: u64,
    pub hard_state: HardState,
    pub snapshots: Vec<WalSnapshot>,
    pub tail: Tail,
}

impl WalScan {
    /// Snapshots that etcd may start from: those whose index is committed.
    pub fn usable_snapshots(&self) -> impl DoubleEndedIterator<Item = &WalSnapshot> {
        let commit = self.hard_state.commit.unwrap_or_default();
        self.snapshots.iter().filter(move |snapshot| snapshot.index.unwrap_or_default() <= commit)
    }
}

/// Whether there is a log in `dir`, whatever its state.
pub fn has_segments(dir: &Path) -> io::Result<bool> {
    match segment_names(dir) {
        Err(error) if is_absent(&error) => Ok(false),
        names => Ok(!names?.is_empty()),
    }
}

fn segment_names(dir: &Path) -> io::Result<Vec<SegmentName>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.extend(entry?.file_name().to_str().and_then(SegmentName::parse));
    }
    Ok(names)
}

/// The segments of a log in order. Refuses holes, because the checksum chain cannot cross them.
pub fn list_segments(dir: &Path) -> Result<Vec<SegmentName>, WalError> {
    let mut segments = segment_names(dir).map_err(|source| WalError::Io { path: dir.to_owned(), source })?;
    segments.sort_unstable();
    if segments.is_empty() {
        return Err(WalError::NoSegments { dir: dir.to_owned() });
    }
    for pair in segments.windows(2) {
        if let &[before, after] = pair
            && before.sequence.checked_add(1) != Some(after.sequence)
        {
            return Err(WalError::MissingSegment { dir: dir.to_owned(), before, after });
        }
    }
    Ok(segments)
}

/// Reads the first two records of the oldest segment: whose log this is, in about a hundred bytes.
pub fn read_metadata(dir: &Path) -> Result<WalMetadata, WalError> {
    let segments = list_segments(dir)?;
    let missing = || WalError::NoMetadata { dir: dir.to_owned() };
    let first = *segments.first().ok_or_else(missing)?;
    let mut scan = Scan::default();
    let path = dir.join(first.to_string());
    let mut reader = open(&path, 0, segments.len() == 1)?;
    for _ in 0..2 {
        match reader.step() {
            Ok(Step::Record { kind, data }) => {
                scan.record(kind, &data).map_err(|e| locate(&path, &reader, e.into()))?;
            }
            Ok(Step::End | Step::Torn) => break,
            Err(error) => return Err(locate(&path, &reader, error)),
        }
    }
    scan.metadata.map(|(_, metadata)| metadata).filter(names_someone).ok_or_else(missing)
}

/// Reads the whole log in `dir` and checks every record.
pub fn scan_dir(dir: &Path) -> Result<WalScan, WalError> {
    scan_to_end(dir).map(|(scan, _)| scan)
}

/// Where the next record goes, and the checksum that it continues.
pub(super) struct End {
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) crc: u32,
}

pub(super) fn scan_to_end(dir: &Path) -> Result<(WalScan, End), WalError> {
    let segments = list_segments(dir)?;
    let mut scan = Scan::default();
    if let Some(first) = segments.first() {
        scan.last_index = first.index.saturating_sub(1);
    }
    let (mut bytes, mut tail) = (0, Tail::Clean);
    let mut last = End { path: dir.to_owned(), offset: 0, crc: 0 };
    for (position, &segment) in segments.iter().enumerate() {
        let is_last = position + 1 == segments.len();
        let path = dir.join(segment.to_string());
        let mut reader = open(&path, last.crc, is_last)?;
        let end = scan.segment(&mut reader).map_err(|error| locate(&path, &reader, error))?;
        bytes += reader.offset();
        last = End { path: path.clone(), offset: reader.offset(), crc: reader.crc() };
        if is_last {
            let offset = reader.offset();
            tail = if end.torn && is_followed(&path, offset)? {
                Tail::Residue { segment, offset }
            } else if end.torn {
                Tail::Torn { segment, offset }
            } else {
                // The frame that ended the reading was eight bytes of zeros.
                let from = offset.saturating_add(Frame::HEADER);
                match residue(reader.into_input(), |_| true) {
                    Ok(Residue::None) => Tail::Clean,
                    Ok(Residue::Bytes) => Tail::Residue { segment, offset },
                    Ok(Residue::Record(at)) => {
                        return Err(WalError::Hole { path, offset, record: from.saturating_add(at) });
                    }
                    Err(source) => return Err(WalError::Io { path, source }),
                }
            };
        }
    }
    let metadata = scan.metadata.map(|(_, metadata)| metadata).filter(names_someone);
    let metadata = metadata.ok_or_else(|| WalError::NoMetadata { dir: dir.to_owned() })?;
    let scan = WalScan {
        node_id: metadata.node_id.unwrap_or_default(),
        cluster_id: metadata.cluster_id.unwrap_or_default(),
        segments,
        bytes,
        entries: scan.entries,
        last_index: scan.last_index,
        last_term: scan.last_term,
        hard_state: scan.hard_state,
        snapshots: scan.snapshots,
        tail,
    };
    Ok((scan, last))
}

fn names_someone(metadata: &WalMetadata) -> bool {
    metadata.node_id.is_some_and(|id| id != 0) && metadata.cluster_id.is_some_and(|id| id != 0)
}

type Input = BufReader<File>;

fn open(path: &Path, crc: u32, is_last: bool) -> Result<SegmentReader<Input>, WalError> {
    let at_path = |source| WalError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(at_path)?;
    let size = file.metadata().map_err(at_path)?.len();
    Ok(SegmentReader::new(BufReader::with_capacity(256 << 10, file), size, crc, is_last))
}

fn locate(path: &Path, reader: &SegmentReader<Input>, error: ReadError) -> WalError {
    let path = path.to_owned();
    match error {
        ReadError::Io(source) => WalError::Io { path, source },
        ReadError::Corrupt(source) => WalError::Corrupt { path, offset: reader.offset(), source },
    }
}

struct SegmentEnd {
    torn: bool,
}

/// State carried from record to record.
#[derive(Default)]
struct Scan {
    metadata: Option<(Vec<u8>, WalMetadata)>,
    entries: u64,
    last_index: u64,
    last_term: u64,
    hard_state: HardState,
    snapshots: Vec<WalSnapshot>,
}

impl Scan {
    fn segment<R: Read>(&mut self, reader: &mut SegmentReader<R>) -> Result<SegmentEnd, ReadError> {
        for position in 0_u64.. {
            match reader.step()? {
                Step::Record { kind, data } => {
                    // The checksum does not cover the type, so the place of a record has to vouch for it.
                    let expected = match kind {
                        RecordType::Crc => position == 0,
                        RecordType::Metadata => position == 1,
                        _ => position > 1,
                    };
                    if !expected {
                        return Err(Corruption::Order { kind }.into());
                    }
                    self.record(kind, &data)?;
                }
                Step::End => break,
                Step::Torn => return Ok(SegmentEnd { torn: true }),
            }
        }
        Ok(SegmentEnd { torn: false })
    }

    fn record(&mut self, kind: RecordType, data: &[u8]) -> Result<(), Corruption> {
        match kind {
            RecordType::Crc => {}
            RecordType::Metadata => {
                if self.metadata.as_ref().is_some_and(|(known, _)| known != data) {
                    return Err(Corruption::MetadataConflict);
                }
                self.metadata = Some((data.to_vec(), exactly(kind, data)?));
            }
            RecordType::Entry => self.entry(&exactly(kind, data)?)?,
            RecordType::State => {
                self.hard_state = exactly(kind, data)?;
                if self.hard_state.term.unwrap_or_default() == 0 {
                    return Err(Corruption::Content { kind });
                }
            }
            RecordType::Snapshot => {
                let snapshot: WalSnapshot = exactly(kind, data)?;
                if snapshot.index.is_some_and(|index| index > self.last_index) {
                    self.last_index = snapshot.index.unwrap_or_default();
                    self.last_term = snapshot.term.unwrap_or_default();
                }
                self.snapshots.push(snapshot);
            }
        }
        Ok(())
    }

    /// A later entry with the same index replaces the earlier one and all that followed it.
    fn entry(&mut self, entry: &Entry) -> Result<(), Corruption> {
        // A hard state mistaken for an entry has no data, and its term where the entry's type belongs.
        if entry.r#type.unwrap_or_default() != i32::from(EntryType::Normal) && entry.data.is_none() {
            return Err(Corruption::Content { kind: RecordType::Entry });
        }
        let found = entry.index.unwrap_or_default();
        if found == 0 || found > self.last_index.saturating_add(1) {
            return Err(Corruption::EntryJump { last: self.last_index, found });
        }
        self.entries += 1;
        self.last_index = found;
        self.last_term = entry.term.unwrap_or_default();
        Ok(())
    }
}

/// Decodes a message that must account for every byte.
///
/// The checksum covers a record's data but not its type. A flipped type would turn an entry into a hard state, whose
/// unknown fields a lenient decoder drops without a word.
pub(super) fn exactly<M: Message + Default>(kind: RecordType, data: &[u8]) -> Result<M, Corruption> {
    let message = M::decode(data).map_err(|_| Corruption::Content { kind })?;
    if message.encoded_len() == data.len() { Ok(message) } else { Err(Corruption::Content { kind }) }
}
