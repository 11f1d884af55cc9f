//! Finds out what a path is, and opens it.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use quorate_etcd::data_dir::{DataDir, lock_shared};
use quorate_etcd::events::Cut;
use quorate_etcd::foreign::{self, BackupFile, BackupKind, BackupName, Base, Compression, DeltaStream};
use quorate_etcd::snapshot::Snapshot;
use quorate_etcd::wal::{SegmentName, has_segments};

use crate::printer::Printer;
use crate::progress::WithProgress;
use crate::unpacked::Unpacked;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A snapshot file or a bare database.
    File(PathBuf),
    DataDir(DataDir),
    /// A directory of WAL segments.
    Wal(PathBuf),
}

impl Source {
    pub(crate) fn find(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).with_context(|| format!("{} cannot be read", path.display()))?;
        if !metadata.is_dir() {
            let segment = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
            return Ok(match (segment, path.parent()) {
                // A bare name has an empty parent, which is no directory's name.
                (Some(_), Some(parent)) if parent.as_os_str().is_empty() => Self::Wal(PathBuf::from(".")),
                (Some(_), Some(parent)) => Self::Wal(parent.to_owned()),
                _ => Self::File(path.to_owned()),
            });
        }
        let data_dir = DataDir::new(path);
        if data_dir.member().is_dir() {
            return Ok(Self::DataDir(data_dir));
        }
        if path.file_name().is_some_and(|name| name == "member") && path.join("snap").is_dir() {
            return Ok(Self::DataDir(DataDir::new(path.parent().unwrap_or(path))));
        }
        if has_segments(path).with_context(|| format!("{} cannot be listed", path.display()))? {
            return Ok(Self::Wal(path.to_owned()));
        }
        bail!("{} is neither a data directory (no `member` in it) nor a write-ahead log", path.display())
    }
}

/// A snapshot file to read, unpacked into scratch space if it was compressed.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    path: PathBuf,
    /// When the backup was taken, if its name says so.
    created: Option<Timestamp>,
    unpacked: Option<Unpacked>,
    /// Keeps etcd from starting on a member's database while it is read.
    _lock: File,
}

impl SnapshotFile {
    /// Accepts a snapshot file, a data directory (its database), or a compressed full backup of etcd-backup-restore,
    /// which is unpacked in `scratch`.
    pub(crate) fn find(path: &Path, scratch: &Path) -> Result<Self> {
        let path = match Source::find(path)? {
            Source::DataDir(dir) => dir.db(),
            Source::Wal(_) => bail!("{} is a write-ahead log; a snapshot or data directory is needed", path.display()),
            Source::File(path) => path,
        };
        let lock = lock(&path)?;
        let name = path.file_name().and_then(|name| BackupName::parse(name.to_str()?));
        let Some(name) = name.filter(|name| name.kind == BackupKind::Full) else {
            return Ok(Self { path, created: None, unpacked: None, _lock: lock });
        };
        let created = Timestamp::from_second(name.created).ok();
        if name.compression == Compression::None {
            return Ok(Self { path, created, unpacked: None, _lock: lock });
        }
        let unpack = || Unpacked::new(foreign::open_decompressed(&BackupFile { path: path.clone(), name })?, scratch);
        let unpacked = unpack().with_context(|| format!("{} cannot be decompressed", path.display()))?;
        Ok(Self { path, created, unpacked: Some(unpacked), _lock: lock })
    }

    /// Where the plain file is.
    pub(crate) fn path(&self) -> &Path {
        self.unpacked.as_ref().map_or(self.path.as_path(), Unpacked::path)
    }

    /// Bytes on disk, as the user sees them.
    pub(crate) fn size(&self) -> Result<u64> {
        Ok(File::open(&self.path)?.metadata()?.len())
    }

    pub(crate) fn open(&self) -> Result<Snapshot> {
        Ok(Snapshot::open(self.path())?)
    }

    /// Opens the delta files behind `snapshot` up to the cut.
    pub(crate) fn deltas(
        &self,
        printer: Printer,
        dir: &Path,
        base: i64,
        cut: Cut,
    ) -> Result<WithProgress<DeltaStream>> {
        let stream = DeltaStream::open(dir, Base { revision: base, taken: self.created }, cut)?;
        let wanted = if let Cut::Revision(revision) = cut { Some(revision) } else { stream.last_revision() };
        Ok(WithProgress::new(printer, stream, base, wanted.unwrap_or(base)))
    }
}

/// A database that etcd is writing to at the same time would give answers that were never true. Whether one does so may
/// be impossible to tell where the backups are, which must not keep anybody from them.
fn lock(path: &Path) -> Result<File> {
    let file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
    if let Err(TryLockError::WouldBlock) = lock_shared(&file) {
        bail!("{} is in use by a running etcd: stop it first, or take a snapshot", path.display());
    }
    Ok(file)
}

/// Where large intermediate results go.
pub(crate) fn scratch() -> PathBuf {
    std::env::temp_dir()
}

/// Where they go if a result is to be made as well: on its filesystem, which has to have room anyway.
pub(crate) fn scratch_beside(target: &Path) -> PathBuf {
    let absolute = std::path::absolute(target).unwrap_or_default();
    absolute.ancestors().skip(1).find(|dir| dir.is_dir()).map_or_else(scratch, Path::to_owned)
}

/// The cut that a revision asks for.
pub(crate) fn cut_at(revision: Option<i64>) -> Cut {
    revision.map_or(Cut::End, Cut::Revision)
}
