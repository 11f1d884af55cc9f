//! A file under construction.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::{StagingDir, StagingError, create_file, failed, parent, rename, staging_path, sync_directory};

/// Lies in a staging directory of its own, which is gone on drop, published or not.
#[derive(Debug)]
pub struct StagingFile {
    dir: StagingDir,
    path: PathBuf,
    target: PathBuf,
    file: File,
}

impl StagingFile {
    /// Starts building `target`.
    pub fn create(target: &Path) -> Result<Self, StagingError> {
        let dir = StagingDir::create(&staging_path(target)?)?;
        let path = dir.path().join("file");
        let file = create_file(&path)?;
        Ok(Self { dir, path, target: target.to_owned(), file })
    }

    /// To be filled and, before it is published, synced.
    pub fn file(&self) -> Result<File, StagingError> {
        self.file.try_clone().map_err(failed("open", &self.path))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the finished file its name; never over something else.
    pub fn publish(self) -> Result<(), StagingError> {
        rename(&self.path, &self.target, "rename the finished file to")?;
        drop(self.dir);
        sync_directory(parent(&self.target))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all_and_never_over_another() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        drop(StagingFile::create(&target).unwrap());
        assert_eq!(names(), 0);
        let staged = StagingFile::create(&target).unwrap();
        staged.file().unwrap().write_all(b"whole").unwrap();
        assert!(!target.exists());
        staged.publish().unwrap();
        assert_eq!((std::fs::read(&target).unwrap().as_slice(), names()), (b"whole".as_slice(), 1));
        let second = StagingFile::create(&target).unwrap().publish();
        assert!(matches!(second, Err(StagingError::Io { .. })));
        assert_eq!((std::fs::read(&target).unwrap().as_slice(), names()), (b"whole".as_slice(), 1));
    }
}
