//! `spec.maintenance`: when disruptive work may happen, and whether anything may.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// When disruptive work may happen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceSpec {
    /// Restarts that can wait (upgrades, new settings) happen only inside one of these windows. Without windows, at any
    /// time. Repairs never wait. Not supported yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub windows: Vec<MaintenanceWindow>,

    /// Grow a single-member cluster to three members around disruptive work, so that it stays available. Not supported
    /// yet.
    #[serde(default)]
    pub surge: bool,

    /// Stop all actions of the operator on this cluster. The status stays truthful, and etcd keeps running.
    #[serde(default)]
    pub paused: bool,
}

/// A span of time that comes round again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceWindow {
    /// Crontab line of the beginning, for example '0 2 * * 6'.
    #[schemars(schema_with = "schema::cron_text")]
    #[x_kube(validation = schema::cron("spec.maintenance.windows[].schedule"))]
    pub schedule: String,
    /// Length, for example 2h.
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(validation = schema::duration("spec.maintenance.windows[].duration"))]
    pub duration: String,
    /// Name of a time zone such as Europe/Berlin. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
}

/// Over what members are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Spread {
    #[default]
    Node,
    Zone,
    None,
}
