//! One layer: a tar stream of files in a fixed order, with nothing in it that depends on when or where it was made.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::hex;
use crate::error::{Result, While};

/// The files that one layer adds to an image. What changes together belongs in one layer.
#[derive(Debug, Clone, Default)]
pub struct Layer {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug, Clone)]
enum Entry {
    Directory { mode: u32 },
    FromFile { source: PathBuf, mode: u32 },
    Bytes { content: Vec<u8>, mode: u32 },
    Link { target: PathBuf },
}

impl Layer {
    pub fn new() -> Self {
        Self::default()
    }

    /// A file of the host. Parent directories come by themselves.
    #[must_use]
    pub fn file(self, path: impl AsRef<Path>, source: impl Into<PathBuf>, mode: u32) -> Self {
        self.entry(path, Entry::FromFile { source: source.into(), mode })
    }

    #[must_use]
    pub fn bytes(self, path: impl AsRef<Path>, content: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.entry(path, Entry::Bytes { content: content.into(), mode })
    }

    #[must_use]
    pub fn link(self, path: impl AsRef<Path>, target: impl Into<PathBuf>) -> Self {
        self.entry(path, Entry::Link { target: target.into() })
    }

    #[must_use]
    pub fn directory(self, path: impl AsRef<Path>, mode: u32) -> Self {
        self.entry(path, Entry::Directory { mode })
    }

    fn entry(mut self, path: impl AsRef<Path>, entry: Entry) -> Self {
        let path = path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()).to_owned();
        for parent in path.ancestors().skip(1).filter(|parent| parent.components().next().is_some()) {
            self.entries.entry(parent.to_owned()).or_insert(Entry::Directory { mode: 0o755 });
        }
        self.entries.insert(path, entry);
        self
    }

    /// Writes the tar stream and returns its digest and length.
    pub(super) fn write(&self, to: impl Write) -> Result<Blob> {
        let mut archive = tar::Builder::new(Hashing { inner: to, hash: Sha256::new(), length: 0 });
        for (path, entry) in &self.entries {
            append(&mut archive, path, entry).while_(|| format!("adding {} to a layer", path.display()))?;
        }
        let written = archive.into_inner().while_(|| "finishing a layer".to_owned())?;
        Ok(Blob { sha256: hex(&written.hash.finalize()), length: written.length })
    }
}

/// Content as registries and runtimes name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) sha256: String,
    pub(super) length: u64,
}

impl Blob {
    pub(super) fn of(content: &[u8]) -> Self {
        Blob { sha256: hex(&Sha256::digest(content)), length: content.len() as u64 }
    }

    pub(super) fn digest(&self) -> String {
        format!("sha256:{}", self.sha256)
    }

    pub(super) fn path(&self) -> String {
        format!("blobs/sha256/{}", self.sha256)
    }
}

fn append(archive: &mut tar::Builder<impl Write>, path: &Path, entry: &Entry) -> io::Result<()> {
    let mut header = plain_header();
    match entry {
        Entry::Directory { mode } => {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(*mode);
            archive.append_data(&mut header, path, io::empty())
        }
        Entry::Link { target } => {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_mode(0o777);
            archive.append_link(&mut header, path, target)
        }
        Entry::Bytes { content, mode } => {
            header.set_mode(*mode);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, path, content.as_slice())
        }
        Entry::FromFile { source, mode } => {
            let file = File::open(source)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", source.display())))?;
            let length = file.metadata()?.len();
            header.set_mode(*mode);
            header.set_size(length);
            // A file that grows meanwhile must not spill over its entry.
            archive.append_data(&mut header, path, file.take(length))
        }
    }
}

/// Owned by root, dated 1970, so that the same files give the same bytes.
pub(super) fn plain_header() -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(0);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

struct Hashing<W> {
    inner: W,
    hash: Sha256,
    length: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(buffer.get(..written).unwrap_or_default());
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
