//! A database that an etcd is working with: every page and every entry, without its lock, a stretch at a time.
//!
//! bbolt writes a transaction to pages that the last complete one does not use, and then makes it complete with a meta page.
//! What a reading finds is therefore certain if the same transaction is the last complete one before and after it, in a file
//! that is still the one in use. Whoever asks judges that. A busy etcd completes ten a second, so a stretch is short.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::data_dir::{DirError, read_schema};
use super::semantics::Semantics;
use super::{FindingKind, Findings, add, database};
use crate::bbolt::{self, Db, Place, check_stretch};

/// What a reading found, and what is needed to judge it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadInUse {
    pub findings: Findings,
    /// The last complete transaction, before and after. Nothing if no meta page could be read.
    pub transactions: [Option<u64>; 2],
    /// Whether another file has taken the place of the one that was read.
    pub replaced: bool,
    /// Where to go on, unless that was the end.
    pub next: Option<Place>,
}

/// Reads a stretch of a database. An error means that it could not be read, and nothing is known about it.
pub fn database_in_use(path: &Path, start: &Place, pages: u64) -> Result<ReadInUse, DirError> {
    let io = |source: io::Error| DirError::Io { path: path.to_owned(), source };
    let unreadable = |source: bbolt::Error| DirError::Database { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let (mut findings, mut next) = (Findings::default(), None);
    let before = match Db::from_file_in_use(file.try_clone().map_err(io)?) {
        Ok(db) => {
            database(&mut findings, &db);
            if let Some(schema) = read_schema(&db, &mut findings).map_err(unreadable)? {
                let mut semantics = Semantics::of_stretch(&schema);
                let entry = |bucket: &[u8], key: &[u8], value: &[u8]| semantics.entry(bucket, key, value);
                let (checked, place) = check_stretch(&db, start, pages, entry).map_err(unreadable)?;
                add(&mut findings, &checked, semantics);
                next = place;
            }
            Some(db.meta().txid)
        }
        Err(error @ bbolt::Error::Io { .. }) => return Err(unreadable(error)),
        Err(error) => {
            findings.error(FindingKind::DatabaseUnreadable, &error);
            None
        }
    };
    let after = match Db::from_file(file.try_clone().map_err(io)?) {
        Ok(db) => Some(db.meta().txid),
        Err(error @ bbolt::Error::Io { .. }) => return Err(unreadable(error)),
        Err(_) => None,
    };
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    let replaced = identity(&file.metadata().map_err(io)?) != identity(&fs::metadata(path).map_err(io)?);
    Ok(ReadInUse { findings, transactions: [before, after], replaced, next })
}
