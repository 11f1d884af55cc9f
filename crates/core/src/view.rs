//! All that one pass may know.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use quorate_api::{EtcdCluster, EtcdMember, defaults};

use crate::object::{Kind, Object, ObjectKey};

/// One cluster and everything around it, read before the pass began.
#[derive(Clone, Debug)]
pub struct View {
    pub cluster: EtcdCluster,
    pub platform: Platform,
    /// Objects with the cluster's label or with a name that the cluster needs.
    pub objects: BTreeMap<ObjectKey, Object>,
    pub pods: BTreeMap<String, PodFact>,
    /// Volume claims with the cluster's label.
    pub claims: BTreeMap<String, ClaimFact>,
    /// Secrets that hold certificates of the cluster. Never their content.
    pub certificates: BTreeMap<String, CertificateFact>,
}

/// What the operator was told at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    pub agent_image: String,
    pub etcd_repository: String,
    /// DNS domain of the Kubernetes cluster.
    pub cluster_domain: String,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            agent_image: "quorate/agent:dev".to_owned(),
            etcd_repository: defaults::IMAGE_REPOSITORY.to_owned(),
            cluster_domain: "cluster.local".to_owned(),
        }
    }
}

/// A member pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFact {
    pub uid: String,
    pub ready: bool,
    pub terminating: bool,
    /// Revision of the StatefulSet's template that it was made from.
    pub revision: Option<String>,
}

impl From<&Pod> for PodFact {
    fn from(pod: &Pod) -> Self {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let label = |key: &str| pod.metadata.labels.as_ref()?.get(key).cloned();
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            ready: conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            revision: label("controller-revision-hash"),
        }
    }
}

/// A volume claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFact {
    pub uid: String,
    pub terminating: bool,
}

/// A Secret with a certificate, as its annotations describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFact {
    pub serial: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl View {
    pub fn new(cluster: EtcdCluster, platform: Platform) -> Self {
        Self {
            cluster,
            platform,
            objects: BTreeMap::new(),
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            certificates: BTreeMap::new(),
        }
    }

    pub fn insert(&mut self, object: impl Into<Object>) {
        let object = object.into();
        self.objects.insert(object.key(), object);
    }

    pub fn object(&self, kind: Kind, name: &str) -> Option<&Object> {
        self.objects.get(&ObjectKey::new(kind, name))
    }

    pub fn member(&self, name: &str) -> Option<&EtcdMember> {
        match self.object(Kind::EtcdMember, name)? {
            Object::EtcdMember(member) => Some(member),
            _ => None,
        }
    }

    pub fn lease(&self, name: &str) -> Option<&Lease> {
        match self.object(Kind::Lease, name)? {
            Object::Lease(lease) => Some(lease),
            _ => None,
        }
    }

    pub fn stateful_set(&self, name: &str) -> Option<&StatefulSet> {
        match self.object(Kind::StatefulSet, name)? {
            Object::StatefulSet(set) => Some(set),
            _ => None,
        }
    }
}
