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

    /// Voters that are no pods of this cluster: somebody else has added them. They count for the quorum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 99))]
    pub foreign_voters: Vec<String>,

    /// Members whose node is gone for good, and since when that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["member".into()]))]
    pub lost_nodes: Vec<LostNode>,

    /// Members of etcd that nobody has asked for: somebody else has added them. They are removed ten minutes after they were
    /// first seen, unless the quorum might live by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 99))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["id".into()]))]
    pub strangers: Vec<StrangerStatus>,

    /// The state of backups. Absent while backups are off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupStatus>,

    /// The certificates in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<CertificateStatus>,

    /// Whether the members hold the same data, as last compared by the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<ConsistencyStatus>,

    /// From how many members to how many the cluster is on its way. Absent while it is on none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingStatus>,

    /// Since when the operator has not reached the members' port for clients though they serve. Absent while it reaches
    /// them, or has nothing to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_out_of_reach_since: Option<Time>,

    /// What may have been lost in the last recovery from the loss of a quorum, until it is acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_loss: Option<DataLossStatus>,

    /// Present since no member had data that could be used, until a quorum serves again or was recovered. Meanwhile nothing
    /// begins from a copy that comes back before somebody agrees: others may be on their way, and may be better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_lost: Option<CopiesLost>,

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
    /// The quorum is lost for good, and a new incarnation begins from the best copy that is left.
    Recovering,
    /// No members are wanted.
    Hibernated,
    /// Members are wanted again, and have not served since.
    Waking,
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
    /// Number of members that the incarnation begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i32>,
    /// Present while an incarnation whose quorum was lost is followed by one from the best copy that is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<QuorumRecovery>,
}

impl Latch {
    /// Of an incarnation that began with nothing, as far as is known.
    pub fn new(state: LatchState, epoch: i64, since: Time) -> Self {
        Self { state, epoch, since, cluster_id: None, size: None, recovery: None }
    }
}

/// From which incarnation, and which copy of it, the present one is to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuorumRecovery {
    /// The incarnation whose quorum was lost.
    pub epoch: i64,
    /// Its identifier in etcd, in hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// When the loss was found.
    pub since: Time,
    /// Highest revision that any member was known to have reached.
    pub highest_revision: i64,
    /// When a member that served was last heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heard: Option<Time>,
    /// The only copy that may be used, if somebody has named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// The member that begins, once all copies were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivor: Option<String>,
    /// Members that were to begin and did not. Others come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 99))]
    pub given_up: Vec<String>,
}

/// That no member had data that could be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopiesLost {
    /// When that was first found.
    pub since: Time,
    /// What the annotation quorate.dev/recover-quorum said before a copy came back: that was not said about this copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

/// What may have been lost when a quorum was recovered. Stays until somebody has acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataLossStatus {
    /// The incarnation that began from what was left.
    pub epoch: i64,
    /// When the loss was found.
    pub time: Time,
    /// The member whose copy it began from.
    pub from: String,
    /// Last revision of that copy. What was acknowledged after it is missing.
    pub revision: i64,
    /// Highest revision that any member was known to have reached.
    pub highest_known_revision: i64,
    /// When a member that served was last heard of. What was acknowledged since then may be missing too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heard: Option<Time>,
    /// The revision at which the incarnation began.
    pub raised_to: i64,
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
    /// What a member that is not ready is waiting for or busy with, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When its status last changed.
    pub last_transition_time: Time,
    /// Since when it has been restarted without lasting success. Gone once it has been ready for as long as that took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub troubled_since: Option<Time>,
}

/// A member whose node is gone for good: deleted, or out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LostNode {
    /// Name of the member.
    pub member: String,
    /// Name of the node. More than one if the volume could be used on any of them.
    pub node: String,
    /// Since when it is known that the node is gone.
    pub since: Time,
    /// Whether the member's volume can be used nowhere else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stranded: bool,
}

/// A change of the number of members that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingStatus {
    /// How many there were.
    pub from: i32,
    /// How many there are to be.
    pub to: i32,
    /// When the wish was first followed.
    pub since: Time,
}

/// A member of etcd that nobody has asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StrangerStatus {
    /// Identifier of the member in etcd, in hexadecimal. One that is added again has another one.
    pub id: String,
    /// Its name or, if it has none yet, where it is said to be.
    pub name: String,
    /// Whether it only listens: it has no vote.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learner: bool,
    /// Whether it has the name of a pod that this cluster could have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub under_our_name: bool,
    /// When it was first seen.
    pub first_seen: Time,
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
    /// It has no vote yet: it is starting or catching up.
    Learning,
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

/// What came of comparing the members' data. Written once per comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsistencyStatus {
    /// When the data of all members, or of enough to find a difference, was last compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_compared: Option<Time>,
    /// The revision at which it was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Members whose data differs from that of a majority; all that were compared, if no majority agrees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 99))]
    pub differing: Vec<DifferingMember>,
    /// No majority agrees, so nobody can tell who is right.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub undecided: bool,
    /// Why the data could not be compared since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<ComparisonFailure>,
    /// Members, by identifier, of which etcd said that their data is corrupt when it was last compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 99))]
    pub alarmed: Vec<String>,
    /// Value of the annotation quorate.dev/compare-now that was last followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,
}

/// A member whose data differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DifferingMember {
    /// Name of the member.
    pub name: String,
    /// Identifier of the member in etcd, in hexadecimal. A successor of the same name has another one.
    pub id: String,
    /// How often in a row it was seen to differ; no more than two are counted. Twice is believed.
    pub seen: i32,
}

/// Comparisons that came to nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComparisonFailure {
    /// When the first of them in a row was tried.
    pub since: Time,
    /// When the last of them was tried.
    pub last_tried: Time,
    /// Why it came to nothing.
    pub reason: String,
    /// Whether etcd does not let the operator ask: authentication is enabled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
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
