//! `spec.backup` and `spec.restoreFrom`: where copies of the data go and come from.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::storage::RetentionPolicy;
use crate::{defaults, schema};

/// Continuous backups: full copies on a schedule and every change in between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupSpec {
    /// Where backups are kept.
    pub store: BackupStore,
    /// When full backups are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<FullBackup>,
    /// How often changes are written between full backups.
    #[serde(default)]
    pub delta: DeltaBackup,
    /// How long backups are kept.
    #[serde(default)]
    pub retention: BackupRetention,
    /// When a full backup and its deltas are merged into a new full backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction: Option<BackupCompaction>,
    /// How often stored backups are read back and restored on trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<BackupVerification>,
    /// Encryption of backups before they leave the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<BackupEncryption>,
}

/// A place in an object store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStore {
    /// Kind of object store.
    pub provider: StoreProvider,
    /// Bucket or container; a directory with provider File.
    #[schemars(schema_with = "schema::path_text")]
    pub bucket: String,
    /// Path inside the bucket. Default: namespace/name of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::path_text")]
    #[x_kube(
        validation = Rule::new("!self.startsWith('/') && !self.contains('..')")
            .message("store.prefix must be a relative path without '..'")
    )]
    pub prefix: Option<String>,
    /// URL of an S3-compatible server. Default: that of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::path_text")]
    #[x_kube(
        validation = Rule::new("self.startsWith('https://') || self.startsWith('http://')")
            .message("store.endpoint must be a URL that starts with https:// or http://")
    )]
    pub endpoint: Option<String>,
    /// Region of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub region: Option<String>,
    /// Secret with the credentials. Without it, the identity of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    #[x_kube(validation = schema::secret_name("store.credentialsSecret"))]
    pub credentials_secret: Option<String>,
}

/// Kind of object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StoreProvider {
    S3,
    #[serde(rename = "GCS")]
    Gcs,
    Azure,
    File,
}

/// When full backups are taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FullBackup {
    /// Crontab line, for example '0 */6 * * *'.
    #[schemars(schema_with = "schema::cron_text")]
    #[x_kube(validation = schema::cron("spec.backup.full.schedule"))]
    pub schedule: String,
}

/// How often changes are written between full backups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeltaBackup {
    /// Longest time a change waits before it is stored.
    #[serde(default = "defaults::delta_period")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(validation = schema::duration("spec.backup.delta.period"))]
    pub period: String,
    /// Most bytes of changes that wait before they are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(validation = schema::quantity_at_least("spec.backup.delta.maxBytes", "1Mi"))]
    pub max_bytes: Option<String>,
}

impl Default for DeltaBackup {
    fn default() -> Self {
        Self { period: defaults::delta_period(), max_bytes: None }
    }
}

/// How long backups are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupRetention {
    /// Exponential keeps fewer the older they are; LimitBased keeps the newest.
    #[serde(default)]
    pub policy: BackupRetentionPolicy,
    /// How many full backups are kept with policy LimitBased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub keep: Option<i32>,
    /// How far back any moment can be restored; older deltas are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(validation = schema::duration("spec.backup.retention.deltaPeriod"))]
    pub delta_period: Option<String>,
    /// What happens to the backups when the EtcdCluster is deleted.
    #[serde(default)]
    pub on_cluster_delete: RetentionPolicy,
}

/// Which full backups are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackupRetentionPolicy {
    #[default]
    Exponential,
    LimitBased,
}

/// When a full backup and its deltas are merged into a new full backup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupCompaction {
    /// Merge when the deltas have grown to this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(validation = schema::quantity_at_least("spec.backup.compaction.maxDeltaBytes", "1Mi"))]
    pub max_delta_bytes: Option<String>,
    /// Merge when the oldest delta is this old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::short_text")]
    #[x_kube(validation = schema::duration("spec.backup.compaction.maxDeltaAge"))]
    pub max_delta_age: Option<String>,
}

/// How often stored backups are read back and restored on trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupVerification {
    /// Crontab line, for example '0 5 * * 0'.
    #[schemars(schema_with = "schema::cron_text")]
    #[x_kube(validation = schema::cron("spec.backup.verification.schedule"))]
    pub schedule: String,
}

/// Encryption of backups before they leave the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupEncryption {
    /// Secret whose entry `key` holds 32 bytes.
    #[schemars(schema_with = "schema::object_name")]
    #[x_kube(validation = schema::secret_name("spec.backup.encryption.keySecret"))]
    pub key_secret: String,
}

/// What a new cluster starts from instead of nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.backup) != has(self.store)")
        .message("spec.restoreFrom: give either backup or store")
)]
#[x_kube(
    validation = Rule::new("!(has(self.revision) && has(self.time))")
        .message("spec.restoreFrom: give either revision or time, not both")
)]
pub struct RestoreFrom {
    /// Name of an EtcdBackup in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    #[x_kube(validation = schema::name_of("spec.restoreFrom.backup", "an EtcdBackup in the same namespace"))]
    pub backup: Option<String>,
    /// A store that holds backups, also those of another cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<BackupStore>,
    /// Restore the data as of this revision. Default: the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub revision: Option<i64>,
    /// Restore the data as of this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}
