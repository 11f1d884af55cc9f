//! What lies behind the end of a log: nothing, as etcd leaves it, or what a crash or damage did.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use prost::Message;

use super::record::{Frame, RecordType};
use super::scan::{WalError, exactly};
use crate::pb::raft::{Entry, HardState, Record, WalMetadata, WalSnapshot};

/// What lies behind the end of a log.
pub(super) enum Residue {
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
pub(super) fn is_followed(path: &Path, offset: u64) -> Result<bool, WalError> {
    let at_path = |source| WalError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(at_path)?;
    // Frames start at multiples of eight, whatever the torn one says.
    file.seek(SeekFrom::Start((offset / 8 + 1).saturating_mul(8))).map_err(at_path)?;
    let followed = residue(BufReader::new(file), |kind| kind == RecordType::Entry).map_err(at_path)?;
    Ok(matches!(followed, Residue::Record(_)))
}

/// Goes through the rest of a segment from frame to possible frame, with no more of it in memory than one record.
pub(super) fn residue(mut input: impl Read, counts: impl Fn(RecordType) -> bool) -> io::Result<Residue> {
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
