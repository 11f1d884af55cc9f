//! All that one pass may know.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use quorate_api::names::labels;
use quorate_api::{EtcdCluster, EtcdMember, defaults, names};

use crate::object::{Kind, Object, ObjectKey};

/// One cluster and everything around it, read before the pass began.
#[derive(Clone, Debug)]
pub struct View {
    pub cluster: EtcdCluster,
    pub platform: Platform,
    /// Objects with the cluster's label or with a name that the cluster needs.
    pub objects: BTreeMap<ObjectKey, Object>,
    pub pods: BTreeMap<String, PodFact>,
    /// Volume claims with the cluster's label, also those of others.
    pub claims: BTreeMap<String, ClaimFact>,
    /// Secrets that hold certificates of the cluster. Never their content.
    pub certificates: BTreeMap<String, CertificateFact>,
    pub secrets: SecretsSeen,
    /// Secrets that have a name the cluster needs and belong to somebody else.
    pub taken_secrets: BTreeSet<String>,
    /// Every EtcdMember that exists and cannot be read, and why.
    pub unreadable_members: BTreeMap<String, String>,
    /// When each member's Lease was last seen to be renewed, by the operator's own clock. Without an entry the time that
    /// the member wrote counts.
    pub heard: BTreeMap<String, Timestamp>,
}

/// What the operator was told at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    pub agent_image: String,
    pub etcd_repository: String,
    /// DNS domain of the Kubernetes cluster.
    pub cluster_domain: String,
    /// Who the operator is. Without it nothing is done about its rights: whoever runs it has given them.
    pub account: Option<Account>,
}

/// A ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub namespace: String,
    pub name: String,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            agent_image: "quorate/agent:dev".to_owned(),
            etcd_repository: defaults::IMAGE_REPOSITORY.to_owned(),
            cluster_domain: "cluster.local".to_owned(),
            account: None,
        }
    }
}

/// Whether anything is known about Secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretsSeen {
    Read,
    /// The operator's right to read them was not there to begin with.
    NotAsked,
    /// It asked and may not.
    Refused,
}

/// A member pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFact {
    pub uid: String,
    pub ready: bool,
    /// When it should be gone at the latest, if it is on its way out.
    pub terminating: Option<Timestamp>,
    pub created: Option<Timestamp>,
    /// Whether clients are led to it.
    pub serving: bool,
    /// Whether a controller looks after it. One that was orphaned by hand is nobody's to wait for.
    pub controlled: bool,
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
            terminating: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
            serving: label(labels::SERVING).as_deref() == Some("true"),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            controlled: pod.metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true)),
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

/// A Secret with a certificate, as its annotations describe it. A hand may have removed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFact {
    pub serial: Option<String>,
    pub not_before: Option<Timestamp>,
    pub not_after: Option<Timestamp>,
    /// Somebody else has written key or certificate since.
    pub edited: bool,
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
            secrets: SecretsSeen::Read,
            taken_secrets: BTreeSet::new(),
            unreadable_members: BTreeMap::new(),
            heard: BTreeMap::new(),
        }
    }

    /// The claims of members' volumes, with their ordinals. Others may carry the label too.
    pub fn member_claims(&self) -> impl Iterator<Item = (i32, &str, &ClaimFact)> {
        let cluster = self.cluster.metadata.name.as_deref().unwrap_or_default();
        self.claims
            .iter()
            .filter_map(move |(name, claim)| Some((names::claim_ordinal(cluster, name)?, name.as_str(), claim)))
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
