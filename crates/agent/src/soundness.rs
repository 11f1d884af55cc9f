//! Whether the data is sound: at a glance before every start, and read through to its end before a new incarnation begins
//! from it.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    sync::{Arc, Mutex, PoisonError},
};

use quorate_etcd::{
    bbolt,
    data_dir::DataDir,
    validate::{self, DirError, DirFacts, Severity, Tier},
    wal::WalError,
};
use quorate_runtime::error::chain;

use crate::{
    error::{Error, Result},
    inspect::Volume,
};

/// What was found.
#[derive(Clone, Debug)]
pub(crate) enum Soundness {
    Damaged(String),
    Sound {
        facts: Box<DirFacts>,
        /// What nobody can tell.
        doubt: Option<String>,
    },
}

/// What was found by reading a database through, for as long as that very file is there: a glance would not see it again.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownDamage(Arc<Mutex<Option<(Print, String)>>>);

/// What tells a file from one that was put in its place, or written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Print {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl KnownDamage {
    fn of(&self, print: Print) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(of, _)| *of == print).map(|(_, reason)| reason.clone())
    }

    fn note(&self, print: Print, reason: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((print, reason.to_owned()));
    }
}

impl Volume {
    /// At a glance; if it was doubted before, all of it.
    pub(crate) fn soundness(&self, doubted: bool) -> Result<Soundness> {
        let glance = self.validate(Tier::Instant)?;
        let known = self.print().and_then(|print| self.damage.of(print));
        match glance {
            Soundness::Sound { .. } if known.is_some() => Ok(Soundness::Damaged(known.unwrap_or_default())),
            Soundness::Sound { .. } if doubted => self.read_through(),
            glance => Ok(glance),
        }
    }

    /// Every page and every entry. Damage is remembered.
    pub(crate) fn read_through(&self) -> Result<Soundness> {
        let before = self.print();
        let read = match self.validate(Tier::Full) {
            Err(error) if is_damage(&error) => Soundness::Damaged(chain(&error)),
            read => read?,
        };
        if let (Soundness::Damaged(reason), Some(print)) = (&read, before) {
            self.damage.note(print, reason);
        }
        Ok(read)
    }

    fn validate(&self, tier: Tier) -> Result<Soundness> {
        match validate::data_dir(&self.data, tier) {
            Ok((findings, _)) if findings.is_damaged() => {
                let damage = findings.list.iter().filter(|finding| finding.kind.severity() == Severity::Damage);
                Ok(Soundness::Damaged(damage.map(ToString::to_string).collect::<Vec<_>>().join("; ")))
            }
            Ok((_, facts)) => Ok(Soundness::Sound { facts: Box::new(facts), doubt: None }),
            // What a power cut leaves: etcd goes on from what is certain. Whether that is less than this member is known
            // to have had, the record tells. After a cut of the whole site there is no record to wait for.
            Err(error @ DirError::Undecided { .. }) => {
                let doubt = Some(error.to_string());
                let DirError::Undecided { facts, .. } = error else { return Err(Error::Inspect(error)) };
                Ok(Soundness::Sound { facts, doubt })
            }
            Err(error) => Err(Error::Inspect(error)),
        }
    }

    fn print(&self) -> Option<Print> {
        let metadata = fs::metadata(DataDir::new(&self.data).db()).ok()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Some(Print { inode: metadata.ino(), length: metadata.len(), modified })
    }
}

/// What could not be read is not damaged: nothing is known about it.
pub(crate) fn is_damage(error: &Error) -> bool {
    match error {
        Error::Inspect(DirError::Log(WalError::Io { .. }) | DirError::Io { .. } | DirError::InUse { .. }) => false,
        Error::Inspect(DirError::Database { source, .. }) => !matches!(source, bbolt::Error::Io { .. }),
        Error::Inspect(_) => true,
        _ => false,
    }
}
