//! Agents, volumes, and as much of etcd as membership needs.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use quorate_api::member::{DataReport, DataState, EtcdMemberStatus, EtcdReport};
use quorate_api::names::annotations;
use quorate_api::status::{LatchState, MemberRole};

use super::members::{Listed, Members, founder_id, list_of};
use super::raft::WRITES_AT_A_TIME;
use super::recovery::log_end;
use super::world::World;
use quorate_core::object::{Kind, Object, ObjectKey};
use quorate_core::record::{
    Inspection, Orders, VolumeRecord, beginning_report, confirm, judge, renewed, running_report,
};
use quorate_core::start::{Identity, Start};

/// A member's volume and the etcd on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) data: Option<Identity>,
    /// Who the members are, as of what this one has applied.
    pub(crate) members: Members,
    pub(crate) damaged: bool,
    /// A bit of a stored value is not what it was, and nothing in the data shows it.
    pub(crate) rotten: bool,
    pub(crate) running: bool,
    /// Beside the data.
    pub(crate) kept: VolumeRecord,
    /// As whom etcd was about to begin.
    pub(crate) prepared: Option<Identity>,
    /// Whose volume it is, as is written beside the data since something began on it.
    pub(crate) owner: Option<String>,
    /// Of the last write that it has.
    pub(crate) revision: i64,
    /// In which term the last entry of its log was made.
    pub(crate) log_term: i64,
    /// Entries behind the last one that was acknowledged: a leader has made them that nobody followed any more.
    pub(crate) unacknowledged: i64,
}

impl Volume {
    pub(crate) fn stop(&mut self) {
        self.running = false;
    }

    /// Exchanged for one that was never known to be this member's.
    pub(crate) fn becomes_one_of_cluster(&mut self, cluster_id: &str) {
        self.data.iter_mut().for_each(|data| cluster_id.clone_into(&mut data.cluster_id));
        self.kept = VolumeRecord::default();
    }

    /// Somebody puts the data of another member into the directory of this one. Nothing is done to one that does not know
    /// whose data it should hold: nobody could tell.
    pub(crate) fn gets_data_of(&mut self, other: &Self) {
        if self.kept.mark.is_some() && other.data.is_some() {
            self.data.clone_from(&other.data);
            self.members.clone_from(&other.members);
            (self.revision, self.log_term, self.unacknowledged) = (other.revision, other.log_term, 0);
        }
    }

    /// One of a cluster that nobody here has ever heard of.
    pub(crate) fn of_strangers() -> Self {
        let data = Identity {
            cluster_id: "cluster-of-strangers".to_owned(),
            member_id: "stranger".to_owned(),
            epoch: 1,
            boot_count: 3,
            last_index: 1_000,
        };
        Self { data: Some(data), owner: Some("stranger-0".to_owned()), ..Self::default() }
    }

    /// Whether it says of itself that it is somebody else's.
    fn is_foreign_to(&self, name: &str) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner != name)
    }

    fn inspect(&self) -> Inspection {
        match (&self.data, self.damaged) {
            (_, true) => Inspection::unusable(DataState::Damaged, "a page is torn".to_owned()),
            (None, false) => self.prepared.clone().map_or_else(Inspection::empty, Inspection::prepared),
            (Some(data), false) => {
                let members = list_of(&self.members);
                Inspection {
                    committed_index: Some(data.last_index),
                    log_end: Some(log_end(self, data)),
                    revision: Some(self.revision),
                    members,
                    ..Inspection::valid(data.clone())
                }
            }
        }
    }
}

/// How an etcd came to be that was not there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// As part of a new cluster.
    New,
    Joined,
    /// As a new incarnation of what was there.
    FromCopy,
}

/// A start of an etcd without data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartRecord {
    pub(crate) member: String,
    /// Which member of etcd it has become.
    pub(crate) id: String,
    pub(crate) epoch: i64,
    pub(crate) how: Beginning,
    /// What the latch truly said at that moment.
    pub(crate) latch: Option<LatchState>,
}

impl World {
    /// The agent of a member looks at its volume, starts or stops etcd as it must, and reports.
    pub(crate) fn run_agent(&mut self, name: &str) {
        self.take_turn(name, false);
    }

    /// The same, but if etcd is about to begin for the first time, the pod dies after that was put on record.
    pub(crate) fn run_agent_that_dies_before_etcd_begins(&mut self, name: &str) {
        self.take_turn(name, true);
    }

    fn take_turn(&mut self, name: &str, dies: bool) {
        if !self.is_placed(name) || self.frozen.iter().any(|frozen| frozen == name) {
            return;
        }
        if !self.volumes.contains_key(name) {
            return;
        }
        self.steps += 1;
        let orders = self.orders(name);
        if let Some(volume) = self.volumes.get_mut(name).filter(|volume| volume.running) {
            let (start, keep) = confirm(&orders, &volume.kept);
            volume.kept = keep;
            volume.running = start == Start::Resume;
            if volume.running {
                self.report_running(name, &orders);
            }
            return;
        }
        let Some(mut volume) = self.volumes.get(name).cloned() else { return };
        let verdict = if volume.is_foreign_to(name) {
            let inspection = Inspection::unusable(DataState::Foreign, "it is somebody else's".to_owned());
            judge(&inspection, &orders, &VolumeRecord::default())
        } else {
            judge(&volume.inspect(), &orders, &volume.kept)
        };
        // Nothing is written on a volume that is somebody else's.
        if !volume.is_foreign_to(name) || matches!(verdict.start, Start::Quarantine(_)) {
            volume.kept = verdict.keep;
        }
        match verdict.start {
            Start::Resume => {
                volume.data.iter_mut().for_each(|data| data.boot_count += 1);
                volume.running = true;
            }
            Start::New { epoch, token, initial_cluster } => {
                let founders = initial_cluster.into_iter().map(|peer| {
                    let id = founder_id(&peer.name, &token);
                    (peer.name, Listed::founder(id))
                });
                volume.members = founders.collect();
                if self.listed_of != token {
                    self.listed.clone_from(&volume.members);
                    self.listed_of.clone_from(&token);
                }
                let own = Identity {
                    cluster_id: format!("cluster-of-{token}"),
                    member_id: founder_id(name, &token),
                    epoch,
                    boot_count: 1,
                    last_index: 0,
                };
                if dies {
                    self.prepare(name, volume, &own);
                    self.kill_pod(name);
                    return;
                }
                self.judge_new_start(name, &token, &own);
                self.let_begin(name, &mut volume, own, Beginning::New);
            }
            Start::Join { epoch, cluster_id, member_id, initial_cluster } => {
                let own = Identity { cluster_id, member_id, epoch, boot_count: 1, last_index: 0 };
                let names = initial_cluster.into_iter().map(|peer| peer.name).collect::<BTreeSet<_>>();
                let is_listed = self.listed.get(name).is_some_and(|listed| listed.id == own.member_id);
                // etcd asks the others who the members are, and ends if it was told something else.
                let finds_others = !self.serving().is_empty() && is_listed && names.iter().eq(self.listed.keys());
                if dies || !finds_others {
                    self.prepare(name, volume, &own);
                    self.kill_pod(name);
                    return;
                }
                volume.members.clone_from(&self.listed);
                self.recoveries.harmed.remove(name);
                self.let_begin(name, &mut volume, own, Beginning::Joined);
            }
            Start::Quarantine(_) => volume = Volume { kept: volume.kept, ..Volume::default() },
            Start::Recover { epoch, token, raise_to, .. } => {
                self.begin_from_copy(name, &mut volume, epoch, &token, raise_to);
                volume.running = !dies;
                self.volumes.insert(name.to_owned(), volume);
                if dies {
                    self.kill_pod(name);
                    return;
                }
                self.judge_identity(name);
                let orders = self.orders(name);
                self.report_running(name, &orders);
                return;
            }
            // Nothing hands out tickets to restore yet.
            Start::Restore { .. } | Start::Wait(_) | Start::Refuse(_) => {}
        }
        let running = volume.running;
        self.volumes.insert(name.to_owned(), volume);
        if running {
            self.judge_identity(name);
            self.report_running(name, &orders);
        } else if orders.answered() {
            self.report(name, Some(verdict.report), EtcdReport::default());
        }
    }

    /// That it begins is on record and on the volume, and it has not begun.
    fn prepare(&mut self, name: &str, mut volume: Volume, own: &Identity) {
        volume.prepared = Some(own.clone());
        volume.owner = Some(name.to_owned());
        self.volumes.insert(name.to_owned(), volume);
        self.report(name, Some(beginning_report(own)), EtcdReport::default());
    }

    fn let_begin(&mut self, name: &str, volume: &mut Volume, own: Identity, how: Beginning) {
        let (member, id, epoch) = (name.to_owned(), own.member_id.clone(), own.epoch);
        self.note_start(StartRecord { member, id, epoch, how, latch: self.latch_state() });
        volume.data = Some(own);
        volume.owner = Some(name.to_owned());
        volume.prepared = None;
        volume.running = true;
    }

    /// What the member's agent hears from the API.
    pub(crate) fn orders(&self, name: &str) -> Orders {
        if self.away.contains(name) {
            return Orders::unreachable();
        }
        if self.refused.contains(name) {
            return Orders::refused();
        }
        self.records(name)
    }

    pub(super) fn is_answered(&self, name: &str) -> bool {
        !self.away.contains(name) && !self.refused.contains(name)
    }

    /// What the API has to say about a member.
    pub(crate) fn records(&self, name: &str) -> Orders {
        let member = match self.objects.get(&ObjectKey::new(Kind::EtcdMember, name)) {
            Some(Object::EtcdMember(member)) => Some(&**member),
            _ => None,
        };
        let lease = match self.objects.get(&ObjectKey::new(Kind::Lease, name)) {
            Some(Object::Lease(lease)) => Some(&**lease),
            _ => None,
        };
        Orders::read(member, lease)
    }

    /// Nothing is said about an etcd before what it began from was compared with the record.
    fn report_running(&mut self, name: &str, orders: &Orders) {
        let Some(volume) = self.volumes.get(name) else { return };
        let Some(data) = volume.data.clone().filter(|_| orders.answered() && volume.kept.unconfirmed.is_none()) else {
            return;
        };
        let has_leader = self.serving().iter().any(|serving| serving == name);
        let etcd = EtcdReport {
            index: (!has_leader).then_some(data.last_index),
            running: true,
            cluster_id: Some(data.cluster_id.clone()),
            member_id: Some(data.member_id.clone()),
            version: Some("3.6.16".to_owned()),
            members: list_of(&volume.members),
            alarms: self.alarms.clone(),
            ..EtcdReport::default()
        };
        self.report(name, Some(running_report(&data, orders.last_report.as_ref())), etcd);
    }

    pub(super) fn report(&mut self, name: &str, data: Option<DataReport>, etcd: EtcdReport) {
        if let Some(Object::EtcdMember(member)) = self.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, name)) {
            member.status = Some(EtcdMemberStatus { data, etcd: Some(etcd), ..EtcdMemberStatus::default() });
        }
    }

    pub(super) fn renew(&mut self, name: &str) {
        let Some(volume) = self.volumes.get_mut(name).filter(|volume| volume.kept.unconfirmed.is_none()) else {
            return;
        };
        let Some(data) = volume.data.clone() else { return };
        let mark = renewed(volume.kept.mark.as_ref(), &data);
        let role = match self.listed.get(name) {
            _ if self.leader.as_deref() == Some(name) => MemberRole::Leader,
            Some(listed) if listed.learner => MemberRole::Learner,
            _ => MemberRole::Member,
        };
        if let Some(Object::Lease(lease)) = self.objects.get_mut(&ObjectKey::new(Kind::Lease, name)) {
            let all = lease.metadata.annotations.get_or_insert_default();
            all.insert(annotations::BOOT_COUNT.to_owned(), mark.boot_count.to_string());
            all.insert(annotations::LAST_INDEX.to_owned(), mark.last_index.to_string());
            all.insert(annotations::TERM.to_owned(), self.term.to_string());
            // What is written while it is being renewed is not in it yet.
            let revision = volume.revision.saturating_sub(WRITES_AT_A_TIME);
            all.insert(annotations::REVISION.to_owned(), revision.to_string());
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = Some(format!("{}:{}", data.member_id, role.as_str()));
            spec.renew_time = Some(MicroTime(self.now));
            volume.kept.mark = Some(mark);
        }
    }

    /// One round in which everybody gets a turn.
    pub(crate) fn round(&mut self) -> quorate_core::Decision {
        self.live_until_operator();
        self.operate(None)
    }

    /// The same, up to the operator's turn.
    pub(crate) fn live_until_operator(&mut self) {
        self.advance(SignedDuration::from_secs(3));
        self.schedule();
        for name in self.member_names() {
            self.run_agent(&name);
        }
        self.run_etcd();
    }
}
