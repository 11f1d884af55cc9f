//! What must never happen, noticed at the moment when it does: a moment later nothing may show it any more.

use quorate_api::conditions::{self, ConditionType};
use quorate_api::names;
use quorate_api::status::{EtcdClusterStatus, LatchState};
use quorate_core::action::MemberChange;
use quorate_core::start::Identity;
use quorate_core::{lease, quorum};

use super::etcd::{Beginning, StartRecord};
use super::world::World;
use jiff::SignedDuration;

impl World {
    /// What etcd is asked for, before it refuses: it is not to be relied on that it does. That a learner has not caught up
    /// only etcd can tell, so a vote for one is asked for until it is given.
    pub(super) fn judge_request(&mut self, change: &MemberChange) {
        let wrong = match change {
            MemberChange::AddLearner { member, .. } => {
                let learners = self.listed.iter().filter(|(_, listed)| listed.learner).map(|(name, _)| name.as_str());
                let beside = learners.chain(self.listed.get_key_value(member).map(|(name, _)| name.as_str()));
                let beside = beside.collect::<Vec<_>>();
                (!beside.is_empty()).then(|| format!("{member} was to be added as a learner beside {beside:?}"))
            }
            MemberChange::Promote { member, id } => {
                let is_it = self.listed.get(member).is_some_and(|listed| listed.id == *id && listed.started);
                (!is_it).then(|| format!("{member} was to get a vote and has never started"))
            }
            MemberChange::Remove { member, id } => {
                let has_vote = self.listed.values().any(|listed| listed.id == *id && !listed.learner);
                let harms = has_vote && self.at_once && !self.is_quorum_left(id);
                harms.then(|| format!("{member} was to be removed, and the rest is no quorum"))
            }
            MemberChange::DisarmCorrupt { .. } | MemberChange::MoveLeader { .. } => None,
        };
        self.wrongs.extend(wrong);
    }

    /// Whether the other voters that run, or that etcd has heard of since it last looked, are a majority of themselves.
    fn is_quorum_left(&self, removed: &str) -> bool {
        let others = self.listed.iter().filter(|(_, listed)| !listed.learner && listed.id != removed);
        let (mut size, mut there) = (0, 0);
        for (name, _) in others {
            size += 1;
            there += usize::from(self.connected.contains(name) || self.alive().any(|alive| alive == name));
        }
        quorum::is_quorate(there, size)
    }

    /// Leave to begin is given once, while nothing has begun and no volume that nobody has touched holds anything.
    pub(super) fn judge_leave_to_begin(&mut self, status: &EtcdClusterStatus) {
        let Some(latch) = status.latch.as_ref() else { return };
        let is_given = latch.state == LatchState::Issued && latch.recovery.is_none();
        if !is_given || self.latch_state() == Some(LatchState::Issued) {
            return;
        }
        let uid = self.cluster.metadata.uid.as_deref().unwrap_or_default();
        self.issued.insert(format!("etcd-{uid}-{}", latch.epoch));
        let is_known = |name: &String| {
            let is_there = self.is_ephemeral() || self.claims.contains_key(&names::data_claim(name));
            is_there && !self.recoveries.harmed.contains(name)
        };
        let had = self.volumes.iter().filter(|(name, _)| is_known(name));
        let had = had.filter(|(_, volume)| volume.data.is_some()).map(|(name, _)| name.clone()).collect::<Vec<_>>();
        if !had.is_empty() {
            self.wrongs.push(format!("leave to begin was given, and {had:?} have data"));
        }
        let is_new = |how: Beginning| how == Beginning::New;
        let begun = self.starts.iter().filter(|start| is_new(start.how) && start.epoch == latch.epoch);
        let begun = begun.map(|start| start.member.clone()).collect::<Vec<_>>();
        if !begun.is_empty() {
            self.wrongs.push(format!("leave to begin was given again, after {begun:?} had begun"));
        }
    }

    /// Nobody begins twice in an epoch.
    pub(super) fn note_start(&mut self, start: StartRecord) {
        let is_same = |before: &StartRecord| (&before.id, before.epoch) == (&start.id, start.epoch);
        if self.starts.iter().any(is_same) {
            self.wrongs.push(format!("{} has forgotten that it began", start.member));
        }
        self.starts.push(start);
    }

    /// A member begins as part of a new cluster while that is being formed, or late as one of its founders.
    pub(super) fn judge_new_start(&mut self, name: &str, token: &str, own: &Identity) {
        let is_forming = self.latch_state() == Some(LatchState::Issued);
        let is_founder = self.listed.get(name).is_some_and(|listed| listed.id == own.member_id && !listed.added);
        if !self.issued.contains(token) {
            self.wrongs.push(format!("{name} began as part of {token}, which nobody was given leave to begin"));
        } else if !is_forming && !is_founder {
            self.wrongs.push(format!("{name} began late, and was no founder of {token}"));
        }
    }

    /// No two run as the same member.
    pub(super) fn judge_identity(&mut self, name: &str) {
        let id =
            |name: &str| self.volumes.get(name).and_then(|volume| volume.data.as_ref()).map(|data| &data.member_id);
        let own = id(name);
        let twin = self.volumes.iter().find(|(other, volume)| *other != name && volume.running && id(other) == own);
        if let Some((twin, _)) = twin.filter(|_| own.is_some()) {
            self.wrongs.push(format!("{name} and {twin} both run as {own:?}"));
        }
    }

    /// Whoever has seen a revision of an incarnation that is given up never sees it again with something else in it.
    pub(super) fn judge_raise(&mut self, name: &str, raised_to: i64) {
        if raised_to <= self.revision {
            let known = self.revision;
            self.wrongs.push(format!("{name} began anew at revision {raised_to}, and {known} was acknowledged"));
        }
    }

    /// After a pass of an operator that has heard everything: where it says ready, a quorum has served while a Lease lasts.
    pub(super) fn judge_told(&mut self) {
        let Some(status) = self.cluster.status.as_ref() else { return };
        let ready = conditions::find(&status.conditions, ConditionType::Ready);
        let lasts = SignedDuration::from_secs(lease::DURATION_SECONDS.into());
        let served = self.served.is_some_and(|served| self.now.duration_since(served) < lasts);
        if !served && let Some(ready) = ready.filter(|ready| ready.status == "True") {
            self.wrongs.push(format!("nobody serves: {ready:?}"));
        }
    }
}
