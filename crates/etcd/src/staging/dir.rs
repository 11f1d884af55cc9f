//! A directory of our own to build in: marked, locked, and never one that somebody else made.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use rustix::io::Errno;

use super::{StagingError, create_file, failed, parent, rename, sync_directory};

/// Says that a directory was made here and may be emptied here.
const MARKER: &str = ".quorate-part";

/// How often a directory may vanish between being created and being locked before that is taken for an error.
const ATTEMPTS: usize = 8;

/// Removed with all it holds when dropped, unless it was published.
#[derive(Debug)]
pub struct StagingDir {
    path: PathBuf,
    is_published: bool,
    /// Locked for as long as we build, so that a second process neither joins nor cleans up.
    _lock: File,
}

impl StagingDir {
    /// Creates the directory, or takes over what a killed predecessor left of its own.
    pub fn create(path: &Path) -> Result<Self, StagingError> {
        for _ in 0..ATTEMPTS {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed("create", path)(error));
                }
                _ => {}
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let lock = match openat(CWD, path, flags, Mode::empty()) {
                Ok(directory) => File::from(directory),
                Err(Errno::NOENT) => continue,
                Err(Errno::LOOP | Errno::NOTDIR) => return Err(StagingError::Foreign { path: path.to_owned() }),
                Err(error) => return Err(failed("open", path)(error.into())),
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(StagingError::Busy { path: path.to_owned() }),
                Err(TryLockError::Error(error)) => return Err(failed("lock", path)(error)),
            }
            // Its owner may have published or removed it in the meantime: then the lock is on something else.
            if is_at(&lock, path)? {
                return Self::take(path, lock);
            }
        }
        Err(StagingError::Busy { path: path.to_owned() })
    }

    fn take(path: &Path, lock: File) -> Result<Self, StagingError> {
        if !is_marked(path) {
            let mut entries = std::fs::read_dir(path).map_err(failed("list", path))?;
            if entries.next().is_some() {
                return Err(StagingError::Foreign { path: path.to_owned() });
            }
            create_file(&path.join(MARKER))?;
            sync_directory(path)?;
        }
        let dir = Self { path: path.to_owned(), is_published: false, _lock: lock };
        dir.clear()?;
        Ok(dir)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the finished directory into place in one step; never over something else.
    pub fn publish(mut self, target: &Path) -> Result<(), StagingError> {
        sync_directory(&self.path)?;
        rename(&self.path, target, "rename the finished directory to")?;
        self.is_published = true;
        unmark(target)?;
        sync_directory(parent(target))
    }

    /// Swaps places with the directory `target`, which is then called `kept`.
    pub fn exchange(mut self, target: &Path, kept: &Path) -> Result<(), StagingError> {
        sync_directory(&self.path)?;
        renameat_with(CWD, &self.path, CWD, target, RenameFlags::EXCHANGE)
            .map_err(|error| failed("put the new directory in the place of", target)(error.into()))?;
        // From here on the directory at our path is the old one: it must not be removed.
        self.is_published = true;
        unmark(target)?;
        rename(&self.path, kept, "keep the replaced directory as")?;
        sync_directory(parent(target))
    }

    /// Removes everything but the marker, which goes last.
    fn clear(&self) -> Result<(), StagingError> {
        for entry in std::fs::read_dir(&self.path).map_err(failed("list", &self.path))? {
            let entry = entry.map_err(failed("list", &self.path))?;
            if entry.file_name() == MARKER {
                continue;
            }
            let path = entry.path();
            let is_dir = entry.file_type().map_err(failed("inspect", &path))?.is_dir();
            let removed = if is_dir { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(failed("remove", &path))?;
        }
        Ok(())
    }
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        if !self.is_published {
            // Nothing to add to the error that brought us here; a leftover is cleared by the next attempt.
            let _ = self.clear().and_then(|()| unmark(&self.path)).map(|()| std::fs::remove_dir(&self.path));
        }
    }
}

pub(crate) fn is_marked(path: &Path) -> bool {
    path.join(MARKER).symlink_metadata().is_ok_and(|metadata| metadata.is_file())
}

pub(crate) fn unmark(path: &Path) -> Result<(), StagingError> {
    let marker = path.join(MARKER);
    match std::fs::remove_file(&marker) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &marker)(error)),
        _ => Ok(()),
    }
}

fn is_at(file: &File, path: &Path) -> Result<bool, StagingError> {
    let held = file.metadata().map_err(failed("inspect", path))?;
    match path.symlink_metadata() {
        Ok(named) => Ok((named.dev(), named.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("inspect", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_somebody_else_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let foreign = dir.path().join("foreign");
        std::fs::create_dir(&foreign).unwrap();
        std::fs::write(foreign.join("precious"), "data").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&foreign, &link).unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "data").unwrap();
        for path in [&foreign, &link, &file] {
            assert!(matches!(StagingDir::create(path), Err(StagingError::Foreign { .. })), "{}", path.display());
        }
        assert_eq!(std::fs::read_to_string(foreign.join("precious")).unwrap(), "data");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "data");
    }

    #[test]
    fn what_a_link_inside_points_to_survives_the_clearing() {
        let dir = tempfile::tempdir().unwrap();
        let (outside, path) = (dir.path().join("outside"), dir.path().join("part"));
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("precious"), "data").unwrap();
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join(MARKER), "").unwrap();
        std::os::unix::fs::symlink(&outside, path.join("link")).unwrap();
        drop(StagingDir::create(&path).unwrap());
        assert!(!path.exists());
        assert_eq!(std::fs::read_to_string(outside.join("precious")).unwrap(), "data");
    }

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part");
        let first = StagingDir::create(&path).unwrap();
        assert!(matches!(StagingDir::create(&path), Err(StagingError::Busy { .. })));
        drop(first);
        assert!(!path.exists());
        drop(StagingDir::create(&path).unwrap());
    }
}
