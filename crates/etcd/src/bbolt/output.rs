//! Sequential page output: pages get ids in the order they are written, in large writes by a thread of its own.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::direct_io::{AlignedBuffer, DirectFile};

use super::meta::{Meta, valid_page_size};
use super::page::{HEADER, PageKind, put_header};
use super::{Error, PageId};

const CHUNK: usize = 1 << 20;
/// Chunks on their way to the disk; with the one being filled this bounds the memory of an output.
const IN_FLIGHT: usize = 4;

/// The tail of a bbolt file under construction, from a given page on.
#[derive(Debug)]
pub struct Output {
    file: Arc<File>,
    page_size: usize,
    next: PageId,
    chunk: AlignedBuffer,
    chunk_offset: u64,
    full: Option<SyncSender<(u64, AlignedBuffer)>>,
    empty: Receiver<AlignedBuffer>,
    writer: Option<JoinHandle<Result<(), Error>>>,
    synced: bool,
}

impl Output {
    /// Writes pages from id `next` on; what lies before is the caller's.
    pub fn new(file: File, page_size: usize, next: PageId) -> Result<Self, Error> {
        let file = Arc::new(file);
        let size = page_size as u64;
        if !valid_page_size(size) {
            return Err(Error::PageSize(size));
        }
        let chunk_offset = next.checked_mul(size).ok_or(Error::PageSize(size))?;
        let (full, jobs) = sync_channel::<(u64, AlignedBuffer)>(IN_FLIGHT);
        let (recycle, empty) = sync_channel(IN_FLIGHT + 1);
        let target = DirectFile::new(Arc::clone(&file), true);
        let writer = std::thread::spawn(move || write_chunks(&target, &jobs, &recycle));
        Ok(Self {
            file,
            page_size,
            next,
            chunk: AlignedBuffer::with_capacity(CHUNK),
            chunk_offset,
            full: Some(full),
            empty,
            writer: Some(writer),
            synced: false,
        })
    }

    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Lets `compose` append one page run to the buffer, pads it to whole pages and returns its id.
    ///
    /// `compose` gets the run's id and its number of overflow pages; `size` must be the number of bytes it appends.
    pub(super) fn run(
        &mut self,
        size: usize,
        compose: impl FnOnce(PageId, u32, &mut Vec<u8>),
    ) -> Result<PageId, Error> {
        let pages = size.div_ceil(self.page_size).max(1);
        let overflow = u32::try_from(pages - 1).map_err(|_| Error::ElementSize(size))?;
        let id = self.next;
        let start = self.chunk.len();
        compose(id, overflow, self.chunk.tail());
        self.chunk.resize(start + pages * self.page_size);
        self.next += pages as u64;
        if self.chunk.len() + self.page_size > CHUNK {
            self.hand_over()?;
        }
        Ok(id)
    }

    /// Adds a freelist without entries. A file with one opens at once, where bbolt otherwise reads every page first.
    pub fn empty_freelist(&mut self) -> Result<PageId, Error> {
        self.run(HEADER, |id, _, out| put_header(out, id, PageKind::Freelist, 0, 0))
    }

    fn hand_over(&mut self) -> Result<(), Error> {
        if self.chunk.len() == 0 {
            return Ok(());
        }
        let mut empty = self.empty.try_recv().unwrap_or_else(|_| AlignedBuffer::with_capacity(CHUNK));
        empty.clear();
        let chunk = std::mem::replace(&mut self.chunk, empty);
        let offset = self.chunk_offset;
        self.chunk_offset += chunk.len() as u64;
        match &self.full {
            Some(full) if full.send((offset, chunk)).is_ok() => Ok(()),
            // The writer is gone: it says why when it is joined.
            _ => self.join(),
        }
    }

    fn join(&mut self) -> Result<(), Error> {
        self.full = None;
        let stopped = || Error::Io {
            action: "write pages",
            offset: self.chunk_offset,
            source: io::Error::other("the writing thread stopped"),
        };
        match self.writer.take() {
            Some(writer) => writer.join().unwrap_or_else(|_| Err(stopped())),
            None => Err(stopped()),
        }
    }

    /// Makes all pages durable, then writes and syncs both metas: a file cut short before that has no valid meta.
    ///
    /// Returns the file and its live meta, which tells how long it is.
    pub fn finish(mut self, root: PageId, freelist: PageId, txid: u64) -> Result<(Arc<File>, Meta), Error> {
        self.hand_over()?;
        self.join()?;
        self.synced = true;
        let size = self.page_size as u64;
        let page_size = u32::try_from(self.page_size).map_err(|_| Error::PageSize(size))?;
        let meta = Meta { page_size, root, sequence: 0, freelist, high_water: self.next, txid: txid.max(1) };
        sync(&self.file)?;
        for (id, txid) in [(0, meta.txid), (1, meta.txid - 1)] {
            let page = Meta { txid, ..meta }.encode(id)?;
            let offset = id * size;
            self.file.write_all_at(&page, offset).map_err(|source| Error::Io {
                action: "write a meta",
                offset,
                source,
            })?;
        }
        sync(&self.file)?;
        Ok((Arc::clone(&self.file), meta))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.synced {
            // Given up: let the writer end before the file is removed. Its error no longer matters.
            self.full = None;
            if let Some(writer) = self.writer.take() {
                drop(writer.join());
            }
        }
    }
}

fn write_chunks(
    file: &DirectFile,
    jobs: &Receiver<(u64, AlignedBuffer)>,
    recycle: &SyncSender<AlignedBuffer>,
) -> Result<(), Error> {
    for (offset, chunk) in jobs {
        file.write_all_at(chunk.as_slice(), offset).map_err(|source| Error::Io {
            action: "write pages",
            offset,
            source,
        })?;
        if chunk.len() <= CHUNK {
            // A full return channel only means that this buffer is not needed again.
            let _ = recycle.try_send(chunk);
        }
    }
    Ok(())
}

fn sync(file: &File) -> Result<(), Error> {
    file.sync_data().map_err(|source| Error::Io { action: "sync the file", offset: 0, source })
}
