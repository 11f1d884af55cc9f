//! Writes an object: header, blocks, trailer, footer.

use std::io::Write;

use prost::Message;
use sha2::{Digest, Sha256};
use zstd::bulk::Compressor;

use super::format::{
    CODEC_ZSTD, END_MAGIC, FORMAT, FRAME_BLOCK, FRAME_TRAILER, Header, LARGEST_BLOCK, MAGIC, ObjectError, Trailer,
};
use super::keyring::{Keyring, Place, Sealer};
use crate::snapshot::Digest256;

/// How objects are written.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Of zstd; 1 is fast and good enough for most databases.
    pub level: i32,
    pub keys: Keyring,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { level: 1, keys: Keyring::none() }
    }
}

/// What an object turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub header: Header,
    pub trailer: Trailer,
    /// By which the next object names it.
    pub digest: Digest256,
    pub bytes: u64,
}

/// The frames of one object. Content goes in block by block; how it is cut is up to the caller.
pub struct ObjectWriter<W> {
    out: W,
    header: Header,
    sealer: Option<Sealer>,
    compressor: Compressor<'static>,
    packed: Vec<u8>,
    binding: Digest256,
    sequence: u64,
    bytes: u64,
    hash: Sha256,
    content: Sha256,
    content_bytes: u64,
}

impl<W> std::fmt::Debug for ObjectWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectWriter").field("header", &self.header).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<W: Write> ObjectWriter<W> {
    /// Fills in what the header says about its own encoding, and writes it.
    pub fn begin(out: W, mut header: Header, options: &WriteOptions) -> Result<Self, ObjectError> {
        header.format = FORMAT;
        header.codec = CODEC_ZSTD;
        let sealer = options.keys.seal(&mut header)?;
        header.check()?;
        let encoded = header.encode_to_vec();
        let length = u32::try_from(encoded.len()).map_err(|_| ObjectError::TooLarge(encoded.len()))?;
        let mut head = [MAGIC.as_slice(), &length.to_le_bytes(), &encoded].concat();
        head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        let mut writer = Self {
            out,
            header,
            sealer,
            compressor: Compressor::new(options.level)?,
            packed: Vec::new(),
            binding: Sha256::digest(&head).into(),
            sequence: 0,
            bytes: 0,
            hash: Sha256::new(),
            content: Sha256::new(),
            content_bytes: 0,
        };
        writer.write(&head)?;
        Ok(writer)
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes of the object so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// To take what was written so far, where that is a buffer.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// SHA-256 of the content so far.
    pub(crate) fn content_digest(&self) -> Digest256 {
        self.content.clone().finalize().into()
    }

    /// Writes one block of content and returns where it begins.
    pub fn block(&mut self, content: &[u8]) -> Result<u64, ObjectError> {
        let offset = self.bytes;
        self.content.update(content);
        self.content_bytes += content.len() as u64;
        self.frame(FRAME_BLOCK, content)?;
        Ok(offset)
    }

    /// Writes the end. Its digest and size are filled in here.
    pub fn finish(mut self, mut trailer: Trailer) -> Result<(W, Finished), ObjectError> {
        trailer.content_bytes = self.content_bytes;
        trailer.content_digest = self.content_digest().to_vec();
        let trailer_offset = self.bytes;
        self.frame(FRAME_TRAILER, &trailer.encode_to_vec())?;
        let digest: Digest256 = std::mem::take(&mut self.hash).finalize().into();
        let mut footer = trailer_offset.to_le_bytes().to_vec();
        footer.extend_from_slice(&self.sequence.to_le_bytes());
        footer.extend_from_slice(&digest);
        footer.extend_from_slice(self.binding.first_chunk::<4>().unwrap_or(&[0; 4]));
        footer.extend_from_slice(&crc32c::crc32c(&footer).to_le_bytes());
        footer.extend_from_slice(&END_MAGIC);
        self.write(&footer)?;
        self.out.flush()?;
        Ok((self.out, Finished { header: self.header, trailer, digest, bytes: self.bytes }))
    }

    fn frame(&mut self, kind: u8, content: &[u8]) -> Result<(), ObjectError> {
        let too_large = || ObjectError::TooLarge(content.len());
        if content.len() > LARGEST_BLOCK {
            return Err(too_large());
        }
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(content.len()));
        self.compressor.compress_to_buffer(content, &mut self.packed)?;
        let mut head = vec![kind];
        head.extend_from_slice(&u32::try_from(content.len()).map_err(|_| too_large())?.to_le_bytes());
        if let Some(sealer) = &self.sealer {
            let is_last = kind == FRAME_TRAILER;
            let place = Place { binding: &self.binding, sequence: self.sequence, is_last, head: &head };
            sealer.seal(place, &mut self.packed)?;
        }
        head.extend_from_slice(&u32::try_from(self.packed.len()).map_err(|_| too_large())?.to_le_bytes());
        let checksum = frame_checksum(&self.binding, self.sequence, &head, &self.packed);
        let packed = std::mem::take(&mut self.packed);
        let written = self.write(&head).and_then(|()| self.write(&packed));
        self.packed = packed;
        written?;
        self.write(&checksum.to_le_bytes())?;
        self.sequence += 1;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ObjectError> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(self.out.write_all(bytes)?)
    }
}

/// Covers the object and the place in it too: a frame that is sound elsewhere is not sound here.
pub(crate) fn frame_checksum(binding: &Digest256, sequence: u64, head: &[u8], packed: &[u8]) -> u32 {
    let checksum = crc32c::crc32c_append(crc32c::crc32c(binding), &sequence.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(checksum, head), packed)
}
