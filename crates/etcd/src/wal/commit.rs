//! Makes all of a log count, for a member that goes on alone.
//!
//! What a lost leader has acknowledged may be in this member's log without this member knowing that it is committed. etcd's
//! own `--force-new-cluster` drops all of that; told here that it is committed, it applies it. Such a log must never meet
//! those of the other members again: what is committed here may not be what is committed there.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use prost::Message;
use thiserror::Error;

use super::scan::{End, Tail, WalError, WalScan, scan_to_end};
use super::writer::WalEncoder;
use crate::pb::raft::{ConfChange, ConfChangeType, Entry, EntryType, HardState};

#[derive(Debug, Error)]
pub enum CommitError {
    #[error(transparent)]
    Log(#[from] WalError),
    #[error("cannot write to the log segment {}; see to the cause below and try again", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Whether the member that the log belongs to has a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    Has,
    /// It is a learner, or not known to be a voter: the last entry promotes it. Without a single voter raft gives up. To one
    /// that has a vote already such an entry does nothing.
    Gets,
}

/// Commits every entry of the log in `dir`, on which no etcd may run. What a crash has torn is cut off as etcd does it, with
/// a copy beside it. Durable when it returns; the log as it is then.
pub fn commit_all(dir: &Path, vote: Vote) -> Result<WalScan, CommitError> {
    let (before, end) = scan_to_end(dir)?;
    let is_committed = before.hard_state.commit.unwrap_or_default() >= before.last_index;
    if is_committed && vote == Vote::Has {
        return Ok(before);
    }
    let failed = |source| CommitError::Write { path: end.path.clone(), source };
    let records = records(&before, &end, vote).map_err(failed)?;
    append(&before, &end, &records).map_err(failed)?;
    Ok(scan_to_end(dir)?.0)
}

fn records(before: &WalScan, end: &End, vote: Vote) -> io::Result<Vec<u8>> {
    let state = &before.hard_state;
    let term = before.last_term.max(state.term.unwrap_or_default());
    let mut log = WalEncoder::behind(Vec::new(), end.crc);
    let mut last = before.last_index;
    if vote == Vote::Gets {
        last = last.checked_add(1).ok_or_else(|| io::Error::other("the log's last index is the largest number"))?;
        log.entry(&promotion(before.node_id, term, last))?;
    }
    log.state(&HardState { term: Some(term), vote: Some(state.vote.unwrap_or_default()), commit: Some(last) })?;
    Ok(log.finish())
}

/// What a leader writes when it is asked to promote a learner.
fn promotion(member: u64, term: u64, index: u64) -> Entry {
    let context = format!(r#"{{"id":{member},"peerURLs":null,"isPromote":true}}"#);
    let change = ConfChange {
        id: Some(0),
        r#type: Some(ConfChangeType::AddNode.into()),
        node_id: Some(member),
        context: Some(context.into_bytes()),
    };
    Entry {
        r#type: Some(EntryType::ConfChange.into()),
        term: Some(term),
        index: Some(index),
        data: Some(change.encode_to_vec()),
    }
}

fn append(before: &WalScan, end: &End, records: &[u8]) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(&end.path)?;
    if before.tail != Tail::Clean {
        let mut broken = end.path.clone().into_os_string();
        broken.push(".broken");
        fs::copy(&end.path, &broken)?;
        File::open(&broken)?.sync_all()?;
        file.set_len(end.offset)?;
        file.sync_all()?;
    }
    // Behind a clean end there are zeros, or nothing.
    file.write_all_at(records, end.offset)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::raft::{WalMetadata, WalSnapshot};
    use crate::wal::{SegmentName, scan_dir};

    const NODE: u64 = 7;

    fn entry(index: u64, term: u64) -> Entry {
        let data = vec![1; usize::try_from(index * 37 % 600).unwrap()];
        Entry { r#type: Some(EntryType::Normal.into()), term: Some(term), index: Some(index), data: Some(data) }
    }

    /// Nine entries, the last four of a later term, of which the first six are known to be committed.
    fn log() -> Vec<u8> {
        let mut wal = WalEncoder::new(Vec::new(), 0).unwrap();
        wal.metadata(&WalMetadata { node_id: Some(NODE), cluster_id: Some(9) }).unwrap();
        wal.snapshot(&WalSnapshot { index: Some(0), term: Some(0), conf_state: None }).unwrap();
        for index in 1..=9 {
            wal.entry(&entry(index, if index < 6 { 2 } else { 3 })).unwrap();
            if index <= 6 {
                wal.state(&HardState { term: Some(3), vote: Some(8), commit: Some(index) }).unwrap();
            }
        }
        wal.finish()
    }

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn with(segment: &[u8]) -> Self {
            let dir = Self(tempfile::tempdir().unwrap());
            fs::write(dir.segment(), segment).unwrap();
            dir
        }

        fn segment(&self) -> PathBuf {
            self.0.path().join(SegmentName::FIRST.to_string())
        }

        fn commit(&self, vote: Vote) -> WalScan {
            let committed = commit_all(self.0.path(), vote).unwrap();
            assert_eq!(scan_dir(self.0.path()).unwrap(), committed, "what is returned is what is there");
            assert_eq!(committed.tail, Tail::Clean);
            committed
        }
    }

    #[test]
    fn every_entry_counts_and_nothing_before_the_end_is_touched() {
        for preallocated in [0, 5, 100, 100_000] {
            let mut bytes = log();
            let length = bytes.len();
            bytes.resize(length + preallocated, 0);
            let dir = Dir::with(&bytes);
            let before = scan_dir(dir.0.path()).unwrap();
            let after = dir.commit(Vote::Has);
            let state = HardState { term: Some(3), vote: Some(8), commit: Some(9) };
            assert_eq!((after.hard_state, after.last_index, after.last_term), (state, 9, 3));
            assert_eq!((after.entries, &after.snapshots), (before.entries, &before.snapshots));
            let written = fs::read(dir.segment()).unwrap();
            assert_eq!(written[..length], bytes[..length]);
            assert!(written.len() >= bytes.len(), "what was preallocated stays");
        }
    }

    #[test]
    fn a_log_of_which_all_is_committed_is_left_alone() {
        let dir = Dir::with(&log());
        let once = dir.commit(Vote::Has);
        let bytes = fs::read(dir.segment()).unwrap();
        assert_eq!(dir.commit(Vote::Has), once);
        assert_eq!(fs::read(dir.segment()).unwrap(), bytes);
    }

    #[test]
    fn a_term_that_nothing_was_written_in_yet_is_kept() {
        let mut wal = WalEncoder::new(Vec::new(), 0).unwrap();
        wal.metadata(&WalMetadata { node_id: Some(NODE), cluster_id: Some(9) }).unwrap();
        wal.entry(&entry(1, 2)).unwrap();
        wal.state(&HardState { term: Some(5), vote: None, commit: None }).unwrap();
        let committed = Dir::with(&wal.finish()).commit(Vote::Has).hard_state;
        assert_eq!(committed, HardState { term: Some(5), vote: Some(0), commit: Some(1) });
    }

    #[test]
    fn what_a_crash_has_torn_is_cut_off_and_a_copy_is_kept() {
        let whole = log();
        let residue = [whole.as_slice(), &[0; 64], &[7; 20]].concat();
        for (torn, last) in [(&whole[..whole.len() - 3], 8), (residue.as_slice(), 9)] {
            let dir = Dir::with(torn);
            assert_ne!(scan_dir(dir.0.path()).unwrap().tail, Tail::Clean);
            let after = dir.commit(Vote::Has);
            assert_eq!((after.last_index, after.hard_state.commit), (last, Some(last)));
            assert_eq!(fs::read(dir.segment().with_extension("wal.broken")).unwrap(), torn);
        }
    }

    #[test]
    fn a_learner_is_promoted_by_the_last_entry() {
        let dir = Dir::with(&log());
        let after = dir.commit(Vote::Gets);
        assert_eq!((after.last_index, after.hard_state.commit, after.entries), (10, Some(10), 10));
        let again = dir.commit(Vote::Gets);
        assert_eq!((again.last_index, again.hard_state.commit), (11, Some(11)), "which may be written twice");
    }

    #[test]
    fn a_write_that_was_cut_short_is_made_again() {
        let bytes = log();
        let whole = Dir::with(&bytes);
        let expected = whole.commit(Vote::Gets);
        let written = fs::read(whole.segment()).unwrap();
        for cut in (bytes.len()..written.len()).step_by(8) {
            let dir = Dir::with(&written[..cut]);
            let after = dir.commit(Vote::Gets);
            assert!(after.last_index >= expected.last_index, "cut at {cut}");
            assert_eq!(after.hard_state.commit, Some(after.last_index), "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_log_is_refused_and_left_as_it_is() {
        let mut bytes = log();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let dir = Dir::with(&bytes);
        assert!(matches!(commit_all(dir.0.path(), Vote::Has), Err(CommitError::Log(WalError::Corrupt { .. }))));
        assert_eq!(fs::read(dir.segment()).unwrap(), bytes);
    }
}
