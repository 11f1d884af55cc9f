//! A directory under construction: invisible until complete, then renamed into place.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error("{} exists and is not an empty directory; name another directory, or move it away first", path.display())]
    NotEmpty { path: PathBuf },
    #[error("another process is building {}; wait for it to end", path.display())]
    Busy { path: PathBuf },
    #[error("{} has no parent directory to build in", path.display())]
    NoParent { path: PathBuf },
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PartError {
    let path = path.to_owned();
    move |source| PartError::Io { action, path, source }
}

/// Where a data directory is built. Removed on drop unless published.
#[derive(Debug)]
pub(crate) struct Part {
    /// The directory with `member` in it, or that will become `member`.
    root: PathBuf,
    target: PathBuf,
    member: PathBuf,
    published: bool,
    /// Locked for as long as we build, so that a second process neither joins nor cleans up.
    _lock: File,
}

impl Part {
    /// Starts building `data_dir`, which must be absent or empty.
    ///
    /// An absent directory is built beside itself and renamed as a whole. An existing one may be the mount point of a
    /// volume, which cannot be renamed, so there the directory `member` is built inside.
    pub(crate) fn create(data_dir: &Path) -> Result<Self, PartError> {
        let name = data_dir.file_name().ok_or_else(|| PartError::NoParent { path: data_dir.to_owned() })?;
        let (root, target, member) = match std::fs::read_dir(data_dir) {
            Ok(entries) => {
                let part = data_dir.join("member.part");
                for entry in entries {
                    let entry = entry.map_err(failed("list", data_dir))?;
                    if entry.path() != part && entry.file_name() != "lost+found" {
                        return Err(PartError::NotEmpty { path: data_dir.to_owned() });
                    }
                }
                (part.clone(), data_dir.join("member"), part)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut part_name = name.to_owned();
                part_name.push(".part");
                let part = data_dir.with_file_name(part_name);
                let member = part.join("member");
                (part, data_dir.to_owned(), member)
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(PartError::NotEmpty { path: data_dir.to_owned() });
            }
            Err(error) => return Err(failed("list", data_dir)(error)),
        };
        Self::begin(root, target, member)
    }

    /// Starts building a replacement for the existing `member` directory of `data_dir`.
    pub(crate) fn replacing(data_dir: &Path) -> Result<Self, PartError> {
        let part = data_dir.join("member.part");
        Self::begin(part.clone(), data_dir.join("member"), part)
    }

    fn begin(root: PathBuf, target: PathBuf, member: PathBuf) -> Result<Self, PartError> {
        match DirBuilder::new().mode(0o700).create(&root) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("create", &root)(error)),
        }
        let lock = File::open(&root).map_err(failed("open", &root))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(PartError::Busy { path: target }),
            Err(TryLockError::Error(error)) => return Err(failed("lock", &root)(error)),
        }
        let part = Self { root, target, member, published: false, _lock: lock };
        part.clear()?;
        for dir in [part.member.clone(), part.member.join("snap"), part.member.join("wal")] {
            DirBuilder::new().mode(0o700).recursive(true).create(&dir).map_err(failed("create", &dir))?;
        }
        Ok(part)
    }

    /// Removes what a killed predecessor left.
    fn clear(&self) -> Result<(), PartError> {
        for entry in std::fs::read_dir(&self.root).map_err(failed("list", &self.root))? {
            let path = entry.map_err(failed("list", &self.root))?.path();
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(failed("remove", &path))?;
        }
        Ok(())
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn create_file(&self, directory: &str, name: &str) -> Result<File, PartError> {
        let path = self.path(directory, name);
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o600).open(&path).map_err(failed("create", &path))
    }

    pub(crate) fn path(&self, directory: &str, name: &str) -> PathBuf {
        self.member.join(directory).join(name)
    }

    /// Writes a small file and makes it durable.
    pub(crate) fn write_file(&self, directory: &str, name: &str, contents: &[u8]) -> Result<(), PartError> {
        let mut file = self.create_file(directory, name)?;
        io::Write::write_all(&mut file, contents)
            .and_then(|()| file.sync_all())
            .map_err(failed("write", &self.path(directory, name)))
    }

    fn sync_directories(&self) -> Result<(), PartError> {
        for dir in [self.member.join("snap"), self.member.join("wal"), self.member.clone(), self.root.clone()] {
            sync_directory(&dir)?;
        }
        Ok(())
    }

    /// Puts the finished directory into place in one step; never over something else.
    pub(crate) fn publish(mut self) -> Result<(), PartError> {
        self.sync_directories()?;
        renameat_with(CWD, &self.root, CWD, &self.target, RenameFlags::NOREPLACE)
            .map_err(|error| failed("rename the finished directory to", &self.target)(error.into()))?;
        self.published = true;
        self.sync_parent()
    }

    /// Swaps places with the directory it replaces, which is kept beside it under the returned name.
    pub(crate) fn exchange(mut self) -> Result<PathBuf, PartError> {
        self.sync_directories()?;
        let mut number = 0;
        let kept = loop {
            let path = self.target.with_file_name(format!("member.replaced-{number}"));
            if !path.exists() {
                break path;
            }
            number += 1;
        };
        renameat_with(CWD, &self.root, CWD, &self.target, RenameFlags::EXCHANGE)
            .map_err(|error| failed("put the new directory in the place of", &self.target)(error.into()))?;
        // From here on the directory called `part` is the old one: it must not be removed.
        self.published = true;
        renameat_with(CWD, &self.root, CWD, &kept, RenameFlags::NOREPLACE)
            .map_err(|error| failed("keep the replaced directory as", &kept)(error.into()))?;
        self.sync_parent()?;
        Ok(kept)
    }

    fn sync_parent(&self) -> Result<(), PartError> {
        match self.target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent),
            _ => sync_directory(Path::new(".")),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.published {
            // Nothing to add to the error that brought us here; a leftover is cleared by the next attempt.
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

pub(crate) fn sync_directory(dir: &Path) -> Result<(), PartError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync", dir))
}
