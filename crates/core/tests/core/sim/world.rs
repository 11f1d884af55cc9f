//! The API store, the operator that acts on it, and the kubelet.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::status::LatchState;
use quorate_api::{EtcdCluster, EtcdClusterSpec, names};

use super::etcd::{StartRecord, Volume};
use quorate_core::action::{Action, Effect, Guard};
use quorate_core::object::{Kind, Object, ObjectKey};
use quorate_core::view::{CertificateFact, ClaimFact, Platform, PodFact, SecretsSeen, View};
use quorate_core::{Decision, decide};

/// Dies after this many writes of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crash(pub usize);

/// Everything there is.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) cluster: EtcdCluster,
    pub(crate) platform: Platform,
    pub(crate) objects: BTreeMap<ObjectKey, Object>,
    pub(crate) pods: BTreeMap<String, PodFact>,
    pub(crate) claims: BTreeMap<String, ClaimFact>,
    pub(crate) certificates: BTreeMap<String, CertificateFact>,
    pub(crate) secrets: SecretsSeen,
    pub(crate) taken_secrets: BTreeSet<String>,
    pub(crate) unreadable_members: BTreeMap<String, String>,
    pub(crate) volumes: BTreeMap<String, Volume>,
    /// Every start of an etcd without data, and what the latch said at that moment.
    pub(crate) starts: Vec<StartRecord>,
    /// Members that do not get to run.
    pub(crate) frozen: Vec<String>,
    /// Writes that clients were told are safe.
    pub(crate) acknowledged: i64,
    /// A majority once served without knowing all acknowledged writes. Must never become true.
    pub(crate) lost_writes: bool,
    /// The latch once said Formed, whatever became of the status since.
    pub(crate) ever_formed: bool,
    pub(super) term: i64,
    pub(super) leader: Option<String>,
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
            cluster,
            platform: Platform::default(),
            objects: BTreeMap::new(),
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            certificates: BTreeMap::new(),
            secrets: SecretsSeen::Read,
            taken_secrets: BTreeSet::new(),
            unreadable_members: BTreeMap::new(),
            volumes: BTreeMap::new(),
            starts: Vec::new(),
            frozen: Vec::new(),
            acknowledged: 0,
            lost_writes: false,
            ever_formed: false,
            term: 0,
            leader: None,
            next_id: 0,
            writes: 0,
        }
    }

    pub(crate) fn view(&self) -> View {
        View {
            cluster: self.cluster.clone(),
            platform: self.platform.clone(),
            objects: self.objects.clone(),
            pods: self.pods.clone(),
            claims: self.claims.clone(),
            certificates: self.certificates.clone(),
            secrets: self.secrets,
            taken_secrets: self.taken_secrets.clone(),
            unreadable_members: self.unreadable_members.clone(),
            // There is one clock.
            heard: BTreeMap::new(),
        }
    }

    pub(crate) fn member_names(&self) -> Vec<String> {
        (0..self.cluster.spec.replicas).map(|ordinal| names::member("etcd", ordinal)).collect()
    }

    pub(crate) fn latch_state(&self) -> Option<LatchState> {
        Some(self.cluster.status.as_ref()?.latch.as_ref()?.state)
    }

    pub(crate) fn advance(&mut self, by: SignedDuration) {
        self.now += by;
    }

    /// One pass of the operator. Returns what it decided, also if it died on the way.
    pub(crate) fn operate(&mut self, crash: Option<Crash>) -> Decision {
        let decision = decide(&self.view(), self.now);
        let mut left = crash.map_or(usize::MAX, |Crash(writes)| writes);
        if self.cluster.status.as_ref() != Some(&decision.status) {
            if left == 0 {
                return decision;
            }
            left -= 1;
            self.writes += 1;
            self.cluster.status = Some(decision.status.clone());
            self.ever_formed |= self.latch_state() == Some(LatchState::Formed);
        }
        for action in &decision.actions {
            if left == 0 {
                break;
            }
            left -= 1;
            self.act(action);
        }
        decision
    }

    /// Carries one action out, unless its guard no longer holds.
    pub(crate) fn act(&mut self, action: &Action) {
        self.writes += 1;
        match &action.effect {
            Effect::Apply { object, guard } => {
                if self.holds(guard, None) {
                    self.apply((**object).clone());
                }
            }
            Effect::Delete { key, guard } => {
                let uid = self.objects.get(key).and_then(|object| object.metadata().uid.clone());
                if self.holds(guard, uid.as_deref()) {
                    self.delete(key);
                }
            }
            Effect::RestartPod { name, guard } => {
                let uid = self.pods.get(name).map(|pod| pod.uid.clone());
                let ready = self.pods.get(name).is_some_and(|pod| pod.ready);
                if self.holds(guard, uid.as_deref()) && !(ready && matches!(guard, Guard::PodStillUnready(_))) {
                    self.kill_pod(name);
                }
            }
            Effect::SetServing { pod, uid, serving } => {
                if let Some(pod) = self.pods.get_mut(pod).filter(|pod| pod.uid == *uid) {
                    pod.serving = *serving;
                }
            }
            Effect::DeleteClaim { name, guard } => {
                let uid = self.claims.get(name).map(|claim| claim.uid.clone());
                if self.holds(guard, uid.as_deref()) {
                    self.claims.remove(name);
                }
            }
            Effect::IssueCertificate(request) => {
                let fact = CertificateFact {
                    serial: Some(self.fresh_id("serial")),
                    not_before: Some(self.now),
                    not_after: Some(self.now + SignedDuration::from_hours(8760)),
                    edited: false,
                };
                self.certificates.insert(request.secret.clone(), fact);
            }
            Effect::AddFinalizer => {
                self.cluster.metadata.finalizers = Some(vec![names::VOLUMES_FINALIZER.to_owned()]);
            }
            Effect::RemoveFinalizer => self.cluster.metadata.finalizers = None,
        }
    }

    pub(crate) fn act_all(&mut self, actions: &[Action]) {
        for action in actions {
            self.act(action);
        }
    }

    fn holds(&self, guard: &Guard, uid: Option<&str>) -> bool {
        let is_cluster = |expected: &str| self.cluster.metadata.uid.as_deref() == Some(expected);
        match guard {
            Guard::None => true,
            Guard::Uid(expected) | Guard::PodStillUnready(expected) => uid == Some(expected),
            Guard::BootstrapOpen { cluster_uid, epoch } => {
                let latch = self.cluster.status.as_ref().and_then(|status| status.latch.as_ref());
                is_cluster(cluster_uid)
                    && latch.is_some_and(|latch| latch.state == LatchState::Issued && latch.epoch == *epoch)
            }
            Guard::ClusterDeleting { cluster_uid, object_uid } => {
                let deleting = self.cluster.metadata.deletion_timestamp.is_some();
                is_cluster(cluster_uid) && deleting && uid == Some(object_uid)
            }
        }
    }

    /// Server-side apply: what others own stays.
    fn apply(&mut self, mut object: Object) {
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

    /// The StatefulSet controller and the kubelet: every wanted pod exists, on its own volume.
    pub(crate) fn schedule(&mut self) {
        let Some(Object::StatefulSet(set)) = self.objects.get(&ObjectKey::new(Kind::StatefulSet, "etcd")) else {
            return;
        };
        let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
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
                };
                self.pods.insert(name.clone(), pod);
                let claim = ClaimFact { uid: self.fresh_id("claim"), terminating: false };
                self.claims.entry(names::data_claim(&name)).or_insert(claim);
                self.volumes.entry(name).or_default();
            }
        }
    }

    /// A pod dies; its StatefulSet makes it again.
    pub(crate) fn kill_pod(&mut self, name: &str) {
        self.pods.remove(name);
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.stop();
        }
    }

    /// A user deletes the EtcdCluster.
    pub(crate) fn delete_cluster(&mut self) {
        self.cluster.metadata.deletion_timestamp = Some(Time(self.now));
    }

    /// The garbage collector has run, and a user creates an identical EtcdCluster. Only volumes are left of the old one.
    pub(crate) fn recreate(&mut self) {
        let volumes = std::mem::take(&mut self.volumes);
        let claims = std::mem::take(&mut self.claims);
        let fresh = Self::new(self.cluster.spec.replicas);
        let uid = self.fresh_id("cluster");
        *self = Self {
            now: self.now,
            volumes,
            claims,
            acknowledged: self.acknowledged,
            term: self.term,
            next_id: self.next_id,
            ..fresh
        };
        self.cluster.metadata.uid = Some(uid);
        self.volumes.values_mut().for_each(Volume::stop);
    }

    fn fresh_id(&mut self, what: &str) -> String {
        self.next_id += 1;
        format!("{what}-{}", self.next_id)
    }
}
