//! Writes the log of a member that starts from a restored database.

use std::io::{self, Write};

use prost::Message;

use super::record::{Frame, RecordType};
use crate::membership::{Member, MembershipError, conf_state};
use crate::pb::raft::{ConfChange, ConfChangeType, Entry, EntryType, HardState, Record, WalMetadata, WalSnapshot};

/// The term and, with the number of members, the index a restored cluster begins at.
pub const BOOTSTRAP_TERM: u64 = 1;

/// Frames records and carries the running checksum.
#[derive(Debug)]
pub struct WalEncoder<W> {
    out: W,
    crc: u32,
    frame: Vec<u8>,
}

impl<W: Write> WalEncoder<W> {
    /// Starts a segment: its first record repeats the checksum the previous segment ended with, 0 in the first.
    pub fn new(out: W, previous_crc: u32) -> io::Result<Self> {
        let mut encoder = Self { out, crc: previous_crc, frame: Vec::new() };
        encoder.write(RecordType::Crc, None)?;
        Ok(encoder)
    }

    /// Goes on behind a record whose checksum this is.
    pub(super) fn behind(out: W, crc: u32) -> Self {
        Self { out, crc, frame: Vec::new() }
    }

    pub fn metadata(&mut self, metadata: &WalMetadata) -> io::Result<()> {
        self.record(RecordType::Metadata, metadata)
    }

    pub fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        self.record(RecordType::Entry, entry)
    }

    pub fn state(&mut self, state: &HardState) -> io::Result<()> {
        self.record(RecordType::State, state)
    }

    pub fn snapshot(&mut self, snapshot: &WalSnapshot) -> io::Result<()> {
        self.record(RecordType::Snapshot, snapshot)
    }

    pub fn finish(self) -> W {
        self.out
    }

    fn record(&mut self, kind: RecordType, message: &impl Message) -> io::Result<()> {
        let data = message.encode_to_vec();
        self.crc = crc32c::crc32c_append(self.crc, &data);
        self.write(kind, Some(data))
    }

    fn write(&mut self, kind: RecordType, data: Option<Vec<u8>>) -> io::Result<()> {
        let record = Record { r#type: Some(kind.number()), crc: Some(self.crc), data };
        let length = u64::try_from(record.encoded_len()).map_err(io::Error::other)?;
        let frame = Frame::of_record(length);
        let padding = usize::try_from(frame.padding).map_err(io::Error::other)?;
        self.frame.clear();
        self.frame.extend_from_slice(&frame.encode().to_le_bytes());
        record.encode(&mut self.frame).map_err(io::Error::other)?;
        self.frame.resize(self.frame.len() + padding, 0);
        self.out.write_all(&self.frame)
    }
}

/// The first segment of a restored member, byte for byte what etcdutl writes before preallocation.
///
/// One configuration change per member, all committed in term 1, then the snapshot that stands for them. Only the
/// metadata record differs between the members of a cluster. `members` must be sorted by id.
pub fn bootstrap_segment(node_id: u64, cluster_id: u64, members: &[Member]) -> Result<Vec<u8>, BootstrapError> {
    let mut wal = WalEncoder::new(Vec::new(), 0)?;
    wal.metadata(&WalMetadata { node_id: Some(node_id), cluster_id: Some(cluster_id) })?;
    wal.snapshot(&WalSnapshot { index: Some(0), term: Some(0), conf_state: None })?;
    let mut index = 0;
    for member in members {
        index += 1;
        let change = ConfChange {
            id: Some(0),
            r#type: Some(ConfChangeType::AddNode.into()),
            node_id: Some(member.id),
            context: Some(member.to_json()?),
        };
        wal.entry(&Entry {
            r#type: Some(EntryType::ConfChange.into()),
            term: Some(BOOTSTRAP_TERM),
            index: Some(index),
            data: Some(change.encode_to_vec()),
        })?;
    }
    let vote = members.first().map_or(0, |member| member.id);
    wal.state(&HardState { term: Some(BOOTSTRAP_TERM), vote: Some(vote), commit: Some(index) })?;
    let conf_state = Some(conf_state(members));
    wal.snapshot(&WalSnapshot { index: Some(index), term: Some(BOOTSTRAP_TERM), conf_state })?;
    Ok(wal.finish())
}

#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error("a member cannot be written into the log")]
    Member(#[from] MembershipError),
    #[error("the log cannot be encoded")]
    Encode(#[from] io::Error),
}
