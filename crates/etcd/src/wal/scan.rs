//! Reads a whole log: whose it is, how far it reaches, whether it is sound.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use prost::Message;
use thiserror::Error;

use super::reader::{Corruption, ReadError, SegmentReader, Step};
use super::record::{Frame, RecordType, SegmentName};
use crate::pb::raft::{Entry, EntryType, HardState, Record, WalMetadata, WalSnapshot};

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

/// The segments of a log in order. Refuses holes, because the checksum chain cannot cross them.
pub fn list_segments(dir: &Path) -> Result<Vec<SegmentName>, WalError> {
    let at_dir = |source| WalError::Io { path: dir.to_owned(), source };
    let mut segments = Vec::new();
    for entry in fs::read_dir(dir).map_err(at_dir)? {
        segments.extend(entry.map_err(at_dir)?.file_name().to_str().and_then(SegmentName::parse));
    }
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
    let segments = list_segments(dir)?;
    let mut scan = Scan::default();
    if let Some(first) = segments.first() {
        scan.last_index = first.index.saturating_sub(1);
    }
    let (mut crc, mut bytes, mut tail) = (0, 0, Tail::Clean);
    for (position, &segment) in segments.iter().enumerate() {
        let is_last = position + 1 == segments.len();
        let path = dir.join(segment.to_string());
        let mut reader = open(&path, crc, is_last)?;
        let end = scan.segment(&mut reader).map_err(|error| locate(&path, &reader, error))?;
        (crc, bytes) = (reader.crc(), bytes + reader.offset());
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
    Ok(WalScan {
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
    })
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

/// What lies behind the end of a log.
enum Residue {
    None,
    Bytes,
    /// A whole record this far behind it.
    Record(u64),
}

/// etcd's segments have 64 MiB; what lies further behind their end is none of its records.
const FARTHEST_RECORD: u64 = 128 << 20;
/// Far more than etcd lets into one entry. A frame that claims more is chance, and must not be paid for.
const LONGEST_RECORD: usize = 16 << 20;
const READ: u64 = 64 << 10;

/// Whether a whole entry stands behind a record that is torn. A crash tears what was written last, at most with a hard state
/// behind it; this may be one that was damaged later, before others that were acknowledged.
fn is_followed(path: &Path, offset: u64) -> Result<bool, WalError> {
    let at_path = |source| WalError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(at_path)?;
    // Frames start at multiples of eight, whatever the torn one says.
    file.seek(SeekFrom::Start((offset / 8 + 1).saturating_mul(8))).map_err(at_path)?;
    let followed = residue(BufReader::new(file), |kind| kind == RecordType::Entry).map_err(at_path)?;
    Ok(matches!(followed, Residue::Record(_)))
}

/// Goes through the rest of a segment from frame to possible frame, with no more of it in memory than one record.
fn residue(mut input: impl Read, counts: impl Fn(RecordType) -> bool) -> io::Result<Residue> {
    let mut found = Residue::None;
    let mut held = Vec::new();
    // Where in the rest of the file `held` begins, and how much of it is done.
    let (mut begin, mut done) = (0_u64, 0_usize);
    while begin + (done as u64) < FARTHEST_RECORD {
        if !holds(&mut input, &mut held, done + 8)? {
            break;
        }
        // Frames start at multiples of eight, and most of what follows the end of a log is zeros.
        let rest = held.get(done..).unwrap_or_default();
        let blank = rest.iter().position(|byte| *byte != 0).unwrap_or(rest.len()) / 8 * 8;
        if blank == 0 {
            if let Some(length) = claimed_length(rest)
                && holds(&mut input, &mut held, done + 8 + length)?
                && held.get(done..).and_then(whole_record).is_some_and(&counts)
            {
                return Ok(Residue::Record(begin + done as u64));
            }
            found = Residue::Bytes;
        }
        done += blank.max(8);
        if done as u64 >= READ {
            held.drain(..done);
            begin += done as u64;
            done = 0;
        }
    }
    let ends_blank = held.get(done..).unwrap_or_default().iter().all(|byte| *byte == 0);
    Ok(if ends_blank { found } else { Residue::Bytes })
}

/// Reads on until so many bytes are held; false if the file ends before.
fn holds(input: &mut impl Read, held: &mut Vec<u8>, wanted: usize) -> io::Result<bool> {
    while held.len() < wanted {
        if input.by_ref().take(READ).read_to_end(held)? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The length of the record that would stand here, if it is one that etcd could have written.
fn claimed_length(bytes: &[u8]) -> Option<usize> {
    let frame = Frame::decode(u64::from_le_bytes(*bytes.first_chunk::<8>()?));
    let length = usize::try_from(frame.record).ok().filter(|length| (1..=LONGEST_RECORD).contains(length))?;
    (frame == Frame::of_record(frame.record)).then_some(length)
}

/// The record that stands here, if etcd may have written it. Its checksum continues that of a record nobody knows.
fn whole_record(bytes: &[u8]) -> Option<RecordType> {
    let length = claimed_length(bytes)?;
    let Ok(record @ Record { r#type: Some(number), crc: Some(_), .. }) = Record::decode(bytes.get(8..8 + length)?)
    else {
        return None;
    };
    let kind = RecordType::from_number(number)?;
    let data = record.data.as_deref().unwrap_or_default();
    let is_whole = record.encoded_len() == length
        && match kind {
            RecordType::Crc => data.is_empty(),
            RecordType::Metadata => exactly::<WalMetadata>(kind, data).is_ok(),
            RecordType::Entry => exactly::<Entry>(kind, data).is_ok(),
            RecordType::State => exactly::<HardState>(kind, data).is_ok(),
            RecordType::Snapshot => exactly::<WalSnapshot>(kind, data).is_ok(),
        };
    is_whole.then_some(kind)
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
fn exactly<M: Message + Default>(kind: RecordType, data: &[u8]) -> Result<M, Corruption> {
    let message = M::decode(data).map_err(|_| Corruption::Content { kind })?;
    if message.encoded_len() == data.len() { Ok(message) } else { Err(Corruption::Content { kind }) }
}
