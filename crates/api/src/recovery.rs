//! `spec.recovery`: what the operator may do by itself when members fail.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{defaults, schema};

/// What the operator may do by itself when members fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoverySpec {
    /// After the data of a majority is proven lost: Automatic starts again from the best surviving copy and states what
    /// was lost; Manual stops and asks. Intact volumes are always simply restarted.
    // No default yet: it will be Automatic, and an object that was stored before must not have been pinned to less.
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
}

impl Default for RecoverySpec {
    fn default() -> Self {
        Self {
            quorum_loss: None,
            not_ready_grace_period: defaults::not_ready_grace(),
            unknown_grace_period: defaults::unknown_grace(),
        }
    }
}

/// What happens after the data of a majority is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum QuorumLossPolicy {
    Automatic,
    Manual,
}
