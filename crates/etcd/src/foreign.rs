//! Backups that others wrote: etcd-backup-restore's directories of full and delta snapshots.
//!
//! A plain `etcdctl snapshot save` file needs nothing from here: it is a database with a digest behind it.

mod codec;
mod deltas;
mod feed;
mod json;
mod lzw;
mod moment;
mod names;

pub use codec::open as open_decompressed;
pub use deltas::{Base, DeltaStream};
pub use names::{BackupFile, BackupKind, BackupName, Compression};

use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ForeignError {
    #[error("{} cannot be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{} starts like a backup's name but is not one: expected \
         Incr-<start>-<last>-<unix seconds> with .gz, .zlib or .Z; rename it or move it away", path.display()
    )]
    Name { path: PathBuf },
    #[error("no delta files (Incr-*) were found in {}", dir.display())]
    NoDeltas { dir: PathBuf },
    #[error(
        "the delta files miss revisions {missing_from}..={missing_to}, just before {}: \
         find the missing file or use a newer base", path.display()
    )]
    MissingFile { path: PathBuf, missing_from: i64, missing_to: i64 },
    #[error("{} is too short to hold events and their SHA-256", path.display())]
    TooShort { path: PathBuf },
    #[error("the SHA-256 at the end of {} does not match its content: the file is damaged, fetch it again", path.display())]
    Digest { path: PathBuf },
    #[error("{} is not the expected JSON at byte {offset}: {reason}", path.display())]
    Json { path: PathBuf, offset: u64, reason: String },
    #[error(
        "{} promises revisions {start}..={last} by its name but holds {first_found}..={last_found}: \
         it was renamed or damaged, fetch it again", path.display()
    )]
    NameMismatch { path: PathBuf, start: i64, last: i64, first_found: i64, last_found: i64 },
    #[error(
        "revision {revision} is split between {} and the file before it, or differs between them: \
         its changes cannot be put in order; use a base taken at that revision or later", path.display()
    )]
    SplitRevision { path: PathBuf, revision: i64 },
    #[error(
        "nothing shows that the snapshot is as old as {moment}: \
         use an older snapshot, or ask for revision {base} to have it as it is"
    )]
    BaseAge { base: i64, moment: Timestamp },
    #[error("the thread that reads the delta files ended unexpectedly")]
    Worker,
}
