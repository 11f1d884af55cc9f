//! The strict check of a whole file: every reachable page once, and rules that bbolt's own check does not have.

use std::ops::ControlFlow;

use super::db::Db;
use super::meta::NO_FREELIST;
use super::page::{HEADER, Page, PageKind, u64_at};
use super::walk::{Visit, Walk};
use super::{Bucket, Error, Fault, PageId};

/// After this many findings the file is beyond doubt; more lines would help nobody.
const MOST_FINDINGS: usize = 100;

#[derive(Debug)]
pub struct Finding {
    /// The bucket whose tree the page belongs to, if any.
    pub bucket: Option<Vec<u8>>,
    pub error: Error,
}

/// What a check saw.
#[derive(Debug, Default)]
pub struct Checked {
    pub findings: Vec<Finding>,
    /// Findings beyond those listed.
    pub unlisted: usize,
    pub entries: u64,
    pub reachable_pages: u64,
    pub free_pages: u64,
}

/// Checks structure and calls `entry` with bucket name, key and value of everything readable, in order.
///
/// Damage is reported, not returned: an error means that the file could not be read at all.
pub fn check(db: &Db, entry: impl FnMut(&[u8], &[u8], &[u8])) -> Result<Checked, Error> {
    Checker::run(db, entry, false, None).map(|(checked, _)| checked)
}

/// Where a check goes on: at a key of a bucket. The default is the beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    bucket: Vec<u8>,
    key: Vec<u8>,
}

/// As [`check`], from a place on until this many pages were seen, and where to go on if that was not the end. Places stay what
/// they are in a file that changes between two stretches. What two stretches share, such as a page, is not compared.
pub fn check_stretch(
    db: &Db,
    start: &Place,
    pages: u64,
    entry: impl FnMut(&[u8], &[u8], &[u8]),
) -> Result<(Checked, Option<Place>), Error> {
    Checker::run(db, entry, false, Some(Stretch { start: start.clone(), pages, leaves: 0, next: None }))
}

/// The part of a file that a check is limited to.
struct Stretch {
    start: Place,
    pages: u64,
    /// Seen so far. At least one is, so that whoever goes on gets on.
    leaves: u64,
    next: Option<Place>,
}

/// As [`check`], with what holds only for files this crate wrote: zero padding and not a single unused page.
#[cfg(test)]
pub(super) fn check_own(db: &Db) -> Result<Checked, Error> {
    Checker::run(db, |_, _, _| {}, true, None).map(|(checked, _)| checked)
}

struct Checker<F> {
    entry: F,
    bucket: Option<Vec<u8>>,
    buckets: Vec<Bucket>,
    used: Bitmap,
    page_size: usize,
    root: PageId,
    checked: Checked,
    own: bool,
    stretch: Option<Stretch>,
}

impl<F: FnMut(&[u8], &[u8], &[u8])> Checker<F> {
    fn run(db: &Db, entry: F, own: bool, stretch: Option<Stretch>) -> Result<(Checked, Option<Place>), Error> {
        let meta = db.meta();
        let mut pass = Self {
            entry,
            bucket: None,
            buckets: Vec::new(),
            used: Bitmap::new(meta.high_water),
            page_size: db.page_size(),
            root: meta.root,
            checked: Checked::default(),
            own,
            stretch,
        };
        pass.used.set(0);
        pass.used.set(1);
        let mut walk = Walk::new(db);
        let _ = walk.tree(meta.root, &mut pass)?;
        for bucket in std::mem::take(&mut pass.buckets) {
            if pass.stretch.as_ref().is_some_and(|stretch| bucket.name < stretch.start.bucket) {
                continue;
            }
            pass.bucket = Some(bucket.name.clone());
            if pass.ends_before(&[]) || walk.visit(&bucket, &mut pass)?.is_break() {
                break;
            }
        }
        pass.bucket = None;
        if meta.freelist != NO_FREELIST {
            pass.freelist(db, meta.freelist)?;
        }
        let Self { mut checked, used, stretch, .. } = pass;
        checked.reachable_pages = used.ones;
        checked.free_pages = meta.high_water - used.ones;
        if own && checked.free_pages > 0 {
            let id = used.first_zero().unwrap_or_default();
            checked.findings.push(Finding { bucket: None, error: Error::Page { id, fault: Fault::Empty } });
        }
        Ok((checked, stretch.and_then(|stretch| stretch.next)))
    }

    /// Whether enough was seen before this key of the present bucket, where the next stretch then begins.
    fn ends_before(&mut self, key: &[u8]) -> bool {
        let (Some(stretch), Some(bucket)) = (&mut self.stretch, &self.bucket) else { return false };
        let ends = stretch.leaves > 0 && self.used.ones >= stretch.pages;
        if ends {
            stretch.next = Some(Place { bucket: bucket.clone(), key: key.to_vec() });
        }
        ends
    }

    fn found(&mut self, error: Error) {
        if self.checked.findings.len() < MOST_FINDINGS {
            self.checked.findings.push(Finding { bucket: self.bucket.clone(), error });
        } else {
            self.checked.unlisted += 1;
        }
    }

    fn fault(&mut self, id: PageId, fault: Fault) {
        self.found(Error::Page { id, fault });
    }

    /// Marks a page run; false if a part of it belongs to another run already.
    fn mark(&mut self, page: &Page<'_>) -> bool {
        let mut all_free = true;
        for id in page.id..=page.id + u64::from(page.overflow) {
            all_free &= self.used.set(id);
        }
        all_free
    }

    /// A persisted freelist must list free pages only: bbolt believes it and would overwrite live ones.
    fn freelist(&mut self, db: &Db, id: PageId) -> Result<(), Error> {
        let mut bytes = Vec::new();
        if let Err(error) = db.read_run(id, &mut bytes) {
            self.found(error);
            return Ok(());
        }
        let page = Page::parse(&bytes, id).map_err(Error::page(id))?;
        if page.kind != PageKind::Freelist {
            self.fault(id, Fault::Unexpected(page.kind));
            return Ok(());
        }
        if !self.mark(&page) {
            self.fault(id, Fault::Shared);
        }
        let (count, start) = match page.count {
            0xFFFF => (u64_at(&bytes, HEADER).and_then(|count| usize::try_from(count).ok()), HEADER + 8),
            count => (Some(count), HEADER),
        };
        let ids = count.and_then(|count| bytes.get(start..)?.get(..count.checked_mul(8)?));
        let Some(ids) = ids else {
            self.fault(id, Fault::Element(0));
            return Ok(());
        };
        let mut previous = 1;
        for index in 0..ids.len() / 8 {
            let free = u64_at(ids, index * 8).unwrap_or_default();
            if free <= previous || free >= db.meta().high_water {
                self.fault(id, Fault::Order(index));
                return Ok(());
            }
            if self.used.get(free) {
                self.fault(free, Fault::Shared);
            }
            previous = free;
        }
        Ok(())
    }
}

impl<F: FnMut(&[u8], &[u8], &[u8])> Visit for Checker<F> {
    type Error = Error;

    fn expects_buckets(&self) -> bool {
        self.bucket.is_none()
    }

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<ControlFlow<()>, Error> {
        if let Some(bucket) = &self.bucket {
            self.checked.entries += 1;
            (self.entry)(bucket, key, value);
            return Ok(ControlFlow::Continue(()));
        }
        match Bucket::parse(key, value, self.page_size) {
            Ok(bucket) if self.buckets.len() < MOST_FINDINGS => self.buckets.push(bucket),
            Ok(_) => self.fault(self.root, Fault::BucketValue),
            Err(fault) => self.fault(self.root, fault),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn enters(&mut self, from: &[u8], below: Option<&[u8]>) -> ControlFlow<(), bool> {
        let Some(stretch) = self.stretch.as_ref().filter(|_| self.bucket.is_some()) else {
            return ControlFlow::Continue(true);
        };
        let is_behind = self.bucket.as_ref() == Some(&stretch.start.bucket)
            && below.is_some_and(|below| below <= stretch.start.key.as_slice());
        if !is_behind && self.ends_before(from) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(!is_behind)
    }

    fn page(&mut self, page: &Page<'_>, _is_root: bool) -> Result<bool, Error> {
        if let (Some(stretch), PageKind::Leaf, Some(_)) = (&mut self.stretch, page.kind, &self.bucket) {
            stretch.leaves += 1;
        }
        if !self.mark(page) {
            // Not walked again: a page that is its own ancestor would never end.
            self.fault(page.id, Fault::Shared);
            return Ok(false);
        }
        if page.kind == PageKind::Branch && page.count == 1 {
            self.fault(page.id, Fault::SingleChild);
        }
        match page.used() {
            // bbolt 1.3 took one page more than needed when the data ended at a page boundary.
            Ok(used) if page.bytes().len() > (used / self.page_size + 1) * self.page_size => {
                self.fault(page.id, Fault::RunTooLong(u64::from(page.overflow) + 1));
            }
            Ok(used) if self.own && page.bytes().get(used..).is_none_or(|rest| rest.iter().any(|b| *b != 0)) => {
                self.fault(page.id, Fault::Padding);
            }
            // Bad elements are reported when they are visited.
            Ok(_) | Err(_) => {}
        }
        Ok(true)
    }

    fn damaged(&mut self, error: Error) -> Result<(), Error> {
        match error {
            Error::Io { .. } => Err(error),
            other => {
                self.found(other);
                Ok(())
            }
        }
    }
}

/// One bit per page: 256 KiB for a database of 8 GiB.
struct Bitmap {
    words: Vec<u64>,
    ones: u64,
    length: u64,
}

impl Bitmap {
    fn new(length: u64) -> Self {
        let words = usize::try_from(length.div_ceil(64)).unwrap_or(usize::MAX);
        Self { words: vec![0; words], ones: 0, length }
    }

    fn place(id: PageId) -> (usize, u64) {
        (usize::try_from(id / 64).unwrap_or(usize::MAX), 1 << (id % 64))
    }

    /// Sets a bit; true if it was clear before.
    fn set(&mut self, id: PageId) -> bool {
        let (word, bit) = Self::place(id);
        match self.words.get_mut(word) {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                self.ones += 1;
                true
            }
            _ => false,
        }
    }

    fn get(&self, id: PageId) -> bool {
        let (word, bit) = Self::place(id);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    fn first_zero(&self) -> Option<PageId> {
        (0..self.length).find(|id| !self.get(*id))
    }
}
