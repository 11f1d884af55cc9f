//! Visiting a bucket in key order, checking on the way everything that order and bounds can tell.

use std::ops::ControlFlow;

use super::db::{Bucket, BucketRoot, Db, LARGEST_BRANCH};
use super::page::{Page, PageKind};
use super::{DEEPEST_TREE, Error, Fault, PageId};
use crate::readahead::ReadAhead;

/// Children are read together while their gaps are this small: usually overflow pages, or pages of another bucket.
const WIDEST_GAP: u64 = 16;
/// The most pages read at once, at 4 KiB each a quarter of a MiB.
const WINDOW_PAGES: u64 = 64;

/// What a walk reports. The plain walk of [`Walk::bucket`] stops at the first fault; the checker goes on.
pub(super) trait Visit {
    type Error: From<Error>;

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<ControlFlow<()>, Self::Error>;

    /// A page of the tree was read; `false` leaves out what is below it.
    fn page(&mut self, _page: &Page<'_>, _is_root: bool) -> Result<bool, Self::Error> {
        Ok(true)
    }

    /// Whether to read the child of a branch that holds these keys, before it is read.
    fn enters(&mut self, _from: &[u8], _below: Option<&[u8]>) -> ControlFlow<(), bool> {
        ControlFlow::Continue(true)
    }

    /// Whether the entries are buckets, as in the root tree, or plain, as everywhere else.
    fn expects_buckets(&self) -> bool {
        false
    }

    /// A page, or what remains of it, cannot be used. `Ok` skips it.
    fn damaged(&mut self, error: Error) -> Result<(), Self::Error> {
        Err(error.into())
    }
}

struct Entries<F>(F);

impl<E: From<Error>, F: FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, E>> Visit for Entries<F> {
    type Error = E;

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<ControlFlow<()>, E> {
        (self.0)(key, value)
    }
}

/// A reusable walker; it owns one read window per tree level and nothing else.
#[derive(Debug)]
pub struct Walk<'d> {
    db: &'d Db,
    levels: Vec<Level>,
}

#[derive(Debug, Default)]
struct Level {
    children: Vec<PageId>,
    window: Window,
}

/// The keys a subtree may hold: from its own separator up to the next one.
#[derive(Debug, Clone, Copy)]
struct Range<'k> {
    from: Option<&'k [u8]>,
    below: Option<&'k [u8]>,
}

impl<'d> Walk<'d> {
    pub fn new(db: &'d Db) -> Self {
        Self { db, levels: Vec::new() }
    }

    /// Calls `visit` with each key and value of the bucket in ascending order until it breaks.
    pub fn bucket<E: From<Error>>(
        &mut self,
        bucket: &Bucket,
        visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, E>,
    ) -> Result<ControlFlow<()>, E> {
        self.visit(bucket, &mut Entries(visit))
    }

    pub(super) fn visit<V: Visit>(&mut self, bucket: &Bucket, visit: &mut V) -> Result<ControlFlow<()>, V::Error> {
        let everything = Range { from: None, below: None };
        match &bucket.root {
            BucketRoot::Page(root) => self.tree(*root, visit),
            BucketRoot::Inline(image) => match Page::parse(image, 0) {
                Ok(page) if page.kind == PageKind::Leaf => leaf(&page, everything, self.db.meta().root, visit),
                Ok(page) => skip(visit, self.db.meta().root, Fault::Unexpected(page.kind)),
                Err(fault) => skip(visit, self.db.meta().root, fault),
            },
        }
    }

    /// Walks the tree under one root page.
    pub(super) fn tree<V: Visit>(&mut self, root: PageId, visit: &mut V) -> Result<ControlFlow<()>, V::Error> {
        let mut bytes = Vec::new();
        if let Err(error) = self.db.read_run(root, &mut bytes) {
            visit.damaged(error)?;
            return Ok(ControlFlow::Continue(()));
        }
        match Page::parse(&bytes, root) {
            Ok(page) => self.subtree(&page, Range { from: None, below: None }, 0, visit),
            Err(fault) => skip(visit, root, fault),
        }
    }

    fn subtree<V: Visit>(
        &mut self,
        page: &Page<'_>,
        range: Range<'_>,
        depth: usize,
        visit: &mut V,
    ) -> Result<ControlFlow<()>, V::Error> {
        if !visit.page(page, depth == 0)? {
            return Ok(ControlFlow::Continue(()));
        }
        match page.kind {
            PageKind::Leaf if page.count == 0 && depth > 0 => skip(visit, page.id, Fault::Empty),
            PageKind::Leaf => leaf(page, range, page.id, visit),
            PageKind::Branch if depth >= DEEPEST_TREE => skip(visit, page.id, Fault::TooDeep),
            PageKind::Branch if page.count == 0 => skip(visit, page.id, Fault::Empty),
            PageKind::Branch => self.branch(page, range, depth, visit),
            kind => skip(visit, page.id, Fault::Unexpected(kind)),
        }
    }

    fn branch<V: Visit>(
        &mut self,
        page: &Page<'_>,
        range: Range<'_>,
        depth: usize,
        visit: &mut V,
    ) -> Result<ControlFlow<()>, V::Error> {
        if self.levels.len() <= depth {
            self.levels.resize_with(depth + 1, Level::default);
        }
        // Taken out for the time of the recursion, which uses the levels below this one.
        let mut level = self.levels.get_mut(depth).map(std::mem::take).unwrap_or_default();
        let flow = match children(page, range, self.db.meta().high_water, &mut level.children) {
            Ok(()) => self.children(page, range, depth, &mut level, visit),
            Err(fault) => skip(visit, page.id, fault),
        };
        if let Some(place) = self.levels.get_mut(depth) {
            *place = level;
        }
        flow
    }

    fn children<V: Visit>(
        &mut self,
        page: &Page<'_>,
        range: Range<'_>,
        depth: usize,
        level: &mut Level,
        visit: &mut V,
    ) -> Result<ControlFlow<()>, V::Error> {
        for (index, id) in level.children.iter().enumerate() {
            let from = page.branch(index).map_err(Error::page(page.id))?.key;
            let below = if index + 1 < page.count {
                Some(page.branch(index + 1).map_err(Error::page(page.id))?.key)
            } else {
                range.below
            };
            match visit.enters(from, below) {
                ControlFlow::Continue(true) => {}
                ControlFlow::Continue(false) => continue,
                ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
            }
            let bytes = match level.window.run(self.db, level.children.get(index..).unwrap_or_default()) {
                Ok(bytes) => bytes,
                Err(error) => {
                    visit.damaged(error)?;
                    continue;
                }
            };
            let child = Page::parse(bytes, *id).map_err(Error::page(*id))?;
            if self.subtree(&child, Range { from: Some(from), below }, depth + 1, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn skip<V: Visit>(visit: &mut V, id: PageId, fault: Fault) -> Result<ControlFlow<()>, V::Error> {
    visit.damaged(Error::Page { id, fault })?;
    Ok(ControlFlow::Continue(()))
}

fn children(page: &Page<'_>, range: Range<'_>, high_water: PageId, ids: &mut Vec<PageId>) -> Result<(), Fault> {
    ids.clear();
    page.used()?;
    let mut previous: Option<&[u8]> = None;
    for index in 0..page.count {
        let element = page.branch(index)?;
        if previous.is_some_and(|previous| previous >= element.key) {
            return Err(Fault::Order(index));
        }
        if element.child < 2 || element.child >= high_water {
            return Err(Fault::ChildOutOfFile(element.child));
        }
        previous = Some(element.key);
        ids.push(element.child);
    }
    let first = page.branch(0)?.key;
    in_range(first, previous.unwrap_or(first), range)
}

fn in_range(first: &[u8], last: &[u8], range: Range<'_>) -> Result<(), Fault> {
    if range.from.is_some_and(|from| first < from) {
        return Err(Fault::BelowSeparator);
    }
    if range.below.is_some_and(|below| last >= below) {
        return Err(Fault::AboveSeparator);
    }
    Ok(())
}

fn leaf<V: Visit>(
    page: &Page<'_>,
    range: Range<'_>,
    holder: PageId,
    visit: &mut V,
) -> Result<ControlFlow<()>, V::Error> {
    if let Err(fault) = page.used() {
        return skip(visit, holder, fault);
    }
    let mut previous: Option<&[u8]> = None;
    for index in 0..page.count {
        let element = match page.leaf(index) {
            Ok(element) if element.is_bucket == visit.expects_buckets() => element,
            Ok(element) if element.is_bucket => return skip(visit, holder, Fault::NestedBucket),
            Ok(_) => return skip(visit, holder, Fault::PlainEntryAmongBuckets),
            Err(fault) => return skip(visit, holder, fault),
        };
        if previous.is_some_and(|previous| previous >= element.key) {
            return skip(visit, holder, Fault::Order(index));
        }
        if let Err(fault) = in_range(element.key, element.key, range) {
            return skip(visit, holder, fault);
        }
        previous = Some(element.key);
        if visit.entry(element.key, element.value)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// A stretch of the file that holds the next few children of a branch.
#[derive(Debug, Default)]
struct Window {
    first: PageId,
    past: PageId,
    bytes: Vec<u8>,
    ahead: ReadAhead,
}

impl Window {
    /// The page run of the first of `ids`; the following ones tell how far to read ahead.
    fn run(&mut self, db: &Db, ids: &[PageId]) -> Result<&[u8], Error> {
        let Some((&id, ahead)) = ids.split_first() else { return Ok(&[]) };
        if id < self.first || id >= self.past {
            self.fill(db, id, extent(id, ahead))?;
        }
        let pages = db.run_pages(id, self.page(db, id))?;
        let past = id + pages as u64;
        if past > self.past {
            self.fill(db, id, past)?;
        }
        let start = self.offset(db, id);
        self.bytes.get(start..start + pages * db.page_size()).ok_or(Error::Page { id, fault: Fault::Short })
    }

    fn fill(&mut self, db: &Db, first: PageId, past: PageId) -> Result<(), Error> {
        // Empty while the read is under way, so that a failed read leaves nothing stale behind.
        (self.first, self.past) = (0, 0);
        let pages = usize::try_from(past - first).map_err(|_| Error::Page { id: first, fault: Fault::OutOfFile })?;
        if self.bytes.capacity() > LARGEST_BRANCH {
            // One long value must not be paid for until the end, at every level of the tree.
            self.bytes = Vec::new();
        }
        db.read(first, pages, &mut self.bytes)?;
        (self.first, self.past) = (first, past);
        // etcd writes pages mostly in key order, so what follows in the file is what comes next.
        if db.may_read_ahead() {
            self.ahead.passed(db.file(), past * db.page_size() as u64);
        }
        Ok(())
    }

    fn offset(&self, db: &Db, id: PageId) -> usize {
        usize::try_from(id - self.first).unwrap_or(usize::MAX).saturating_mul(db.page_size())
    }

    fn page(&self, db: &Db, id: PageId) -> &[u8] {
        let start = self.offset(db, id);
        self.bytes.get(start..start.saturating_add(db.page_size())).unwrap_or_default()
    }
}

/// The page after the last one that is worth reading together with `first`.
fn extent(first: PageId, ahead: &[PageId]) -> PageId {
    let mut past = first + 1;
    for id in ahead {
        if *id < past || id - past > WIDEST_GAP || id - first >= WINDOW_PAGES {
            break;
        }
        past = id + 1;
    }
    past
}
