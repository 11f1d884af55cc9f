//! Agents, volumes, and as much of etcd as membership needs.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use quorate_api::member::{DataReport, DataState, EtcdMemberStatus, EtcdReport, Ticket};
use quorate_api::names::annotations;
use quorate_api::status::{LatchState, MemberRole};

use super::world::World;
use quorate_core::lease::Heartbeat;
use quorate_core::object::{Kind, Object, ObjectKey};
use quorate_core::quorum;
use quorate_core::start::{Found, Identity, Start, Word, start};

/// A member's volume and the etcd on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) data: Option<Identity>,
    pub(crate) damaged: bool,
    pub(crate) running: bool,
}

impl Volume {
    pub(crate) fn stop(&mut self) {
        self.running = false;
    }

    fn found(&self) -> Found {
        let state = match (&self.data, self.damaged) {
            (_, true) => DataState::Damaged,
            (Some(_), false) => DataState::Valid,
            (None, false) => DataState::Empty,
        };
        Found { state, identity: self.data.clone() }
    }
}

/// A start of an etcd without data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartRecord {
    pub(crate) member: String,
    pub(crate) epoch: i64,
    /// What the latch truly said at that moment.
    pub(crate) latch: Option<LatchState>,
    /// Whether the cluster had ever been formed by then, whatever its status says.
    pub(crate) after_formed: bool,
}

impl World {
    /// The agent of a member looks at its volume, starts etcd if it may, and reports.
    pub(crate) fn run_agent(&mut self, name: &str) {
        if !self.pods.contains_key(name) || self.frozen.iter().any(|frozen| frozen == name) {
            return;
        }
        let Some(mut volume) = self.volumes.get(name).cloned() else { return };
        let mut refusal = None;
        if !volume.running {
            let ticket = self.ticket(name);
            let recorded = self.recorded(name);
            match start(&volume.found(), &ticket, &recorded) {
                Start::New { epoch, token, .. } => {
                    self.starts.push(StartRecord {
                        member: name.to_owned(),
                        epoch,
                        latch: self.latch_state(),
                        after_formed: self.ever_formed,
                    });
                    volume.data = Some(Identity {
                        cluster_id: format!("cluster-of-{token}"),
                        member_id: format!("{name}-of-{token}"),
                        epoch,
                        boot_count: 1,
                        last_index: 0,
                    });
                    volume.running = true;
                }
                Start::Resume => {
                    if let Some(data) = &mut volume.data {
                        data.boot_count += 1;
                    }
                    volume.running = true;
                }
                Start::Quarantine(_) => volume = Volume::default(),
                Start::Refuse(why) => refusal = Some(format!("{why:?}")),
                // Nothing hands out tickets to join or to restore yet.
                Start::Join { .. } | Start::Restore { .. } | Start::Wait(_) => {}
            }
        }
        self.volumes.insert(name.to_owned(), volume);
        self.record_mark(name);
        self.report(name, refusal);
    }

    /// Raft, in one breath: a majority of one cluster elects a leader, and accepts a write.
    pub(crate) fn run_etcd(&mut self) {
        let serving = self.serving();
        let leads = |leader: &String| serving.contains(leader);
        if !self.leader.as_ref().is_some_and(leads) {
            self.leader = serving.iter().max_by_key(|name| self.last_index(name)).cloned();
            self.term += i64::from(self.leader.is_some());
        }
        if !serving.is_empty() {
            self.lost_writes |= serving.iter().all(|name| self.last_index(name) < self.acknowledged);
            self.acknowledged += 1;
        }
        for name in &serving {
            if let Some(data) = self.volumes.get_mut(name).and_then(|volume| volume.data.as_mut()) {
                data.last_index = self.acknowledged;
            }
        }
        let names = self.pods.keys().cloned().collect::<Vec<_>>();
        for name in names {
            let ready = serving.contains(&name);
            if let Some(pod) = self.pods.get_mut(&name) {
                pod.ready = ready;
            }
            if ready && self.has_token(&name) {
                self.record_mark(&name);
                self.heartbeat(&name);
            }
        }
    }

    /// A pod's token dies with the account that it was made for.
    fn has_token(&self, name: &str) -> bool {
        let account = self.objects.get(&ObjectKey::new(Kind::ServiceAccount, "etcd-member"));
        let made = account.and_then(|account| account.metadata().creation_timestamp.as_ref()).map(|time| time.0);
        made.is_some_and(|made| self.pods.get(name).and_then(|pod| pod.created).is_none_or(|created| created >= made))
    }

    /// Members that have a quorum with each other. Empty if there is none.
    pub(crate) fn serving(&self) -> Vec<String> {
        let frozen = |name: &String| self.frozen.contains(name);
        let running = self.volumes.iter().filter(|(name, volume)| volume.running && !frozen(name));
        let alive = running.filter_map(|(name, volume)| Some((name.clone(), volume.data.as_ref()?.cluster_id.clone())));
        let alive = alive.collect::<Vec<_>>();
        let size = usize::try_from(self.cluster.spec.replicas).unwrap_or(0);
        let together = |id: &String| alive.iter().filter(|(_, other)| other == id).count();
        let quorate = alive.iter().filter(|(_, id)| quorum::is_quorate(together(id), size));
        quorate.map(|(name, _)| name.clone()).collect()
    }

    fn last_index(&self, name: &str) -> i64 {
        self.volumes.get(name).and_then(|volume| volume.data.as_ref()).map_or(0, |data| data.last_index)
    }

    fn ticket(&self, name: &str) -> Word<Ticket> {
        match self.objects.get(&ObjectKey::new(Kind::EtcdMember, name)) {
            Some(Object::EtcdMember(member)) => Word::Known(member.spec.ticket.clone()),
            _ => Word::Nothing,
        }
    }

    /// What is on record outside of the volume: identity in the EtcdMember, figures there and on the Lease. The higher
    /// figure counts.
    fn recorded(&self, name: &str) -> Word<Identity> {
        let Some(Object::EtcdMember(member)) = self.objects.get(&ObjectKey::new(Kind::EtcdMember, name)) else {
            return Word::Nothing;
        };
        let Some(data) = member.status.as_ref().and_then(|status| status.data.clone()) else { return Word::Nothing };
        let heartbeat = match self.objects.get(&ObjectKey::new(Kind::Lease, name)) {
            Some(Object::Lease(lease)) => Heartbeat::read(lease),
            _ => Heartbeat::default(),
        };
        match (data.cluster_id, data.member_id, data.epoch) {
            (Some(cluster_id), Some(member_id), Some(epoch)) => Word::Known(Identity {
                cluster_id,
                member_id,
                epoch,
                boot_count: data.boot_count.max(heartbeat.boot_count).unwrap_or(0),
                last_index: data.last_index.max(heartbeat.last_index).unwrap_or(0),
            }),
            _ => Word::Nothing,
        }
    }

    /// The record only grows. A volume that has gone back does not take it along.
    fn record_mark(&mut self, name: &str) {
        let Some(volume) = self.volumes.get(name).filter(|volume| volume.running) else { return };
        let Some(data) = volume.data.clone() else { return };
        if let Some(Object::Lease(lease)) = self.objects.get_mut(&ObjectKey::new(Kind::Lease, name)) {
            let all = lease.metadata.annotations.get_or_insert_default();
            all.insert(annotations::BOOT_COUNT.to_owned(), data.boot_count.to_string());
            all.insert(annotations::LAST_INDEX.to_owned(), data.last_index.to_string());
            all.insert(annotations::TERM.to_owned(), self.term.to_string());
        }
    }

    /// The record does not follow the volume: what is on it stays when the data is gone or is not its continuation, and
    /// its figures never go back.
    fn report(&mut self, name: &str, refusal: Option<String>) {
        let Some(volume) = self.volumes.get(name).cloned() else { return };
        let Some(Object::EtcdMember(member)) = self.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, name)) else {
            return;
        };
        let before = member.status.take().and_then(|status| status.data).filter(|data| data.member_id.is_some());
        let found = volume.found();
        let state = if refusal.is_some() && found.state == DataState::Valid { DataState::Fenced } else { found.state };
        let own = volume.data.clone().filter(|_| !volume.damaged).map(|own| DataReport {
            state,
            reason: None,
            cluster_id: Some(own.cluster_id),
            member_id: Some(own.member_id),
            epoch: Some(own.epoch),
            revision: None,
            last_index: Some(own.last_index),
            boot_count: Some(own.boot_count),
        });
        let known = match (own, before) {
            (Some(own), Some(before)) if own.epoch <= before.epoch || refusal.is_some() => Some(DataReport {
                last_index: own.last_index.max(before.last_index),
                boot_count: own.boot_count.max(before.boot_count),
                ..before
            }),
            (Some(own), _) => Some(own),
            (None, before) => before,
        };
        let running = volume.data.as_ref().filter(|_| volume.running);
        member.status = Some(EtcdMemberStatus {
            data: Some(DataReport { state, reason: refusal, ..known.unwrap_or(DataReport::of(state)) }),
            etcd: Some(EtcdReport {
                running: running.is_some(),
                cluster_id: running.map(|data| data.cluster_id.clone()),
                member_id: running.map(|data| data.member_id.clone()),
                version: running.map(|_| "3.6.16".to_owned()),
                ..EtcdReport::default()
            }),
            backup: None,
        });
    }

    fn heartbeat(&mut self, name: &str) {
        let role = if self.leader.as_deref() == Some(name) { MemberRole::Leader } else { MemberRole::Member };
        let id = self.volumes.get(name).and_then(|volume| volume.data.as_ref()).map(|data| data.member_id.clone());
        let now = self.now;
        if let Some(Object::Lease(lease)) = self.objects.get_mut(&ObjectKey::new(Kind::Lease, name)) {
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = id.map(|id| format!("{id}:{}", role.as_str()));
            spec.renew_time = Some(MicroTime(now));
        }
    }

    /// One round in which everybody gets a turn.
    pub(crate) fn round(&mut self) -> quorate_core::Decision {
        self.advance(SignedDuration::from_secs(3));
        self.schedule();
        for name in self.member_names() {
            self.run_agent(&name);
        }
        self.run_etcd();
        self.operate(None)
    }
}
