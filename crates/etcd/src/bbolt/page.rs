//! One page as bytes: the 16-byte header and the element arrays of branch and leaf pages.

use std::fmt;

use super::PageId;

pub(super) const HEADER: usize = 16;
/// Branch and leaf elements happen to have the same size.
pub(super) const ELEMENT: usize = 16;
pub(super) const LARGEST_KEY: usize = 32_768;

const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const META: u16 = 0x04;
const FREELIST: u16 = 0x10;
/// Leaf element flag: the value describes a nested bucket.
pub(super) const BUCKET: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    Branch,
    Leaf,
    Meta,
    Freelist,
}

impl PageKind {
    fn from_flags(flags: u16) -> Option<Self> {
        match flags {
            BRANCH => Some(Self::Branch),
            LEAF => Some(Self::Leaf),
            META => Some(Self::Meta),
            FREELIST => Some(Self::Freelist),
            _ => None,
        }
    }

    pub(super) fn flags(self) -> u16 {
        match self {
            Self::Branch => BRANCH,
            Self::Leaf => LEAF,
            Self::Meta => META,
            Self::Freelist => FREELIST,
        }
    }
}

/// What is wrong with one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Short,
    WrongId(PageId),
    Flags(u16),
    Unexpected(PageKind),
    OutOfFile,
    RunTooLong(u64),
    Element(usize),
    Layout(usize),
    KeySize(usize),
    Order(usize),
    BelowSeparator,
    AboveSeparator,
    Empty,
    SingleChild,
    ChildOutOfFile(PageId),
    TooDeep,
    Shared,
    BucketValue,
    PlainEntryAmongBuckets,
    NestedBucket,
    Padding,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("fewer bytes than a page header"),
            Self::WrongId(id) => write!(f, "its header says it is page {id}"),
            Self::Flags(flags) => write!(f, "unknown page type {flags:#06x}"),
            Self::Unexpected(kind) => write!(f, "a {kind:?} page where the tree needs a branch or leaf"),
            Self::OutOfFile => f.write_str("it lies beyond the end of the database"),
            Self::RunTooLong(pages) => write!(f, "it claims to span {pages} pages"),
            Self::Element(index) => write!(f, "element {index} points outside the page"),
            Self::Layout(index) => {
                write!(f, "element {index} does not follow the one before it, as if the count were wrong")
            }
            Self::KeySize(index) => write!(f, "element {index} has a key of impossible size"),
            Self::Order(index) => write!(f, "element {index} is not in ascending order"),
            Self::BelowSeparator => f.write_str("its first key sorts before its parent's separator"),
            Self::AboveSeparator => f.write_str("its last key does not sort before the next separator of its parent"),
            Self::Empty => f.write_str("it has no elements but is not a root"),
            Self::SingleChild => f.write_str("a branch with a single child, on which etcd panics when it shrinks"),
            Self::ChildOutOfFile(id) => write!(f, "its child {id} lies beyond the end of the database"),
            Self::TooDeep => f.write_str("the tree above it is deeper than any real one"),
            Self::Shared => f.write_str("more than one page run covers it"),
            Self::BucketValue => f.write_str("a bucket entry is malformed"),
            Self::PlainEntryAmongBuckets => f.write_str("a plain entry among the top-level buckets"),
            Self::NestedBucket => f.write_str("a nested bucket, which etcd never makes"),
            Self::Padding => f.write_str("the padding after its elements is not zero"),
        }
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn size_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(bytes, at)?).ok()
}

/// A checked view of one page run. `bytes` is the whole run for real pages, the image for inline buckets.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    pub id: PageId,
    pub kind: PageKind,
    pub count: usize,
    pub overflow: u32,
    bytes: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafElement<'a> {
    pub is_bucket: bool,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BranchElement<'a> {
    pub key: &'a [u8],
    pub child: PageId,
}

impl<'a> Page<'a> {
    pub fn parse(bytes: &'a [u8], expected: PageId) -> Result<Self, Fault> {
        let (Some(id), Some(flags), Some(count), Some(overflow)) =
            (u64_at(bytes, 0), u16_at(bytes, 8), u16_at(bytes, 10), u32_at(bytes, 12))
        else {
            return Err(Fault::Short);
        };
        if id != expected {
            return Err(Fault::WrongId(id));
        }
        let kind = PageKind::from_flags(flags).ok_or(Fault::Flags(flags))?;
        Ok(Self { id, kind, count: usize::from(count), overflow, bytes })
    }

    /// Bytes from an element's own start to its data; data never overlaps the element array.
    fn data_offset(&self, index: usize) -> Option<(usize, usize)> {
        let start = HEADER + index * ELEMENT;
        let field = if self.kind == PageKind::Leaf { start + 4 } else { start };
        let pos = size_at(self.bytes, field)?;
        (index < self.count && pos >= (self.count - index) * ELEMENT).then_some((start, start + pos))
    }

    pub fn leaf(&self, index: usize) -> Result<LeafElement<'a>, Fault> {
        let bad = Fault::Element(index);
        let (Some((start, data)), PageKind::Leaf) = (self.data_offset(index), self.kind) else {
            return Err(bad);
        };
        let (Some(flags), Some(key_size), Some(value_size)) =
            (u32_at(self.bytes, start), size_at(self.bytes, start + 8), size_at(self.bytes, start + 12))
        else {
            return Err(bad);
        };
        if !(1..=LARGEST_KEY).contains(&key_size) {
            return Err(Fault::KeySize(index));
        }
        let entry = self.bytes.get(data..).and_then(|rest| rest.get(..key_size.checked_add(value_size)?));
        match entry.and_then(|entry| entry.split_at_checked(key_size)) {
            Some((key, value)) if flags <= BUCKET => Ok(LeafElement { is_bucket: flags == BUCKET, key, value }),
            _ => Err(bad),
        }
    }

    pub fn branch(&self, index: usize) -> Result<BranchElement<'a>, Fault> {
        let bad = Fault::Element(index);
        let (Some((start, data)), PageKind::Branch) = (self.data_offset(index), self.kind) else {
            return Err(bad);
        };
        let (Some(key_size), Some(child)) = (size_at(self.bytes, start + 4), u64_at(self.bytes, start + 8)) else {
            return Err(bad);
        };
        if !(1..=LARGEST_KEY).contains(&key_size) {
            return Err(Fault::KeySize(index));
        }
        let key = self.bytes.get(data..).and_then(|rest| rest.get(..key_size)).ok_or(bad)?;
        Ok(BranchElement { key, child })
    }

    /// Where the data ends, measured from the start of the page.
    ///
    /// bbolt lays data out in element order, right behind the array and without gaps. Nothing needs that to read a
    /// page, but it is what tells a damaged element count, which would otherwise lose entries in silence.
    pub(super) fn used(&self) -> Result<usize, Fault> {
        let mut end = HEADER + self.count * ELEMENT;
        for index in 0..self.count {
            let size = match self.kind {
                PageKind::Leaf => self.leaf(index).map(|element| element.key.len() + element.value.len())?,
                _ => self.branch(index)?.key.len(),
            };
            match self.data_offset(index) {
                Some((_, data)) if data == end => end += size,
                _ => return Err(Fault::Layout(index)),
            }
        }
        Ok(end)
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Appends a page header, with which every page image begins.
pub(super) fn put_header(bytes: &mut Vec<u8>, id: PageId, kind: PageKind, count: u16, overflow: u32) {
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes.extend_from_slice(&kind.flags().to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&overflow.to_le_bytes());
}
