//! The operator: what its caches have heard of, the reads that the core asks for, and what it does.
//!
//! Each kind of object comes by a watch of its own, so each may be old by its own measure. What is read is true at that
//! moment, and may be old again when the pass acts on it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quorate_api::names;

use super::world::World;
use quorate_core::action::{Action, ApplyMode, Effect};
use quorate_core::guard::{Found, Guard};
use quorate_core::hashes::HashAnswer;
use quorate_core::lease::Heartbeat;
use quorate_core::membership::ListAnswer;
use quorate_core::object::{Kind, Object, ObjectKey};
use quorate_core::read::{Read, ReadsDone};
use quorate_core::view::{CertificateFact, SecretsSeen, View};
use quorate_core::{ClusterIdentity, Decision, decide};

/// Dies after this many writes of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crash(pub usize);

/// What becomes of etcd's answer to a change of its members, which has been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Heard,
    /// The connection breaks before it comes.
    Lost,
    /// Something on the way sends the request a second time, and the second answer is the one that is heard.
    Doubled,
}

/// How many watches there are: of clusters, pods, claims, and of each kind that the operator makes.
pub(crate) const STREAMS: usize = 3 + KINDS.len();

const KINDS: [Kind; 8] = [
    Kind::ServiceAccount,
    Kind::Role,
    Kind::RoleBinding,
    Kind::Service,
    Kind::Lease,
    Kind::EtcdMember,
    Kind::StatefulSet,
    Kind::PodDisruptionBudget,
];

/// What the watches have told so far.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    view: View,
    /// When each member last renewed its Lease, by its clock, and when that was heard of.
    heard: BTreeMap<String, (Timestamp, Timestamp)>,
}

/// A pass that is not finished: what it has seen, and what it has come to so far.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    view: View,
    decision: Decision,
}

impl Caches {
    fn hear_renewals<'a>(&mut self, told: impl Iterator<Item = (&'a String, Timestamp)>, now: Timestamp) {
        let before = std::mem::take(&mut self.heard);
        let at = |name: &String, renewed| match before.get(name) {
            Some((known, at)) if *known == renewed => *at,
            _ => now,
        };
        self.heard = told.map(|(name, renewed)| (name.clone(), (renewed, at(name, renewed)))).collect();
    }
}

impl World {
    /// What is true. Nothing was read for it, and nobody was asked: this is what caches would have that lag behind nobody.
    pub(crate) fn view(&self) -> View {
        View {
            identity: ClusterIdentity::of(&self.cluster.metadata).unwrap(),
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
            member_list: ListAnswer::NotAsked,
            refusal: self.refusal.clone(),
            hashes: HashAnswer::NotAsked,
            nodes: BTreeMap::new(),
            reaches: BTreeMap::new(),
            nodes_refused: false,
            reads: ReadsDone::default(),
        }
    }

    /// One watch tells what has happened.
    pub(crate) fn hear(&mut self, stream: usize) {
        let mut caches = self.caches.take().unwrap_or_else(|| Caches { view: self.view(), heard: BTreeMap::new() });
        let seen = &mut caches.view;
        match stream % STREAMS {
            0 => {
                seen.identity = ClusterIdentity::of(&self.cluster.metadata).unwrap();
                seen.cluster.clone_from(&self.cluster);
            }
            1 => seen.pods.clone_from(&self.pods),
            2 => seen.claims.clone_from(&self.claims),
            of_kind => {
                let kind = KINDS[of_kind - 3];
                seen.objects.retain(|key, _| key.kind != kind);
                let told = self.objects.iter().filter(|(key, _)| key.kind == kind);
                seen.objects.extend(told.map(|(key, object)| (key.clone(), object.clone())));
                seen.unreadable_members.clone_from(&self.unreadable_members);
                if kind == Kind::Lease {
                    caches.hear_renewals(renewals(&self.objects), self.now);
                }
            }
        }
        self.caches = Some(caches);
    }

    /// From now on the operator has missed nothing.
    pub(crate) fn hear_all(&mut self) {
        self.caches = None;
    }

    fn observe(&self) -> View {
        let Some(caches) = &self.caches else { return self.view() };
        let heard = caches.heard.iter().map(|(name, (_, at))| (name.clone(), *at)).collect();
        View { heard, ..caches.view.clone() }
    }

    /// Puts what is true now into a view. Fails as the operator does when it finds another EtcdCluster of that name.
    fn answer(&mut self, view: &mut View, reads: &[Read]) -> Option<()> {
        for read in reads {
            match read {
                Read::Cluster => {
                    view.identity.is(&self.cluster.metadata).then_some(())?;
                    view.cluster = self.cluster.clone();
                }
                Read::Object(key) => {
                    view.objects.remove(key);
                    view.objects.extend(self.objects.get(key).map(|found| (key.clone(), found.clone())));
                }
                Read::Member(name) => self.read_member(view, name),
                Read::Secrets => self.read_secrets(view),
                Read::Node(name) => self.ask_for_node(view, name),
                Read::Reach(claim) => self.ask_for_reach(view, claim),
                Read::MemberList(endpoints) => view.member_list = self.ask_for_members(&endpoints.members),
                Read::Hashes(endpoints) => view.hashes = self.ask_for_hashes(&endpoints.members),
            }
            view.reads.insert(read.clone());
        }
        Some(())
    }

    fn read_member(&self, view: &mut View, name: &str) {
        view.pods.remove(name);
        view.pods.extend(self.pods.get(name).map(|pod| (name.to_owned(), pod.clone())));
        let key = ObjectKey::new(Kind::Lease, name);
        view.objects.remove(&key);
        let Some(found) = self.objects.get(&key) else { return };
        view.objects.insert(key, found.clone());
        // As much later as the member's own clock says, and never in the future.
        let renewed = renewals(&self.objects).find(|(of, _)| *of == name).map(|(_, renewed)| renewed);
        let known = self.caches.as_ref().and_then(|caches| caches.heard.get(name));
        if let (Some(renewed), Some((before, at))) = (renewed, known) {
            view.heard.insert(name.to_owned(), (*at + renewed.duration_since(*before)).min(self.now));
        }
    }

    fn read_secrets(&self, view: &mut View) {
        view.secrets = self.secrets;
        view.taken_secrets.clone_from(&self.taken_secrets);
        view.certificates.clone_from(&self.certificates);
    }

    /// One pass of an operator that has heard everything. Returns what it decided, also if it died on the way.
    pub(crate) fn operate(&mut self, crash: Option<Crash>) -> Decision {
        self.hear_all();
        let pass = self.begin();
        let pass = self.read_on(pass).unwrap();
        self.finish_at_once(&pass, crash);
        if crash.is_none() {
            self.judge_told();
        }
        pass.decision
    }

    /// The decision of an operator that has heard everything, before it acts on it.
    pub(crate) fn decide(&self) -> Decision {
        let mut world = self.clone();
        world.hear_all();
        let pass = world.begin();
        world.read_on(pass).unwrap().decision
    }

    /// One pass of an operator that knows what its watches have told, and reads what it must.
    pub(crate) fn operate_as_heard(&mut self, crash: Option<Crash>) {
        let pass = self.begin();
        if let Some(pass) = self.read_on(pass) {
            self.finish_at_once(&pass, crash);
        }
    }

    /// A pass that takes its time: it begins, reads once, or acts, and meanwhile everything else goes on.
    pub(crate) fn operate_slowly(&mut self) {
        let Some(mut pass) = self.pass.take() else {
            self.pass = Some(self.begin());
            return;
        };
        if pass.decision.reads.is_empty() {
            self.finish(&pass, None);
        } else if self.answer(&mut pass.view, &pass.decision.reads).is_some() {
            pass.decision = decide(&pass.view, self.now);
            self.pass = Some(pass);
        }
    }

    /// A read fails, and with it the pass.
    pub(crate) fn a_read_fails(&mut self) {
        self.pass = None;
    }

    fn begin(&self) -> Pass {
        let view = self.observe();
        Pass { decision: decide(&view, self.now), view }
    }

    fn read_on(&mut self, mut pass: Pass) -> Option<Pass> {
        // More rounds than there are reasons to ask.
        for _ in 0..10 {
            if pass.decision.reads.is_empty() {
                return Some(pass);
            }
            self.answer(&mut pass.view, &pass.decision.reads)?;
            pass.decision = decide(&pass.view, self.now);
        }
        panic!("it never stops asking: {:#?}", pass.decision.reads)
    }

    /// Nothing has happened since it was read.
    fn finish_at_once(&mut self, pass: &Pass, crash: Option<Crash>) {
        self.at_once = true;
        self.finish(pass, crash);
        self.at_once = false;
    }

    /// The status first, if it differs and the EtcdCluster is still as it was seen; then the actions, up to the first that
    /// fails.
    fn finish(&mut self, Pass { view, decision }: &Pass, crash: Option<Crash>) {
        self.steps += 1;
        let mut left = crash.map_or(usize::MAX, |Crash(writes)| writes);
        if decision.status_changed {
            if left == 0 || view.cluster != self.cluster {
                return;
            }
            left -= 1;
            self.writes += 1;
            self.judge_leave_to_begin(&decision.status);
            self.cluster.status = Some(decision.status.clone());
        }
        for action in decision.actions.iter().take(left) {
            if self.act(action).is_none() {
                return;
            }
        }
    }

    /// Carries one action out. Nothing if its guard no longer holds.
    pub(crate) fn act(&mut self, action: &Action) -> Option<()> {
        self.writes += 1;
        match &action.effect {
            Effect::Apply { object, how, guard } => {
                self.holds(guard, None, Some(object.name())).then_some(())?;
                // Whoever made it meanwhile, and gave it another size, has it: what is not forced meets a conflict.
                let there = self.objects.get(&object.key());
                let is_conflict = *how == ApplyMode::Create && there.is_some_and(|there| pods(there) != pods(object));
                (!is_conflict).then_some(())?;
                self.note_torn_down(object);
                self.apply((**object).clone());
            }
            Effect::Delete { key, guard } => {
                let Some(found) = self.objects.get(key) else { return Some(()) };
                self.holds(guard, found.metadata().uid.clone(), None).then_some(())?;
                let is_record = matches!(key.kind, Kind::EtcdMember | Kind::Lease);
                self.torn_down.extend(self.listed.keys().filter(|name| is_record && **name == key.name).cloned());
                self.delete(key);
            }
            Effect::RestartPod { name, guard } | Effect::RemovePod { name, guard } => {
                let Some(pod) = self.pods.get(name) else { return Some(()) };
                self.holds(guard, Some(pod.uid.clone()), Some(name)).then_some(())?;
                self.kill_pod(name);
            }
            Effect::SetServing { pod, uid, serving } => {
                let Some(pod) = self.pods.get_mut(pod) else { return Some(()) };
                (pod.uid == *uid).then_some(())?;
                pod.serving = *serving;
            }
            Effect::DeleteClaim { name, guard } => {
                let Some(claim) = self.claims.get(name) else { return Some(()) };
                let reach = self.reach(name);
                let target = ObjectMeta { uid: Some(claim.uid.clone()), ..ObjectMeta::default() };
                let (cluster, target) = (Some(&*self.cluster), Some(&target));
                guard.holds(Found { cluster, target, reach: Some(&reach), ..Found::default() }).then_some(())?;
                self.claims.remove(name);
                self.nodes.pins.remove(name);
                let is_of = |member: &&String| names::data_claim(member) == *name;
                let is_kept = self.cluster.metadata.deletion_timestamp.is_none();
                self.torn_down.extend(self.listed.keys().filter(|member| is_kept && is_of(member)).cloned());
                self.volumes.retain(|member, _| names::data_claim(member) != *name);
            }
            Effect::ChangeMembers { change, via, guard } => {
                let found = self.ask_for_members(&via.members);
                guard
                    .holds(Found { cluster: Some(&*self.cluster), members: Some(&found), ..Found::default() })
                    .then_some(())?;
                let via = via.members.iter().map(|endpoint| endpoint.member.clone()).collect::<Vec<_>>();
                self.judge_request(change);
                let done = self.take_change(change, &via);
                match std::mem::replace(&mut self.next_answer, Answer::Heard) {
                    Answer::Heard => done?,
                    Answer::Lost => return None,
                    Answer::Doubled => self.take_change(change, &via)?,
                }
            }
            Effect::IssueCertificate(request) => {
                let years = if request.issuer.is_none() { 10 } else { 1 };
                let fact = CertificateFact {
                    serial: Some(self.fresh_id("serial")),
                    issued: Some(self.now),
                    not_after: Some(self.now + SignedDuration::from_hours(years * 8760)),
                    subject: Some(request.subject()),
                    edited: false,
                };
                self.certificates.insert(request.secret.clone(), fact);
                // What was known about them is old now.
                if let Some(caches) = &mut self.caches {
                    caches.view.secrets = SecretsSeen::NotAsked;
                    caches.view.certificates.clear();
                }
            }
            Effect::AddFinalizer => {
                self.cluster.metadata.finalizers = Some(vec![names::VOLUMES_FINALIZER.to_owned()]);
            }
            Effect::RemoveFinalizer => self.cluster.metadata.finalizers = None,
        }
        Some(())
    }

    pub(crate) fn act_all(&mut self, actions: &[Action]) {
        let _stopped = actions.iter().try_for_each(|action| self.act(action));
    }

    /// A StatefulSet that gets fewer pods than etcd has members takes them from it.
    fn note_torn_down(&mut self, wanted: &Object) {
        let before = self.objects.get(&wanted.key()).and_then(pods);
        let (Some(before), Some(after)) = (before, pods(wanted)) else { return };
        let hibernated = self.cluster.spec.replicas == 0;
        let loses = |name: &&String| {
            names::ordinal_of("etcd", name).is_some_and(|ordinal| !hibernated && (after..before).contains(&ordinal))
        };
        self.torn_down.extend(self.listed.keys().filter(loses).cloned());
    }

    /// Judged by the function that ships, on what is true.
    fn holds(&self, guard: &Guard, uid: Option<String>, name: Option<&str>) -> bool {
        let target = ObjectMeta { uid, ..ObjectMeta::default() };
        let member = match self.objects.get(&ObjectKey::new(Kind::EtcdMember, name.unwrap_or_default())) {
            Some(Object::EtcdMember(member)) => Some(&**member),
            _ => None,
        };
        let pod = name.and_then(|name| self.pods.get(name));
        let node = pod.and_then(|pod| self.nodes.asked(pod.node.as_deref()?));
        guard.holds(Found {
            cluster: Some(&*self.cluster),
            target: Some(&target),
            member,
            pod,
            node,
            ..Found::default()
        })
    }
}

/// How many pods a StatefulSet has.
fn pods(object: &Object) -> Option<i32> {
    match object {
        Object::StatefulSet(set) => set.spec.as_ref()?.replicas,
        _ => None,
    }
}

/// When the Leases were last renewed.
fn renewals(objects: &BTreeMap<ObjectKey, Object>) -> impl Iterator<Item = (&String, Timestamp)> {
    objects.iter().filter_map(|(key, object)| match object {
        Object::Lease(lease) => Some((&key.name, Heartbeat::read(lease).renewed?)),
        _ => None,
    })
}
