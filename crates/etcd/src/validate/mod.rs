//! Is this file or directory sound? Cheap checks first, each finding with a name of its own.
//!
//! bbolt has no checksums: a flipped bit inside a stored value is visible only to a snapshot's digest or to a
//! comparison of hashes between members. Everything else is checked here.

mod data_dir;
mod in_use;
mod semantics;

use std::fmt;
use std::path::Path;

pub use data_dir::{DirError, DirFacts, data_dir, wal};
pub use in_use::{ReadInUse, database_in_use};
use semantics::Semantics;

use crate::bbolt::{self, Checked, Db};
use crate::error::chain;
use crate::schema::{BUCKETS, Schema};
use crate::snapshot::{DigestPolicy, Snapshot, SnapshotError};

/// How much to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// A few pages of the database, the log, the snap files.
    Instant,
    /// Every page and every entry too.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; etcd starts on it and loses nothing.
    Warning,
    /// Do not start etcd on it, do not restore from it.
    Damage,
}

/// The names of what can be found. They are part of the output and stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FindingKind {
    LayoutIncomplete,
    DatabaseUnreadable,
    SchemaInvalid,
    BucketUnknown,
    BucketMissing,
    MetaTorn,
    PageDamaged,
    EntryDamaged,
    RevisionMissing,
    DigestMismatch,
    DigestMissing,
    LogDamaged,
    LogTorn,
    LogResidue,
    SnapDamaged,
    SnapMissing,
    MemberUnknown,
    MemberRemoved,
    IndexBehindSnap,
    IndexAheadOfLog,
}

impl FindingKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::LayoutIncomplete => "layout-incomplete",
            Self::DatabaseUnreadable => "database-unreadable",
            Self::SchemaInvalid => "schema-invalid",
            Self::BucketUnknown => "bucket-unknown",
            Self::BucketMissing => "bucket-missing",
            Self::MetaTorn => "meta-torn",
            Self::PageDamaged => "page-damaged",
            Self::EntryDamaged => "entry-damaged",
            Self::RevisionMissing => "revision-missing",
            Self::DigestMismatch => "digest-mismatch",
            Self::DigestMissing => "digest-missing",
            Self::LogDamaged => "log-damaged",
            Self::LogTorn => "log-torn",
            Self::LogResidue => "log-residue",
            Self::SnapDamaged => "snap-damaged",
            Self::SnapMissing => "snap-missing",
            Self::MemberUnknown => "member-unknown",
            Self::MemberRemoved => "member-removed",
            Self::IndexBehindSnap => "index-behind-snap",
            Self::IndexAheadOfLog => "index-ahead-of-log",
        }
    }

    pub fn severity(self) -> Severity {
        match self {
            Self::MetaTorn
            | Self::BucketUnknown
            | Self::BucketMissing
            | Self::DigestMissing
            | Self::LogTorn
            | Self::SnapDamaged
            | Self::MemberUnknown => Severity::Warning,
            _ => Severity::Damage,
        }
    }
}

/// One thing that is wrong, where, and what follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.text)
    }
}

/// All findings, in the order of the checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    pub list: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, kind: FindingKind, text: impl Into<String>) {
        self.list.push(Finding { kind, text: text.into() });
    }

    fn error(&mut self, kind: FindingKind, error: &dyn std::error::Error) {
        self.add(kind, chain(error));
    }

    pub fn worst(&self) -> Option<Severity> {
        self.list.iter().map(|finding| finding.kind.severity()).max()
    }

    pub fn is_damaged(&self) -> bool {
        self.worst() == Some(Severity::Damage)
    }
}

/// Checks a snapshot file. An error means that it could not be read, and nothing is known about it.
pub fn snapshot(path: &Path, tier: Tier) -> Result<Findings, SnapshotError> {
    let mut findings = Findings::default();
    let snapshot = match Snapshot::open(path) {
        Ok(snapshot) => snapshot,
        Err(error @ SnapshotError::Io { .. }) => return Err(error),
        Err(SnapshotError::Bbolt { path, source: source @ bbolt::Error::Io { .. } }) => {
            return Err(SnapshotError::Bbolt { path, source });
        }
        Err(error @ SnapshotError::Schema { .. }) => {
            findings.error(FindingKind::SchemaInvalid, &error);
            return Ok(findings);
        }
        Err(error) => {
            findings.error(FindingKind::DatabaseUnreadable, &error);
            return Ok(findings);
        }
    };
    database(&mut findings, &snapshot.db);
    if snapshot.stored_digest().is_none() {
        findings.add(FindingKind::DigestMissing, "no SHA-256 at its end, as in a copy of a member's db file");
    }
    // The digest takes a processor of its own; structure and semantics take another.
    std::thread::scope(|scope| {
        let digest = scope.spawn(|| snapshot.verify_digest(DigestPolicy::IfPresent));
        if tier == Tier::Full {
            contents(&mut findings, &snapshot.db, &snapshot.schema)
                .map_err(|source| SnapshotError::Bbolt { path: path.to_owned(), source })?;
        }
        match digest.join() {
            Ok(Err(error @ SnapshotError::Digest { .. })) => findings.error(FindingKind::DigestMismatch, &error),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(())) => {}
            Err(_) => findings.add(FindingKind::DatabaseUnreadable, "the hashing thread stopped"),
        }
        Ok(findings)
    })
}

/// What a few pages of a database tell.
fn database(findings: &mut Findings, db: &Db) {
    for (place, meta) in db.metas().iter().enumerate() {
        if let Err(fault) = meta {
            findings.add(
                FindingKind::MetaTorn,
                format!("meta page {place}: {fault}; the commit before the last one is intact"),
            );
        }
    }
    let Ok(buckets) = db.buckets() else { return };
    let names: Vec<String> = buckets.iter().map(|bucket| String::from_utf8_lossy(&bucket.name).into_owned()).collect();
    for name in names.iter().filter(|name| !BUCKETS.contains(&name.as_str())) {
        findings.add(FindingKind::BucketUnknown, format!("bucket `{name}` is none of etcd's"));
    }
    for name in BUCKETS.iter().filter(|name| !names.iter().any(|existing| existing == *name)) {
        findings.add(FindingKind::BucketMissing, format!("bucket `{name}` is missing; etcd creates it when it starts"));
    }
}

/// Why nothing new is made from a database.
#[derive(Debug, thiserror::Error)]
pub enum UnsoundError {
    #[error("the database cannot be read")]
    Unreadable(#[from] bbolt::Error),
    #[error("the database is damaged: {first} ({others} more findings); take another one")]
    Damaged { first: String, others: usize },
}

/// Refuses a snapshot that is damaged, whatever its digest says, which vouches only for what happened after it was taken.
pub(crate) fn require_sound(snapshot: &Snapshot) -> Result<(), UnsoundError> {
    let mut findings = Findings::default();
    contents(&mut findings, &snapshot.db, &snapshot.schema)?;
    match findings.list.as_slice() {
        [] => Ok(()),
        [first, others @ ..] => Err(UnsoundError::Damaged { first: first.to_string(), others: others.len() }),
    }
}

/// Every page and every entry.
fn contents(findings: &mut Findings, db: &Db, schema: &Schema) -> Result<(), bbolt::Error> {
    let mut semantics = Semantics::new(schema);
    let checked = bbolt::check(db, |bucket, key, value| semantics.entry(bucket, key, value))?;
    add(findings, &checked, semantics);
    Ok(())
}

fn add(findings: &mut Findings, checked: &Checked, semantics: Semantics) {
    for finding in &checked.findings {
        let bucket = finding.bucket.as_deref().map(String::from_utf8_lossy);
        let place = bucket.map_or(String::new(), |bucket| format!("bucket `{bucket}`: "));
        findings.add(FindingKind::PageDamaged, format!("{place}{}", chain(&finding.error)));
    }
    if checked.unlisted > 0 {
        findings.add(FindingKind::PageDamaged, format!("{} more damaged pages", checked.unlisted));
    }
    findings.list.extend(semantics.finish());
}
