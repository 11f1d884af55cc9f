//! `spec.recovery`: what the operator may do by itself when members fail.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{defaults, schema};

/// What the operator may do by itself when members fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoverySpec {
    /// After the data of a majority is proven to be lost. Automatic, which is the default, begins a new incarnation from the
    /// best copy that is left, at a revision that nobody has seen, and says in the status what may be missing. Manual says
    /// from which copy that would be, and does it when told to. Members with intact data simply start again in any case.
    // A default that is not written, so that it is not pinned in what is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum_loss: Option<QuorumLossPolicy>,

    /// How long a member may be NotReady before its pod is restarted.
    #[serde(default = "defaults::not_ready_grace")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(validation = schema::duration("spec.recovery.notReadyGracePeriod"))]
    pub not_ready_grace_period: String,

    /// How long a member may be Unknown before it counts as NotReady.
    #[serde(default = "defaults::unknown_grace")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(validation = schema::duration("spec.recovery.unknownGracePeriod"))]
    pub unknown_grace_period: String,

    /// How long a node must be gone before a member is given up whose data nobody can reach without it: the member is
    /// removed, its volume claim is deleted, and another member takes its place elsewhere. A node is gone when its Node
    /// was deleted, or when it is not ready and has the taint node.kubernetes.io/out-of-service; one that is only silent
    /// never is. Without this field, volumes wait for their node for ever; members with ephemeral storage wait for 1m.
    // No default in the schema: it depends on the storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(validation = schema::duration("spec.recovery.nodeLostAfter"))]
    pub node_lost_after: Option<String>,
}

impl Default for RecoverySpec {
    fn default() -> Self {
        Self {
            quorum_loss: None,
            not_ready_grace_period: defaults::not_ready_grace(),
            unknown_grace_period: defaults::unknown_grace(),
            node_lost_after: None,
        }
    }
}

/// What happens after the data of a majority is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum QuorumLossPolicy {
    Automatic,
    Manual,
}
