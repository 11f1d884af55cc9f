//! `EtcdMember`: the conversation between the operator and one member's agent.
//!
//! The operator writes the spec, the agent writes the status, and neither writes the other's half.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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
    /// Start empty, once, and join the running cluster, which has already added this member as a learner.
    #[serde(rename_all = "camelCase")]
    Join {
        epoch: i64,
        #[serde(rename = "clusterID")]
        cluster_id: String,
        /// Which of its learners this member is. A second start without data would be another one.
        #[serde(rename = "memberID")]
        member_id: String,
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
    /// Begin a new incarnation of the cluster from the member's own data, once, as its only member: the quorum of the one
    /// before is lost, and this is the best copy that is left.
    #[serde(rename_all = "camelCase")]
    Recover {
        epoch: i64,
        token: String,
        /// This member alone, as others will reach it.
        #[schemars(length(max = 1))]
        initial_cluster: Vec<Peer>,
        /// Cluster and member whose data it is. Any other is not the copy that was chosen.
        #[serde(rename = "clusterID")]
        cluster_id: String,
        #[serde(rename = "memberID")]
        member_id: String,
        /// The new incarnation goes on at this revision at least, so that no client takes an old one for a new one.
        raise_to: i64,
        /// Also if the data is older than what the member is known to have had, or differs from what others had: somebody has
        /// named this very copy.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        even_if_fenced: bool,
    },
    /// Start from the member's own data.
    #[serde(rename_all = "camelCase")]
    Resume { epoch: i64 },
    /// Do not start without data, nor on that of an earlier incarnation; report and wait.
    #[serde(rename_all = "camelCase")]
    Hold {
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch: Option<i64>,
    },
    /// Do not run at all, as this member: its data differs from that of the others. Nothing is said about a successor.
    #[serde(rename_all = "camelCase")]
    Fence {
        epoch: i64,
        #[serde(rename = "memberID")]
        member_id: String,
        reason: String,
    },
}

impl Ticket {
    /// The incarnation that the ticket is for. Before there is one, a hold is for none.
    pub fn epoch(&self) -> Option<i64> {
        match self {
            Self::Bootstrap { epoch, .. }
            | Self::Join { epoch, .. }
            | Self::Restore { epoch, .. }
            | Self::Recover { epoch, .. }
            | Self::Resume { epoch }
            | Self::Fence { epoch, .. } => Some(*epoch),
            Self::Hold { epoch, .. } => *epoch,
        }
    }

    /// Whether it keeps this member from running.
    pub fn fences(&self, member: &str) -> bool {
        matches!(self, Self::Fence { member_id, .. } if member_id == member)
    }

    /// Whether an etcd that runs on data of this member and incarnation must end.
    pub fn stops(&self, member: &str, epoch: i64) -> bool {
        self.fences(member) || self.epoch().is_some_and(|present| present > epoch)
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
    /// The room on the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeReport>,
}

/// The room on a member's volume. A state and no figures, which would always move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeReport {
    pub state: VolumeState,
    /// What that means, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How much room is left on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VolumeState {
    /// Enough.
    Ample,
    /// Most of it is used, or the reserve is.
    Filling,
    /// Not even enough for etcd to start.
    Full,
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
    /// Where the log ends. Known only while etcd does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_end: Option<LogEnd>,
    /// The incarnation that the ticket was for by which this was judged, while etcd does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket_epoch: Option<i64>,
    /// What this incarnation began from, on the member that it was recovered from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<RecoveredFrom>,
    /// Whether it is fenced because it was found to differ from what the other members have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diverged: bool,
    /// Whether it is fenced because it is older than what its member is known to have had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_back: bool,
    /// The members of the cluster, as the data has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 99))]
    pub members: Vec<ListedMember>,
    /// When the whole database was last read while etcd ran, and what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
}

/// Where a log ends. Of two members of one cluster the one with the higher term, then index, has all that the other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogEnd {
    pub term: i64,
    pub index: i64,
}

/// What an incarnation was recovered from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveredFrom {
    /// The incarnation.
    pub epoch: i64,
    /// Last revision of the copy, with all that its log held.
    pub revision: i64,
    /// The revision at which the incarnation began. Everything older is marked as compacted.
    pub raised_to: i64,
}

/// The whole database was read, page by page and entry by entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    pub time: Time,
    /// What is wrong with it, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
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
            log_end: None,
            ticket_epoch: None,
            recovered: None,
            diverged: false,
            rolled_back: false,
            members: Vec::new(),
            verified: None,
        }
    }
}

/// A member as etcd lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedMember {
    /// Identifier, in hexadecimal.
    pub id: String,
    /// Empty while the member was added and has never started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(rename = "peerURLs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub peer_urls: Vec<String>,
    /// Whether it only listens: it has no vote.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learner: bool,
    /// Whether it has ever started and told the others where clients find it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
}

impl ListedMember {
    /// A member as etcd has it, in its data and in its answers alike. Where clients find it is known once it has started.
    pub fn new(id: u64, name: String, peer_urls: Vec<String>, learner: bool, client_urls: &[String]) -> Self {
        Self { id: format!("{id:x}"), name, peer_urls, learner, started: !client_urls.is_empty() }
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
    /// Something is there, and it could not be read: nothing is known about it.
    Unreadable,
    /// Data of another member or another cluster.
    Foreign,
    /// Sound data that must not start: older than what this member is known to have had, of another incarnation, or not
    /// what the other members have.
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
    /// What it has applied, while it knows no leader. With one, this is on the member's Lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_in_use: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub alarms: Vec<String>,
    /// What it is busy with while it does not serve yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The members of the cluster, as this one last knew them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 99))]
    pub members: Vec<ListedMember>,
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
