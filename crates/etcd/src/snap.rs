//! `.snap` files: raft's snapshot with the v2 store, which 3.4 and 3.5 still read the membership from.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use prost::Message;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::membership::{Member, MembershipError, conf_state};
use crate::pb::raft::{ConfState, SnapFile, Snapshot, SnapshotMetadata};

#[derive(Debug, Error)]
pub enum SnapError {
    #[error("the snap file is empty")]
    Empty,
    #[error("the snap file has {length} bytes, which no store of members needs: it is damaged or something else")]
    TooLarge { length: u64 },
    #[error("the snap file is not a protobuf message: it is damaged or something else")]
    Envelope(#[source] prost::DecodeError),
    #[error("the snap file has no checksum or no data")]
    Incomplete,
    #[error("the snap file's checksum is {stored:08x} but its data has {computed:08x}: it is damaged")]
    Checksum { stored: u32, computed: u32 },
    #[error("the raft snapshot inside the snap file cannot be decoded")]
    Snapshot(#[source] prost::DecodeError),
    #[error("the v2 store inside the snap file is not the JSON etcd writes")]
    Store(#[source] serde_json::Error),
    #[error("a member in the snap file cannot be encoded or decoded")]
    Member(#[from] MembershipError),
}

/// Far above any store of members; a larger file must not become an allocation.
const LARGEST_FILE: u64 = 64 << 20;

/// `<term>-<index>.snap`, both in sixteen hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapName {
    pub term: u64,
    pub index: u64,
}

impl SnapName {
    /// `None` for the database, for `*.snap.db` and for files set aside as broken.
    pub fn parse(name: &str) -> Option<Self> {
        let (term, index) = name.strip_suffix(".snap")?.split_once('-')?;
        let number = |digits: &str| {
            let hex = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            if hex { u64::from_str_radix(digits, 16).ok() } else { None }
        };
        Some(Self { term: number(term)?, index: number(index)? })
    }
}

impl fmt::Display for SnapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}.snap", self.term, self.index)
    }
}

/// What a snap file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snap {
    pub term: u64,
    pub index: u64,
    pub conf_state: ConfState,
    /// Members in the v2 store, sorted by id. 3.7 may leave the store out.
    pub members: Vec<Member>,
    /// `/0/version`, once the cluster has agreed on one.
    pub cluster_version: Option<String>,
}

impl Snap {
    /// The state of a cluster that these members have just formed.
    pub fn bootstrap(members: &[Member], term: u64, index: u64) -> Self {
        let conf_state = conf_state(members);
        Self { term, index, conf_state, members: members.to_vec(), cluster_version: None }
    }

    pub fn name(&self) -> SnapName {
        SnapName { term: self.term, index: self.index }
    }

    pub fn encode(&self) -> Result<Vec<u8>, SnapError> {
        let snapshot = Snapshot {
            data: Some(store_json(self)?),
            metadata: Some(SnapshotMetadata {
                conf_state: Some(self.conf_state.clone()),
                index: Some(self.index),
                term: Some(self.term),
            }),
        };
        let data = snapshot.encode_to_vec();
        Ok(SnapFile { crc: Some(crc32c::crc32c(&data)), data: Some(data) }.encode_to_vec())
    }

    /// Reads a snap file of bounded size.
    pub fn read(path: &Path) -> io::Result<Result<Self, SnapError>> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        if length > LARGEST_FILE {
            return Ok(Err(SnapError::TooLarge { length }));
        }
        let mut bytes = Vec::new();
        file.take(LARGEST_FILE).read_to_end(&mut bytes)?;
        Ok(Self::decode(&bytes))
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, SnapError> {
        if bytes.is_empty() {
            return Err(SnapError::Empty);
        }
        let file = SnapFile::decode(bytes).map_err(SnapError::Envelope)?;
        // etcd treats a zero checksum as a missing one.
        let (Some(stored @ 1..), Some(data)) = (file.crc, file.data.filter(|data| !data.is_empty())) else {
            return Err(SnapError::Incomplete);
        };
        let computed = crc32c::crc32c(&data);
        if stored != computed {
            return Err(SnapError::Checksum { stored, computed });
        }
        let snapshot = Snapshot::decode(data.as_slice()).map_err(SnapError::Snapshot)?;
        let metadata = snapshot.metadata.unwrap_or_default();
        let (members, cluster_version) = match snapshot.data.filter(|data| !data.is_empty()) {
            Some(json) => read_store(&json)?,
            None => (Vec::new(), None),
        };
        Ok(Self {
            term: metadata.term.unwrap_or_default(),
            index: metadata.index.unwrap_or_default(),
            conf_state: metadata.conf_state.unwrap_or_default(),
            members,
            cluster_version,
        })
    }
}

/// A node of the v2 store: a directory has children, a file has a value.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Node {
    path: String,
    #[serde(default)]
    created_index: u64,
    #[serde(default)]
    modified_index: u64,
    #[serde(default = "never")]
    expire_time: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    children: Option<BTreeMap<String, Node>>,
}

/// Go's zero time: the node does not expire.
fn never() -> String {
    "0001-01-01T00:00:00Z".to_owned()
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Store {
    root: Node,
    #[serde(default)]
    current_index: u64,
    #[serde(default)]
    current_version: u64,
}

impl Node {
    fn file(path: String, index: u64, value: String) -> Self {
        Self { path, created_index: index, modified_index: index, expire_time: never(), value, children: None }
    }

    fn directory(path: String, index: u64, children: impl IntoIterator<Item = (String, Node)>) -> Self {
        let children = Some(children.into_iter().collect());
        Self { children, ..Self::file(path, index, String::new()) }
    }

    fn child(&self, name: &str) -> Option<&Node> {
        self.children.as_ref()?.get(name)
    }
}

fn store_json(snap: &Snap) -> Result<Vec<u8>, SnapError> {
    let mut index = 0;
    let mut members = BTreeMap::new();
    for member in &snap.members {
        index += 1;
        let id = member.hex_id();
        let path = format!("/0/members/{id}");
        let mut children = vec![(
            "raftAttributes".to_owned(),
            Node::file(format!("{path}/raftAttributes"), index, member.raft_attributes_json()?),
        )];
        if !member.client_urls.is_empty() {
            let attributes = member.attributes_json()?;
            children.push(("attributes".to_owned(), Node::file(format!("{path}/attributes"), index, attributes)));
        }
        members.insert(id, Node::directory(path, index, children));
    }
    let mut cluster = vec![("members".to_owned(), Node::directory("/0/members".to_owned(), 1, members))];
    if let Some(version) = &snap.cluster_version {
        index += 1;
        cluster.push(("version".to_owned(), Node::file("/0/version".to_owned(), index, version.clone())));
    }
    let root = Node::directory(
        "/".to_owned(),
        0,
        [
            ("0".to_owned(), Node::directory("/0".to_owned(), 0, cluster)),
            ("1".to_owned(), Node::directory("/1".to_owned(), 0, [])),
        ],
    );
    serde_json::to_vec(&Store { root, current_index: index, current_version: 2 }).map_err(SnapError::Store)
}

fn read_store(json: &[u8]) -> Result<(Vec<Member>, Option<String>), SnapError> {
    let store: Store = serde_json::from_slice(json).map_err(SnapError::Store)?;
    let Some(cluster) = store.root.child("0") else { return Ok((Vec::new(), None)) };
    let mut members = Vec::new();
    for (hex, node) in cluster.child("members").and_then(|node| node.children.as_ref()).into_iter().flatten() {
        let text = |name| node.child(name).map(|file| file.value.as_str());
        members.push(Member::from_attributes(hex, text("raftAttributes"), text("attributes"))?);
    }
    members.sort_by_key(|member| member.id);
    Ok((members, cluster.child("version").map(|node| node.value.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_file_is_refused_without_being_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(matches!(Snap::read(&path).unwrap(), Err(SnapError::TooLarge { .. })));
    }
    use crate::membership::InitialCluster;

    fn snap() -> Snap {
        let cluster = InitialCluster::parse("a=http://a:1,b=http://b:1,c=https://c:1", "t").unwrap();
        Snap::bootstrap(cluster.members(), 1, 3)
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut snap = snap();
        for member in &mut snap.members {
            // Names travel in `attributes`, which a member publishes only once it serves clients.
            member.client_urls = vec![format!("http://{}:2379", member.name)];
        }
        snap.cluster_version = Some("3.6.0".to_owned());
        assert_eq!(Snap::decode(&snap.encode().unwrap()).unwrap(), snap);
        assert_eq!(SnapName::parse(&snap.name().to_string()), Some(snap.name()));
    }

    #[test]
    fn a_flipped_bit_or_a_missing_tail_is_refused_or_changes_nothing() {
        let snap = Snap::decode(&snap().encode().unwrap()).unwrap();
        let bytes = snap.encode().unwrap();
        let mut harmless = 0;
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[position] ^= 1 << bit;
                if let Ok(read) = Snap::decode(&damaged) {
                    assert_eq!(read, snap, "bit {bit} at {position}");
                    harmless += 1;
                }
            }
            assert!(Snap::decode(&bytes[..position]).is_err(), "cut at {position}");
        }
        // Only the bits of the checksum's varint beyond the 32nd mean nothing.
        assert!(harmless <= 3, "{harmless} flips went unnoticed");
    }

    #[test]
    fn files_that_are_no_snapshots_are_told_apart_by_name() {
        for other in ["db", "0000000000000001.snap.db", "0000000000000001-0000000000000003.snap.broken", "1-3.snap"] {
            assert_eq!(SnapName::parse(other), None, "{other}");
        }
    }
}
