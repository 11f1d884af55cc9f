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
    #[serde(default)]
    pub quorum_loss: QuorumLossPolicy,

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
            quorum_loss: QuorumLossPolicy::default(),
            not_ready_grace_period: defaults::not_ready_grace(),
            unknown_grace_period: defaults::unknown_grace(),
        }
    }
}

/// What happens after the data of a majority is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum QuorumLossPolicy {
    #[default]
    Automatic,
    Manual,
}
