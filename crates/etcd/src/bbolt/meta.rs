//! The two meta pages: which one is live decides what the whole file means.

use super::page::{HEADER, PageKind, put_header, u32_at, u64_at};
use super::{Error, PageId};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const SUMMED: usize = 56;
pub(super) const META_END: usize = HEADER + SUMMED + 8;

/// The freelist id of files that do not store their freelist, as etcd's never do.
pub const NO_FREELIST: PageId = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    pub page_size: u32,
    pub root: PageId,
    pub sequence: u64,
    pub freelist: PageId,
    /// First page id never allocated: the length of the database in pages.
    pub high_water: PageId,
    pub txid: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MetaFault {
    #[error("too short")]
    Short,
    #[error("no bbolt magic number")]
    Magic,
    #[error("written on a big-endian machine")]
    BigEndian,
    #[error("unknown format version {0}")]
    Version(u32),
    #[error("checksum mismatch")]
    Checksum,
    #[error("impossible page size {0}")]
    PageSize(u32),
    #[error("root page outside the file")]
    Root,
    #[error("no transaction can follow the one it names")]
    Transaction,
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Meta {
    /// Reads the meta of a page that starts at `page`.
    pub fn decode(page: &[u8]) -> Result<Self, MetaFault> {
        let body = page.get(HEADER..META_END).ok_or(MetaFault::Short)?;
        let word = |at| u32_at(body, at).ok_or(MetaFault::Short);
        let long = |at| u64_at(body, at).ok_or(MetaFault::Short);
        match word(0)? {
            MAGIC => {}
            magic if magic == MAGIC.swap_bytes() => return Err(MetaFault::BigEndian),
            _ => return Err(MetaFault::Magic),
        }
        if word(4)? != VERSION {
            return Err(MetaFault::Version(word(4)?));
        }
        if fnv1a(body.get(..SUMMED).ok_or(MetaFault::Short)?) != long(SUMMED)? {
            return Err(MetaFault::Checksum);
        }
        let meta = Self {
            page_size: word(8)?,
            root: long(16)?,
            sequence: long(24)?,
            freelist: long(32)?,
            high_water: long(40)?,
            txid: long(48)?,
        };
        if !valid_page_size(u64::from(meta.page_size)) {
            return Err(MetaFault::PageSize(meta.page_size));
        }
        if meta.root < 2 || meta.root >= meta.high_water {
            return Err(MetaFault::Root);
        }
        if meta.txid == u64::MAX {
            return Err(MetaFault::Transaction);
        }
        Ok(meta)
    }

    /// The whole meta page `id` (0 or 1), padded to the page size.
    pub fn encode(&self, id: PageId) -> Result<Vec<u8>, Error> {
        let size = usize::try_from(self.page_size).map_err(|_| Error::PageSize(u64::from(self.page_size)))?;
        let mut page = Vec::with_capacity(size);
        put_header(&mut page, id, PageKind::Meta, 0, 0);
        for word in [MAGIC, VERSION, self.page_size, 0] {
            page.extend_from_slice(&word.to_le_bytes());
        }
        for long in [self.root, self.sequence, self.freelist, self.high_water, self.txid] {
            page.extend_from_slice(&long.to_le_bytes());
        }
        let checksum = fnv1a(page.get(HEADER..).unwrap_or_default());
        page.extend_from_slice(&checksum.to_le_bytes());
        page.resize(size, 0);
        Ok(page)
    }
}

pub(super) fn valid_page_size(size: u64) -> bool {
    size.is_power_of_two() && (1 << 10..=64 << 10).contains(&size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: Meta =
        Meta { page_size: 4096, root: 0x60, sequence: 0, freelist: NO_FREELIST, high_water: 0x64, txid: 0x11 };

    #[test]
    fn checksum_equals_the_one_bbolt_wrote() {
        let page = GOLDEN.encode(0).unwrap();
        assert_eq!(u64_at(&page, HEADER + SUMMED), Some(0x3ddf_bee2_c454_4936));
        assert_eq!(Meta::decode(&page), Ok(GOLDEN));
    }

    #[test]
    fn any_flipped_bit_of_a_meta_is_noticed() {
        let page = GOLDEN.encode(1).unwrap();
        for bit in HEADER * 8..META_END * 8 {
            let mut damaged = page.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Meta::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_last_possible_transaction_is_refused() {
        let last = Meta { txid: u64::MAX, ..GOLDEN };
        assert_eq!(Meta::decode(&last.encode(0).unwrap()), Err(MetaFault::Transaction));
        let before = Meta { txid: u64::MAX - 1, ..GOLDEN };
        assert_eq!(Meta::decode(&before.encode(0).unwrap()), Ok(before));
    }

    #[test]
    fn a_big_endian_file_is_named_as_such() {
        let mut page = GOLDEN.encode(0).unwrap();
        page[HEADER..HEADER + 4].reverse();
        assert_eq!(Meta::decode(&page), Err(MetaFault::BigEndian));
    }
}
