//! What etcd keeps in its ten buckets, read from a bbolt file of etcd 3.4 to 3.7.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use prost::Message;

use crate::bbolt::{self, Bucket, Db, Walk};
use crate::membership::Member;
use crate::mvcc::{Revision, StoredKey};

pub const ALARM: &str = "alarm";
pub const AUTH: &str = "auth";
pub const AUTH_ROLES: &str = "authRoles";
pub const AUTH_USERS: &str = "authUsers";
pub const CLUSTER: &str = "cluster";
pub const KEY: &str = "key";
pub const LEASE: &str = "lease";
pub const MEMBERS: &str = "members";
pub const MEMBERS_REMOVED: &str = "members_removed";
pub const META: &str = "meta";

/// All buckets in the order of their names, which is their order in the file.
pub const BUCKETS: [&str; 10] =
    [ALARM, AUTH, AUTH_ROLES, AUTH_USERS, CLUSTER, KEY, LEASE, MEMBERS, MEMBERS_REMOVED, META];

pub const CONSISTENT_INDEX: &[u8] = b"consistent_index";
pub const TERM: &[u8] = b"term";
pub const CONF_STATE: &[u8] = b"confState";
pub const SCHEDULED_COMPACT: &[u8] = b"scheduledCompactRev";
pub const FINISHED_COMPACT: &[u8] = b"finishedCompactRev";
pub const STORAGE_VERSION: &[u8] = b"storageVersion";
pub const CLUSTER_VERSION: &[u8] = b"clusterVersion";
pub const DOWNGRADE: &[u8] = b"downgrade";

/// Buckets read whole are small in any real database; a larger one is damage or abuse.
const SMALL_BUCKET: usize = 4 << 20;

/// The entries of one small bucket.
pub type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error(transparent)]
    Bbolt(#[from] bbolt::Error),
    #[error("bucket `{0}` is missing; this is a bbolt file but not an etcd database")]
    NoBucket(&'static str),
    #[error("bucket `{bucket}` holds more than {SMALL_BUCKET} bytes, which etcd never puts there")]
    TooLarge { bucket: &'static str },
    #[error("bucket `{bucket}`, key `{key}`: {problem}; the database is damaged, take another copy")]
    Field { bucket: &'static str, key: String, problem: &'static str },
}

/// A minor release of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinorVersion {
    pub major: u32,
    pub minor: u32,
}

impl MinorVersion {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Reads `3.6`, `3.6.1`, `v3.6.0-rc.1`; the patch level does not matter to files.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().trim_start_matches('v').split('.');
        let version = Self { major: parts.next()?.parse().ok()?, minor: parts.next()?.parse().ok()? };
        parts.next().is_none_or(|patch| patch.starts_with(|c: char| c.is_ascii_digit())).then_some(version)
    }
}

impl fmt::Display for MinorVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Alarm {
    #[prost(uint64, tag = "1")]
    pub member_id: u64,
    /// 1 is NOSPACE, 2 is CORRUPT.
    #[prost(int32, tag = "2")]
    pub kind: i32,
}

impl Alarm {
    pub fn name(&self) -> &'static str {
        match self.kind {
            1 => "NOSPACE",
            2 => "CORRUPT",
            _ => "unknown",
        }
    }
}

/// Everything small that a database says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schema {
    pub consistent_index: u64,
    /// Absent before 3.5.
    pub term: Option<u64>,
    pub scheduled_compact: Option<i64>,
    pub finished_compact: Option<i64>,
    /// Present from 3.6 on.
    pub storage_version: Option<MinorVersion>,
    pub cluster_version: Option<MinorVersion>,
    pub downgrade: Option<String>,
    pub members: Vec<Member>,
    pub removed_members: Vec<String>,
    pub alarms: Vec<Alarm>,
    pub auth_enabled: bool,
    pub auth_revision: u64,
    /// Of the last entry of bucket `key`, 0 if there is none.
    pub last_revision: i64,
}

impl Schema {
    /// Reads a handful of pages, whatever the size of the database.
    pub fn read(db: &Db) -> Result<Self, SchemaError> {
        let buckets = db.buckets()?;
        let small = |name| small_bucket(db, &buckets, name);
        let (meta, cluster, auth) = (small(META)?, small(CLUSTER)?, small(AUTH)?);
        let key = find(&buckets, KEY).ok_or(SchemaError::NoBucket(KEY))?;
        let last_revision = match db.last_key(key)? {
            None => 0,
            Some(last) => {
                let problem = "not a revision";
                let bad = || SchemaError::Field { bucket: KEY, key: format!("{last:02x?}"), problem };
                StoredKey::decode(&last).ok_or_else(bad)?.revision.main
            }
        };
        let members = small(MEMBERS)?.iter().map(|(id, json)| member(id, json)).collect::<Result<_, _>>()?;
        let alarms = small(ALARM)?.keys().map(|key| alarm(key)).collect::<Result<_, _>>()?;
        let removed = small(MEMBERS_REMOVED)?;
        Ok(Self {
            consistent_index: number(META, &meta, CONSISTENT_INDEX)?.unwrap_or_default(),
            term: number(META, &meta, TERM)?,
            scheduled_compact: compaction(&meta, SCHEDULED_COMPACT)?,
            finished_compact: compaction(&meta, FINISHED_COMPACT)?,
            storage_version: version(META, &meta, STORAGE_VERSION)?,
            cluster_version: version(CLUSTER, &cluster, CLUSTER_VERSION)?,
            downgrade: cluster.get(DOWNGRADE).map(|json| String::from_utf8_lossy(json).into_owned()),
            members,
            removed_members: removed.keys().map(|id| String::from_utf8_lossy(id).into_owned()).collect(),
            alarms,
            auth_enabled: auth.get(b"authEnabled".as_slice()).is_some_and(|flag| flag == &[1]),
            auth_revision: number(AUTH, &auth, b"authRevision")?.unwrap_or_default(),
            last_revision,
        })
    }

    /// The store's revision. After the newest entries were compacted away only the compaction remembers it.
    pub fn revision(&self) -> i64 {
        self.last_revision.max(self.compact_revision().unwrap_or(0)).max(1)
    }

    /// Everything at or below it may be gone: a scheduled compaction is finished by the server at its next start.
    pub fn compact_revision(&self) -> Option<i64> {
        self.scheduled_compact.max(self.finished_compact)
    }

    /// The release that wrote the database, as far as it says.
    pub fn etcd_version(&self) -> Option<MinorVersion> {
        self.storage_version.or(self.cluster_version)
    }
}

pub(crate) fn find<'b>(buckets: &'b [Bucket], name: &str) -> Option<&'b Bucket> {
    buckets.iter().find(|bucket| bucket.name == name.as_bytes())
}

/// All entries of a bucket that is small by nature; none if it is absent, as some are until first used.
pub(crate) fn small_bucket(db: &Db, buckets: &[Bucket], name: &'static str) -> Result<Entries, SchemaError> {
    let mut entries = Entries::new();
    let mut size = 0;
    let Some(bucket) = find(buckets, name) else { return Ok(entries) };
    let _ = Walk::new(db).bucket(bucket, |key, value| {
        size += key.len() + value.len();
        if size > SMALL_BUCKET {
            return Err(SchemaError::TooLarge { bucket: name });
        }
        entries.insert(key.to_vec(), value.to_vec());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(entries)
}

fn field(bucket: &'static str, key: &[u8], problem: &'static str) -> SchemaError {
    SchemaError::Field { bucket, key: String::from_utf8_lossy(key).into_owned(), problem }
}

fn number(bucket: &'static str, entries: &Entries, key: &[u8]) -> Result<Option<u64>, SchemaError> {
    let Some(bytes) = entries.get(key) else { return Ok(None) };
    let bytes = bytes.as_slice().try_into().map_err(|_| field(bucket, key, "not a number of 8 bytes"))?;
    Ok(Some(u64::from_be_bytes(bytes)))
}

fn compaction(meta: &Entries, key: &[u8]) -> Result<Option<i64>, SchemaError> {
    let Some(bytes) = meta.get(key) else { return Ok(None) };
    match Revision::decode(bytes) {
        Some(revision) => Ok(Some(revision.main)),
        None => Err(field(META, key, "not a revision")),
    }
}

fn version(bucket: &'static str, entries: &Entries, key: &[u8]) -> Result<Option<MinorVersion>, SchemaError> {
    let Some(bytes) = entries.get(key) else { return Ok(None) };
    let parsed = std::str::from_utf8(bytes).ok().and_then(MinorVersion::parse);
    parsed.map(Some).ok_or_else(|| field(bucket, key, "not a version"))
}

fn member(id: &[u8], json: &[u8]) -> Result<Member, SchemaError> {
    let member = Member::from_json(json).map_err(|_| field(MEMBERS, id, "not a member's JSON"))?;
    if member.hex_id().as_bytes() == id { Ok(member) } else { Err(field(MEMBERS, id, "another member's JSON")) }
}

fn alarm(key: &[u8]) -> Result<Alarm, SchemaError> {
    Alarm::decode(key).map_err(|_| field(ALARM, key, "not an alarm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_etcd_and_people_write_them() {
        let parsed = ["3.6.0", "3.6", "v3.6.1", "3.6.0-rc.1"].map(MinorVersion::parse);
        assert_eq!(parsed, [Some(MinorVersion::new(3, 6)); 4]);
        for bad in ["", "3", "3.x", "latest", "3.6.x"] {
            assert_eq!(MinorVersion::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn buckets_are_listed_in_file_order() {
        assert!(BUCKETS.is_sorted());
    }
}
