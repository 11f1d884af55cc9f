//! The revision of a database that streams by, page after page, and is never seen as a whole.
//!
//! Pages come in no order, and most of a database may be pages that are no longer in use. So a little is remembered of
//! every page that could matter: the last child of branches, the newest revision of leaves, the marks of compactions.
//! At the end the tree that the meta pages name is followed through what was remembered; a page that is not in it cannot
//! mislead. Only the newest leaves are remembered, because the last one of a history is the newest; if it is not
//! among them the revision is not guessed.

use std::collections::{BTreeMap, HashMap};

use super::format::ObjectError;
use crate::bbolt::{Bucket, BucketRoot, Meta, Page, PageId, PageKind};
use crate::mvcc::{REVISION_SIZE, Revision, StoredKey};
use crate::schema::{CONSISTENT_INDEX, FINISHED_COMPACT, KEY, META, SCHEDULED_COMPACT};

/// 16 bytes each; twice as many are held at most.
const LEAVES: usize = 32 << 10;
const MARKS: usize = 16 << 10;
const BRANCHES: usize = 256 << 10;
const ROOTS: usize = 16 << 10;
const LARGEST_PAGE: usize = 64 << 10;
const DEEPEST: usize = 40;
const PAGE_HEADER: usize = 16;
const ELEMENT: usize = 16;

/// What a stream of pages turned out to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) revision: i64,
    pub(crate) compact_revision: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    index: u64,
    compact: Option<i64>,
}

/// Where the two buckets that matter are.
#[derive(Debug, Clone, Default)]
struct Roots {
    key: Option<BucketRoot>,
    meta: Option<BucketRoot>,
}

/// A leaf's last key, which lies in a page yet to come.
#[derive(Debug, Clone)]
struct Awaited {
    page: PageId,
    length: usize,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct RevisionScan {
    buffer: Vec<u8>,
    meta: Option<Meta>,
    next: PageId,
    root_children: Vec<PageId>,
    roots: HashMap<PageId, Roots>,
    branches: HashMap<PageId, PageId>,
    leaves: Vec<(i64, PageId)>,
    marks: Vec<(u64, PageId, Option<i64>)>,
    awaited: BTreeMap<(u64, PageId), Awaited>,
}

impl RevisionScan {
    /// Takes the next bytes of the database.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<(), ObjectError> {
        while !bytes.is_empty() {
            let Some(size) = self.page_size() else {
                // The first meta page says how large pages are.
                let wanted = LARGEST_PAGE - self.buffer.len();
                let (now, later) = bytes.split_at(wanted.min(bytes.len()));
                self.buffer.extend_from_slice(now);
                bytes = later;
                if self.buffer.len() == LARGEST_PAGE {
                    self.begin()?;
                }
                continue;
            };
            if self.buffer.is_empty()
                && let Some((page, later)) = bytes.split_at_checked(size)
            {
                self.page(page, size);
                bytes = later;
                continue;
            }
            let (now, later) = bytes.split_at((size - self.buffer.len()).min(bytes.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == size {
                let page = std::mem::take(&mut self.buffer);
                self.page(&page, size);
                self.buffer = page;
                self.buffer.clear();
            }
        }
        Ok(())
    }

    fn page_size(&self) -> Option<usize> {
        self.meta.as_ref().and_then(|meta| usize::try_from(meta.page_size).ok())
    }

    /// Finds the metas in what has come so far, and goes through it.
    fn begin(&mut self) -> Result<(), ObjectError> {
        let bytes = std::mem::take(&mut self.buffer);
        let first = Meta::decode(&bytes).ok();
        let second = match first.map(|meta| meta.page_size) {
            Some(size) => usize::try_from(size).ok().and_then(|size| Meta::decode(bytes.get(size..)?).ok()),
            None => (10..=16).find_map(|bits| {
                let meta = Meta::decode(bytes.get(1_usize << bits..)?).ok()?;
                (meta.page_size == 1 << bits).then_some(meta)
            }),
        };
        let live = [first, second].into_iter().flatten().max_by_key(|meta| meta.txid);
        self.meta = Some(live.ok_or(ObjectError::Revision("the stream does not begin with a database"))?);
        self.push(&bytes)
    }

    fn page(&mut self, bytes: &[u8], size: usize) {
        let id = self.next;
        self.next += 1;
        self.receive(bytes, id * size as u64);
        let Ok(page) = Page::parse(bytes, id) else { return };
        let last = PAGE_HEADER + page.count.saturating_sub(1) * ELEMENT;
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(last + at..)?.first_chunk()?));
        let is_root = self.meta.is_some_and(|meta| meta.root == id);
        match page.kind {
            PageKind::Branch => {
                let child = bytes.get(last + 8..).and_then(|rest| rest.first_chunk()).map(|id| u64::from_le_bytes(*id));
                if let Some(child) = child.filter(|_| page.count > 0 && self.branches.len() < BRANCHES) {
                    self.branches.insert(id, child);
                }
                if is_root {
                    self.root_children = (0..page.count).filter_map(|n| Some(page.branch(n).ok()?.child)).collect();
                }
            }
            PageKind::Leaf if page.count == 0 => {}
            PageKind::Leaf if page.leaf(0).is_ok_and(|element| element.is_bucket) => {
                self.remember_roots(is_root, &page, size);
            }
            PageKind::Leaf => match (word(4), word(8)) {
                (Some(place), Some(length @ 17..=18)) => {
                    let (place, length) = (last as u64 + u64::from(place), usize::try_from(length).unwrap_or(0));
                    let at = id * size as u64 + place;
                    self.awaited.insert((at, id), Awaited { page: id, length, bytes: Vec::with_capacity(length) });
                    self.receive(bytes, id * size as u64);
                }
                _ => {
                    if let Some(Marks { index, compact }) = marks(&page) {
                        self.marks.push((index, id, compact));
                        keep_newest(&mut self.marks, MARKS);
                    }
                }
            },
            _ => {}
        }
    }

    /// The root page itself is never left out, however many stale ones there are.
    fn remember_roots(&mut self, is_root: bool, page: &Page<'_>, size: usize) {
        if is_root || self.roots.len() < ROOTS {
            self.roots.insert(page.id, roots(page, size));
        }
    }

    /// Takes what is awaited from the bytes at `offset`.
    fn receive(&mut self, bytes: &[u8], offset: u64) {
        while let Some(entry) = self.awaited.first_entry() {
            let at = entry.key().0;
            let Some(start) = at.checked_sub(offset).and_then(|start| usize::try_from(start).ok()) else {
                entry.remove();
                continue;
            };
            if start >= bytes.len() {
                break;
            }
            let mut awaited = entry.remove();
            let rest = bytes.get(start..).unwrap_or_default();
            let missing = awaited.length - awaited.bytes.len();
            awaited.bytes.extend_from_slice(rest.get(..missing.min(rest.len())).unwrap_or_default());
            if awaited.bytes.len() < awaited.length {
                self.awaited.insert((offset + bytes.len() as u64, awaited.page), awaited);
            } else if let Some(key) = StoredKey::decode(&awaited.bytes) {
                self.leaves.push((key.revision.main, awaited.page));
                keep_newest(&mut self.leaves, LEAVES);
            }
        }
    }

    /// Follows the tree. The database must have come whole.
    pub(crate) fn finish(mut self) -> Result<Found, ObjectError> {
        if self.meta.is_none() && !self.buffer.is_empty() {
            self.begin()?;
        }
        let unknown = ObjectError::Revision;
        let meta = self.meta.ok_or(unknown("there is no database"))?;
        if self.next < meta.high_water {
            return Err(unknown("the database is shorter than it says"));
        }
        let top = std::iter::once(&meta.root).chain(&self.root_children);
        let mut found = Roots::default();
        for roots in top.filter_map(|page| self.roots.get(page)) {
            found.key = found.key.or_else(|| roots.key.clone());
            found.meta = found.meta.or_else(|| roots.meta.clone());
        }
        let last = match found.key.ok_or(unknown("it has no bucket `key` where it can be found"))? {
            BucketRoot::Inline(image) => {
                inline(&image).and_then(|page| last_key(&page)).map_or(0, |key| key.revision.main)
            }
            BucketRoot::Page(root) => self.last_revision(root).ok_or(unknown("its newest entry was not found"))?,
        };
        let marks = match found.meta.ok_or(unknown("it has no bucket `meta` where it can be found"))? {
            BucketRoot::Inline(image) => inline(&image).and_then(|page| marks(&page)).map(|marks| marks.compact),
            BucketRoot::Page(root) => self.marks.iter().find(|mark| mark.1 == root).map(|mark| mark.2),
        };
        let compact_revision = marks.ok_or(unknown("the marks of its compactions were not found"))?;
        Ok(Found { revision: last.max(compact_revision.unwrap_or(0)).max(1), compact_revision })
    }

    fn last_revision(&self, root: PageId) -> Option<i64> {
        let mut page = root;
        for _ in 0..DEEPEST {
            match self.branches.get(&page) {
                Some(child) => page = *child,
                None => break,
            }
        }
        self.leaves.iter().find(|leaf| leaf.1 == page).map(|leaf| leaf.0)
    }
}

/// Forgets the older half once there are too many.
fn keep_newest<T: Ord>(list: &mut Vec<T>, limit: usize) {
    if list.len() >= 2 * limit {
        list.select_nth_unstable_by(limit, |a, b| b.cmp(a));
        list.truncate(limit);
    }
}

fn roots(page: &Page<'_>, size: usize) -> Roots {
    let mut roots = Roots::default();
    for element in (0..page.count).map_while(|index| page.leaf(index).ok()).filter(|element| element.is_bucket) {
        let wanted = match element.key {
            name if name == KEY.as_bytes() => &mut roots.key,
            name if name == META.as_bytes() => &mut roots.meta,
            _ => continue,
        };
        *wanted = Bucket::parse(element.key, element.value, size).ok().map(|bucket| bucket.root);
    }
    roots
}

fn inline(image: &[u8]) -> Option<Page<'_>> {
    Page::parse(image, 0).ok()
}

fn last_key(page: &Page<'_>) -> Option<StoredKey> {
    StoredKey::decode(page.leaf(page.count.checked_sub(1)?).ok()?.key)
}

/// The marks of a page of bucket `meta`; no other bucket has an index.
fn marks(page: &Page<'_>) -> Option<Marks> {
    let (mut index, mut compact) = (None, None);
    for element in (0..page.count).map_while(|index| page.leaf(index).ok()) {
        if element.key == CONSISTENT_INDEX {
            index = element.value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        } else if element.key == SCHEDULED_COMPACT || element.key == FINISHED_COMPACT {
            let revision = element.value.get(..REVISION_SIZE).and_then(Revision::decode)?;
            compact = compact.max(Some(revision.main));
        }
    }
    Some(Marks { index: index?, compact })
}
