//! Every default of the API in one place.
//!
//! Those written into the schema are filled in when an object is stored, so what `kubectl get -o yaml` shows is what
//! runs, and a later operator with other defaults does not change existing clusters.

/// Members of a cluster whose `spec.replicas` is not given.
pub const REPLICAS: i32 = 3;
/// etcd release of a cluster whose `spec.version` is not given.
pub const VERSION: &str = "3.6.16";
/// Repository of the official image; the tag is `v` + version.
pub const IMAGE_REPOSITORY: &str = "quay.io/coreos/etcd";
/// Size of each member's volume. Room for a full database, its copy while defragmenting, and the log.
pub const VOLUME_SIZE: &str = "20Gi";
/// Size at which etcd stops accepting writes.
pub const QUOTA: &str = "8Gi";
/// Smallest accepted quota: anything below is a typo such as `8` for `8Gi`.
pub const MINIMUM_QUOTA: &str = "16Mi";
/// Smallest accepted volume: etcd preallocates log segments of 64 MiB and needs a spare one to recover.
pub const MINIMUM_VOLUME_SIZE: &str = "256Mi";
/// How much history stays readable.
pub const COMPACTION_RETENTION: &str = "30m";
/// Changes between two snapshots of the log.
pub const SNAPSHOT_COUNT: i64 = 10_000;
/// Time between two heartbeats of the leader.
pub const HEARTBEAT_MILLISECONDS: i32 = 100;
/// Time without a heartbeat after which a follower stands for election.
pub const ELECTION_MILLISECONDS: i32 = 1_000;
/// Port for clients.
pub const CLIENT_PORT: i32 = 2379;
/// Port for the other members.
pub const PEER_PORT: i32 = 2380;
/// Port of the agent: probes, metrics, orders from the operator. Not configurable.
pub const AGENT_PORT: i32 = 2381;
/// How long a member may be `NotReady` before its pod is restarted.
pub const NOT_READY_GRACE: &str = "5m";
/// How long a member may be `Unknown` before it counts as `NotReady`.
pub const UNKNOWN_GRACE: &str = "1m";
/// Time between two deltas of a backup.
pub const DELTA_PERIOD: &str = "30s";

pub(crate) fn replicas() -> i32 {
    REPLICAS
}

pub(crate) fn version() -> String {
    VERSION.to_owned()
}

pub(crate) fn snapshot_count() -> i64 {
    SNAPSHOT_COUNT
}

pub(crate) fn heartbeat() -> i32 {
    HEARTBEAT_MILLISECONDS
}

pub(crate) fn election() -> i32 {
    ELECTION_MILLISECONDS
}

pub(crate) fn client_port() -> i32 {
    CLIENT_PORT
}

pub(crate) fn peer_port() -> i32 {
    PEER_PORT
}

pub(crate) fn quota() -> String {
    QUOTA.to_owned()
}

pub(crate) fn volume_size() -> String {
    VOLUME_SIZE.to_owned()
}

pub(crate) fn compaction_retention() -> String {
    COMPACTION_RETENTION.to_owned()
}

pub(crate) fn not_ready_grace() -> String {
    NOT_READY_GRACE.to_owned()
}

pub(crate) fn unknown_grace() -> String {
    UNKNOWN_GRACE.to_owned()
}

pub(crate) fn delta_period() -> String {
    DELTA_PERIOD.to_owned()
}
