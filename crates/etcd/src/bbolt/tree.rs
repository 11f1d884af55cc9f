//! A B+tree built from ascending keys: full pages in file order, or the right edge of an existing tree.

use super::db::{Bucket, BucketRoot, Db};
use super::output::Output;
use super::page::{BUCKET, ELEMENT, HEADER, LARGEST_KEY, Page, PageKind, put_header};
use super::{DEEPEST_TREE, Error, Fault, LARGEST_RUN, PageId};

/// bbolt keeps this count for "the real count is elsewhere"; no node may reach it.
const MOST_ELEMENTS: usize = 65_534;

/// A finished tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    Page(PageId),
    /// Small enough to live inside its bucket's entry.
    Inline(Vec<u8>),
}

impl Tree {
    /// The value of the bucket's entry in the root tree.
    pub fn bucket_value(&self) -> Vec<u8> {
        let (root, image): (PageId, &[u8]) = match self {
            Self::Page(root) => (*root, &[]),
            Self::Inline(image) => (0, image),
        };
        let mut value = Vec::with_capacity(16 + image.len());
        value.extend_from_slice(&root.to_le_bytes());
        value.extend_from_slice(&0_u64.to_le_bytes());
        value.extend_from_slice(image);
        value
    }
}

#[derive(Debug, Clone, Copy)]
struct Item {
    flags: u32,
    key_size: usize,
    value_size: usize,
}

/// The leaf being filled: its elements, and their keys and values one after another.
#[derive(Debug, Default)]
struct Leaf {
    items: Vec<Item>,
    data: Vec<u8>,
}

impl Leaf {
    fn size(&self) -> usize {
        HEADER + self.items.len() * ELEMENT + self.data.len()
    }

    fn first_key(&self) -> &[u8] {
        self.items.first().and_then(|item| self.data.get(..item.key_size)).unwrap_or_default()
    }

    fn compose(&self, id: PageId, overflow: u32, out: &mut Vec<u8>) {
        let count = self.items.len();
        put_header(out, id, PageKind::Leaf, u16::try_from(count).unwrap_or(u16::MAX), overflow);
        let mut data = 0;
        for (index, item) in self.items.iter().enumerate() {
            let position = (count - index) * ELEMENT + data;
            for word in [u64::from(item.flags), position as u64, item.key_size as u64, item.value_size as u64] {
                put_word(out, word);
            }
            data += item.key_size + item.value_size;
        }
        out.extend_from_slice(&self.data);
    }
}

/// Every size here is below the largest run, so the upper half is always zero.
fn put_word(out: &mut Vec<u8>, word: u64) {
    let [a, b, c, d, ..] = word.to_le_bytes();
    out.extend_from_slice(&[a, b, c, d]);
}

/// An open branch page: separators and children. `continues` when pages of this level exist already, so that the
/// level needs a parent even if a single element is left in it.
#[derive(Debug, Default)]
struct Branch {
    elements: Vec<(Vec<u8>, PageId)>,
    size: usize,
    continues: bool,
}

impl Branch {
    fn push(&mut self, key: Vec<u8>, child: PageId) {
        self.size += ELEMENT + key.len();
        self.elements.push((key, child));
    }

    fn compose(elements: &[(Vec<u8>, PageId)], id: PageId, overflow: u32, out: &mut Vec<u8>) {
        put_header(out, id, PageKind::Branch, u16::try_from(elements.len()).unwrap_or(u16::MAX), overflow);
        let mut data = 0;
        for (index, (key, child)) in elements.iter().enumerate() {
            put_word(out, ((elements.len() - index) * ELEMENT + data) as u64);
            put_word(out, key.len() as u64);
            out.extend_from_slice(&child.to_le_bytes());
            data += key.len();
        }
        for (key, _) in elements {
            out.extend_from_slice(key);
        }
    }
}

/// Builds one tree; memory is one leaf and one branch page per level.
#[derive(Debug)]
pub struct TreeWriter {
    page_size: usize,
    leaf: Leaf,
    /// Whether leaves of this tree were written already.
    leaf_continues: bool,
    branches: Vec<Branch>,
    last_key: Vec<u8>,
}

impl TreeWriter {
    pub fn new(page_size: usize) -> Self {
        Self { page_size, leaf: Leaf::default(), leaf_continues: false, branches: Vec::new(), last_key: Vec::new() }
    }

    /// Opens the right edge of an existing bucket, so that greater keys can be appended to it.
    ///
    /// The pages of that edge are rewritten under new ids; bbolt finds the old ones free at its next open.
    pub fn resume(db: &Db, bucket: &Bucket) -> Result<Self, Error> {
        let mut tree = Self::new(db.page_size());
        let mut id = match &bucket.root {
            BucketRoot::Inline(image) => {
                let page = Page::parse(image, 0).map_err(Error::page(db.meta().root))?;
                tree.reopen_leaf(&page).map_err(Error::page(db.meta().root))?;
                return Ok(tree);
            }
            BucketRoot::Page(root) => *root,
        };
        let mut bytes = Vec::new();
        for depth in 0..=DEEPEST_TREE {
            db.read_run(id, &mut bytes)?;
            let page = Page::parse(&bytes, id).map_err(Error::page(id))?;
            match page.kind {
                PageKind::Leaf if page.count == 0 && depth > 0 => return Err(Error::Page { id, fault: Fault::Empty }),
                PageKind::Leaf => {
                    tree.reopen_leaf(&page).map_err(Error::page(id))?;
                    tree.leaf_continues = depth > 0;
                    return Ok(tree);
                }
                PageKind::Branch => id = tree.reopen_branch(&page).map_err(Error::page(id))?,
                kind => return Err(Error::Page { id, fault: Fault::Unexpected(kind) }),
            }
        }
        Err(Error::Page { id, fault: Fault::TooDeep })
    }

    fn reopen_leaf(&mut self, page: &Page<'_>) -> Result<(), Fault> {
        for index in 0..page.count {
            let element = page.leaf(index)?;
            if element.is_bucket {
                return Err(Fault::NestedBucket);
            }
            self.add(0, element.key, element.value);
        }
        Ok(())
    }

    /// Takes over all children but the last, which comes back when its own page has been rewritten.
    fn reopen_branch(&mut self, page: &Page<'_>) -> Result<PageId, Fault> {
        if page.count < 2 {
            return Err(Fault::SingleChild);
        }
        let mut branch = Branch::default();
        for index in 0..page.count - 1 {
            let element = page.branch(index)?;
            branch.push(element.key.to_vec(), element.child);
        }
        // Found from the root down, kept from the leaves up; only the root's level needs no parent.
        branch.continues = !self.branches.is_empty();
        self.branches.insert(0, branch);
        Ok(page.branch(page.count - 1)?.child)
    }

    fn add(&mut self, flags: u32, key: &[u8], value: &[u8]) {
        self.leaf.items.push(Item { flags, key_size: key.len(), value_size: value.len() });
        self.leaf.data.extend_from_slice(key);
        self.leaf.data.extend_from_slice(value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    pub fn push(&mut self, output: &mut Output, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.push_flagged(output, 0, key, value)
    }

    /// Adds a bucket's entry; for the root tree.
    pub fn push_bucket(&mut self, output: &mut Output, name: &[u8], tree: &Tree) -> Result<(), Error> {
        self.push_flagged(output, BUCKET, name, &tree.bucket_value())
    }

    fn push_flagged(&mut self, output: &mut Output, flags: u32, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if !(1..=LARGEST_KEY).contains(&key.len()) {
            return Err(Error::KeySize(key.len()));
        }
        let size = ELEMENT + key.len() + value.len();
        if HEADER + size > LARGEST_RUN {
            return Err(Error::ElementSize(size));
        }
        if key <= self.last_key.as_slice() {
            return Err(Error::NotAscending { key: key.to_vec() });
        }
        let full = self.leaf.size() + size > self.page_size || self.leaf.items.len() >= MOST_ELEMENTS;
        if full && !self.leaf.items.is_empty() {
            self.flush_leaf(output)?;
        }
        self.add(flags, key, value);
        Ok(())
    }

    fn flush_leaf(&mut self, output: &mut Output) -> Result<(), Error> {
        let leaf = &self.leaf;
        let id = output.run(leaf.size(), |id, overflow, out| leaf.compose(id, overflow, out))?;
        let first_key = leaf.first_key().to_vec();
        self.leaf.items.clear();
        self.leaf.data.clear();
        self.leaf_continues = true;
        self.adopt(output, 0, first_key, id)
    }

    /// Adds a finished page to the branch level above it.
    ///
    /// A full branch is written without its last element, which starts the next branch together with the new one:
    /// that way every branch page ends up with at least two children. etcd panics on branches with one.
    fn adopt(&mut self, output: &mut Output, level: usize, key: Vec<u8>, child: PageId) -> Result<(), Error> {
        if self.branches.len() <= level {
            self.branches.push(Branch::default());
        }
        let page_size = self.page_size;
        let Some(branch) = self.branches.get_mut(level) else { return Ok(()) };
        let full = HEADER + branch.size + ELEMENT + key.len() > page_size || branch.elements.len() >= MOST_ELEMENTS;
        if !full || branch.elements.len() < 3 {
            branch.push(key, child);
            return Ok(());
        }
        let kept = branch.elements.pop();
        let flushed = std::mem::take(branch);
        branch.continues = true;
        branch.elements = Vec::with_capacity(flushed.elements.len() + 1);
        if let Some((kept_key, kept_child)) = kept {
            branch.push(kept_key, kept_child);
        }
        branch.push(key, child);
        let (first_key, id) = write_branch(output, flushed.elements)?;
        self.adopt(output, level + 1, first_key, id)
    }

    /// Writes what is open and returns the tree. A tree that fits a quarter of a page stays inline, as in bbolt.
    pub fn finish(mut self, output: &mut Output) -> Result<Tree, Error> {
        if !self.leaf_continues && self.leaf.size() <= self.page_size / 4 {
            let mut image = Vec::with_capacity(self.leaf.size());
            self.leaf.compose(0, 0, &mut image);
            return Ok(Tree::Inline(image));
        }
        self.finish_as_pages(output).map(Tree::Page)
    }

    /// As [`finish`](Self::finish), but never inline: the root tree of a file has no entry to live in.
    pub fn finish_as_pages(&mut self, output: &mut Output) -> Result<PageId, Error> {
        if !self.leaf_continues {
            let leaf = &self.leaf;
            return output.run(leaf.size(), |id, overflow, out| leaf.compose(id, overflow, out));
        }
        if !self.leaf.items.is_empty() {
            self.flush_leaf(output)?;
        }
        let mut level = 0;
        loop {
            let branch = self.branches.get_mut(level).map(std::mem::take).unwrap_or_default();
            if !branch.continues
                && let [(_, only)] = branch.elements.as_slice()
            {
                return Ok(*only);
            }
            let (first_key, id) = write_branch(output, branch.elements)?;
            if !branch.continues {
                return Ok(id);
            }
            level += 1;
            self.adopt(output, level, first_key, id)?;
        }
    }
}

fn write_branch(output: &mut Output, elements: Vec<(Vec<u8>, PageId)>) -> Result<(Vec<u8>, PageId), Error> {
    let size = elements.iter().fold(HEADER, |size, (key, _)| size + ELEMENT + key.len());
    let id = output.run(size, |id, overflow, out| Branch::compose(&elements, id, overflow, out))?;
    let first_key = elements.into_iter().next().map(|(key, _)| key).unwrap_or_default();
    Ok((first_key, id))
}
