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
/// DNS domain that Kubernetes clusters have unless somebody chose another.
pub const CLUSTER_DOMAIN: &str = "cluster.local";
/// Size of each member's volume. Room for a full database, its copy while defragmenting, and the log.
pub const VOLUME_SIZE: &str = "20Gi";
/// Largest quota of a cluster whose `spec.etcd.quota` is not given: what etcd itself advises not to exceed.
pub const LARGEST_DEFAULT_QUOTA: i64 = 8 << 30;
/// Bytes of one segment of etcd's log.
pub const LOG_SEGMENT: i64 = 64 << 20;
/// Bytes of the reserve file, which is removed when etcd cannot start for want of room: etcd needs a segment to start, and
/// one more gives whoever repairs the volume some time.
pub const RESERVE: i64 = 2 * LOG_SEGMENT;
/// Bytes that a volume holds besides the database: five segments of the log that etcd keeps, the next one that it prepares,
/// and the reserve file. Snapshots of the log are small.
pub const BESIDE_DATABASE: i64 = 6 * LOG_SEGMENT + RESERVE;
/// Smallest accepted quota: anything below is a typo such as `8` for `8Gi`.
pub const MINIMUM_QUOTA: &str = "16Mi";
/// Smallest accepted volume: as much for the database and its copy as for what is beside it.
pub const MINIMUM_VOLUME_SIZE: &str = "1Gi";
/// What containers ask for whose `spec.podTemplate.resources` says nothing: without any request, members would be the first
/// to go when a node runs out of memory.
pub const ETCD_REQUESTS: [(&str, &str); 2] = [("cpu", "100m"), ("memory", "256Mi")];
/// The same for the agent, which takes 11 MiB and next to no CPU.
pub const AGENT_REQUESTS: [(&str, &str); 2] = [("cpu", "10m"), ("memory", "32Mi")];
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
/// How long a node must be gone before a member with ephemeral storage is given up, unless something else is said.
pub const NODE_LOST_AFTER: &str = "1m";
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
