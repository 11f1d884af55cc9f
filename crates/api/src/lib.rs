//! The Kubernetes API of Quorate, group `quorate.dev/v1alpha1`.
//!
//! Users write [`EtcdCluster`]; the operator writes one [`EtcdMember`] per member, which the member's agent answers in
//! its status. Nothing here talks to a cluster: these are types, schemas, names and limits.

#![allow(clippy::doc_markdown, reason = "these comments are what `kubectl explain` prints, as plain text")]
#![allow(clippy::duplicated_attributes, reason = "print columns repeat their keys")]
#![expect(unreachable_pub, reason = "the KubeSchema derive copies each public struct into a function body")]

pub mod backup;
pub mod cluster;
pub mod conditions;
pub mod crds;
pub mod defaults;
pub mod etcd;
pub mod maintenance;
pub mod member;
pub mod names;
pub mod not_yet;
pub mod pod_template;
pub mod quantity;
pub mod quota;
pub mod recovery;
pub mod schema;
pub mod settings;
pub mod status;
pub mod storage;
pub mod tls;
pub mod versions;

pub use cluster::{EtcdCluster, EtcdClusterSpec};
pub use member::{EtcdMember, EtcdMemberSpec, EtcdMemberStatus, Ticket};
pub use status::EtcdClusterStatus;

/// API group of every kind in this crate.
pub const GROUP: &str = "quorate.dev";
/// The one served version.
pub const VERSION: &str = "v1alpha1";
/// Prefix of labels and annotations that belong to Quorate; users may not set keys under it.
pub const RESERVED_PREFIX: &str = "quorate.dev/";
