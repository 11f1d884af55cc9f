//! `spec.tls`: who issues the certificates.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// How connections are protected. By default the operator runs two certificate authorities for each cluster, one for
/// members among themselves and one for everybody else, and every connection is mutual TLS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.secrets) == (self.mode == 'Secrets')")
        .message("spec.tls.secrets must be given with mode Secrets, and only then")
)]
#[x_kube(
    validation = Rule::new("has(self.certManager) == (self.mode == 'CertManager')")
        .message("spec.tls.certManager must be given with mode CertManager, and only then")
)]
pub struct TlsSpec {
    /// Managed: the operator issues all certificates, and renews those of members and clients in time. Disabled: no
    /// encryption and no authentication; anyone who reaches the pods reads and writes everything. Secrets (you supply
    /// them) and CertManager (cert-manager issues them) are not supported yet. Cannot be changed after creation.
    #[serde(default)]
    #[x_kube(validation = schema::immutable("spec.tls.mode"))]
    pub mode: TlsMode,

    /// Your own certificates, with mode Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<TlsSecrets>,

    /// The issuer, with mode CertManager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_manager: Option<CertManager>,
}

/// Who issues the certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TlsMode {
    #[default]
    Managed,
    Secrets,
    CertManager,
    Disabled,
}

/// Names of Secrets of type kubernetes.io/tls that also hold `ca.crt`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsSecrets {
    /// What the operator and the agents show to etcd.
    #[schemars(schema_with = "schema::object_name")]
    #[x_kube(validation = schema::secret_name("spec.tls.secrets.client"))]
    pub client: String,
    /// What members show to their clients.
    #[schemars(schema_with = "schema::object_name")]
    #[x_kube(validation = schema::secret_name("spec.tls.secrets.server"))]
    pub server: String,
    /// What members show to each other. Its `ca.crt` must be another one than that of `client`, or a client could join
    /// as a member.
    #[schemars(schema_with = "schema::object_name")]
    #[x_kube(validation = schema::secret_name("spec.tls.secrets.peer"))]
    pub peer: String,
}

/// Certificates from cert-manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertManager {
    /// The Issuer or ClusterIssuer.
    pub issuer_ref: IssuerRef,
}

/// An issuer of cert-manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuerRef {
    /// Name of the issuer.
    #[schemars(schema_with = "schema::object_name")]
    #[x_kube(validation = schema::name_of("spec.tls.certManager.issuerRef.name", "an issuer"))]
    pub name: String,
    /// Issuer (in the same namespace) or ClusterIssuer.
    #[serde(default)]
    pub kind: IssuerKind,
}

/// Scope of an issuer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IssuerKind {
    #[default]
    Issuer,
    ClusterIssuer,
}
