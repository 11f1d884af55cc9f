//! Reads an object from its first byte to its last, and says nothing until each piece is known to be right.

use std::io::{self, Read};

use prost::Message;
use sha2::{Digest, Sha256};
use zstd::bulk::Decompressor;

use super::format::{
    CHECKSUM_SIZE, END_MAGIC, FOOTER_SIZE, FRAME_BLOCK, FRAME_HEAD, FRAME_TRAILER, Header, LARGEST_BLOCK,
    LARGEST_HEADER, MAGIC, ObjectError, PREFIX_SIZE, Trailer,
};
use super::keyring::{Keyring, Place, Sealer, TAG_SIZE};
use super::writer::frame_checksum;
use crate::snapshot::Digest256;

/// The beginning of an object.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) header: Header,
    /// Stands for this object in the checksum of each of its frames.
    pub(crate) binding: Digest256,
}

impl Head {
    /// How long the whole of it is, told by its first bytes.
    pub(crate) fn size(prefix: &[u8; PREFIX_SIZE]) -> Result<usize, ObjectError> {
        let (magic, length) = prefix.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(ObjectError::NotAnObject);
        }
        match little_endian(length) {
            Some(length) if length <= LARGEST_HEADER => Ok(PREFIX_SIZE + length + CHECKSUM_SIZE),
            _ => Err(ObjectError::damaged(MAGIC.len() as u64, "the length of its header is impossible")),
        }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ObjectError> {
        let bad = |reason| ObjectError::damaged(0, reason);
        let (summed, checksum) = bytes.split_last_chunk::<CHECKSUM_SIZE>().ok_or_else(|| bad("its header is short"))?;
        if crc32c::crc32c(summed) != u32::from_le_bytes(*checksum) {
            return Err(bad("the checksum of its header is wrong"));
        }
        let header = Header::decode(summed.get(PREFIX_SIZE..).unwrap_or_default());
        let header = header.map_err(|_| bad("its header is not a message"))?;
        header.check()?;
        Ok(Self { header, binding: Sha256::digest(bytes).into() })
    }
}

/// The last bytes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) trailer_offset: u64,
    /// The trailer's included.
    pub(crate) frames: u64,
    /// SHA-256 of everything before the footer.
    pub(crate) digest: Digest256,
}

impl Footer {
    pub(crate) fn parse(bytes: &[u8; FOOTER_SIZE], offset: u64, binding: &Digest256) -> Result<Self, ObjectError> {
        let bad = |reason| ObjectError::damaged(offset, reason);
        let mut rest = bytes.as_slice();
        let mut take = |length: usize| {
            let (piece, behind) = rest.split_at_checked(length).unwrap_or_default();
            rest = behind;
            piece
        };
        let (trailer, frames, digest, bound) = (take(8), take(8), take(32), take(4));
        let (checksum, end) = (take(CHECKSUM_SIZE), take(END_MAGIC.len()));
        if end != END_MAGIC {
            return Err(bad("its end is missing"));
        }
        let summed = bytes.get(..FOOTER_SIZE - CHECKSUM_SIZE - END_MAGIC.len()).unwrap_or_default();
        if crc32c::crc32c(summed).to_le_bytes() != checksum {
            return Err(bad("the checksum of its end is wrong"));
        }
        if Some(bound) != binding.get(..4) {
            return Err(bad("its end belongs to another object"));
        }
        let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        match (number(trailer), number(frames), digest.try_into()) {
            (Some(trailer_offset), Some(frames), Ok(digest)) => Ok(Self { trailer_offset, frames, digest }),
            _ => Err(bad("its end is short")),
        }
    }
}

/// What the first bytes of a frame say about the rest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameHead {
    bytes: [u8; FRAME_HEAD],
    pub(crate) kind: u8,
    plain: usize,
    pub(crate) packed: usize,
}

impl FrameHead {
    pub(crate) fn parse(bytes: [u8; FRAME_HEAD], offset: u64) -> Result<Self, ObjectError> {
        let bad = |reason| ObjectError::damaged(offset, reason);
        let [kind, lengths @ ..] = bytes;
        let (plain, packed) = lengths.split_at(4);
        let (plain, packed) = (little_endian(plain), little_endian(packed));
        let limit = zstd::zstd_safe::compress_bound(LARGEST_BLOCK) + TAG_SIZE;
        match (kind, plain, packed) {
            (FRAME_BLOCK | FRAME_TRAILER, Some(plain), Some(packed)) if plain <= LARGEST_BLOCK && packed <= limit => {
                Ok(Self { bytes, kind, plain, packed })
            }
            (FRAME_BLOCK | FRAME_TRAILER, ..) => Err(bad("the length of a block is impossible")),
            _ => Err(bad("a block is of unknown kind")),
        }
    }
}

/// Everything that turns a frame back into its content.
pub(crate) struct Unpacker {
    pub(crate) sealer: Option<Sealer>,
    decompressor: Decompressor<'static>,
    plain: Vec<u8>,
}

impl Unpacker {
    pub(crate) fn new(sealer: Option<Sealer>) -> Result<Self, ObjectError> {
        Ok(Self { sealer, decompressor: Decompressor::new()?, plain: Vec::new() })
    }

    /// `packed` is the rest of the frame with its checksum.
    pub(crate) fn unpack(
        &mut self,
        head: &FrameHead,
        packed: &mut [u8],
        binding: &Digest256,
        sequence: u64,
        offset: u64,
    ) -> Result<&[u8], ObjectError> {
        let bad = |reason| ObjectError::damaged(offset, reason);
        let (packed, checksum) =
            packed.split_last_chunk_mut::<CHECKSUM_SIZE>().ok_or_else(|| bad("a block is short"))?;
        if frame_checksum(binding, sequence, &head.bytes, packed) != u32::from_le_bytes(*checksum) {
            return Err(bad("the checksum of a block is wrong, or it belongs elsewhere"));
        }
        let compressed = match &self.sealer {
            None => packed,
            Some(sealer) => {
                let (is_last, head) = (head.kind == FRAME_TRAILER, head.bytes.get(..5).unwrap_or_default());
                let place = Place { binding, sequence, is_last, head };
                sealer.open(place, packed).ok_or_else(|| bad("a block was altered after it was encrypted"))?
            }
        };
        self.plain.clear();
        self.plain.reserve(head.plain);
        let unpacked = self.decompressor.decompress_to_buffer(compressed, &mut self.plain);
        unpacked.map_err(|_| bad("a block cannot be decompressed"))?;
        if self.plain.len() == head.plain { Ok(&self.plain) } else { Err(bad("a block has a wrong length")) }
    }
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").field("encrypted", &self.sealer.is_some()).finish_non_exhaustive()
    }
}

/// An object, block by block.
#[derive(Debug)]
pub struct ObjectReader<R> {
    input: R,
    head: Head,
    unpacker: Unpacker,
    packed: Vec<u8>,
    sequence: u64,
    offset: u64,
    /// Absent where reading began in the middle: then there is no whole to be hashed.
    whole: Option<Whole>,
    end: Option<(Trailer, Digest256)>,
}

#[derive(Debug, Default)]
struct Whole {
    object: Sha256,
    content: Sha256,
    content_bytes: u64,
}

impl<R: Read> ObjectReader<R> {
    /// Reads the header.
    pub fn open(mut input: R, keys: &Keyring) -> Result<Self, ObjectError> {
        let mut prefix = [0; PREFIX_SIZE];
        read_exact(&mut input, &mut prefix, 0)?;
        let mut bytes = prefix.to_vec();
        bytes.resize(Head::size(&prefix)?, 0);
        read_exact(&mut input, bytes.get_mut(PREFIX_SIZE..).unwrap_or_default(), PREFIX_SIZE as u64)?;
        let head = Head::parse(&bytes)?;
        let unpacker = Unpacker::new(keys.open(&head.header)?)?;
        let mut whole = Whole::default();
        whole.object.update(&bytes);
        let offset = bytes.len() as u64;
        Ok(Self { input, head, unpacker, packed: Vec::new(), sequence: 0, offset, whole: Some(whole), end: None })
    }

    /// Continues at a block in the middle, to which `input` was moved. The digests of the whole are then not checked.
    pub(crate) fn at(
        input: R,
        head: Head,
        sealer: Option<Sealer>,
        sequence: u64,
        offset: u64,
    ) -> Result<Self, ObjectError> {
        let unpacker = Unpacker::new(sealer)?;
        Ok(Self { input, head, unpacker, packed: Vec::new(), sequence, offset, whole: None, end: None })
    }

    pub fn header(&self) -> &Header {
        &self.head.header
    }

    /// The trailer and the object's digest, once everything was read and found right.
    pub fn end(&self) -> Option<(&Trailer, &Digest256)> {
        self.end.as_ref().map(|(trailer, digest)| (trailer, digest))
    }

    /// The next block of content. `None` only after the object was read to its very end and is whole.
    pub fn next_block(&mut self) -> Result<Option<&[u8]>, ObjectError> {
        if self.end.is_some() {
            return Ok(None);
        }
        let start = self.offset;
        let mut head = [0; FRAME_HEAD];
        self.take(&mut head)?;
        let head = FrameHead::parse(head, start)?;
        self.take_packed(head.packed + CHECKSUM_SIZE)?;
        if head.kind == FRAME_TRAILER {
            let bytes = self.unpacker.unpack(&head, &mut self.packed, &self.head.binding, self.sequence, start)?;
            let trailer =
                Trailer::decode(bytes).map_err(|_| ObjectError::damaged(start, "its trailer is no message"))?;
            self.sequence += 1;
            self.finish(trailer, start)?;
            return Ok(None);
        }
        let plain = self.unpacker.unpack(&head, &mut self.packed, &self.head.binding, self.sequence, start)?;
        self.sequence += 1;
        if let Some(whole) = &mut self.whole {
            whole.content.update(plain);
            whole.content_bytes += plain.len() as u64;
        }
        Ok(Some(plain))
    }

    fn finish(&mut self, trailer: Trailer, trailer_offset: u64) -> Result<(), ObjectError> {
        let offset = self.offset;
        let mut bytes = [0; FOOTER_SIZE];
        read_exact(&mut self.input, &mut bytes, offset)?;
        let footer = Footer::parse(&bytes, offset, &self.head.binding)?;
        let bad = |reason| Err(ObjectError::damaged(offset, reason));
        if (footer.trailer_offset, footer.frames) != (trailer_offset, self.sequence) {
            return bad("its end does not fit its blocks");
        }
        if let Some(whole) = self.whole.take() {
            if whole.object.finalize().as_slice() != footer.digest {
                return bad("its SHA-256 is wrong");
            }
            if whole.content_bytes != trailer.content_bytes
                || whole.content.finalize().as_slice() != trailer.content_digest
            {
                return bad("the SHA-256 of its content is wrong");
            }
        }
        if self.input.read(&mut [0])? != 0 {
            return Err(ObjectError::damaged(offset + FOOTER_SIZE as u64, "something follows its end"));
        }
        self.end = Some((trailer, footer.digest));
        Ok(())
    }

    fn take(&mut self, bytes: &mut [u8]) -> Result<(), ObjectError> {
        read_exact(&mut self.input, bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        if let Some(whole) = &mut self.whole {
            whole.object.update(bytes);
        }
        Ok(())
    }

    /// Memory grows with what really comes, not with what a length claims.
    fn take_packed(&mut self, length: usize) -> Result<(), ObjectError> {
        self.packed.clear();
        let read = (&mut self.input).take(length as u64).read_to_end(&mut self.packed)?;
        self.offset += read as u64;
        if read < length {
            return Err(ObjectError::Truncated { offset: self.offset });
        }
        if let Some(whole) = &mut self.whole {
            whole.object.update(&self.packed);
        }
        Ok(())
    }
}

fn read_exact(input: &mut impl Read, bytes: &mut [u8], offset: u64) -> Result<(), ObjectError> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ObjectError::Truncated { offset },
        _ => ObjectError::Io(error),
    })
}

fn little_endian(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(*bytes.first_chunk()?)).ok()
}
