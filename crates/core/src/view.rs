//! All that one pass may know.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use quorate_api::names::labels;
use quorate_api::{EtcdCluster, EtcdMember, EtcdMemberStatus, defaults, names};

use crate::hashes::HashAnswer;
use crate::identity::{ClusterIdentity, IncompleteIdentity};
use crate::lease::Heartbeat;
use crate::membership::ListAnswer;
use crate::node::{NodeFact, Reach};
use crate::object::{Kind, Object, ObjectKey};
use crate::read::ReadsDone;
use crate::shared::Shared;

/// One cluster and everything around it, read before the pass began.
#[derive(Clone, Debug)]
pub struct View {
    pub identity: ClusterIdentity,
    pub cluster: Shared<EtcdCluster>,
    pub platform: Platform,
    /// Objects with a name that the cluster needs, or that a member of it may have.
    pub objects: BTreeMap<ObjectKey, Object>,
    pub pods: BTreeMap<String, PodFact>,
    /// Volume claims of members.
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
    /// What etcd answered when it was asked for its members.
    pub member_list: ListAnswer,
    /// What etcd did not let the operator change when it was last asked to. Forgotten once it has.
    pub refusal: Option<Refusal>,
    /// What the members answered when they were asked for hashes over their data.
    pub hashes: HashAnswer,
    /// The nodes that were asked for, by name.
    pub nodes: BTreeMap<String, NodeFact>,
    /// Where volumes can be used that were asked for, by claim.
    pub reaches: BTreeMap<String, Reach>,
    /// The operator may not ask about nodes and volumes: they belong to no namespace.
    pub nodes_refused: bool,
    /// What was read for this pass rather than taken from the caches.
    pub reads: ReadsDone,
}

/// A change that etcd has refused because of who asked for it: authentication is enabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// As the continuation of "to".
    pub what: String,
    /// In etcd's words.
    pub cause: String,
}

/// What the operator was told at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    pub agent_image: String,
    pub etcd_repository: String,
    /// DNS domain of the Kubernetes cluster.
    pub cluster_domain: String,
    /// Nobody has said what that domain is, and it could not be found out: it is the usual one.
    pub is_domain_assumed: bool,
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
            cluster_domain: defaults::CLUSTER_DOMAIN.to_owned(),
            is_domain_assumed: false,
            account: None,
        }
    }
}

/// Whether anything is known about Secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretsSeen {
    Read,
    /// Nobody asked, or the operator's right to read them was not there to begin with.
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
    pub address: Option<String>,
    /// The node that it was given.
    pub node: Option<String>,
    /// What keeps its containers from running yet: no node, a volume, an image on its way. A new pod would wait for the same.
    pub starting: Option<String>,
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
            address: pod.status.as_ref().and_then(|status| status.pod_ip.clone()),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            starting: starting(pod),
        }
    }
}

/// A container that has run before is not starting any more, whatever it waits for.
fn starting(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    if pod.spec.as_ref()?.node_name.is_none() {
        return Some("waiting for a node".to_owned());
    }
    let containers = [&status.init_container_statuses, &status.container_statuses].into_iter().flatten().flatten();
    let mut fresh = containers.filter(|container| container.restart_count == 0 && container.last_state.is_none());
    fresh.find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        Some(format!("{}: {}", container.name, waiting.reason.as_deref().unwrap_or("waiting")))
    })
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
    pub issued: Option<Timestamp>,
    pub not_after: Option<Timestamp>,
    /// Digest of what it is for, as `CertificateRequest::subject` makes it.
    pub subject: Option<String>,
    /// Somebody else has written key or certificate since.
    pub edited: bool,
}

impl View {
    pub fn new(cluster: EtcdCluster, platform: Platform) -> Result<Self, IncompleteIdentity> {
        Ok(Self {
            identity: ClusterIdentity::of(&cluster.metadata)?,
            cluster: cluster.into(),
            platform,
            objects: BTreeMap::new(),
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            certificates: BTreeMap::new(),
            secrets: SecretsSeen::NotAsked,
            taken_secrets: BTreeSet::new(),
            unreadable_members: BTreeMap::new(),
            heard: BTreeMap::new(),
            member_list: ListAnswer::NotAsked,
            refusal: None,
            hashes: HashAnswer::NotAsked,
            nodes: BTreeMap::new(),
            reaches: BTreeMap::new(),
            nodes_refused: false,
            reads: ReadsDone::default(),
        })
    }

    /// The claims of members' volumes, with their ordinals. Others may carry the label too.
    pub fn member_claims(&self) -> impl Iterator<Item = (i32, &str, &ClaimFact)> {
        let cluster = self.identity.name();
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

    /// What the members' agents report, by name.
    pub fn reports(&self) -> impl Iterator<Item = (&str, &EtcdMemberStatus)> {
        self.objects.values().filter_map(|object| match object {
            Object::EtcdMember(member) => Some((member.metadata.name.as_deref()?, member.status.as_ref()?)),
            _ => None,
        })
    }

    pub fn lease(&self, name: &str) -> Option<&Lease> {
        match self.object(Kind::Lease, name)? {
            Object::Lease(lease) => Some(lease),
            _ => None,
        }
    }

    /// What the Leases say, of members or not.
    pub(crate) fn heartbeats(&self) -> impl Iterator<Item = Heartbeat> {
        self.objects.values().filter_map(|object| match object {
            Object::Lease(lease) => Some(Heartbeat::read(lease)),
            _ => None,
        })
    }

    pub fn stateful_set(&self, name: &str) -> Option<&StatefulSet> {
        match self.object(Kind::StatefulSet, name)? {
            Object::StatefulSet(set) => Some(set),
            _ => None,
        }
    }
}
