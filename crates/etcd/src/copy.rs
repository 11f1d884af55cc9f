//! Copying a file and hashing it at the same time: the bytes that are hashed are the bytes that are written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use sha2::{Digest, Sha256};

use crate::direct_io::{AlignedBuffer, DirectFile};
use crate::readahead::ReadAhead;
use crate::snapshot::{CHUNK, Digest256};

/// Chunks between reader and the slower of its two consumers; bounds the memory of a copy.
const IN_FLIGHT: usize = 6;

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("cannot read the snapshot at offset {offset}")]
    Read { offset: u64, source: io::Error },
    #[error("cannot write the copy at offset {offset}")]
    Write { offset: u64, source: io::Error },
    #[error("a thread of the copy stopped")]
    Stopped,
}

type Chunk = Arc<AlignedBuffer>;

/// Copies the first `length` bytes; making them durable is left to the caller.
pub(crate) fn copy_hashed(source: &File, length: u64, target: &Arc<File>) -> Result<Digest256, CopyError> {
    std::thread::scope(|scope| {
        let (recycle, free) = channel();
        let (to_hash, for_hash) = sync_channel::<Chunk>(IN_FLIGHT);
        let (to_write, for_write) = sync_channel::<Chunk>(IN_FLIGHT);
        let recycle_hashed = recycle.clone();
        let hashing = scope.spawn(move || hash(&for_hash, &recycle_hashed));
        let writing = scope.spawn(move || write(target, &for_write, &recycle));
        let read = read(source, length, &free, &[to_hash, to_write]);
        let written = writing.join().unwrap_or(Err(CopyError::Stopped));
        let digest = hashing.join().map_err(|_| CopyError::Stopped)?;
        // A writer that gave up makes the reader stop too; its own error is the one that explains.
        written.and(read).map(|()| digest)
    })
}

fn read(
    source: &File,
    length: u64,
    free: &Receiver<AlignedBuffer>,
    consumers: &[SyncSender<Chunk>],
) -> Result<(), CopyError> {
    let mut offset = 0;
    let mut ahead = ReadAhead::default();
    while offset < length {
        let mut chunk = free.try_recv().unwrap_or_else(|_| AlignedBuffer::with_capacity(CHUNK));
        let wanted = usize::try_from(length - offset).map_or(CHUNK, |rest| rest.min(CHUNK));
        chunk.resize(wanted);
        source.read_exact_at(chunk.as_mut_slice(), offset).map_err(|source| CopyError::Read { offset, source })?;
        offset += wanted as u64;
        ahead.passed(source, offset);
        let chunk = Arc::new(chunk);
        for consumer in consumers {
            consumer.send(Arc::clone(&chunk)).map_err(|_| CopyError::Stopped)?;
        }
    }
    Ok(())
}

/// Whoever lets go of a chunk last hands its memory back.
fn give_back(chunk: Chunk, recycle: &Sender<AlignedBuffer>) {
    if let Some(buffer) = Arc::into_inner(chunk) {
        // The reader may have finished already.
        let _ = recycle.send(buffer);
    }
}

fn hash(chunks: &Receiver<Chunk>, recycle: &Sender<AlignedBuffer>) -> Digest256 {
    let mut hash = Sha256::new();
    for chunk in chunks {
        hash.update(chunk.as_slice());
        give_back(chunk, recycle);
    }
    hash.finalize().into()
}

fn write(target: &Arc<File>, chunks: &Receiver<Chunk>, recycle: &Sender<AlignedBuffer>) -> Result<(), CopyError> {
    let target = DirectFile::new(Arc::clone(target), true);
    let mut offset = 0;
    for chunk in chunks {
        target.write_all_at(chunk.as_slice(), offset).map_err(|source| CopyError::Write { offset, source })?;
        offset += chunk.len() as u64;
        give_back(chunk, recycle);
    }
    Ok(())
}
