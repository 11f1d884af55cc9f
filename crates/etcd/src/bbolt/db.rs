//! An open bbolt file: the live meta, page reads, and the list of top-level buckets.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::meta::{META_END, Meta, MetaFault};
use super::page::{HEADER, Page, PageKind, u64_at};
use super::tree::Tree;
use super::walk::{Visit, Walk};
use super::{DEEPEST_TREE, Error, Fault, LARGEST_RUN, PageId};
use crate::direct_io::{AlignedBuffer, DirectFile};

const MOST_BUCKETS: usize = 1024;

/// Branches are split when they outgrow a page, and one is held per level of a tree.
pub(super) const LARGEST_BRANCH: usize = 1 << 20;

/// A bbolt file opened for reading. Nothing is cached: the operating system does that better.
#[derive(Debug)]
pub struct Db {
    file: File,
    length: u64,
    page_size: usize,
    meta: Meta,
    metas: [Result<Meta, MetaFault>; 2],
    /// Reads past the page cache, for files that are somebody else's workplace.
    direct: Option<DirectFile>,
}

/// A top-level bucket and where its entries are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    pub name: Vec<u8>,
    pub root: BucketRoot,
    pub sequence: u64,
}

impl Bucket {
    pub(crate) fn parse(name: &[u8], value: &[u8], page_size: usize) -> Result<Self, Fault> {
        let (Some(root), Some(sequence)) = (u64_at(value, 0), u64_at(value, 8)) else {
            return Err(Fault::BucketValue);
        };
        let image = value.get(16..).unwrap_or_default();
        let root = match root {
            0 if (HEADER..=page_size).contains(&image.len()) => BucketRoot::Inline(image.to_vec()),
            0 => return Err(Fault::BucketValue),
            page => BucketRoot::Page(page),
        };
        Ok(Self { name: name.to_vec(), root, sequence })
    }

    /// The bucket as it stands, to be entered into a new root tree of the same file.
    pub fn tree(&self) -> Tree {
        match &self.root {
            BucketRoot::Page(root) => Tree::Page(*root),
            BucketRoot::Inline(image) => Tree::Inline(image.clone()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketRoot {
    Page(PageId),
    /// The image of a small leaf page, kept inside the bucket's entry.
    Inline(Vec<u8>),
}

impl Db {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::Io { action: "open", offset: 0, source })?;
        Self::from_file(file)
    }

    /// As [`Db::from_file`], for a file that an etcd is working with: what is read, and no more, comes from the disk and does
    /// not stay in memory.
    pub fn from_file_in_use(file: File) -> Result<Self, Error> {
        let copy = file.try_clone().map_err(|source| Error::Io { action: "open", offset: 0, source })?;
        Ok(Self { direct: Some(DirectFile::new(Arc::new(copy), false)), ..Self::from_file(file)? })
    }

    pub fn from_file(file: File) -> Result<Self, Error> {
        let io = |source| Error::Io { action: "inspect", offset: 0, source };
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(Error::NotBbolt("not a regular file"));
        }
        let length = metadata.len();
        let metas = read_metas(&file, length)?;
        let live = match &metas {
            [Ok(first), Ok(second)] => *if second.txid > first.txid { second } else { first },
            [Ok(only), Err(_)] | [Err(_), Ok(only)] => *only,
            [Err(MetaFault::Magic | MetaFault::Short), Err(MetaFault::Magic | MetaFault::Short)] => {
                return Err(Error::NotBbolt("no meta page found"));
            }
            [Err(first), Err(second)] => return Err(Error::NoMeta { first: *first, second: *second }),
        };
        let needed = live.high_water.saturating_mul(u64::from(live.page_size));
        if needed > length {
            return Err(Error::Truncated { length, needed });
        }
        let page_size = usize::try_from(live.page_size).map_err(|_| Error::PageSize(u64::from(live.page_size)))?;
        Ok(Self { file, length, page_size, meta: live, metas, direct: None })
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Both meta pages in file order. One invalid meta means that the last commit was torn; the other one is consistent.
    pub fn metas(&self) -> &[Result<Meta, MetaFault>; 2] {
        &self.metas
    }

    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Length of the file, which may exceed that of the database.
    pub fn file_length(&self) -> u64 {
        self.length
    }

    /// Length of the database itself: everything up to the high-water mark.
    pub fn data_length(&self) -> u64 {
        self.meta.high_water * u64::from(self.meta.page_size)
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Reads `pages` pages from `first` into `buffer`, replacing its contents.
    pub(super) fn read(&self, first: PageId, pages: usize, buffer: &mut Vec<u8>) -> Result<(), Error> {
        let past = u64::try_from(pages).ok().and_then(|pages| first.checked_add(pages));
        if past.is_none_or(|past| past > self.meta.high_water) {
            return Err(Error::Page { id: first, fault: Fault::OutOfFile });
        }
        let offset = first * u64::from(self.meta.page_size);
        buffer.resize(pages * self.page_size, 0);
        let read = match &self.direct {
            Some(direct) => {
                let mut aligned = AlignedBuffer::with_capacity(buffer.len());
                aligned.resize(buffer.len());
                let read = direct.read_exact_at(aligned.as_mut_slice(), offset);
                read.map(|()| buffer.copy_from_slice(aligned.as_slice()))
            }
            None => self.file.read_exact_at(buffer, offset),
        };
        read.map_err(|source| Error::Io { action: "read a page", offset, source })
    }

    /// Whether the kernel may fetch more of the file than was asked for.
    pub(super) fn may_read_ahead(&self) -> bool {
        self.direct.is_none()
    }

    /// How many pages the run that starts with `first_page` spans, refusing what cannot be true.
    pub(super) fn run_pages(&self, id: PageId, first_page: &[u8]) -> Result<usize, Error> {
        let page = Page::parse(first_page, id).map_err(Error::page(id))?;
        let pages = u64::from(page.overflow) + 1;
        let too_long = Error::Page { id, fault: Fault::RunTooLong(pages) };
        if id.checked_add(pages).is_none_or(|past| past > self.meta.high_water) {
            return Err(too_long);
        }
        let largest = if page.kind == PageKind::Branch { LARGEST_BRANCH } else { LARGEST_RUN };
        let fits = |pages: &usize| pages.checked_mul(self.page_size).is_some_and(|size| size <= largest);
        usize::try_from(pages).ok().filter(fits).ok_or(too_long)
    }

    /// Reads one whole page run.
    pub(super) fn read_run(&self, id: PageId, buffer: &mut Vec<u8>) -> Result<(), Error> {
        self.read(id, 1, buffer)?;
        let pages = self.run_pages(id, buffer)?;
        if pages > 1 { self.read(id, pages, buffer) } else { Ok(()) }
    }

    /// The top-level buckets in name order.
    pub fn buckets(&self) -> Result<Vec<Bucket>, Error> {
        let mut found = Buckets { list: Vec::new(), root: self.meta.root, page_size: self.page_size };
        let _ = Walk::new(self).tree(self.meta.root, &mut found)?;
        Ok(found.list)
    }

    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket>, Error> {
        Ok(self.buckets()?.into_iter().find(|bucket| bucket.name == name))
    }

    /// The greatest key of a bucket, found along the right spine.
    pub fn last_key(&self, bucket: &Bucket) -> Result<Option<Vec<u8>>, Error> {
        let mut bytes = Vec::new();
        let mut id = match &bucket.root {
            BucketRoot::Inline(image) => return last_leaf_key(image, 0).map_err(Error::page(self.meta.root)),
            BucketRoot::Page(root) => *root,
        };
        for _ in 0..=DEEPEST_TREE {
            self.read_run(id, &mut bytes)?;
            let page = Page::parse(&bytes, id).map_err(Error::page(id))?;
            match page.kind {
                PageKind::Leaf => return last_leaf_key(&bytes, id).map_err(Error::page(id)),
                PageKind::Branch => {
                    let last = page.count.checked_sub(1).ok_or(Error::Page { id, fault: Fault::Empty })?;
                    id = page.branch(last).map_err(Error::page(id))?.child;
                }
                kind => return Err(Error::Page { id, fault: Fault::Unexpected(kind) }),
            }
        }
        Err(Error::Page { id, fault: Fault::TooDeep })
    }
}

fn last_leaf_key(bytes: &[u8], id: PageId) -> Result<Option<Vec<u8>>, Fault> {
    let page = Page::parse(bytes, id)?;
    match page.count.checked_sub(1) {
        Some(last) => Ok(Some(page.leaf(last)?.key.to_vec())),
        None => Ok(None),
    }
}

struct Buckets {
    list: Vec<Bucket>,
    root: PageId,
    page_size: usize,
}

impl Visit for Buckets {
    type Error = Error;

    fn expects_buckets(&self) -> bool {
        true
    }

    fn entry(&mut self, name: &[u8], value: &[u8]) -> Result<ControlFlow<()>, Error> {
        // etcd has ten; a damaged root must not fill our memory.
        if self.list.len() >= MOST_BUCKETS {
            return Err(Error::Page { id: self.root, fault: Fault::BucketValue });
        }
        self.list.push(Bucket::parse(name, value, self.page_size).map_err(Error::page(self.root))?);
        Ok(ControlFlow::Continue(()))
    }
}

/// Meta 0 gives the page size; if it is damaged, meta 1 is searched at every page size there is, as bbolt does.
fn read_metas(file: &File, length: u64) -> Result<[Result<Meta, MetaFault>; 2], Error> {
    let read = |offset: u64| -> Result<Result<Meta, MetaFault>, Error> {
        let mut head = [0; META_END];
        if offset + META_END as u64 > length {
            return Ok(Err(MetaFault::Short));
        }
        file.read_exact_at(&mut head, offset).map_err(|source| Error::Io { action: "read a meta", offset, source })?;
        Ok(Meta::decode(&head))
    };
    let first = read(0)?;
    if let Ok(meta) = &first {
        return Ok([first, read(u64::from(meta.page_size))?.and_then(|second| same_page_size(meta, second))]);
    }
    let mut second = Err(MetaFault::Short);
    for shift in 10..=16 {
        let found = read(1 << shift)?;
        match &found {
            Ok(meta) if meta.page_size == 1 << shift => return Ok([first, found]),
            Err(MetaFault::Short | MetaFault::Magic) | Ok(_) => {}
            Err(_) => second = found,
        }
    }
    Ok([first, second])
}

fn same_page_size(first: &Meta, second: Meta) -> Result<Meta, MetaFault> {
    if second.page_size == first.page_size { Ok(second) } else { Err(MetaFault::PageSize(second.page_size)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bbolt::page::put_header;
    use crate::bbolt::{Output, TreeWriter};

    #[test]
    fn an_inline_bucket_larger_than_a_page_is_refused() {
        let value = |length: usize| vec![0; 16 + length];
        assert!(Bucket::parse(b"b", &value(4096), 4096).is_ok());
        assert_eq!(Bucket::parse(b"b", &value(4097), 4096), Err(Fault::BucketValue));
    }

    #[test]
    fn a_branch_of_more_than_a_mebibyte_is_refused_before_it_is_read() {
        let file = tempfile::tempfile().unwrap();
        let mut output = Output::new(file.try_clone().unwrap(), 4096, 2).unwrap();
        let root = TreeWriter::new(4096).finish_as_pages(&mut output).unwrap();
        output.run(4 << 20, |_, _, _| {}).unwrap();
        let freelist = output.empty_freelist().unwrap();
        output.finish(root, freelist, 1).unwrap();
        let db = Db::from_file(file).unwrap();
        for (kind, overflow, accepted) in
            [(PageKind::Branch, 255, true), (PageKind::Branch, 256, false), (PageKind::Leaf, 256, true)]
        {
            let mut page = Vec::new();
            put_header(&mut page, 3, kind, 1, overflow);
            page.resize(4096, 0);
            assert_eq!(db.run_pages(3, &page).is_ok(), accepted, "{kind:?} {overflow}");
        }
    }
}
