//! Temporary data on disk, so that memory stays bounded: nameless files, gone when the process is.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::bbolt::LARGEST_RUN;

const BUFFER: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
#[error("cannot use scratch space in {}", dir.display())]
pub struct ScratchError {
    pub dir: PathBuf,
    pub source: io::Error,
}

/// Creates a file without a name, for nobody else to read: whatever happens to us, nothing is left behind.
pub(crate) fn nameless_file(dir: &Path) -> Result<File, ScratchError> {
    let failed = |source| ScratchError { dir: dir.to_owned(), source };
    let private = Mode::RUSR | Mode::WUSR;
    match openat(CWD, dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, private) {
        Ok(file) => Ok(File::from(file)),
        // Not every file system knows such files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => unlinked_file(dir).map_err(failed),
        Err(error) => Err(failed(error.into())),
    }
}

fn unlinked_file(dir: &Path) -> io::Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".quorate-scratch-{}-{count}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Entries of bucket `key` in order, written once and read as often as needed.
#[derive(Debug)]
pub(crate) struct Spool {
    dir: PathBuf,
    file: File,
    entries: u64,
}

#[derive(Debug)]
pub(crate) struct SpoolWriter {
    dir: PathBuf,
    out: BufWriter<File>,
    entries: u64,
}

impl SpoolWriter {
    pub(crate) fn new(dir: &Path) -> Result<Self, ScratchError> {
        let out = BufWriter::with_capacity(BUFFER, nameless_file(dir)?);
        Ok(Self { dir: dir.to_owned(), out, entries: 0 })
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), ScratchError> {
        self.entries += 1;
        let sizes = [key.len() as u64, value.len() as u64].map(u64::to_le_bytes);
        let written = self.out.write_all(sizes.as_flattened()).and_then(|()| self.out.write_all(key));
        written
            .and_then(|()| self.out.write_all(value))
            .map_err(|source| ScratchError { dir: self.dir.clone(), source })
    }

    pub(crate) fn finish(self) -> Result<Spool, ScratchError> {
        let Self { dir, out, entries } = self;
        match out.into_inner() {
            Ok(file) => Ok(Spool { dir, file, entries }),
            Err(error) => Err(ScratchError { dir, source: error.into_error() }),
        }
    }
}

impl Spool {
    /// Calls `visit` with every entry in order until it breaks.
    pub(crate) fn for_each<E: From<ScratchError>>(
        &self,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let failed = |source| ScratchError { dir: self.dir.clone(), source };
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut input = BufReader::with_capacity(BUFFER, file);
        let mut entry = Vec::new();
        for _ in 0..self.entries {
            let mut sizes = [[0; 8]; 2];
            input.read_exact(sizes.as_flattened_mut()).map_err(failed)?;
            let [key, value] = sizes.map(|size| usize::try_from(u64::from_le_bytes(size)).unwrap_or(usize::MAX));
            let size = key.checked_add(value).filter(|size| *size <= LARGEST_RUN);
            entry.resize(size.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?, 0);
            input.read_exact(&mut entry).map_err(failed)?;
            let (key, value) = entry.split_at_checked(key).unwrap_or_default();
            if visit(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn scratch_files_are_private_and_have_no_name() {
        let dir = tempfile::tempdir().unwrap();
        for file in [nameless_file(dir.path()).unwrap(), unlinked_file(dir.path()).unwrap()] {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
