//! A compressed backup as a plain file, for as long as it is read.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::statvfs;

/// A file without a name: it is gone with the process, however that ends, and nobody else can open it.
#[derive(Debug)]
pub(crate) struct Unpacked {
    path: PathBuf,
    _file: File,
}

impl Unpacked {
    pub(crate) fn new(input: impl Read, scratch: &Path) -> Result<Self> {
        let space = statvfs(scratch).with_context(|| format!("{} cannot be asked for space", scratch.display()))?;
        // A few bytes can unpack to any size; others need the rest of this disk.
        Self::with_limit(input, scratch, space.f_bavail.saturating_mul(space.f_frsize) / 10 * 9)
    }

    fn with_limit(input: impl Read, scratch: &Path, limit: u64) -> Result<Self> {
        let mut file =
            tempfile::tempfile_in(scratch).with_context(|| format!("no file can be made in {}", scratch.display()))?;
        let size = io::copy(&mut input.take(limit.saturating_add(1)), &mut file)?;
        if size > limit {
            bail!(
                "it unpacks to more than {limit} bytes, nine tenths of what is free in {}: make room there{}",
                scratch.display(),
                if scratch == std::env::temp_dir() { ", or set TMPDIR to another directory" } else { "" }
            );
        }
        Ok(Self { path: format!("/proc/self/fd/{}", file.as_raw_fd()).into(), _file: file })
    }

    /// Names the file within this process.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_unpacked_can_be_read_and_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let unpacked = Unpacked::with_limit(&b"plain"[..], dir.path(), 5).unwrap();
        assert_eq!(fs::read(unpacked.path()).unwrap(), b"plain");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let error = Unpacked::with_limit(io::repeat(0), dir.path(), 100_000).unwrap_err();
        assert!(error.to_string().contains("more than 100000 bytes"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
