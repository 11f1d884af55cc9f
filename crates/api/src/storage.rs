//! `spec.storage`: where members keep their data, and what happens to it in the end.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{defaults, schema};

/// Where members keep their data. With neither `volumeClaimTemplate` nor `ephemeral`, each member gets a volume of 20Gi
/// from the default storage class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!(has(self.volumeClaimTemplate) && has(self.ephemeral))")
        .message("spec.storage: give either volumeClaimTemplate or ephemeral, not both")
)]
#[x_kube(
    validation = Rule::new("has(self.ephemeral) == has(oldSelf.ephemeral)")
        .message("spec.storage cannot be changed between volumes and ephemeral storage after creation")
)]
#[x_kube(
    validation = Rule::new(
        "has(self.ephemeral) || has(oldSelf.ephemeral) || \
         (has(self.volumeClaimTemplate) && has(self.volumeClaimTemplate.storageClassName) \
           ? self.volumeClaimTemplate.storageClassName : '') == \
         (has(oldSelf.volumeClaimTemplate) && has(oldSelf.volumeClaimTemplate.storageClassName) \
           ? oldSelf.volumeClaimTemplate.storageClassName : '')"
    )
    .message("spec.storage.volumeClaimTemplate.storageClassName cannot be changed after creation")
)]
#[x_kube(
    validation = Rule::new(size_comparison("self", "oldSelf", ">="))
        .message("spec.storage.volumeClaimTemplate.size cannot shrink: give the present size or a larger one")
)]
pub struct StorageSpec {
    /// Volume of each member, from a storage class. Keeps the data through restarts and moves between nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_template: Option<VolumeClaimTemplate>,

    /// Storage that goes when the pod goes. For tests and caches: a member that moves loses its data and is replaced by
    /// a new one, and a cluster whose majority goes at once loses everything. Such a cluster cannot sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<Ephemeral>,

    /// What happens to volumes that are no longer needed.
    #[serde(default)]
    pub retention: VolumeRetention,
}

/// CEL: the size of the volumes as a text, with the default where none is given. Empty for ephemeral storage without a
/// limit.
pub(crate) fn size_text(of: &str) -> String {
    let default = defaults::VOLUME_SIZE;
    format!(
        "(has({of}.ephemeral) ? (has({of}.ephemeral.sizeLimit) ? {of}.ephemeral.sizeLimit : '') : \
         (has({of}.volumeClaimTemplate) ? {of}.volumeClaimTemplate.size : '{default}'))"
    )
}

/// Compares the sizes of the volumes of two storage specs, with the default where none is given. `operator` and zero
/// follow the comparison. True for ephemeral storage, which another rule looks after.
pub(crate) fn size_comparison(new: &str, old: &str, operator: &str) -> String {
    let size = |of: &str| {
        format!(
            "quantity(has({of}.volumeClaimTemplate) && isQuantity({of}.volumeClaimTemplate.size) \
             ? {of}.volumeClaimTemplate.size : '{}')",
            defaults::VOLUME_SIZE
        )
    };
    format!("has({new}.ephemeral) || has({old}.ephemeral) || {}.compareTo({}) {operator} 0", size(new), size(old))
}

/// The volume of each member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeClaimTemplate {
    /// Storage class. Without it, the default class of the Kubernetes cluster. Cannot be changed after creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    #[x_kube(validation = schema::name_of("spec.storage.volumeClaimTemplate.storageClassName", "a StorageClass"))]
    pub storage_class_name: Option<String>,

    /// Size of the volume, for example 20Gi. It cannot be changed yet, and will never shrink.
    #[serde(default = "defaults::volume_size")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(
        validation = schema::quantity_at_least("spec.storage.volumeClaimTemplate.size", defaults::MINIMUM_VOLUME_SIZE)
    )]
    pub size: String,
}

impl Default for VolumeClaimTemplate {
    fn default() -> Self {
        Self { storage_class_name: None, size: defaults::volume_size() }
    }
}

/// Storage that goes when the pod goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.medium == 'Disk' || has(self.sizeLimit)")
        .message("spec.storage.ephemeral.sizeLimit is required with medium Memory: without it a member can use up the node")
)]
pub struct Ephemeral {
    /// Disk is the node's own disk, Memory counts towards the memory limit of the pod. Cannot be changed after creation.
    #[serde(default)]
    #[x_kube(validation = schema::immutable("spec.storage.ephemeral.medium"))]
    pub medium: EphemeralMedium,

    /// Largest size; the pod is evicted beyond it. A quota that is not given follows from it, and is 8Gi without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(
        validation = schema::quantity_at_least("spec.storage.ephemeral.sizeLimit", defaults::MINIMUM_VOLUME_SIZE)
    )]
    pub size_limit: Option<String>,
}

/// What ephemeral storage is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EphemeralMedium {
    #[default]
    Disk,
    Memory,
}

/// What happens to volumes that are no longer needed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeRetention {
    /// When the EtcdCluster is deleted. Retain keeps the volumes: an EtcdCluster of the same name finds its data again.
    pub on_delete: RetentionPolicy,
    /// When a member is removed because the cluster gets smaller: Delete unless Retain is said. What was retained is put
    /// aside on the volume if the member comes back.
    // A default that is not written, so that it is not pinned in what is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_scale_down: Option<RetentionPolicy>,
}

/// Keep or remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RetentionPolicy {
    #[default]
    Retain,
    Delete,
}
