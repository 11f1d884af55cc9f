//! Large sequential transfers past the page cache: `O_DIRECT`.
//!
//! A restored database is written once and not read back by us. Going through the page cache would cost a copy, charge
//! the whole file to our memory limit, and leave everything to the final sync. Where the file system does not know
//! direct transfers, or a piece is not aligned, the ordinary way is taken.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;

/// Satisfies every device: sectors are 512 or 4096 bytes.
const ALIGNMENT: usize = 4096;

/// A growable buffer whose contents start at an aligned address unless they outgrow its capacity.
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let mut bytes: Vec<u8> = Vec::with_capacity(capacity + ALIGNMENT);
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        bytes.resize(start, 0);
        Self { bytes, start }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn resize(&mut self, length: usize) {
        self.bytes.resize(self.start + length, 0);
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..).unwrap_or_default()
    }

    /// For appending only: what is already there must stay.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    bytes.as_ptr().addr().is_multiple_of(ALIGNMENT)
        && bytes.len().is_multiple_of(ALIGNMENT)
        && offset.is_multiple_of(ALIGNMENT as u64)
}

/// A file with a second handle that bypasses the page cache.
#[derive(Debug)]
pub(crate) struct DirectFile {
    file: Arc<File>,
    direct: Option<File>,
    /// Some file systems accept the flag and refuse the transfer.
    refused: AtomicBool,
}

impl DirectFile {
    pub(crate) fn new(file: Arc<File>, write: bool) -> Self {
        // Without /proc, or without support, there is no second handle and no harm.
        let flags = OFlags::DIRECT.bits().cast_signed();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = File::options().read(!write).write(write).custom_flags(flags).open(path).ok();
        Self { file, direct, refused: AtomicBool::new(false) }
    }

    fn handle(&self, bytes: &[u8], offset: u64) -> Option<&File> {
        let usable = is_aligned(bytes, offset) && !self.refused.load(Ordering::Relaxed);
        self.direct.as_ref().filter(|_| usable)
    }

    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = self.handle(bytes, offset) {
            match direct.write_all_at(bytes, offset) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.refused.store(true, Ordering::Relaxed);
                }
                done => return done,
            }
        }
        self.file.write_all_at(bytes, offset)
    }

    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = self.handle(bytes, offset) {
            match direct.read_exact_at(bytes, offset) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.refused.store(true, Ordering::Relaxed);
                }
                done => return done,
            }
        }
        self.file.read_exact_at(bytes, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_unaligned_pieces_end_up_in_the_same_file() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = Arc::new(File::options().read(true).write(true).open(path.path()).unwrap());
        let direct = DirectFile::new(Arc::clone(&file), true);
        let mut buffer = AlignedBuffer::with_capacity(3 * ALIGNMENT);
        buffer.tail().extend((0..3 * ALIGNMENT).map(|n| u8::try_from(n % 251).unwrap()));
        assert!(is_aligned(buffer.as_slice(), 0));
        direct.write_all_at(&buffer.as_slice()[..ALIGNMENT], 0).unwrap();
        direct.write_all_at(&buffer.as_slice()[ALIGNMENT..ALIGNMENT + 100], ALIGNMENT as u64).unwrap();
        direct.write_all_at(&buffer.as_slice()[ALIGNMENT + 100..], ALIGNMENT as u64 + 100).unwrap();
        assert_eq!(std::fs::read(path.path()).unwrap(), buffer.as_slice());

        let mut again = AlignedBuffer::with_capacity(3 * ALIGNMENT);
        again.resize(3 * ALIGNMENT);
        DirectFile::new(file, false).read_exact_at(again.as_mut_slice(), 0).unwrap();
        assert_eq!(again.as_slice(), buffer.as_slice());
    }
}
