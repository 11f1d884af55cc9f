//! Where etcd keeps what: the paths of a member's data directory, and whether an etcd uses it.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::wal;

/// What etcd calls `--data-dir`: the database, the snap files and the write-ahead log of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir {
    path: PathBuf,
}

impl DataDir {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Everything that is etcd's.
    pub fn member(&self) -> PathBuf {
        self.path.join("member")
    }

    /// The segments of the log.
    pub fn wal(&self) -> PathBuf {
        self.member().join("wal")
    }

    /// The snap files, and the database among them.
    pub fn snap(&self) -> PathBuf {
        self.member().join("snap")
    }

    /// The database.
    pub fn db(&self) -> PathBuf {
        self.snap().join("db")
    }

    /// Whether there is a log, which is what makes etcd take the directory for a member's. An error means that nobody
    /// knows.
    pub fn holds_log(&self) -> io::Result<bool> {
        wal::has_segments(&self.wal())
    }

    /// Whether an etcd runs on this data, which it locks. An error means that nobody knows.
    pub fn is_in_use(&self) -> io::Result<bool> {
        let database = match File::open(self.db()) {
            Err(error) if is_absent(&error) => return Ok(false),
            database => database?,
        };
        match lock_shared(&database) {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Nothing is there, as opposed to: it cannot be told what is.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Keeps etcd from opening a database until the file is closed; other readers are not disturbed.
///
/// bbolt holds an exclusive lock for as long as it has the file open: [`TryLockError::WouldBlock`] says that an etcd runs.
pub fn lock_shared(database: &File) -> Result<(), TryLockError> {
    unless_without_locks(database.try_lock_shared())
}

/// Keeps etcd and every reader out until the file is closed.
pub(crate) fn lock_exclusive(database: &File) -> Result<(), TryLockError> {
    unless_without_locks(database.try_lock())
}

/// Where a filesystem knows no locks bbolt refuses to open a database, so no etcd can run there.
fn unless_without_locks(locked: Result<(), TryLockError>) -> Result<(), TryLockError> {
    match locked {
        Err(TryLockError::Error(error)) if is_without_locks(&error) => Ok(()),
        locked => locked,
    }
}

fn is_without_locks(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSYS | Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_database() -> (tempfile::TempDir, DataDir) {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::new(dir.path());
        std::fs::create_dir_all(data_dir.snap()).unwrap();
        File::create(data_dir.db()).unwrap();
        (dir, data_dir)
    }

    #[test]
    fn a_database_is_in_use_while_it_is_locked_as_bbolt_locks_it() {
        let (_dir, data_dir) = with_database();
        assert!(!data_dir.is_in_use().unwrap());
        let bbolt = File::open(data_dir.db()).unwrap();
        bbolt.try_lock().unwrap();
        assert!(data_dir.is_in_use().unwrap());
        drop(bbolt);
        assert!(!data_dir.is_in_use().unwrap());
    }

    #[test]
    fn readers_disturb_each_other_as_little_as_a_database_that_is_not_there() {
        let (_dir, data_dir) = with_database();
        let reader = File::open(data_dir.db()).unwrap();
        lock_shared(&reader).unwrap();
        assert!(!data_dir.is_in_use().unwrap());
        assert!(matches!(lock_exclusive(&File::open(data_dir.db()).unwrap()), Err(TryLockError::WouldBlock)));
        std::fs::remove_file(data_dir.db()).unwrap();
        assert!(!data_dir.is_in_use().unwrap());
    }

    #[test]
    fn what_cannot_be_asked_is_unknown_and_neither_free_nor_without_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::new(dir.path());
        std::os::unix::fs::symlink("member", data_dir.member()).unwrap();
        assert!(data_dir.is_in_use().is_err());
        assert!(data_dir.holds_log().is_err());
        assert!(unless_without_locks(Err(TryLockError::Error(Errno::IO.into()))).is_err());
        assert!(unless_without_locks(Err(TryLockError::Error(Errno::OPNOTSUPP.into()))).is_ok());
    }

    #[test]
    fn only_a_segment_makes_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::new(dir.path());
        assert!(!data_dir.holds_log().unwrap());
        std::fs::create_dir_all(data_dir.wal()).unwrap();
        File::create(data_dir.wal().join("0.tmp")).unwrap();
        assert!(!data_dir.holds_log().unwrap());
        File::create(data_dir.wal().join(wal::SegmentName::FIRST.to_string())).unwrap();
        assert!(data_dir.holds_log().unwrap());
    }
}
