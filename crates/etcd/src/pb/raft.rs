//! `raftpb`, `walpb` and `snappb`: raft's messages and the envelopes they have on disk. All proto2.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EntryType {
    Normal = 0,
    ConfChange = 1,
    ConfChangeV2 = 2,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entry {
    #[prost(enumeration = "EntryType", optional, tag = "1")]
    pub r#type: Option<i32>,
    #[prost(uint64, optional, tag = "2")]
    pub term: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub index: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub data: Option<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HardState {
    #[prost(uint64, optional, tag = "1")]
    pub term: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub vote: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub commit: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConfState {
    #[prost(uint64, repeated, packed = "false", tag = "1")]
    pub voters: Vec<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub learners: Vec<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub voters_outgoing: Vec<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "4")]
    pub learners_next: Vec<u64>,
    #[prost(bool, optional, tag = "5")]
    pub auto_leave: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ConfChangeType {
    AddNode = 0,
    RemoveNode = 1,
    UpdateNode = 2,
    AddLearnerNode = 3,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConfChange {
    #[prost(uint64, optional, tag = "1")]
    pub id: Option<u64>,
    #[prost(enumeration = "ConfChangeType", optional, tag = "2")]
    pub r#type: Option<i32>,
    #[prost(uint64, optional, tag = "3")]
    pub node_id: Option<u64>,
    /// The member as JSON.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub context: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SnapshotMetadata {
    #[prost(message, optional, tag = "1")]
    pub conf_state: Option<ConfState>,
    #[prost(uint64, optional, tag = "2")]
    pub index: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub term: Option<u64>,
}

/// A raft snapshot; in a `.snap` file `data` is the v2 store as JSON.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Snapshot {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub data: Option<Vec<u8>>,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<SnapshotMetadata>,
}

/// `snappb.snapshot`: the whole content of a `.snap` file.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SnapFile {
    #[prost(uint32, optional, tag = "1")]
    pub crc: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub data: Option<Vec<u8>>,
}

/// `walpb.Record`: what one WAL frame holds.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Record {
    #[prost(int64, optional, tag = "1")]
    pub r#type: Option<i64>,
    #[prost(uint32, optional, tag = "2")]
    pub crc: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub data: Option<Vec<u8>>,
}

/// `walpb.Snapshot`: the WAL's note that a snapshot was taken.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WalSnapshot {
    #[prost(uint64, optional, tag = "1")]
    pub index: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub term: Option<u64>,
    #[prost(message, optional, tag = "3")]
    pub conf_state: Option<ConfState>,
}

/// `etcdserverpb.Metadata`: whose WAL this is.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct WalMetadata {
    #[prost(uint64, optional, tag = "1")]
    pub node_id: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub cluster_id: Option<u64>,
}
