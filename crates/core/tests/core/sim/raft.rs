//! What a quorum does: it elects, it acknowledges, and it feeds its learners.

use jiff::SignedDuration;
use quorate_core::object::{Kind, ObjectKey};

use super::world::World;

/// What one breath of etcd stands for.
pub(super) const WRITES_AT_A_TIME: i64 = 1_000;

impl World {
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
            self.revision += WRITES_AT_A_TIME;
            self.served = Some(self.now);
        }
        self.end_former_members();
        self.notice_who_is_there();
        let learning = self.learning();
        for name in serving.iter().chain(&learning) {
            self.listed.entry(name.clone()).and_modify(|listed| listed.started = true);
        }
        let fed = learning.iter().filter(|name| !self.starved.contains(*name)).cloned().collect::<Vec<_>>();
        for name in serving.iter().chain(&fed) {
            let Some(volume) = self.volumes.get_mut(name) else { continue };
            volume.data.iter_mut().for_each(|data| data.last_index = self.acknowledged);
            volume.kept.reached_index = self.acknowledged;
            (volume.revision, volume.log_term, volume.unacknowledged) = (self.revision, self.term, 0);
            if volume.members != self.listed {
                volume.members.clone_from(&self.listed);
            }
        }
        let names = self.pods.keys().cloned().collect::<Vec<_>>();
        for name in names {
            let ready = serving.contains(&name);
            if let Some(pod) = self.pods.get_mut(&name) {
                pod.ready = ready;
            }
            if (ready || learning.contains(&name)) && self.has_token(&name) && self.is_answered(&name) {
                self.renew(&name);
            }
        }
    }

    /// A leader that nobody follows any more, and that has not noticed yet, appends what it will never acknowledge.
    pub(crate) fn write_alone(&mut self) {
        let Some(leader) = self.leader.clone() else { return };
        let is_alone = !self.serving().contains(&leader) && self.alive().any(|name| *name == leader);
        if let Some(volume) = self.volumes.get_mut(&leader).filter(|_| is_alone) {
            volume.unacknowledged += 1;
        }
    }

    /// A pod's token dies with the account that it was made for. The kubelet gets another one when that would have ended.
    fn has_token(&self, name: &str) -> bool {
        let account = self.objects.get(&ObjectKey::new(Kind::ServiceAccount, "etcd-member"));
        let made = account.and_then(|account| account.metadata().creation_timestamp.as_ref()).map(|time| time.0);
        let created = self.pods.get(name).and_then(|pod| pod.created);
        made.is_some_and(|made| {
            let is_renewed = self.now.duration_since(made) >= SignedDuration::from_hours(1);
            is_renewed || created.is_none_or(|created| created >= made)
        })
    }

    pub(super) fn last_index(&self, name: &str) -> i64 {
        self.volumes.get(name).and_then(|volume| volume.data.as_ref()).map_or(0, |data| data.last_index)
    }
}
