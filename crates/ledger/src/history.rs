//! What clients asked and what they were told, as plain data.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Nanoseconds since the load began, on one monotonic clock for all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Moment(pub u64);

impl Moment {
    pub fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.since_start().as_secs_f64())
    }
}

/// Where the member stood that answered: the incarnation of the cluster, by its ID, and the revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub cluster: u64,
    pub revision: i64,
}

/// A key as a member showed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kv {
    pub key: String,
    pub value: String,
    pub create_revision: i64,
    pub mod_revision: i64,
    pub version: i64,
    pub lease: i64,
}

/// What a write does to one key. Values are never used twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub key: String,
    /// Absent for a deletion.
    pub value: Option<String>,
    pub lease: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Acknowledged(Position),
    /// Answered, and nothing was changed: a comparison that failed, a key that was not there.
    Declined,
    /// It cannot have had any effect, now or later.
    Failed,
    /// Nobody can say: it may have been done, may be done later, or never.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Which client.
    pub by: String,
    pub called: Moment,
    /// Absent if nothing ever came back.
    pub returned: Option<Moment>,
    /// All of them at one revision or none.
    pub changes: Vec<Change>,
    /// The revision at which the first of the keys must have been changed last for this to be done; 0 if it must not be there.
    pub only_if: Option<i64>,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadKind {
    Linearizable,
    /// As far as one member had come.
    Serializable,
    /// As of an older revision.
    At(i64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    Key(String),
    Prefix(String),
}

impl Scope {
    pub fn holds(&self, key: &str) -> bool {
        match self {
            Self::Key(only) => only == key,
            Self::Prefix(prefix) => key.starts_with(prefix.as_str()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    pub by: String,
    pub called: Moment,
    pub returned: Moment,
    pub kind: ReadKind,
    pub scope: Scope,
    pub at: Position,
    pub found: Vec<Kv>,
    /// A comparison that failed said that its key was last changed at another revision than this.
    pub not_changed_at: Option<i64>,
}

/// A change as a watch reported it. A deletion carries the key and the revision only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub deleted: bool,
    pub kv: Kv,
    pub previous: Option<Kv>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Unless complete, the last revision goes on in the next message.
    Events { events: Vec<Event>, complete: bool },
    /// All up to this revision has been delivered.
    Progress(i64),
    /// The start is gone; what is left begins here.
    Compacted(i64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamMessage {
    pub at: Moment,
    pub body: Message,
}

/// One watch on one connection, from its creation to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    pub by: String,
    pub opened: Moment,
    pub cluster: u64,
    pub prefix: String,
    /// The first revision that it owes.
    pub start: i64,
    /// Whether it goes on where an earlier one ended.
    pub resumed: bool,
    pub messages: Vec<StreamMessage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub by: String,
    pub id: i64,
    /// The incarnation that granted it.
    pub cluster: u64,
    pub granted: Moment,
    pub revocation: Option<Outcome>,
}

/// What one member held at the end, by its own knowledge, at the same revision as all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Final {
    pub member: String,
    pub at: Position,
    pub found: Vec<Kv>,
    /// Hash of the whole keyspace, and from which revision on it counts.
    pub hash: Option<(u32, i64)>,
    pub leases: Option<Vec<i64>>,
}

/// A restore or a recovery, as the one who did it reports it. It has a cluster ID of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Up to here all of the incarnation before is still there, for certain.
    pub kept: i64,
    /// Everything after `kept` and up to here was reported as possibly lost: it may be there or not.
    pub reported_lost: i64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    pub started: Timestamp,
    /// Beneath it nobody else writes.
    pub prefix: String,
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
    pub streams: Vec<Stream>,
    pub leases: Vec<Lease>,
    pub finals: Vec<Final>,
    /// Declared incarnations after the first, in order.
    pub epochs: Vec<Epoch>,
    /// What could not be done at the end, in sentences.
    pub shortcomings: Vec<String>,
    /// When the writers were told to stop.
    pub stopped: Moment,
}

impl History {
    /// For whoever wants to look at it later.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        serde_json::to_writer(&mut file, self)?;
        file.flush()
    }

    pub fn load(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_reader(BufReader::new(File::open(path)?))?)
    }
}
