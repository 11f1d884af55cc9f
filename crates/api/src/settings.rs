//! What a member's agent must know to write etcd's configuration.
//!
//! The operator puts it into the pod template as one JSON text, so that a change of settings is a change of template.

use serde::{Deserialize, Serialize};

use crate::etcd::{CompactionMode, MetricsDetail};

/// Environment variable of the agent that holds the settings.
pub const VARIABLE: &str = "QUORATE_SETTINGS";

/// Paths inside a member pod.
pub mod paths {
    /// The member's volume.
    pub const VOLUME: &str = "/var/lib/etcd";
    /// etcd's data directory. A subdirectory, so that what is quarantined stays on the same volume.
    pub const DATA: &str = "/var/lib/etcd/data";
    /// Shared by the containers: the launcher, its socket, etcd's configuration.
    pub const RUN: &str = "/run/quorate";
    /// The launcher, copied from the agent's image.
    pub const LAUNCH: &str = "/run/quorate/launch";
    /// In there: where the launcher asks the agent.
    pub const SOCKET_NAME: &str = "agent.sock";
    /// In there: etcd's configuration, written by the agent.
    pub const CONFIG_NAME: &str = "etcd.yaml";
    /// In there: the configuration of an etcd that only applies its log.
    pub const REPLAY_CONFIG_NAME: &str = "replay.yaml";
    /// Certificates: one directory per Secret, all of them here.
    pub const TLS: &str = "/etc/quorate/tls";
    pub const TLS_PEER: &str = "/etc/quorate/tls/peer";
    pub const TLS_PEER_CLIENT: &str = "/etc/quorate/tls/peer-client";
    pub const TLS_SERVER: &str = "/etc/quorate/tls/server";
    pub const TLS_AGENT: &str = "/etc/quorate/tls/agent";
}

/// Settings of a member, the same for all members of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberSettings {
    pub cluster: String,
    pub namespace: String,
    /// Release of etcd, which settles how its settings are written.
    pub version: String,
    /// DNS name under which members publish themselves: `<member>.<peer domain>`.
    pub peer_domain: String,
    /// DNS name of the Service for clients.
    pub client_domain: String,
    pub client_port: i32,
    pub peer_port: i32,
    pub agent_port: i32,
    pub tls: bool,
    pub quota_bytes: i64,
    pub metrics: MetricsDetail,
    pub compaction_mode: CompactionMode,
    pub compaction_retention: String,
    pub snapshot_count: i64,
    pub heartbeat_milliseconds: i32,
    pub election_milliseconds: i32,
}
