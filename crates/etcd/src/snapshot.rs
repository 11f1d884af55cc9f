//! A snapshot file: a database followed by the SHA-256 of it, or a bare database file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use sha2::{Digest, Sha256};

use crate::bbolt::{self, Db};
use crate::direct_io::{AlignedBuffer, DirectFile};
use crate::readahead::ReadAhead;
use crate::schema::{Schema, SchemaError};
use crate::scratch::nameless_file;

pub const DIGEST_SIZE: usize = 32;
pub type Digest256 = [u8; DIGEST_SIZE];

pub(crate) const CHUNK: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("cannot read {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: unreadable as a database", path.display())]
    Bbolt { path: PathBuf, source: bbolt::Error },
    #[error("{}: not an etcd database", path.display())]
    Schema { path: PathBuf, source: Box<SchemaError> },
    #[error(
        "{}: the SHA-256 at its end does not match its contents; it was damaged after it was taken, fetch it again \
         or use an older one", path.display()
    )]
    Digest { path: PathBuf },
    #[error(
        "{}: it has no SHA-256 at its end, so nothing can vouch for its contents; if it is a copy of a member's db \
         file and you trust it, ask to skip the hash check", path.display()
    )]
    NoDigest { path: PathBuf },
    #[error(
        "{}: {surplus} bytes lie between the database and the SHA-256 at its end; it is not as etcd sent it",
        path.display()
    )]
    Surplus { path: PathBuf, surplus: u64 },
}

/// Whether a snapshot without a valid digest is acceptable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DigestPolicy {
    #[default]
    Require,
    /// For copies of a member's db file. A digest that is present must still match.
    IfPresent,
}

/// An opened snapshot with its small contents read.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    pub db: Db,
    pub schema: Schema,
    stored_digest: Option<Digest256>,
}

impl Snapshot {
    /// Opens without reading more than a few pages; the digest is checked by [`verify_digest`](Self::verify_digest).
    pub fn open(path: &Path) -> Result<Self, SnapshotError> {
        let file = File::open(path).map_err(|source| SnapshotError::Io { path: path.to_owned(), source })?;
        Self::from_file(file, path)
    }

    /// Receives a snapshot stream into a nameless file under `scratch`, which must be on a disk with room for it. The bytes
    /// that are hashed are those that are written, and the digest at the end must be theirs. Messages call it `name`.
    pub fn receive(stream: &mut dyn Read, scratch: &Path, name: &Path) -> Result<Self, SnapshotError> {
        let file = nameless_file(scratch);
        let file = file.map_err(|error| SnapshotError::Io { path: error.dir, source: error.source })?;
        receive(stream, &file, name)?;
        Self::from_file(file, name)
    }

    fn from_file(file: File, path: &Path) -> Result<Self, SnapshotError> {
        let io = |source| SnapshotError::Io { path: path.to_owned(), source };
        let db = Db::from_file(file).map_err(|source| SnapshotError::Bbolt { path: path.to_owned(), source })?;
        let schema = Schema::read(&db)
            .map_err(|source| SnapshotError::Schema { path: path.to_owned(), source: Box::new(source) })?;
        let stored_digest = read_digest(&db).map_err(io)?;
        let surplus = db.file_length() - db.data_length();
        if stored_digest.is_some() && surplus != DIGEST_SIZE as u64 {
            return Err(SnapshotError::Surplus { path: path.to_owned(), surplus: surplus - DIGEST_SIZE as u64 });
        }
        Ok(Self { path: path.to_owned(), db, schema, stored_digest })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest at the end of the file; bare database files have none.
    pub fn stored_digest(&self) -> Option<&Digest256> {
        self.stored_digest.as_ref()
    }

    /// Bytes of the file in front of the digest.
    pub fn data_length(&self) -> u64 {
        self.db.data_length()
    }

    /// Compares a digest computed elsewhere with the stored one.
    pub fn accept_digest(&self, computed: &Digest256, policy: DigestPolicy) -> Result<(), SnapshotError> {
        let path = || self.path.clone();
        match (&self.stored_digest, policy) {
            (Some(stored), _) if stored == computed => Ok(()),
            (Some(_), _) => Err(SnapshotError::Digest { path: path() }),
            (None, DigestPolicy::IfPresent) => Ok(()),
            (None, DigestPolicy::Require) => Err(SnapshotError::NoDigest { path: path() }),
        }
    }

    /// Refuses early what [`accept_digest`](Self::accept_digest) would refuse without looking at the contents.
    pub fn require_digest(&self, policy: DigestPolicy) -> Result<(), SnapshotError> {
        match (&self.stored_digest, policy) {
            (None, DigestPolicy::Require) => Err(SnapshotError::NoDigest { path: self.path.clone() }),
            _ => Ok(()),
        }
    }

    /// Reads the whole file once and checks its digest.
    pub fn verify_digest(&self, policy: DigestPolicy) -> Result<(), SnapshotError> {
        self.require_digest(policy)?;
        if self.stored_digest.is_none() {
            return Ok(());
        }
        let computed = digest_of(self.db.file(), self.data_length())
            .map_err(|source| SnapshotError::Io { path: self.path.clone(), source })?;
        self.accept_digest(&computed, policy)
    }
}

/// Writes a whole snapshot stream into an empty file and checks the digest at its end.
pub(crate) fn receive(stream: &mut dyn Read, mut file: &File, name: &Path) -> Result<(), SnapshotError> {
    let io = |source| SnapshotError::Io { path: name.to_owned(), source };
    let mut hash = Sha256::new();
    // What may still turn out to be the digest stands at the beginning.
    let (mut buffer, mut kept) = (vec![0; CHUNK + DIGEST_SIZE], 0);
    loop {
        let read = stream.read(buffer.get_mut(kept..).unwrap_or_default()).map_err(io)?;
        if read == 0 {
            break;
        }
        file.write_all(buffer.get(kept..kept + read).unwrap_or_default()).map_err(io)?;
        let end = kept + read;
        let content = end.saturating_sub(DIGEST_SIZE);
        hash.update(buffer.get(..content).unwrap_or_default());
        buffer.copy_within(content..end, 0);
        kept = end - content;
    }
    if kept < DIGEST_SIZE {
        return Err(SnapshotError::NoDigest { path: name.to_owned() });
    }
    if buffer.get(..DIGEST_SIZE) != Some(hash.finalize().as_slice()) {
        return Err(SnapshotError::Digest { path: name.to_owned() });
    }
    Ok(())
}

/// etcd's own rule: pages are multiples of 512, so 32 bytes too many are the digest.
fn read_digest(db: &Db) -> io::Result<Option<Digest256>> {
    let length = db.file_length();
    if length % 512 != DIGEST_SIZE as u64 {
        return Ok(None);
    }
    let mut digest = [0; DIGEST_SIZE];
    db.file().read_exact_at(&mut digest, length - DIGEST_SIZE as u64)?;
    Ok(Some(digest))
}

/// SHA-256 of the first `length` bytes of a file that is likely in the page cache.
pub fn digest_of(file: &File, length: u64) -> io::Result<Digest256> {
    let mut ahead = ReadAhead::default();
    digest(length, |buffer, offset| {
        ahead.passed(file, offset);
        file.read_exact_at(buffer, offset)
    })
}

/// As [`digest_of`], for a file that was written past the page cache and had better stay out of it.
pub(crate) fn digest_of_written(file: &Arc<File>, length: u64) -> io::Result<Digest256> {
    let file = DirectFile::new(Arc::clone(file), false);
    digest(length, |buffer, offset| file.read_exact_at(buffer, offset))
}

/// Hashes on this thread what another one reads ahead, with two buffers.
fn digest(length: u64, mut read: impl FnMut(&mut [u8], u64) -> io::Result<()> + Send) -> io::Result<Digest256> {
    std::thread::scope(|scope| {
        let (full, filled) = sync_channel::<io::Result<AlignedBuffer>>(1);
        let (recycle, empty) = sync_channel(2);
        scope.spawn(move || {
            let mut offset = 0;
            while offset < length {
                let mut chunk = empty.try_recv().unwrap_or_else(|_| AlignedBuffer::with_capacity(CHUNK));
                let wanted = usize::try_from(length - offset).map_or(CHUNK, |rest| rest.min(CHUNK));
                chunk.resize(wanted);
                let chunk = read(chunk.as_mut_slice(), offset).map(|()| chunk);
                let stop = chunk.is_err();
                if full.send(chunk).is_err() || stop {
                    break;
                }
                offset += wanted as u64;
            }
        });
        let mut hash = Sha256::new();
        for chunk in filled {
            let chunk = chunk?;
            hash.update(chunk.as_slice());
            let _ = recycle.try_send(chunk);
        }
        Ok(hash.finalize().into())
    })
}
