//! A member's directory under construction: invisible until complete, then renamed into place.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::data_dir::DataDir;
use crate::staging::{
    StagingDir, StagingError, create_file, failed, is_marked, rename, staging_path, sync_directory, unmark,
};
use crate::wal::has_segments;

/// Where a data directory is built.
#[derive(Debug)]
pub(super) struct StagedMember {
    /// The directory with `member` in it, or that will become `member`.
    root: StagingDir,
    target: PathBuf,
    member: PathBuf,
}

impl StagedMember {
    /// Starts building `data_dir`, which must be absent or empty.
    ///
    /// An absent directory is built beside itself and renamed as a whole. An existing one may be the mount point of a
    /// volume, which cannot be renamed, so there the directory `member` is built inside.
    pub(super) fn create(data_dir: &Path) -> Result<Self, StagingError> {
        let beside = staging_path(data_dir)?;
        let inside = DataDir::new(data_dir).member();
        let (root, target, member) = match std::fs::read_dir(data_dir) {
            Ok(entries) => {
                let part = staging_path(&inside)?;
                for entry in entries {
                    let entry = entry.map_err(failed("list", data_dir))?;
                    if entry.path() != part && entry.file_name() != "lost+found" {
                        return Err(StagingError::NotEmpty { path: data_dir.to_owned() });
                    }
                }
                (part.clone(), inside, part)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let member = DataDir::new(&beside).member();
                (beside, data_dir.to_owned(), member)
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(StagingError::NotEmpty { path: data_dir.to_owned() });
            }
            Err(error) => return Err(failed("list", data_dir)(error)),
        };
        Self::begin(&root, target, member)
    }

    /// Starts building a replacement for the existing `member` directory of `data_dir`.
    pub(super) fn replacing(data_dir: &DataDir) -> Result<Self, StagingError> {
        let member = data_dir.member();
        let part = staging_path(&member)?;
        let wal = part.join("wal");
        if !is_marked(&part) && has_segments(&wal).map_err(failed("list", &wal))? {
            // A predecessor was killed between the two steps of the exchange: this is the member it replaced.
            rename(&part, &free_name(&member), "keep the replaced directory as")?;
            sync_directory(data_dir.path())?;
        }
        // Left by a restore that was killed just after it was done. Whatever is marked may be cleared one day.
        unmark(&member)?;
        sync_directory(&member)?;
        Self::begin(&part, member, part.clone())
    }

    fn begin(root: &Path, target: PathBuf, member: PathBuf) -> Result<Self, StagingError> {
        let staged = Self { root: StagingDir::create(root)?, target, member };
        for dir in [staged.member.clone(), staged.member.join("snap"), staged.member.join("wal")] {
            DirBuilder::new().mode(0o700).recursive(true).create(&dir).map_err(failed("create", &dir))?;
        }
        Ok(staged)
    }

    pub(super) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(super) fn create_file(&self, directory: &str, name: &str) -> Result<File, StagingError> {
        create_file(&self.path(directory, name))
    }

    pub(super) fn path(&self, directory: &str, name: &str) -> PathBuf {
        self.member.join(directory).join(name)
    }

    /// Writes a small file and makes it durable.
    pub(super) fn write_file(&self, directory: &str, name: &str, contents: &[u8]) -> Result<(), StagingError> {
        let mut file = self.create_file(directory, name)?;
        let written = file.write_all(contents).and_then(|()| file.sync_all());
        written.map_err(failed("write", &self.path(directory, name)))
    }

    fn sync_directories(&self) -> Result<(), StagingError> {
        [self.member.join("snap"), self.member.join("wal"), self.member.clone()]
            .iter()
            .try_for_each(|dir| sync_directory(dir))
    }

    /// Puts the finished directory into place in one step; never over something else.
    pub(super) fn publish(self) -> Result<(), StagingError> {
        self.sync_directories()?;
        self.root.publish(&self.target)
    }

    /// Swaps places with the directory it replaces, which is kept beside it under the returned name.
    pub(super) fn exchange(self) -> Result<PathBuf, StagingError> {
        self.sync_directories()?;
        let kept = free_name(&self.target);
        self.root.exchange(&self.target, &kept)?;
        Ok(kept)
    }
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
