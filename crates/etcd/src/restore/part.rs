//! A directory under construction: invisible until complete, then renamed into place.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::workplace::{Workplace, is_marked, unmark};
use crate::wal::SegmentName;

#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error("{} exists and is not an empty directory; name another directory, or move it away first", path.display())]
    NotEmpty { path: PathBuf },
    #[error("another process is working in {}; wait for it to end", path.display())]
    Busy { path: PathBuf },
    #[error("{} is in the way and was not made here; move it away first", path.display())]
    Foreign { path: PathBuf },
    #[error("{} has no parent directory to build in", path.display())]
    NoParent { path: PathBuf },
    #[error("cannot {action} {}; see to the cause below and try again", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PartError {
    let path = path.to_owned();
    move |source| PartError::Io { action, path, source }
}

/// Where a data directory is built.
#[derive(Debug)]
pub(crate) struct Part {
    /// The directory with `member` in it, or that will become `member`.
    root: Workplace,
    target: PathBuf,
    member: PathBuf,
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
        Self::begin(&root, target, member)
    }

    /// Starts building a replacement for the existing `member` directory of `data_dir`.
    pub(crate) fn replacing(data_dir: &Path) -> Result<Self, PartError> {
        let (part, member) = (data_dir.join("member.part"), data_dir.join("member"));
        if !is_marked(&part) && holds_log(&part) {
            // A predecessor was killed between the two steps of the exchange: this is the member it replaced.
            let kept = free_name(&member);
            renameat_with(CWD, &part, CWD, &kept, RenameFlags::NOREPLACE)
                .map_err(|error| failed("keep the replaced directory as", &kept)(error.into()))?;
            sync_directory(data_dir)?;
        }
        // Left by a restore that was killed just after it was done. Whatever is marked may be cleared one day.
        unmark(&member)?;
        sync_directory(&member)?;
        Self::begin(&part, member, part.clone())
    }

    fn begin(root: &Path, target: PathBuf, member: PathBuf) -> Result<Self, PartError> {
        let part = Self { root: Workplace::create(root)?, target, member };
        for dir in [part.member.clone(), part.member.join("snap"), part.member.join("wal")] {
            DirBuilder::new().mode(0o700).recursive(true).create(&dir).map_err(failed("create", &dir))?;
        }
        Ok(part)
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
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
        for dir in [self.member.join("snap"), self.member.join("wal"), self.member.clone(), self.root.path().to_owned()]
        {
            sync_directory(&dir)?;
        }
        Ok(())
    }

    /// Puts the finished directory into place in one step; never over something else.
    pub(crate) fn publish(mut self) -> Result<(), PartError> {
        self.sync_directories()?;
        renameat_with(CWD, self.root.path(), CWD, &self.target, RenameFlags::NOREPLACE)
            .map_err(|error| failed("rename the finished directory to", &self.target)(error.into()))?;
        self.root.give_away(&self.target)?;
        self.sync_parent()
    }

    /// Swaps places with the directory it replaces, which is kept beside it under the returned name.
    pub(crate) fn exchange(mut self) -> Result<PathBuf, PartError> {
        self.sync_directories()?;
        let kept = free_name(&self.target);
        renameat_with(CWD, self.root.path(), CWD, &self.target, RenameFlags::EXCHANGE)
            .map_err(|error| failed("put the new directory in the place of", &self.target)(error.into()))?;
        // From here on the directory called `part` is the old one: it must not be removed.
        self.root.give_away(&self.target)?;
        renameat_with(CWD, self.root.path(), CWD, &kept, RenameFlags::NOREPLACE)
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

fn holds_log(member: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(member.join("wal")) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_str().and_then(SegmentName::parse).is_some())
}

/// A name for a replaced member that nothing has yet.
fn free_name(member: &Path) -> PathBuf {
    let mut number = 0_u64;
    loop {
        let path = member.with_file_name(format!("member.replaced-{number}"));
        if path.symlink_metadata().is_err() {
            return path;
        }
        number += 1;
    }
}

pub(crate) fn sync_directory(dir: &Path) -> Result<(), PartError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync", dir))
}
