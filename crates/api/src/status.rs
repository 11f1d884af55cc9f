//! `EtcdCluster.status`: what is true, as far as the operator knows.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is true about the cluster. Written only when something changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// What the cluster is doing, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClusterPhase>,

    /// Why it is in this phase, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Why it is in this phase and what happens next, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// Counts incarnations of the data: 1 after the first start, one more after each restore or recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,

    /// Whether the present incarnation has been formed. Never goes back within an epoch; members may start empty only
    /// while it says Issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latch: Option<Latch>,

    /// Identifier of the cluster in etcd, in hexadecimal.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,

    /// Oldest etcd version that a member runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_version: Option<String>,

    /// Number of members of the etcd cluster; what quorum is counted from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_size: Option<i32>,

    /// Number of member pods.
    #[serde(default)]
    pub replicas: i32,

    /// Number of ready members.
    #[serde(default)]
    pub ready_replicas: i32,

    /// Ready members out of all members, for example 3/3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members_ready: Option<String>,

    /// Selector of the member pods, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// The StatefulSet that runs the members, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<WorkloadRef>,

    /// The members, by ordinal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub members: Vec<MemberStatus>,

    /// The state of backups. Absent while backups are off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupStatus>,

    /// The certificates in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<CertificateStatus>,

    /// Parts of the spec that are not in effect yet, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["field".into()]))]
    pub pending: Vec<PendingChange>,

    /// The state as conditions; `kubectl wait --for=condition=Ready` works.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::embedded_list::<Condition>")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// What a cluster is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterPhase {
    /// The spec cannot be followed; the message names the field.
    Invalid,
    /// Pods, volumes and certificates are being made.
    Creating,
    /// Members may start and have not formed a quorum yet.
    Forming,
    /// All members are ready.
    Running,
    /// Requests are served, and not all members are ready.
    Degraded,
    /// Requests are not served: too few members are ready.
    QuorumLost,
    /// Nobody has heard from so many members that it is not known whether requests are served.
    Unknown,
    /// No members are wanted.
    Hibernated,
    /// The EtcdCluster is being deleted.
    Deleting,
}

/// Whether an incarnation of the cluster has been formed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Latch {
    /// Issued: members of this epoch may start empty. Formed: none may, ever again in this epoch.
    pub state: LatchState,
    /// The incarnation.
    pub epoch: i64,
    /// When the latch came into this state.
    pub since: Time,
    /// Identifier of the cluster in etcd, once formed.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
}

/// The two positions of the latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LatchState {
    Issued,
    Formed,
}

/// Reference to the object that runs the members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of the member, of its pod and of its EtcdMember.
    pub name: String,
    /// Identifier of the member in etcd, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Leader, Member or Learner. At most one member is shown as Leader: that of the highest term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<MemberRole>,
    /// Ready, NotReady or Unknown. Unknown is not dead: nobody has heard from it lately.
    pub status: MemberHealth,
    /// Why.
    pub reason: MemberReason,
    /// Version of etcd that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When its status last changed.
    pub last_transition_time: Time,
}

/// A member's part in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberRole {
    Leader,
    Member,
    Learner,
}

impl MemberRole {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "Leader",
            Self::Member => "Member",
            Self::Learner => "Learner",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Leader, Self::Member, Self::Learner].into_iter().find(|role| role.as_str() == text)
    }
}

/// Whether a member can be counted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberHealth {
    Ready,
    NotReady,
    Unknown,
}

/// Why a member has its health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberReason {
    /// Its pod is ready and its Lease is being renewed.
    LeaseSucceeded,
    /// Its Lease has run out: nobody has heard from it lately.
    LeaseExpired,
    /// It has been unknown for longer than `unknownGracePeriod`.
    UnknownGracePeriodExceeded,
    /// Its pod is not ready.
    PodNotReady,
    /// It holds the data of another cluster.
    OtherCluster,
}

/// The state of backups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupStatus {
    /// When the latest full backup was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_full: Option<Time>,
    /// When the latest changes were stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delta: Option<Time>,
    /// Newest revision that can be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_revision: Option<i64>,
    /// Oldest moment that can be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest_recoverable: Option<Time>,
    /// When a trial restore last succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_verified: Option<Time>,
    /// Bytes in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
}

/// The certificates in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// When the first of them ends.
    pub not_after: Time,
}

/// A part of the spec that is not in effect yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingChange {
    /// The field.
    pub field: String,
    /// Why it is not in effect, and what it waits for.
    pub reason: String,
}
