//! A snapshot and the deltas after it become one new snapshot, without the revisions that compaction removes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::events::{Cut, EventStream};
use crate::history::{History, HistoryError};
use crate::rebuild::{Grants, Patch, Rebuild, RebuildError, meta_entries, set_compacted};
use crate::restore::CompactAt;
use crate::schema::META;
use crate::snapshot::{Digest256, DigestPolicy, Snapshot, SnapshotError, digest_of, digest_of_written};
use crate::staging::{StagingError, StagingFile, failed, parent};
use crate::validate::{UnsoundError, require_sound};

#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
    #[error(transparent)]
    Staging(#[from] StagingError),
    #[error("{} exists already; name another file", path.display())]
    Exists { path: PathBuf },
    #[error(transparent)]
    Unsound(#[from] UnsoundError),
    #[error("a thread of the compaction stopped")]
    Stopped,
}

/// What to compact and where to.
#[derive(Debug, Clone)]
pub struct Compact<'a> {
    pub snapshot: &'a Path,
    pub output: &'a Path,
    pub cut: Cut,
    pub at: CompactAt,
    pub digest: DigestPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    pub revision: i64,
    pub compact_revision: i64,
    pub events: u64,
    /// Entries of the new snapshot's history.
    pub entries: u64,
    pub bytes: u64,
    pub digest: Digest256,
}

impl Compact<'_> {
    pub fn run(&self, events: Option<&mut dyn EventStream>) -> Result<Compacted, CompactError> {
        if self.output.exists() {
            return Err(CompactError::Exists { path: self.output.to_owned() });
        }
        let snapshot = Snapshot::open(self.snapshot)?;
        snapshot.require_digest(self.digest)?;
        if snapshot.stored_digest().is_none() {
            require_sound(&snapshot)?;
        }
        self.publish(&snapshot, events)
    }

    /// As [`run`](Self::run), with the snapshot from a stream, which must bring its digest; `snapshot` is only what messages
    /// call it. A database is not in key order, so it is received into scratch space beside the output first.
    pub fn run_received(
        &self,
        snapshot: &mut dyn Read,
        events: Option<&mut dyn EventStream>,
    ) -> Result<Compacted, CompactError> {
        if self.output.exists() {
            return Err(CompactError::Exists { path: self.output.to_owned() });
        }
        let snapshot = Snapshot::receive(snapshot, parent(self.output), self.snapshot)?;
        self.publish(&snapshot, events)
    }

    fn publish(&self, snapshot: &Snapshot, events: Option<&mut dyn EventStream>) -> Result<Compacted, CompactError> {
        let staged = StagingFile::create(self.output)?;
        let compacted = self.write(snapshot, events, &staged)?;
        staged.publish()?;
        Ok(compacted)
    }

    fn write(
        &self,
        snapshot: &Snapshot,
        events: Option<&mut dyn EventStream>,
        staged: &StagingFile,
    ) -> Result<Compacted, CompactError> {
        std::thread::scope(|scope| {
            let source = scope.spawn(|| digest_of(snapshot.db.file(), snapshot.data_length()));
            // A digest vouches for the way, not for what the member had.
            let looked = snapshot.stored_digest().map(|_| scope.spawn(|| require_sound(snapshot)));
            let history = History::new(snapshot, events, self.cut, parent(self.output))?;
            let compact = self.at.revision(history.revision());
            history.check_compaction(compact)?;
            let mut meta = meta_entries(&snapshot.db)?;
            set_compacted(&mut meta, compact);
            let patch = Patch::from([(META, meta)]);
            // Whoever restores the result has no deltas to learn them from.
            let grants = Grants { leases: history.applied().known_leases.clone() };
            let rebuild = Rebuild { history: &history, compact: Some(compact), bump_to: None, patch, grants };
            let (file, written, entries) = rebuild.write(staged.file()?)?;
            let length = written.high_water * u64::from(written.page_size);
            let digest = append_digest(&file, length).map_err(failed("write", staged.path()))?;
            let source = source.join().map_err(|_| CompactError::Stopped)?;
            let source = source.map_err(|source| SnapshotError::Io { path: self.snapshot.to_owned(), source })?;
            snapshot.accept_digest(&source, self.digest)?;
            if let Some(looked) = looked {
                looked.join().map_err(|_| CompactError::Stopped)??;
            }
            Ok(Compacted {
                revision: history.revision(),
                compact_revision: compact,
                events: history.events(),
                entries,
                bytes: length + digest.len() as u64,
                digest,
            })
        })
    }
}

/// The meta pages come first in the file and are written last, so the digest needs a second look at all of it.
fn append_digest(file: &Arc<File>, length: u64) -> io::Result<Digest256> {
    let digest = digest_of_written(file, length)?;
    file.write_all_at(&digest, length)?;
    file.sync_all()?;
    Ok(digest)
}
