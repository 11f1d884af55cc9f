//! A snapshot and the deltas after it become one new snapshot, without the revisions that compaction removes.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::events::{Cut, EventStream};
use crate::history::{History, HistoryError};
use crate::rebuild::{Grants, Patch, Rebuild, RebuildError, meta_entries, set_compacted};
use crate::restore::{CompactAt, PartError, Workplace, sync_directory};
use crate::schema::META;
use crate::snapshot::{Digest256, DigestPolicy, Snapshot, SnapshotError, digest_of, digest_of_written};
use crate::validate;

#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
    #[error(transparent)]
    Directory(#[from] PartError),
    #[error("{} exists already; name another file", path.display())]
    Exists { path: PathBuf },
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("the snapshot is damaged: {first} ({others} more findings); take another one")]
    Damaged { first: String, others: usize },
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

fn require_sound(snapshot: &Snapshot) -> Result<(), CompactError> {
    match validate::damage(snapshot).map_err(HistoryError::from)? {
        Some((first, others)) => Err(CompactError::Damaged { first: first.to_string(), others }),
        None => Ok(()),
    }
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
        let directory = match self.output.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let part = PartFile::create(self.output)?;
        let compacted = self.write(&snapshot, events, directory, &part)?;
        part.publish(self.output)?;
        sync_directory(directory)?;
        Ok(compacted)
    }

    fn write(
        &self,
        snapshot: &Snapshot,
        events: Option<&mut dyn EventStream>,
        directory: &Path,
        part: &PartFile,
    ) -> Result<Compacted, CompactError> {
        std::thread::scope(|scope| {
            let source = scope.spawn(|| digest_of(snapshot.db.file(), snapshot.data_length()));
            // A digest vouches for the way, not for what the member had.
            let looked = snapshot.stored_digest().map(|_| scope.spawn(|| require_sound(snapshot)));
            let history = History::new(snapshot, events, self.cut, directory)?;
            let compact = self.at.revision(history.revision());
            history.check_compaction(compact)?;
            let mut meta = meta_entries(&snapshot.db)?;
            set_compacted(&mut meta, compact);
            let patch = Patch::from([(META, meta)]);
            let rebuild =
                Rebuild { history: &history, compact: Some(compact), bump_to: None, patch, grants: Grants::default() };
            let (file, written, entries) = rebuild.write(part.file(part.io("open"))?)?;
            let length = written.high_water * u64::from(written.page_size);
            let digest = append_digest(&file, length).map_err(part.io("write"))?;
            let source = source.join().map_err(|_| CompactError::Stopped)?;
            let source = source.map_err(|source| SnapshotError::Io { path: self.snapshot.to_owned(), source })?;
            snapshot.accept_digest(&source, self.digest)?;
            looked.map_or(Ok(()), |looked| looked.join().unwrap_or(Err(CompactError::Stopped)))?;
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

/// The file under construction, in a directory of its own; both are gone on drop, published or not.
#[derive(Debug)]
struct PartFile {
    path: PathBuf,
    file: File,
    _place: Workplace,
}

impl PartFile {
    fn create(output: &Path) -> Result<Self, CompactError> {
        let mut name = output.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let place = Workplace::create(&output.with_file_name(name))?;
        let path = place.path().join("db");
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|source| CompactError::Io { action: "create", path: path.clone(), source })?;
        Ok(Self { path, file, _place: place })
    }

    fn io(&self, action: &'static str) -> impl FnOnce(io::Error) -> CompactError {
        let path = self.path.clone();
        move |source| CompactError::Io { action, path, source }
    }

    fn file(&self, failed: impl FnOnce(io::Error) -> CompactError) -> Result<File, CompactError> {
        self.file.try_clone().map_err(failed)
    }

    fn publish(self, output: &Path) -> Result<(), CompactError> {
        renameat_with(CWD, &self.path, CWD, output, RenameFlags::NOREPLACE)
            .map_err(|error| self.io("rename")(error.into()))
    }
}
