//! A member's data directory: does everything in it belong together, and can etcd go on from it?

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::{Finding, FindingKind, Findings, Severity, Tier, contents, database};
use crate::bbolt::{self, Db};
use crate::data_dir::{DataDir, lock_shared};
use crate::error::chain;
use crate::membership::hex_id;
use crate::schema::{MinorVersion, Schema, SchemaError};
use crate::snap::{Snap, SnapName};
use crate::wal::{SegmentName, Tail, WalError, WalScan, scan_dir};

#[derive(Debug, thiserror::Error)]
pub enum DirError {
    #[error("cannot read {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot read the database {}", path.display())]
    Database { path: PathBuf, source: bbolt::Error },
    #[error("cannot read the log")]
    Log(#[source] WalError),
    #[error("{} is in use by a running etcd, so nothing can be said about it; stop it first", path.display())]
    InUse { path: PathBuf },
    #[error(
        "nothing else is wrong, but {segment} holds bytes behind its end at offset {offset}: unsynced writes of a crash, \
         or acknowledged ones that were damaged; compare this member's revision with the others' before you start it"
    )]
    Undecided {
        segment: SegmentName,
        offset: u64,
        /// What is certain: everything up to that end.
        facts: Box<DirFacts>,
    },
}

/// What was learnt on the way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirFacts {
    pub schema: Option<Schema>,
    pub log: Option<WalScan>,
    /// The snap file etcd would start from.
    pub snap: Option<SnapName>,
}

/// Checks a data directory. An error means that it could not be read, and nothing is known about it.
pub fn data_dir(path: &Path, tier: Tier) -> Result<(Findings, DirFacts), DirError> {
    let mut findings = Findings::default();
    let mut facts = DirFacts::default();
    let data_dir = DataDir::new(path);
    let (snap_dir, wal_dir) = (data_dir.snap(), data_dir.wal());
    for dir in [&snap_dir, &wal_dir] {
        match dir.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => findings.add(FindingKind::LayoutIncomplete, format!("{} is not a directory", dir.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                findings.add(FindingKind::LayoutIncomplete, format!("{} is missing", dir.display()));
            }
            Err(source) => return Err(DirError::Io { path: dir.clone(), source }),
        }
    }
    if findings.is_damaged() {
        return Ok((findings, facts));
    }
    let db = open_database(data_dir.db(), &mut findings)?;
    let unreadable = |source| DirError::Database { path: data_dir.db(), source };
    facts.schema = match &db {
        Some(db) => read_schema(db, &mut findings).map_err(unreadable)?,
        None => None,
    };
    facts.log = read_log(&wal_dir, &mut findings)?;
    if let Some(log) = &facts.log {
        facts.snap = find_snap(&snap_dir, log, facts.schema.as_ref(), &mut findings)?;
    }
    if let (Some(schema), Some(log)) = (&facts.schema, &facts.log) {
        membership(schema, log, &mut findings);
        indexes(&snap_dir, schema, log, facts.snap, &mut findings);
    }
    if let (Tier::Full, Some(db), Some(schema)) = (tier, &db, &facts.schema) {
        contents(&mut findings, db, schema).map_err(unreadable)?;
    }
    decide(findings, facts)
}

/// Checks a log without the rest of its directory. An error means that nothing is known about it.
pub fn wal(dir: &Path) -> Result<Findings, DirError> {
    let mut findings = Findings::default();
    let log = read_log(dir, &mut findings)?;
    decide(findings, DirFacts { log, ..DirFacts::default() }).map(|(findings, _)| findings)
}

/// What follows a log's end can be judged only where something else is wrong too.
fn decide(findings: Findings, facts: DirFacts) -> Result<(Findings, DirFacts), DirError> {
    let damage =
        |finding: &Finding| finding.kind.severity() == Severity::Damage && finding.kind != FindingKind::LogResidue;
    match facts.log.as_ref().map(|log| log.tail) {
        Some(Tail::Residue { segment, offset }) if !findings.list.iter().any(damage) => {
            Err(DirError::Undecided { segment, offset, facts: Box::new(facts) })
        }
        _ => Ok((findings, facts)),
    }
}

fn open_database(path: PathBuf, findings: &mut Findings) -> Result<Option<Db>, DirError> {
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            findings.add(FindingKind::LayoutIncomplete, format!("{} is missing", path.display()));
            return Ok(None);
        }
        Err(source) => return Err(DirError::Io { path, source }),
    };
    match lock_shared(&file) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(DirError::InUse { path }),
        Err(TryLockError::Error(source)) => return Err(DirError::Io { path, source }),
    }
    match Db::from_file(file) {
        Ok(db) => {
            database(findings, &db);
            Ok(Some(db))
        }
        Err(source @ bbolt::Error::Io { .. }) => Err(DirError::Database { path, source }),
        Err(error) => {
            findings.error(FindingKind::DatabaseUnreadable, &error);
            Ok(None)
        }
    }
}

/// What cannot be read is not damaged: that is an error.
pub(super) fn read_schema(db: &Db, findings: &mut Findings) -> Result<Option<Schema>, bbolt::Error> {
    match Schema::read(db) {
        Ok(schema) => Ok(Some(schema)),
        Err(SchemaError::Bbolt(error @ bbolt::Error::Io { .. })) => Err(error),
        Err(error) => {
            findings.error(FindingKind::SchemaInvalid, &error);
            Ok(None)
        }
    }
}

fn read_log(dir: &Path, findings: &mut Findings) -> Result<Option<WalScan>, DirError> {
    match scan_dir(dir) {
        Ok(scan) => {
            match scan.tail {
                Tail::Clean => {}
                Tail::Torn { segment, offset } => findings.add(
                    FindingKind::LogTorn,
                    format!("{segment} was cut short by a crash at offset {offset}; etcd repairs that by itself"),
                ),
                Tail::Residue { segment, offset } => findings.add(
                    FindingKind::LogResidue,
                    format!("{segment} holds bytes behind its end at offset {offset}, maybe of acknowledged writes"),
                ),
            }
            Ok(Some(scan))
        }
        Err(error @ WalError::Io { .. }) => Err(DirError::Log(error)),
        Err(error) => {
            findings.error(FindingKind::LogDamaged, &error);
            Ok(None)
        }
    }
}

/// The newest snap file that the log confirms. etcd passes over broken ones.
fn find_snap(
    dir: &Path,
    log: &WalScan,
    schema: Option<&Schema>,
    findings: &mut Findings,
) -> Result<Option<SnapName>, DirError> {
    let mut newest_missing = None;
    for record in log.usable_snapshots().rev() {
        let name = SnapName { term: record.term.unwrap_or_default(), index: record.index.unwrap_or_default() };
        if name.index == 0 {
            break;
        }
        let path = dir.join(name.to_string());
        match Snap::read(&path) {
            Ok(Ok(snap)) if snap.name() == name => return Ok(Some(name)),
            Ok(Ok(_)) => {
                findings.add(FindingKind::SnapDamaged, format!("{name} holds another snapshot than its name says"));
            }
            Ok(Err(error)) => {
                findings.add(FindingKind::SnapDamaged, format!("{name}: {}", chain(&error)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(DirError::Io { path, source }),
        }
        newest_missing.get_or_insert(name);
    }
    // A log that still has its beginning needs no snapshot, and 3.7 keeps everything in the database.
    let from_beginning = log.segments.first().is_some_and(|segment| segment.index == 0);
    let self_contained = schema.and_then(|schema| schema.storage_version).is_some_and(|v| v >= MinorVersion::new(3, 7));
    if let Some(name) = newest_missing
        && !from_beginning
        && !self_contained
    {
        findings.add(
            FindingKind::SnapMissing,
            format!("{name} is named by the log, but neither it nor an older one is there"),
        );
    }
    Ok(None)
}

fn membership(schema: &Schema, log: &WalScan, findings: &mut Findings) {
    let own = hex_id(log.node_id);
    if schema.removed_members.contains(&own) {
        findings.add(
            FindingKind::MemberRemoved,
            format!("member {own} was removed from its cluster; it can never come back"),
        );
    } else if !schema.members.is_empty() && !schema.members.iter().any(|member| member.id == log.node_id) {
        let text = format!("the log belongs to member {own}, which the database does not list");
        findings.add(FindingKind::MemberUnknown, text);
    }
}

/// Database and log must overlap: the database was applied up to its index, the log must reach at least that far.
///
/// HardState.commit is no measure for that: it is not synced on its own, so the index may exceed it rightfully.
fn indexes(dir: &Path, schema: &Schema, log: &WalScan, snap: Option<SnapName>, findings: &mut Findings) {
    let applied = schema.consistent_index;
    if let Some(snap) = snap.filter(|snap| applied < snap.index)
        && !dir.join(format!("{:016x}.snap.db", snap.index)).exists()
    {
        let text = format!("the database was applied up to {applied}, before snapshot {}", snap.index);
        findings.add(FindingKind::IndexBehindSnap, text);
    }
    if applied > log.last_index {
        findings.add(
            FindingKind::IndexAheadOfLog,
            format!(
                "the database was applied up to {applied}, but the log ends at {}; etcd would start and then never \
                 accept a write: re-seed a single member, replace one of several",
                log.last_index
            ),
        );
    }
}
