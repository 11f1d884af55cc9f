//! Finds out what a path is, and opens it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use quorate_etcd::events::{Cut, EventStream};
use quorate_etcd::foreign::{self, BackupFile, BackupName, Compression, DeltaStream, Kind};
use quorate_etcd::snapshot::Snapshot;
use quorate_etcd::wal::SegmentName;
use tempfile::NamedTempFile;

use crate::printer::Printer;
use crate::progress::Watched;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A snapshot file or a bare database.
    File(PathBuf),
    DataDir(PathBuf),
    /// A directory of WAL segments.
    Wal(PathBuf),
}

impl Source {
    pub(crate) fn find(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).with_context(|| format!("{} cannot be read", path.display()))?;
        if !metadata.is_dir() {
            let segment = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
            return Ok(match (segment, path.parent()) {
                (Some(_), Some(parent)) => Self::Wal(parent.to_owned()),
                _ => Self::File(path.to_owned()),
            });
        }
        if path.join("member").is_dir() {
            return Ok(Self::DataDir(path.to_owned()));
        }
        if path.file_name().is_some_and(|name| name == "member") && path.join("snap").is_dir() {
            return Ok(Self::DataDir(path.parent().unwrap_or(path).to_owned()));
        }
        let entries = fs::read_dir(path).with_context(|| format!("{} cannot be listed", path.display()))?;
        let is_segment = |entry: io::Result<fs::DirEntry>| {
            entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(|name| SegmentName::parse(name).is_some()))
        };
        if entries.into_iter().any(is_segment) {
            return Ok(Self::Wal(path.to_owned()));
        }
        bail!("{} is neither a data directory (no `member` in it) nor a write-ahead log", path.display())
    }
}

/// A snapshot file to read, decompressed into scratch space if it was compressed.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    path: PathBuf,
    /// When the backup was taken, if its name says so.
    created: Option<Timestamp>,
    decompressed: Option<NamedTempFile>,
    /// Keeps etcd from starting on a member's database while it is read.
    _lock: Option<File>,
}

impl SnapshotFile {
    /// Accepts a snapshot file, a data directory (its database), or a compressed full backup of etcd-backup-restore.
    pub(crate) fn find(path: &Path) -> Result<Self> {
        match Source::find(path)? {
            Source::DataDir(dir) => Self::of_member(dir.join("member/snap/db")),
            Source::Wal(_) => bail!("{} is a write-ahead log; a snapshot or data directory is needed", path.display()),
            Source::File(path) => Self::of_file(path),
        }
    }

    /// A database that etcd is writing to at the same time would give answers that were never true.
    fn of_member(path: PathBuf) -> Result<Self> {
        let file = File::open(&path).with_context(|| format!("{} cannot be opened", path.display()))?;
        if file.try_lock_shared().is_err() {
            bail!("{} is in use by a running etcd: stop it first, or take a snapshot", path.display());
        }
        Ok(Self { path, created: None, decompressed: None, _lock: Some(file) })
    }

    fn of_file(path: PathBuf) -> Result<Self> {
        let name = path.file_name().and_then(|name| BackupName::parse(name.to_str()?));
        let Some(name) = name.filter(|name| name.kind == Kind::Full) else {
            return Ok(Self { path, created: None, decompressed: None, _lock: None });
        };
        let created = Timestamp::from_second(name.created).ok();
        if name.compression == Compression::None {
            return Ok(Self { path, created, decompressed: None, _lock: None });
        }
        let context = || format!("{} cannot be decompressed", path.display());
        let mut plain = NamedTempFile::new().context("no scratch file can be made")?;
        let mut input = foreign::open_decompressed(&BackupFile { path: path.clone(), name }).with_context(context)?;
        io::copy(&mut input, &mut plain).with_context(context)?;
        plain.flush().with_context(context)?;
        Ok(Self { path, created, decompressed: Some(plain), _lock: None })
    }

    /// Where the plain file is.
    pub(crate) fn path(&self) -> &Path {
        self.decompressed.as_ref().map_or(self.path.as_path(), NamedTempFile::path)
    }

    /// Bytes on disk, as the user sees them.
    pub(crate) fn size(&self) -> Result<u64> {
        Ok(File::open(&self.path)?.metadata()?.len())
    }

    pub(crate) fn open(&self) -> Result<Snapshot> {
        Ok(Snapshot::open(self.path())?)
    }

    /// Opens the delta files behind `snapshot` up to the cut.
    pub(crate) fn deltas(&self, printer: Printer, dir: &Path, base: i64, cut: Cut) -> Result<Watched<DeltaStream>> {
        let wanted = if let Cut::Revision(revision) = cut { Some(revision) } else { None };
        if let Cut::Time(moment) = cut {
            self.check_moment(dir, base, moment)?;
        }
        let last =
            foreign::list(dir)?.iter().filter(|file| file.name.kind == Kind::Delta).map(|file| file.name.last).max();
        let last = wanted.or(last).unwrap_or(base);
        Ok(Watched::new(printer, DeltaStream::open(dir, base, wanted)?, base, last))
    }

    /// A moment before the first delta is only safe if the base is known to be older still.
    fn check_moment(&self, dir: &Path, base: i64, moment: Timestamp) -> Result<()> {
        let mut stream = DeltaStream::open(dir, base, None)?;
        let reaches_back = !stream.advance()? || stream.event().time.is_some_and(|time| time <= moment);
        if reaches_back || self.created.is_some_and(|created| created <= moment) {
            return Ok(());
        }
        bail!(
            "no delta event is as old as {moment}, and the snapshot itself may be younger: \
             use an older snapshot, or --revision {base} for the snapshot as it is"
        )
    }
}

/// Where large intermediate results go.
pub(crate) fn scratch() -> PathBuf {
    std::env::temp_dir()
}

/// The cut that a revision asks for.
pub(crate) fn cut_at(revision: Option<i64>) -> Cut {
    revision.map_or(Cut::End, Cut::Revision)
}
