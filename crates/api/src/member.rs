//! `EtcdMember`: the conversation between the operator and one member's agent.
//!
//! The operator writes the spec, the agent writes the status, and neither writes the other's half.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::MemberRole;

/// One member of an EtcdCluster. Made by the operator; not for users to write.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "quorate.dev",
    version = "v1alpha1",
    kind = "EtcdMember",
    namespaced,
    status = "EtcdMemberStatus",
    derive = "PartialEq",
    shortname = "em",
    category = "quorate",
    doc = "One member of an EtcdCluster: what the operator lets it do, and what its agent reports. Made by the operator.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(
        name = "Data",
        type_ = "string",
        description = "State of the data directory when last inspected",
        json_path = ".status.data.state"
    ),
    printcolumn(
        name = "Running",
        type_ = "boolean",
        description = "Whether etcd runs",
        json_path = ".status.etcd.running"
    ),
    printcolumn(name = "Role", type_ = "string", json_path = ".status.etcd.role"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.etcd.version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.data.reason", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberSpec {
    /// Name of the EtcdCluster.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = crate::schema::immutable("spec.cluster"))]
    pub cluster: String,
    /// Number of the member, from 0.
    #[schemars(range(min = 0, max = 99))]
    #[x_kube(validation = crate::schema::immutable("spec.ordinal"))]
    pub ordinal: i32,
    /// What the member may do at its next start.
    pub ticket: Ticket,
}

/// What a member may do at its next start. A member without data starts only as its ticket says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Ticket {
    /// Start empty, together with the others, as a new cluster.
    #[serde(rename_all = "camelCase")]
    Bootstrap {
        epoch: i64,
        /// Tells this incarnation from every other, also to etcd.
        token: String,
        #[schemars(length(max = 99))]
        initial_cluster: Vec<Peer>,
    },
    /// Start empty and join the running cluster, which has already added this member as a learner.
    #[serde(rename_all = "camelCase")]
    Join {
        epoch: i64,
        #[schemars(length(max = 99))]
        initial_cluster: Vec<Peer>,
    },
    /// Write the named point of a backup to the empty data directory, then start as a new incarnation.
    #[serde(rename_all = "camelCase")]
    Restore {
        epoch: i64,
        token: String,
        #[schemars(length(max = 99))]
        initial_cluster: Vec<Peer>,
        source: String,
        revision: i64,
        digest: String,
    },
    /// Start from the member's own data.
    #[serde(rename_all = "camelCase")]
    Resume { epoch: i64 },
    /// Do not start without data; report and wait.
    #[serde(rename_all = "camelCase")]
    Hold { reason: String },
}

impl Ticket {
    /// The incarnation that the ticket is for. A hold is for none.
    pub fn epoch(&self) -> Option<i64> {
        match self {
            Self::Bootstrap { epoch, .. }
            | Self::Join { epoch, .. }
            | Self::Restore { epoch, .. }
            | Self::Resume { epoch } => Some(*epoch),
            Self::Hold { .. } => None,
        }
    }
}

/// A member as the others reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    pub name: String,
    pub url: String,
}

/// What a member's agent reports. Figures that always move are on the member's Lease instead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdMemberStatus {
    /// The data directory as last inspected: before each start, and once etcd runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<DataReport>,
    /// The etcd process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdReport>,
    /// Present on the member that writes backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupWriterReport>,
}

/// The data directory as last inspected: before each start, and once etcd runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataReport {
    pub state: DataState,
    /// What was found, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Cluster that the data belongs to. Stays on record when the data is gone: it tells a wiped member from a new one.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Member that the data belongs to. Stays on record when the data is gone.
    #[serde(rename = "memberID", default, skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// The incarnation that the data belongs to. Stays on record when the data is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_index: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_count: Option<i64>,
}

impl DataReport {
    /// A report that knows of no identity.
    pub fn of(state: DataState) -> Self {
        DataReport {
            state,
            reason: None,
            cluster_id: None,
            member_id: None,
            epoch: None,
            revision: None,
            last_index: None,
            boot_count: None,
        }
    }
}

/// What a data directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DataState {
    /// Nothing.
    Empty,
    /// Data of this member, checked.
    Valid,
    /// Data that failed a check.
    Damaged,
    /// Data of another member or another cluster.
    Foreign,
    /// Sound data that must not start: older than what this member is known to have had, or of another incarnation.
    Fenced,
}

/// The etcd process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdReport {
    pub running: bool,
    /// Identifier of the cluster, as etcd states it.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Identifier of the member, as etcd states it.
    #[serde(rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<MemberRole>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_in_use: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub alarms: Vec<String>,
}

/// The member that writes backups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupWriterReport {
    /// Fencing number of the writer; a higher one has taken over.
    pub fencing: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}
