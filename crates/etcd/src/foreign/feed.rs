//! Reads, decompresses and digests delta files on a thread of its own, while the caller parses and writes.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use sha2::{Digest, Sha256};

use super::codec;
use super::names::BackupFile;
use crate::snapshot::DIGEST_SIZE;

const CHUNK: usize = 256 << 10;
const CHUNKS_IN_FLIGHT: usize = 4;

/// What the thread sends, in file order.
#[derive(Debug)]
pub(super) enum Fed {
    /// Content without the digest behind it.
    Chunk(Vec<u8>),
    FileEnd(FileEnd),
}

#[derive(Debug)]
pub(super) enum FileEnd {
    Sound,
    TooShort,
    DigestMismatch,
    Failed(io::Error),
}

/// The receiving end. Dropping it stops the thread.
#[derive(Debug)]
pub(super) struct Feed {
    fed: Option<Receiver<Fed>>,
    used: Sender<Vec<u8>>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    pub(super) fn start(files: Vec<BackupFile>) -> io::Result<Self> {
        let (send, fed) = sync_channel(CHUNKS_IN_FLIGHT);
        let (used, reuse) = channel();
        let thread =
            thread::Builder::new().name("delta-reader".to_owned()).spawn(move || feed(&files, &send, &reuse))?;
        Ok(Self { fed: Some(fed), used, thread: Some(thread) })
    }

    /// `None` after the last file, or if the thread died.
    pub(super) fn next(&mut self) -> Option<Fed> {
        self.fed.as_ref()?.recv().ok()
    }

    /// Returns a chunk's memory to the thread.
    pub(super) fn give_back(&mut self, chunk: Vec<u8>) {
        // The thread may have finished already; then the memory is simply freed.
        self.used.send(chunk).ok();
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.fed = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn feed(files: &[BackupFile], send: &SyncSender<Fed>, reuse: &Receiver<Vec<u8>>) {
    for file in files {
        let end = match feed_file(file, send, reuse) {
            Ok(Some(end)) => end,
            Ok(None) => return,
            Err(error) => FileEnd::Failed(error),
        };
        if send.send(Fed::FileEnd(end)).is_err() {
            return;
        }
    }
}

/// `None` when nobody listens any more.
fn feed_file(file: &BackupFile, send: &SyncSender<Fed>, reuse: &Receiver<Vec<u8>>) -> io::Result<Option<FileEnd>> {
    let mut input = codec::open(file)?;
    let mut hash = Sha256::new();
    let mut tail: Vec<u8> = Vec::with_capacity(DIGEST_SIZE);
    loop {
        // Whatever was held back may turn out to be content: it goes in front of what is read next.
        let mut chunk = reuse.try_recv().unwrap_or_else(|_| Vec::with_capacity(CHUNK));
        chunk.clear();
        chunk.append(&mut tail);
        let before = chunk.len();
        input.by_ref().take((CHUNK - DIGEST_SIZE) as u64).read_to_end(&mut chunk)?;
        let at_end = chunk.len() == before;
        tail.extend(chunk.drain(chunk.len().saturating_sub(DIGEST_SIZE)..));
        hash.update(&chunk);
        if !chunk.is_empty() && send.send(Fed::Chunk(chunk)).is_err() {
            return Ok(None);
        }
        if at_end {
            break;
        }
    }
    let end = match tail.len() {
        DIGEST_SIZE if hash.finalize().as_slice() == tail => FileEnd::Sound,
        DIGEST_SIZE => FileEnd::DigestMismatch,
        _ => FileEnd::TooShort,
    };
    Ok(Some(end))
}
