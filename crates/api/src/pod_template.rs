//! `spec.podTemplate`: how member pods look to Kubernetes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, PodSecurityContext, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// How member pods look to Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// Labels for the member pods. Keys under quorate.dev/ and app.kubernetes.io/ are set by the operator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map")]
    #[x_kube(
        validation = Rule::new("self.all(key, !key.startsWith('quorate.dev/') && !key.startsWith('app.kubernetes.io/'))")
            .message("spec.podTemplate.labels: keys under quorate.dev/ and app.kubernetes.io/ are reserved, use another prefix")
    )]
    pub labels: BTreeMap<String, String>,

    /// Annotations for the member pods. Keys under quorate.dev/ are reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map")]
    #[x_kube(
        validation = Rule::new("self.all(key, !key.startsWith('quorate.dev/'))")
            .message("spec.podTemplate.annotations: keys under quorate.dev/ are reserved, use another prefix")
    )]
    pub annotations: BTreeMap<String, String>,

    /// CPU and memory of the containers. What is not given here is asked for by default, so that members are not the first
    /// to be evicted: 100m and 256Mi for etcd, 10m and 32Mi for the agent. There are no limits by default.
    #[serde(default)]
    pub resources: MemberResources,

    /// Affinity of the member pods, besides `spec.spread`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::embedded::<Affinity>")]
    pub affinity: Option<Affinity>,

    /// Taints that the member pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::embedded_list::<Toleration>")]
    pub tolerations: Vec<Toleration>,

    /// Labels of the nodes on which members may run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map")]
    pub node_selector: BTreeMap<String, String>,

    /// Constraints besides those made from `spec.spread`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::embedded_list::<TopologySpreadConstraint>")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// Priority of the member pods, for example system-node-critical if this etcd is that of the Kubernetes cluster it
    /// runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    #[x_kube(validation = schema::name_of("spec.podTemplate.priorityClassName", "a PriorityClass"))]
    pub priority_class_name: Option<String>,

    /// Security context of the pod. By default it meets the restricted Pod Security Standard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::embedded::<PodSecurityContext>")]
    pub security_context: Option<PodSecurityContext>,
}

/// CPU and memory of the containers of a member pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberResources {
    /// For etcd. A CPU limit also sets GOMAXPROCS, rounded down, at least 1. A limit without a request is the request too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub etcd: Option<ResourceRequirements>,
    /// For the agent beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub agent: Option<ResourceRequirements>,
}
