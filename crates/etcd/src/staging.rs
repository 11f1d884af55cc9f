//! Building beside the final name: nobody sees what is not finished, and the next attempt clears what a killed one left.
//!
//! A [`StagingDir`] becomes the finished directory by a rename, a [`StagingFile`] lies in one and becomes the finished
//! file. What was built is on disk before it gets its name.

mod dir;
mod file;

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

pub use dir::StagingDir;
pub(crate) use dir::{is_marked, unmark};
pub use file::StagingFile;

#[derive(Debug, thiserror::Error)]
pub enum StagingError {
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

pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StagingError {
    let path = path.to_owned();
    move |source| StagingError::Io { action, path, source }
}

/// Where `target` is built: beside it, under its name with `.part` behind.
pub(crate) fn staging_path(target: &Path) -> Result<PathBuf, StagingError> {
    let mut name = target.file_name().ok_or_else(|| StagingError::NoParent { path: target.to_owned() })?.to_owned();
    name.push(".part");
    Ok(target.with_file_name(name))
}

/// The directory that holds `path`; a bare name has an empty parent, which is no directory's name.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A new file that only its owner may read.
pub(crate) fn create_file(path: &Path) -> Result<File, StagingError> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(0o600).open(path).map_err(failed("create", path))
}

pub(crate) fn sync_directory(dir: &Path) -> Result<(), StagingError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync", dir))
}

/// Never over something that is there already.
pub(crate) fn rename(from: &Path, to: &Path, action: &'static str) -> Result<(), StagingError> {
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).map_err(|error| failed(action, to)(error.into()))
}
