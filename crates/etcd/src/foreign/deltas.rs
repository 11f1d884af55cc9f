//! A directory of delta files as one stream of events.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::feed::{Fed, Feed, FileEnd};
use super::json::{ElementParser, Parsed};
use super::names::{self, BackupFile, BackupKind, BackupName};
use super::{ForeignError, moment};
use crate::events::{ChangeEvent, Cut, EventError, EventStream};

/// No event comes near this: etcd's own limit for a request is a few megabytes.
const LONGEST_EVENT: usize = 256 << 20;

/// What the events of delta files continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    pub revision: i64,
    /// When it was taken, if that is known.
    pub taken: Option<Timestamp>,
}

impl Base {
    /// A base of unknown age.
    pub fn at(revision: i64) -> Self {
        Self { revision, taken: None }
    }
}

/// Streams the events of the delta files that reach beyond a base revision.
#[derive(Debug)]
pub struct DeltaStream {
    files: VecDeque<BackupFile>,
    feed: Feed,
    file: Option<OpenFile>,
    buffer: Vec<u8>,
    position: usize,
    parser: ElementParser,
    event: ChangeEvent,
    /// The last revision delivered so far.
    delivered: RevisionDigest,
}

/// The file whose content is being parsed.
#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    name: BackupName,
    /// Bytes of content before the buffer.
    offset: u64,
    /// Set once the reading thread has seen all of it.
    end: Option<FileEnd>,
    place: Place,
    first_revision: Option<i64>,
    last_revision: i64,
    /// What earlier files delivered last; up to there this file repeats them.
    known: RevisionDigest,
    /// This file's own account of that revision.
    repeated: RevisionDigest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BeforeArray,
    BeforeElement,
    AfterElement,
    AfterArray,
}

/// Identifies the changes of one revision, to tell a repetition from the other half of a split one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RevisionDigest {
    revision: i64,
    changes: u64,
    hash: u64,
}

impl RevisionDigest {
    fn add(&mut self, event: &ChangeEvent) {
        if self.revision != event.mod_revision {
            *self = Self { revision: event.mod_revision, ..Self::default() };
        }
        let mut hasher = DefaultHasher::new();
        (self.hash, &event.key, event.version, event.create_revision, event.lease).hash(&mut hasher);
        self.hash = hasher.finish();
        self.changes += 1;
    }
}

impl OpenFile {
    fn new(file: BackupFile, known: RevisionDigest) -> Self {
        Self {
            path: file.path,
            name: file.name,
            offset: 0,
            end: None,
            place: Place::BeforeArray,
            first_revision: None,
            last_revision: 0,
            known,
            repeated: RevisionDigest::default(),
        }
    }

    /// Notes an event; `true` if no earlier file delivered it.
    fn note(&mut self, event: &ChangeEvent) -> Result<bool, ForeignError> {
        let found = event.mod_revision;
        self.last_revision = found;
        if *self.first_revision.get_or_insert(found) != self.name.start || found > self.name.last {
            return Err(self.name_mismatch());
        }
        if found == self.known.revision {
            self.repeated.add(event);
        }
        if found > self.known.revision {
            self.check_repetition()?;
        }
        Ok(found > self.known.revision)
    }

    fn check_repetition(&self) -> Result<(), ForeignError> {
        if self.repeated.changes == 0 || self.repeated == self.known {
            return Ok(());
        }
        Err(ForeignError::SplitRevision { path: self.path.clone(), revision: self.known.revision })
    }

    fn name_mismatch(&self) -> ForeignError {
        ForeignError::NameMismatch {
            path: self.path.clone(),
            start: self.name.start,
            last: self.name.last,
            first_found: self.first_revision.unwrap_or_default(),
            last_found: self.last_revision,
        }
    }

    fn json_error(&self, position: usize, reason: String) -> ForeignError {
        let offset = self.offset.saturating_add(position as u64);
        ForeignError::Json { path: self.path.clone(), offset, reason }
    }

    fn check_end(&self, end: FileEnd) -> Result<(), ForeignError> {
        let path = self.path.clone();
        match end {
            FileEnd::Sound => Ok(()),
            FileEnd::TooShort => Err(ForeignError::TooShort { path }),
            FileEnd::DigestMismatch => Err(ForeignError::Digest { path }),
            FileEnd::Failed(source) => Err(ForeignError::Io { path, source }),
        }
    }
}

impl DeltaStream {
    /// Opens the files in `dir` that hold revisions above `base`, up to the cut.
    ///
    /// Holes between files are found here, by name, before anything is read or written. For a cut by time something must
    /// show that the base is as old as that.
    pub fn open(dir: &Path, base: Base, cut: Cut) -> Result<Self, ForeignError> {
        let last_wanted = match cut {
            Cut::End => None,
            Cut::Revision(last) => Some(last),
            Cut::Time(moment) => {
                moment::check(dir, base, moment)?;
                None
            }
        };
        Self::between(dir, base.revision, last_wanted)
    }

    pub(super) fn between(dir: &Path, base: i64, last_wanted: Option<i64>) -> Result<Self, ForeignError> {
        let mut files = names::list(dir)?;
        files.retain(|file| file.name.kind == BackupKind::Delta);
        if files.is_empty() {
            return Err(ForeignError::NoDeltas { dir: dir.to_owned() });
        }
        let files = chain(files, base, last_wanted.unwrap_or(i64::MAX))?;
        let feed = Feed::start(files.clone()).map_err(|source| ForeignError::Io { path: dir.to_owned(), source })?;
        Ok(Self {
            files: files.into(),
            feed,
            file: None,
            buffer: Vec::new(),
            position: 0,
            parser: ElementParser::default(),
            event: ChangeEvent::default(),
            delivered: RevisionDigest::default(),
        })
    }

    /// The last revision that its files promise; nothing if they do not reach beyond the base.
    pub fn last_revision(&self) -> Option<i64> {
        self.files.back().map(|file| file.name.last)
    }

    pub(super) fn pull(&mut self) -> Result<bool, ForeignError> {
        loop {
            let Some(mut file) = self.file.take().or_else(|| {
                let next = self.files.pop_front()?;
                Some(OpenFile::new(next, self.delivered))
            }) else {
                return Ok(false);
            };
            while self.element(&mut file)? {
                if file.note(&self.event)? {
                    self.delivered.add(&self.event);
                    self.file = Some(file);
                    return Ok(true);
                }
            }
            file.check_repetition()?;
            if file.first_revision.is_none() || file.last_revision != file.name.last {
                return Err(file.name_mismatch());
            }
        }
    }

    /// Parses the next element of the array; `false` once the file is read to its end and its digest is right.
    fn element(&mut self, file: &mut OpenFile) -> Result<bool, ForeignError> {
        while let Some(byte) = self.peek(file)? {
            match (file.place, byte) {
                (_, b' ' | b'\t' | b'\r' | b'\n') => {}
                (Place::BeforeArray, b'[') | (Place::AfterElement, b',') => file.place = Place::BeforeElement,
                (Place::AfterElement, b']') => file.place = Place::AfterArray,
                (Place::BeforeElement, b']') if file.first_revision.is_none() => file.place = Place::AfterArray,
                (Place::BeforeElement, _) => {
                    self.parse(file)?;
                    file.place = Place::AfterElement;
                    return Ok(true);
                }
                (_, other) => {
                    return Err(file.json_error(self.position, format!("unexpected {:?}", char::from(other))));
                }
            }
            self.position += 1;
        }
        match file.end.take() {
            Some(FileEnd::Sound) if file.place != Place::AfterArray => {
                Err(file.json_error(self.position, "the array does not end".to_owned()))
            }
            Some(end) => file.check_end(end).map(|()| false),
            None => Err(ForeignError::Worker),
        }
    }

    fn parse(&mut self, file: &mut OpenFile) -> Result<(), ForeignError> {
        loop {
            let text = self.buffer.get(self.position..).unwrap_or_default();
            let parsed = self.parser.parse(text, &mut self.event);
            match parsed.map_err(|reason| file.json_error(self.position, reason))? {
                Parsed::Event(length) => {
                    self.position += length;
                    return Ok(());
                }
                Parsed::Incomplete => {
                    // Doubling what is there keeps the cost of starting over linear in the size of the event.
                    let wanted = text.len().saturating_mul(2).min(LONGEST_EVENT);
                    let cut_off = text.len() >= LONGEST_EVENT || !self.refill(file)?;
                    if cut_off {
                        return Err(self.cut_off(file));
                    }
                    while self.buffer.len() < wanted && self.refill(file)? {}
                }
            }
        }
    }

    /// An event that does not end: damage says so first, if the digest shows any.
    fn cut_off(&self, file: &mut OpenFile) -> ForeignError {
        match file.end.take().map(|end| file.check_end(end)) {
            Some(Err(error)) => error,
            _ => file.json_error(self.position, "the event does not end".to_owned()),
        }
    }

    fn peek(&mut self, file: &mut OpenFile) -> Result<Option<u8>, ForeignError> {
        loop {
            if let Some(byte) = self.buffer.get(self.position) {
                return Ok(Some(*byte));
            }
            if !self.refill(file)? {
                return Ok(None);
            }
        }
    }

    /// Appends the next chunk of this file; `false` at its end.
    fn refill(&mut self, file: &mut OpenFile) -> Result<bool, ForeignError> {
        if file.end.is_some() {
            return Ok(false);
        }
        match self.feed.next().ok_or(ForeignError::Worker)? {
            Fed::Chunk(chunk) => {
                file.offset = file.offset.saturating_add(self.position as u64);
                self.buffer.drain(..self.position);
                self.position = 0;
                self.buffer.extend_from_slice(&chunk);
                self.feed.give_back(chunk);
                Ok(true)
            }
            Fed::FileEnd(end) => {
                file.end = Some(end);
                Ok(false)
            }
        }
    }

    /// Reads the rest of the current file for its digest alone.
    fn drain(&mut self) -> Result<(), ForeignError> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        self.files.clear();
        loop {
            self.position = self.buffer.len();
            if !self.refill(&mut file)? {
                return file.end.take().map_or(Err(ForeignError::Worker), |end| file.check_end(end));
            }
        }
    }
}

/// The files to read for everything in `base+1..=last_wanted`, in order and without holes.
///
/// A file that ends where its predecessor ended, or begins with the last wanted revision, may hold the other half of
/// that revision: it is read too, so that the halves meet and are noticed.
fn chain(files: Vec<BackupFile>, base: i64, last_wanted: i64) -> Result<Vec<BackupFile>, ForeignError> {
    let mut covered = base;
    let mut chain = Vec::new();
    for file in files {
        let BackupName { start, last, .. } = file.name;
        if last < covered || last <= base || (covered >= last_wanted && start > last_wanted.max(base)) {
            continue;
        }
        if start > covered.saturating_add(1) {
            let (missing_from, missing_to) = (covered.saturating_add(1), start.saturating_sub(1));
            return Err(ForeignError::MissingFile { path: file.path, missing_from, missing_to });
        }
        covered = last;
        chain.push(file);
    }
    Ok(chain)
}

impl EventStream for DeltaStream {
    fn advance(&mut self) -> Result<bool, EventError> {
        self.pull().map_err(EventError::source_error)
    }

    fn event(&self) -> &ChangeEvent {
        &self.event
    }

    fn finish(&mut self) -> Result<(), EventError> {
        self.drain().map_err(EventError::source_error)
    }
}
