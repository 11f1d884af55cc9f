//! The API store, the controllers around it, and the kubelet.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::status::LatchState;
use quorate_api::{EtcdCluster, EtcdClusterSpec, names};

use super::etcd::{StartRecord, Volume};
use super::members::Members;
use super::nodes::Nodes;
use super::operator::{Answer, Caches, Pass};
use super::recovery::Recoveries;
use quorate_core::hashes::HashAnswer;
use quorate_core::object::{Kind, Object, ObjectKey};
use quorate_core::shared::Shared;
use quorate_core::view::{CertificateFact, ClaimFact, Platform, PodFact, Refusal, SecretsSeen};

/// Everything there is.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) cluster: Shared<EtcdCluster>,
    pub(crate) platform: Platform,
    pub(crate) objects: BTreeMap<ObjectKey, Object>,
    pub(crate) pods: BTreeMap<String, PodFact>,
    pub(crate) claims: BTreeMap<String, ClaimFact>,
    pub(crate) certificates: BTreeMap<String, CertificateFact>,
    pub(crate) secrets: SecretsSeen,
    pub(crate) taken_secrets: BTreeSet<String>,
    pub(crate) unreadable_members: BTreeMap<String, String>,
    pub(crate) volumes: BTreeMap<String, Volume>,
    pub(crate) nodes: Nodes,
    /// Who etcd's members are.
    pub(crate) listed: Members,
    /// Of which cluster they are members.
    pub(super) listed_of: String,
    /// Every start of an etcd without data, and what the latch said at that moment.
    pub(crate) starts: Vec<StartRecord>,
    /// Members that do not get to run.
    pub(crate) frozen: Vec<String>,
    /// Members whose agents get no answer from the API.
    pub(crate) away: BTreeSet<String>,
    /// Members whose agents are refused by the API.
    pub(crate) refused: BTreeSet<String>,
    /// Members whose clients' port the operator does not reach.
    pub(crate) cut_off: BTreeSet<String>,
    /// Members under whose address somebody of another cluster answers.
    pub(crate) impostors: BTreeSet<String>,
    /// What etcd did not let the operator change.
    pub(crate) refusal: Option<Refusal>,
    /// What members answer to whoever asks for hashes over their data, where a test says so.
    pub(crate) hashes: Option<HashAnswer>,
    /// What the operator has heard of so far. Nothing at all means that it hears everything at once.
    pub(super) caches: Option<Caches>,
    /// A pass that is under way while everything else goes on.
    pub(super) pass: Option<Pass>,
    /// Members of etcd whose pod, record or volume the operator has removed. Must stay empty.
    pub(crate) torn_down: Vec<String>,
    /// Members that the operator has removed from etcd though they were wished for and sound. Must stay empty.
    pub(crate) wrongly_removed: Vec<String>,
    /// The operator has changed who the members are, and those that were left were no quorum. Must never become true.
    pub(crate) quorum_given_away: bool,
    /// What else must never happen, noticed when it did. Must stay empty.
    pub(crate) wrongs: Vec<String>,
    /// Tokens of the incarnations that members were given leave to begin.
    pub(super) issued: BTreeSet<String>,
    /// What becomes of the next answer of etcd to a change of its members.
    pub(crate) next_answer: Answer,
    /// Whether the pass that acts has just read what it acts on.
    pub(super) at_once: bool,
    /// Agents' moves and whole passes so far.
    pub(crate) steps: u64,
    /// Whom etcd was last in touch with.
    pub(super) connected: BTreeSet<String>,
    /// Learners that get no data yet.
    pub(crate) starved: BTreeSet<String>,
    pub(crate) recoveries: Recoveries,
    /// What etcd complains of, in its words.
    pub(crate) alarms: Vec<String>,
    /// When a quorum last served.
    pub(crate) served: Option<Timestamp>,
    /// UIDs of clusters of this name that are gone.
    former: Vec<String>,
    /// Writes that clients were told are safe.
    pub(crate) acknowledged: i64,
    /// The revision that the last of them has.
    pub(crate) revision: i64,
    /// A majority once served without knowing all acknowledged writes. Must never become true.
    pub(crate) lost_writes: bool,
    pub(super) term: i64,
    pub(crate) leader: Option<String>,
    next_id: u64,
    pub(crate) writes: usize,
}

impl World {
    /// A world in which an EtcdCluster was just created.
    pub(crate) fn new(replicas: i32) -> Self {
        let mut cluster = EtcdCluster::new("etcd", EtcdClusterSpec { replicas, ..EtcdClusterSpec::default() });
        cluster.metadata.namespace = Some("default".to_owned());
        cluster.metadata.uid = Some("cluster-uid".to_owned());
        cluster.metadata.generation = Some(1);
        Self {
            now: Timestamp::UNIX_EPOCH,
            cluster: cluster.into(),
            platform: Platform::default(),
            objects: BTreeMap::new(),
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            certificates: BTreeMap::new(),
            secrets: SecretsSeen::Read,
            taken_secrets: BTreeSet::new(),
            unreadable_members: BTreeMap::new(),
            volumes: BTreeMap::new(),
            nodes: Nodes::default(),
            listed: Members::new(),
            listed_of: String::new(),
            starts: Vec::new(),
            frozen: Vec::new(),
            away: BTreeSet::new(),
            refused: BTreeSet::new(),
            cut_off: BTreeSet::new(),
            impostors: BTreeSet::new(),
            refusal: None,
            hashes: None,
            caches: None,
            pass: None,
            torn_down: Vec::new(),
            wrongly_removed: Vec::new(),
            quorum_given_away: false,
            wrongs: Vec::new(),
            issued: BTreeSet::new(),
            next_answer: Answer::Heard,
            at_once: false,
            steps: 0,
            connected: BTreeSet::new(),
            starved: BTreeSet::new(),
            recoveries: Recoveries::default(),
            alarms: Vec::new(),
            served: None,
            former: Vec::new(),
            acknowledged: 0,
            revision: 0,
            lost_writes: false,
            term: 0,
            leader: None,
            next_id: 0,
            writes: 0,
        }
    }

    /// All that are members, or are wished to be.
    pub(crate) fn member_names(&self) -> Vec<String> {
        let wished = (0..self.cluster.spec.replicas).map(|ordinal| names::member("etcd", ordinal));
        wished.chain(self.listed.keys().cloned()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) fn latch_state(&self) -> Option<LatchState> {
        Some(self.cluster.status.as_ref()?.latch.as_ref()?.state)
    }

    pub(crate) fn advance(&mut self, by: SignedDuration) {
        self.now += by;
    }

    /// Server-side apply: what others own stays.
    pub(super) fn apply(&mut self, mut object: Object) {
        let key = object.key();
        let uid = match self.objects.get(&key) {
            Some(old) => old.metadata().uid.clone(),
            None => Some(self.fresh_id("uid")),
        };
        object.metadata_mut().uid = uid;
        let created = self.objects.get(&key).and_then(|old| old.metadata().creation_timestamp.clone());
        object.metadata_mut().creation_timestamp = Some(created.unwrap_or(Time(self.now)));
        match (&mut object, self.objects.get(&key)) {
            (Object::EtcdMember(new), Some(Object::EtcdMember(old))) => new.status.clone_from(&old.status),
            (Object::Lease(new), Some(Object::Lease(old))) => {
                let (Some(new_spec), Some(old_spec)) = (&mut new.spec, &old.spec) else { return };
                new_spec.holder_identity.clone_from(&old_spec.holder_identity);
                new_spec.renew_time.clone_from(&old_spec.renew_time);
                let annotations = new.metadata.annotations.get_or_insert_default();
                for (key, value) in old.metadata.annotations.iter().flatten() {
                    annotations.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
            _ => {}
        }
        self.objects.insert(key, object);
    }

    /// Deletes an object, as the operator or a careless hand does.
    pub(crate) fn delete(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
        if key.kind == Kind::StatefulSet {
            self.pods.clear();
            self.volumes.values_mut().for_each(Volume::stop);
        }
    }

    /// The controllers and the kubelet: what belongs to nobody any more goes, and every wanted pod exists, on its own volume.
    pub(crate) fn schedule(&mut self) {
        let is_orphan =
            |object: &Object| object.owner_uid().is_some_and(|uid| self.former.iter().any(|old| old == uid));
        let orphans = self.objects.iter().filter(|(_, object)| is_orphan(object)).map(|(key, _)| key.clone());
        orphans.collect::<Vec<_>>().iter().for_each(|key| self.delete(key));
        let Some(Object::StatefulSet(set)) = self.objects.get(&ObjectKey::new(Kind::StatefulSet, "etcd")) else {
            return;
        };
        let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        let beyond = |name: &String| names::ordinal_of("etcd", name).is_some_and(|ordinal| ordinal >= replicas);
        for name in self.pods.keys().filter(|name| beyond(name)).cloned().collect::<Vec<_>>() {
            self.kill_pod(&name);
        }
        for ordinal in 0..replicas {
            let name = names::member("etcd", ordinal);
            if !self.pods.contains_key(&name) {
                let uid = self.fresh_id("pod");
                let pod = PodFact {
                    uid,
                    ready: false,
                    terminating: None,
                    serving: true,
                    created: Some(self.now),
                    controlled: true,
                    revision: None,
                    starting: None,
                    address: Some(format!("10.0.0.{ordinal}")),
                    node: None,
                };
                self.pods.insert(name.clone(), pod);
                let claim = ClaimFact { uid: self.fresh_id("claim"), terminating: false };
                if !self.is_ephemeral() {
                    self.claims.entry(names::data_claim(&name)).or_insert(claim);
                }
            }
            self.give_place(&name);
        }
    }

    /// A pod dies; its StatefulSet makes it again.
    pub(crate) fn kill_pod(&mut self, name: &str) {
        self.pods.remove(name);
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.stop();
        }
        if self.is_ephemeral() && self.volumes.remove(name).is_some() {
            self.recoveries.harmed.insert(name.to_owned());
        }
    }

    /// A user deletes the EtcdCluster.
    pub(crate) fn delete_cluster(&mut self) {
        self.cluster.metadata.deletion_timestamp = Some(Time(self.now));
    }

    /// The garbage collector has run, and a user creates an identical EtcdCluster. Only volumes are left of the old one.
    pub(crate) fn recreate(&mut self) {
        self.recreate_with(self.cluster.spec.replicas);
    }

    /// The same with another number of members.
    pub(crate) fn recreate_with(&mut self, replicas: i32) {
        let fresh = Self::new(replicas);
        let uid = self.fresh_id("cluster");
        self.former.extend(self.cluster.metadata.uid.take());
        self.cluster = fresh.cluster;
        self.cluster.metadata.uid = Some(uid);
        (self.objects, self.pods, self.certificates) = (fresh.objects, fresh.pods, fresh.certificates);
        self.starts.clear();
        self.volumes.values_mut().for_each(Volume::stop);
    }

    pub(super) fn fresh_id(&mut self, what: &str) -> String {
        self.next_id += 1;
        format!("{what}-{}", self.next_id)
    }
}
