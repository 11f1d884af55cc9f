//! Full backups: etcd's snapshot stream in, the same stream out.
//!
//! The content of the object is the database; the SHA-256 that etcd sends behind it is checked on the way and is then the
//! digest of the object's content anyway, from which the reader makes it again.

use std::io::{self, Read, Write};

use super::format::{BLOCK, Header, ObjectError, Trailer};
use super::keyring::Keyring;
use super::reader::ObjectReader;
use super::revision_scan::RevisionScan;
use super::writer::{Finished, ObjectWriter, WriteOptions};
use crate::snapshot::{DIGEST_SIZE, Digest256};

/// Takes a snapshot stream in chunks of any size.
#[derive(Debug)]
pub struct FullWriter<W> {
    object: ObjectWriter<W>,
    scan: RevisionScan,
    /// Not yet a block, or perhaps the digest.
    pending: Vec<u8>,
}

impl<W: Write> FullWriter<W> {
    /// To be called when the first chunk is there, with the moment of its arrival: all that follows was committed by
    /// then. The header's first revision is one that the same member had reached before.
    pub fn begin(out: W, header: Header, options: &WriteOptions) -> Result<Self, ObjectError> {
        match header.known_kind() {
            Some(kind) if kind.is_base() => {}
            _ => return Err(ObjectError::Kind { wanted: "full", found: "delta" }),
        }
        let object = ObjectWriter::begin(out, header, options)?;
        Ok(Self { object, scan: RevisionScan::default(), pending: Vec::with_capacity(2 * BLOCK) })
    }

    pub fn get_mut(&mut self) -> &mut W {
        self.object.get_mut()
    }

    pub fn push(&mut self, mut chunk: &[u8]) -> Result<(), ObjectError> {
        while !chunk.is_empty() {
            let room = BLOCK + DIGEST_SIZE - self.pending.len();
            let (now, later) = chunk.split_at(room.min(chunk.len()));
            self.pending.extend_from_slice(now);
            chunk = later;
            if self.pending.len() == BLOCK + DIGEST_SIZE {
                self.block(BLOCK)?;
            }
        }
        Ok(())
    }

    fn block(&mut self, length: usize) -> Result<(), ObjectError> {
        let content = self.pending.get(..length).unwrap_or_default();
        if !content.is_empty() {
            self.object.block(content)?;
            self.scan.push(content)?;
        }
        self.pending.drain(..length);
        Ok(())
    }

    /// Checks that the stream was whole, and writes the end. After an error nothing of it may be kept.
    pub fn finish(mut self) -> Result<(W, Finished), ObjectError> {
        let content = self.pending.len().checked_sub(DIGEST_SIZE).ok_or(ObjectError::SnapshotDigest)?;
        self.block(content)?;
        if self.pending != self.object.content_digest() {
            return Err(ObjectError::SnapshotDigest);
        }
        let found = self.scan.finish()?;
        let at_least = self.object.header().first_revision;
        if found.revision < at_least {
            return Err(ObjectError::SnapshotBehind { found: found.revision, at_least });
        }
        let trailer = Trailer {
            last_revision: found.revision,
            compact_revision: found.compact_revision,
            covered_through: self.object.header().created,
            ..Trailer::default()
        };
        self.object.finish(trailer)
    }
}

/// The snapshot stream as etcd sent it, its digest at the end. It ends only if the whole object was right.
#[derive(Debug)]
pub struct FullReader<R> {
    object: ObjectReader<R>,
    block: Vec<u8>,
    position: usize,
}

impl<R: Read> FullReader<R> {
    pub fn open(input: R, keys: &Keyring) -> Result<Self, ObjectError> {
        let object = ObjectReader::open(input, keys)?;
        match object.header().known_kind() {
            Some(kind) if kind.is_base() => Ok(Self { object, block: Vec::new(), position: 0 }),
            _ => Err(ObjectError::Kind { wanted: "full", found: "delta" }),
        }
    }

    pub fn header(&self) -> &Header {
        self.object.header()
    }

    /// The trailer and the object's digest, once everything was read.
    pub fn end(&self) -> Option<(&Trailer, &Digest256)> {
        self.object.end()
    }

    fn refill(&mut self) -> Result<(), ObjectError> {
        if self.object.end().is_some() {
            return Ok(());
        }
        self.block.clear();
        self.position = 0;
        if let Some(block) = self.object.next_block()? {
            self.block.extend_from_slice(block);
        } else if let Some((trailer, _)) = self.object.end() {
            self.block.extend_from_slice(&trailer.content_digest);
        }
        Ok(())
    }
}

impl<R: Read> Read for FullReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.position == self.block.len() && self.object.end().is_none() {
            self.refill().map_err(io::Error::other)?;
        }
        let length = self.block.get(self.position..).unwrap_or_default().read(out)?;
        self.position += length;
        Ok(length)
    }
}
