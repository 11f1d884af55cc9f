//! What an object says about itself, from its two ends alone: two small ranged reads instead of all of it.

use prost::Message;

use super::format::{
    CHECKSUM_SIZE, FOOTER_SIZE, FRAME_HEAD, FRAME_TRAILER, Header, LARGEST_BLOCK, ObjectError, PREFIX_SIZE, Trailer,
};
use super::keyring::{Keyring, Sealer};
use super::reader::{Footer, FrameHead, Head, Unpacker};
use crate::snapshot::Digest256;

/// Header and trailer of an object whose content was not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub header: Header,
    pub trailer: Trailer,
    /// As its end says; reading it whole proves it.
    pub digest: Digest256,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Described {
    Done(Box<Description>),
    /// This many bytes from the beginning and from the end are needed.
    Wants {
        first: u64,
        last: u64,
    },
}

/// Where to begin reading a delta for one revision or moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The number of the block.
    pub block: u64,
    /// Where it begins in the object.
    pub offset: u64,
}

impl Description {
    /// The block with the first change of `revision`; the last block if it lies behind all of them.
    pub fn start_of_revision(&self, revision: i64) -> Option<Start> {
        self.last_block(|entry| {
            entry.first_revision < revision || (entry.first_revision == revision && !entry.continues)
        })
    }

    /// The block from which on everything received after `nanoseconds` since 1970 is found.
    pub fn start_of_time(&self, nanoseconds: i64) -> Option<Start> {
        self.last_block(|entry| entry.first_time <= nanoseconds && !entry.continues)
    }

    fn last_block(&self, is_before: impl Fn(&super::format::BlockEntry) -> bool) -> Option<Start> {
        let blocks = &self.trailer.blocks;
        let found = blocks.iter().rposition(is_before).or(if blocks.is_empty() { None } else { Some(0) })?;
        Some(Start { block: found as u64, offset: blocks.get(found)?.offset })
    }
}

/// Reads header and trailer from the `first` and the `last` bytes of an object of `size` bytes.
pub fn describe(first: &[u8], last: &[u8], size: u64, keys: &Keyring) -> Result<Described, ObjectError> {
    let wants = |from_start: usize, from_end: u64| {
        let first = (from_start as u64).max(first.len() as u64).min(size);
        Ok(Described::Wants { first, last: from_end.max(last.len() as u64).min(size) })
    };
    if size < (PREFIX_SIZE + CHECKSUM_SIZE + FOOTER_SIZE) as u64 {
        return Err(ObjectError::Truncated { offset: size });
    }
    let Some(prefix) = first.first_chunk::<PREFIX_SIZE>() else { return wants(PREFIX_SIZE, 0) };
    let head_size = Head::size(prefix)?;
    if head_size as u64 > size {
        return Err(ObjectError::Truncated { offset: size });
    }
    let Some(head) = first.get(..head_size) else { return wants(head_size, 0) };
    let head = Head::parse(head)?;
    let Some((before, footer)) = last.split_last_chunk::<FOOTER_SIZE>() else {
        return wants(head_size, FOOTER_SIZE as u64);
    };
    let footer_offset = size - FOOTER_SIZE as u64;
    let footer = Footer::parse(footer, footer_offset, &head.binding)?;
    let bad = |reason| ObjectError::damaged(footer_offset, reason);
    let length = footer_offset.checked_sub(footer.trailer_offset).filter(|length| *length <= 2 * LARGEST_BLOCK as u64);
    let length = length.ok_or_else(|| bad("the place of its trailer is impossible"))?;
    let start = usize::try_from(length).ok().and_then(|length| before.len().checked_sub(length));
    let Some(frame) = start.and_then(|start| before.get(start..)) else {
        return wants(head_size, length + FOOTER_SIZE as u64);
    };
    let (frame_head, rest) = frame.split_first_chunk::<FRAME_HEAD>().ok_or_else(|| bad("its trailer is short"))?;
    let frame_head = FrameHead::parse(*frame_head, footer.trailer_offset)?;
    if frame_head.kind != FRAME_TRAILER || rest.len() != frame_head.packed + CHECKSUM_SIZE {
        return Err(bad("its trailer is not where its end says"));
    }
    let mut unpacker = Unpacker::new(keys.open(&head.header)?)?;
    let sequence = footer.frames.checked_sub(1).ok_or_else(|| bad("it has no blocks"))?;
    let plain = unpacker.unpack(&frame_head, &mut rest.to_vec(), &head.binding, sequence, footer.trailer_offset)?;
    let trailer = Trailer::decode(plain).map_err(|_| bad("its trailer is no message"))?;
    Ok(Described::Done(Box::new(Description { header: head.header, trailer, digest: footer.digest, bytes: size })))
}

/// The parts of an object that reading from the middle needs.
pub(crate) fn head_and_key(first: &[u8], keys: &Keyring) -> Result<(Head, Option<Sealer>), ObjectError> {
    let short = || ObjectError::Truncated { offset: first.len() as u64 };
    let prefix = first.first_chunk::<PREFIX_SIZE>().ok_or_else(short)?;
    let head = Head::parse(first.get(..Head::size(prefix)?).ok_or_else(short)?)?;
    let sealer = keys.open(&head.header)?;
    Ok((head, sealer))
}
