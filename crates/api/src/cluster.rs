//! `EtcdCluster`: what a user asks for.

use k8s_openapi::api::core::v1::LocalObjectReference;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backup::{BackupSpec, RestoreFrom};
use crate::etcd::EtcdSpec;
use crate::maintenance::{MaintenanceSpec, Spread};
use crate::pod_template::PodTemplate;
use crate::recovery::RecoverySpec;
use crate::status::EtcdClusterStatus;
use crate::storage::StorageSpec;
use crate::tls::TlsSpec;
use crate::{defaults, names, not_yet, quota, schema, versions};

/// An etcd cluster. Only `replicas` matters to begin with: everything else has a default.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "quorate.dev",
    version = "v1alpha1",
    kind = "EtcdCluster",
    namespaced,
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    shortname = "etcd",
    shortname = "ec",
    category = "quorate",
    doc = "An etcd cluster: members, their storage, certificates and backups.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        description = "Whether the cluster has a quorum and serves requests",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        description = "What the cluster is doing",
        json_path = ".status.phase"
    ),
    printcolumn(
        name = "Members",
        type_ = "string",
        description = "Ready members out of all members",
        json_path = ".status.membersReady"
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        description = "Oldest etcd version that a member runs",
        json_path = ".status.clusterVersion"
    ),
    printcolumn(
        name = "Leader",
        type_ = "string",
        description = "The member that leads",
        json_path = r#".status.members[?(@.role=="Leader")].name"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        description = "The phase in a sentence",
        json_path = ".status.message",
        priority = 1
    ),
    validation = Rule::new(format!("size(self.metadata.name) <= {}", names::MAX_CLUSTER_NAME)).message(
        format!(
            "metadata.name must have at most {} characters: pods, Services and labels are named after it",
            names::MAX_CLUSTER_NAME
        )
        .as_str()
    ),
    validation = Rule::new(format!(
        "self.metadata.name.matches({})",
        schema::quoted(names::CLUSTER_NAME_PATTERN)
    ))
    .message(
        "metadata.name must start with a lower-case letter and contain only lower-case letters, digits and dashes: \
         Services are named after it"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = not_yet::add_rules, transform = quota::add_rule)]
#[x_kube(
    validation = Rule::new("self.replicas != 0 || !has(self.storage.ephemeral)").message(
        "spec.replicas cannot be 0 with spec.storage.ephemeral: what the members hold would go with their pods; keep at \
         least 1, or delete the EtcdCluster"
    )
)]
#[x_kube(
    validation = Rule::new("has(self.restoreFrom) == has(oldSelf.restoreFrom)")
        .message("spec.restoreFrom can be given at creation only: create a new EtcdCluster to restore into")
)]
pub struct EtcdClusterSpec {
    /// Number of members: 1, 3, 5 or 7. They are added and removed one at a time while the cluster serves. With 0 it sleeps:
    /// pods go, volumes stay, and it wakes with the same members and data. With ephemeral storage it cannot sleep.
    #[serde(default = "defaults::replicas")]
    #[x_kube(
        validation = Rule::new("self in [0, 1, 3, 5, 7]").message(
            "spec.replicas must be 1, 3, 5 or 7, or 0 to let the cluster sleep: an even number of members survives no more \
             failures than one member less"
        )
    )]
    pub replicas: i32,

    /// Release of etcd, for example 3.6.16. Filled in at creation when left out, so that a newer operator does not
    /// change it. It cannot be changed yet.
    #[serde(default = "defaults::version")]
    #[schemars(length(max = 32), transform = versions::add_rules)]
    pub version: String,

    /// Repository of the etcd image, without tag: the tag is always `v` + version. Default: the official image,
    /// quay.io/coreos/etcd, or what the operator was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::path_text")]
    #[x_kube(
        validation = Rule::new(format!("self.matches({})", schema::quoted(IMAGE_REPOSITORY_PATTERN))).message(
            "spec.image must be a repository such as registry.example.com:5000/coreos/etcd, without tag or digest: \
             the tag is made from spec.version"
        )
    )]
    pub image: Option<String>,

    /// When the image is pulled. Default: IfNotPresent.
    #[serde(default)]
    pub image_pull_policy: ImagePullPolicy,

    /// Secrets with credentials for the image registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::embedded_list::<LocalObjectReference>")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// Where members keep their data.
    #[serde(default)]
    pub storage: StorageSpec,

    /// Settings of the etcd processes.
    #[serde(default)]
    pub etcd: EtcdSpec,

    /// How connections are protected.
    #[serde(default)]
    pub tls: TlsSpec,

    /// Continuous backups. Not supported yet: there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupSpec>,

    /// How member pods look to Kubernetes.
    #[serde(default)]
    pub pod_template: PodTemplate,

    /// How members are spread. Node: evenly over nodes, and over zones where possible. Zone: evenly over zones and nodes,
    /// and not scheduled otherwise. None: as the scheduler likes.
    #[serde(default)]
    pub spread: Spread,

    /// When disruptive work may happen, and whether anything may.
    #[serde(default)]
    pub maintenance: MaintenanceSpec,

    /// What the operator may do by itself when members fail.
    #[serde(default)]
    pub recovery: RecoverySpec,

    /// Start from a backup instead of empty. At creation only. Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = schema::immutable("spec.restoreFrom"))]
    pub restore_from: Option<RestoreFrom>,
}

/// A registry with an optional port, then lower-case path segments; no tag, no digest.
const IMAGE_REPOSITORY_PATTERN: &str =
    "^([a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]{1,5})?/)?[a-z0-9][-a-z0-9._]*(/[a-z0-9][-a-z0-9._]*)*$";

impl Default for EtcdClusterSpec {
    fn default() -> Self {
        Self {
            replicas: defaults::REPLICAS,
            version: defaults::version(),
            image: None,
            image_pull_policy: ImagePullPolicy::default(),
            image_pull_secrets: Vec::new(),
            storage: StorageSpec::default(),
            etcd: EtcdSpec::default(),
            tls: TlsSpec::default(),
            backup: None,
            pod_template: PodTemplate::default(),
            spread: Spread::default(),
            maintenance: MaintenanceSpec::default(),
            recovery: RecoverySpec::default(),
            restore_from: None,
        }
    }
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    #[default]
    IfNotPresent,
    Always,
    Never,
}
