//! `spec.etcd`: how the etcd processes themselves are set up.

use kube::KubeSchema;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{defaults, schema};

/// Settings of the etcd processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.electionMilliseconds >= 5 * self.heartbeatMilliseconds")
        .message("spec.etcd.electionMilliseconds must be at least five times spec.etcd.heartbeatMilliseconds")
)]
#[x_kube(
    validation = Rule::new("self.clientPort != self.peerPort")
        .message("spec.etcd.peerPort must be another port than spec.etcd.clientPort")
)]
pub struct EtcdSpec {
    /// Size of the database at which etcd stops accepting writes, for example 4Gi. At most the size of the volume less
    /// 512Mi, which its log and repairs need. Default: half of that, and at most 8Gi, so that a second copy of the database
    /// has room.
    // Derived, not stored: it follows the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(validation = schema::quantity_at_least("spec.etcd.quota", defaults::MINIMUM_QUOTA))]
    pub quota: Option<String>,

    /// How many metrics etcd exposes. Extensive adds histograms per gRPC method.
    #[serde(default)]
    pub metrics: MetricsDetail,

    /// How long old revisions of keys stay readable.
    #[serde(default)]
    pub auto_compaction: AutoCompaction,

    /// Number of changes after which etcd saves its state and shortens its log.
    #[serde(default = "defaults::snapshot_count")]
    #[schemars(range(min = 100, max = 10_000_000))]
    pub snapshot_count: i64,

    /// Time between two heartbeats of the leader. Raise it, together with the election timeout, when members are far
    /// apart.
    #[serde(default = "defaults::heartbeat")]
    #[schemars(range(min = 10, max = 5_000))]
    pub heartbeat_milliseconds: i32,

    /// Time without a heartbeat after which a follower stands for election. At least five heartbeats.
    #[serde(default = "defaults::election")]
    #[schemars(range(min = 50, max = 50_000))]
    pub election_milliseconds: i32,

    /// Port that clients connect to. Cannot be changed after creation.
    #[serde(default = "defaults::client_port")]
    #[schemars(range(min = 1024, max = 65_535))]
    #[x_kube(validation = not_the_agents("spec.etcd.clientPort"))]
    #[x_kube(validation = schema::immutable("spec.etcd.clientPort"))]
    pub client_port: i32,

    /// Port that members use among themselves. Cannot be changed after creation.
    #[serde(default = "defaults::peer_port")]
    #[schemars(range(min = 1024, max = 65_535))]
    #[x_kube(validation = not_the_agents("spec.etcd.peerPort"))]
    #[x_kube(validation = schema::immutable("spec.etcd.peerPort"))]
    pub peer_port: i32,

    /// When and how the database file is made smaller. Not supported yet: the file is not made smaller, and etcd uses
    /// what is free in it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defragmentation: Option<Defragmentation>,
}

fn not_the_agents(field: &str) -> Rule {
    let taken = defaults::AGENT_PORT;
    Rule::new(format!("self != {taken}"))
        .message(format!("{field} must not be {taken}, the port of the agent").as_str())
}

impl Default for EtcdSpec {
    fn default() -> Self {
        Self {
            quota: None,
            metrics: MetricsDetail::default(),
            auto_compaction: AutoCompaction::default(),
            snapshot_count: defaults::SNAPSHOT_COUNT,
            heartbeat_milliseconds: defaults::HEARTBEAT_MILLISECONDS,
            election_milliseconds: defaults::ELECTION_MILLISECONDS,
            client_port: defaults::CLIENT_PORT,
            peer_port: defaults::PEER_PORT,
            defragmentation: None,
        }
    }
}

/// Detail of etcd's own metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MetricsDetail {
    #[default]
    Basic,
    Extensive,
}

/// How long old revisions of keys stay readable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(format!(
        "self.mode == 'Periodic' ? {} : self.retention.matches('^[1-9][0-9]{{0,9}}$')",
        schema::is_duration("self.retention"),
    ))
    .message(
        "spec.etcd.autoCompaction.retention must be a duration such as 30m with mode Periodic, \
         and a number of revisions such as 10000 with mode Revision"
    )
)]
pub struct AutoCompaction {
    /// Periodic keeps a span of time, Revision keeps a number of revisions.
    #[serde(default)]
    pub mode: CompactionMode,
    /// A duration such as 30m with mode Periodic, a number such as 10000 with mode Revision.
    #[serde(default = "defaults::compaction_retention")]
    #[schemars(schema_with = "schema::short_text")]
    pub retention: String,
}

impl Default for AutoCompaction {
    fn default() -> Self {
        Self { mode: CompactionMode::default(), retention: defaults::compaction_retention() }
    }
}

/// What the retention of the history is measured in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CompactionMode {
    #[default]
    Periodic,
    Revision,
}

/// When and how the database file is made smaller: one member at a time, the leader last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defragmentation {
    /// Crontab line, for example '0 3 * * *'.
    #[schemars(schema_with = "schema::cron_text")]
    #[x_kube(validation = schema::cron("spec.etcd.defragmentation.schedule"))]
    pub schedule: String,
    /// Skip a member on which less than this would be freed, for example 256Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(validation = schema::quantity_at_least("spec.etcd.defragmentation.minReclaim", "0"))]
    pub min_reclaim: Option<String>,
}
