//! Who the members of etcd are, and what etcd does when it is told to change that.

use std::collections::BTreeMap;

use quorate_api::member::ListedMember;
use quorate_api::names;
use quorate_core::action::MemberChange;
use quorate_core::quorum;

use super::world::World;

/// By the name of the pod, which the address tells.
pub(crate) type Members = BTreeMap<String, Listed>;

/// A member as etcd has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) learner: bool,
    pub(crate) started: bool,
    /// Whether it was added to a cluster that ran already: then etcd learns its name from itself.
    pub(crate) added: bool,
}

impl Listed {
    pub(crate) fn founder(id: String) -> Self {
        Self { id, learner: false, started: false, added: false }
    }

    /// Added by somebody else, with a vote.
    pub(crate) fn by_hand(name: &str, started: bool) -> Self {
        Self { started, added: true, ..Self::founder(format!("id-of-{name}")) }
    }
}

/// A number, as etcd makes it from the addresses and the token.
pub(super) fn founder_id(name: &str, token: &str) -> String {
    let digest = quorate_core::short_digest(format!("{name} of {token}").as_bytes());
    format!("{:x}", u64::from_str_radix(&digest, 16).unwrap())
}

/// A list as etcd gives it.
pub(super) fn list_of(members: &Members) -> Vec<ListedMember> {
    let listed = |(name, listed): (&String, &Listed)| ListedMember {
        id: listed.id.clone(),
        name: if listed.added && !listed.started { String::new() } else { name.clone() },
        peer_urls: vec![format!("https://{name}.etcd-peer.default.svc:2380")],
        learner: listed.learner,
        started: listed.started,
    };
    members.iter().map(listed).collect()
}

impl World {
    /// Voters that have a quorum with each other. Empty if there is none.
    pub(crate) fn serving(&self) -> Vec<String> {
        let alive = self.alive().filter(|name| self.listed.get(*name).is_some_and(|listed| !listed.learner));
        let cluster = |name: &String| self.volumes[name].data.as_ref().map(|data| data.cluster_id.as_str());
        let alive = alive.filter_map(|name| Some((name, cluster(name)?))).collect::<Vec<_>>();
        let size = self.listed.values().filter(|listed| !listed.learner).count();
        let together = |id: &str| alive.iter().filter(|(_, other)| *other == id).count();
        let quorate = alive.iter().filter(|(_, id)| quorum::is_quorate(together(id), size));
        quorate.map(|(name, _)| (*name).clone()).collect()
    }

    /// Members of this list whose etcd runs, on the data of the very member that is listed.
    pub(super) fn alive(&self) -> impl Iterator<Item = &String> {
        let is_listed = |name: &String, id: &str| self.listed.get(name).is_some_and(|listed| listed.id == id);
        self.volumes.iter().filter_map(move |(name, volume)| {
            let data = volume.data.as_ref().filter(|_| volume.running && !self.frozen.contains(name))?;
            is_listed(name, &data.member_id).then_some(name)
        })
    }

    /// Learners that are in touch with a quorum.
    pub(super) fn learning(&self) -> Vec<String> {
        if self.serving().is_empty() {
            return Vec::new();
        }
        self.alive().filter(|name| self.listed[*name].learner).cloned().collect()
    }

    /// Whoever runs and is no member any more is told so by the others, and ends.
    pub(super) fn end_former_members(&mut self) {
        if self.serving().is_empty() {
            return;
        }
        let listed = &self.listed;
        let of = format!("cluster-of-{}", self.listed_of);
        for (name, volume) in &mut self.volumes {
            let is_former = volume.data.as_ref().is_some_and(|data| {
                data.cluster_id == of && listed.get(name).is_none_or(|listed| listed.id != data.member_id)
            });
            volume.running &= !is_former;
        }
    }

    /// Somebody changes who the members are, past the operator, which takes a quorum. It takes a human longer than a pass, so
    /// none that began before acts after it.
    pub(crate) fn change_members_by_hand(&mut self, change: impl Fn(&mut Members)) {
        if self.serving().is_empty() {
            return;
        }
        self.pass = None;
        self.change_members(change);
    }

    /// A change is an entry of the log like any other.
    fn change_members(&mut self, change: impl Fn(&mut Members)) {
        let serving = self.serving();
        change(&mut self.listed);
        self.acknowledged += 1;
        for name in serving {
            self.volumes.entry(name).and_modify(|volume| {
                volume.members.clone_from(&self.listed);
                volume.data.iter_mut().for_each(|data| data.last_index = self.acknowledged);
            });
        }
    }

    /// As etcd does it. Nothing if it refuses, or if nobody answers.
    pub(super) fn take_change(&mut self, change: &MemberChange, via: &[String]) -> Option<()> {
        let serving = self.serving();
        via.iter().find(|name| serving.contains(name) && !self.cut_off.contains(*name))?;
        match change {
            MemberChange::AddLearner { member, .. } => {
                let all_connected = self.listed.iter().all(|(name, listed)| listed.learner || serving.contains(name));
                let one_at_a_time = self.listed.values().all(|listed| !listed.learner);
                (all_connected && one_at_a_time && !self.listed.contains_key(member)).then_some(())?;
                let id = founder_id(member, &self.fresh_id("member"));
                let listed = Listed { learner: true, added: true, ..Listed::founder(id) };
                self.change_members(|members| drop(members.insert(member.clone(), listed.clone())));
            }
            MemberChange::Promote { member, id } => {
                let is_it = |listed: &&Listed| listed.id == *id && listed.learner && listed.started;
                self.listed.get(member).filter(is_it)?;
                let has_caught_up = self.learning().contains(member) && self.last_index(member) == self.acknowledged;
                has_caught_up.then_some(())?;
                self.change_members(|members| drop(members.entry(member.clone()).and_modify(|it| it.learner = false)));
                self.volumes.entry(member.clone()).and_modify(|volume| volume.members.clone_from(&self.listed));
            }
            MemberChange::Remove { id, .. } => {
                // It is known by its identifier alone.
                let (member, _) = self.listed.iter().find(|(_, listed)| listed.id == *id)?;
                let member = &member.clone();
                // etcd lets nobody go who is there if too few of the others are.
                let is_dead = !self.connected.contains(member);
                (is_dead || self.listed[member].learner || self.is_quorate_without(Some(member))).then_some(())?;
                self.judge_removal(member, id);
                self.change_members(|members| drop(members.remove(member)));
            }
            MemberChange::DisarmCorrupt { id } => {
                let number = u64::from_str_radix(id, 16).unwrap();
                self.alarms.retain(|alarm| *alarm != format!("memberID:{number} alarm:CORRUPT "));
            }
            MemberChange::MoveLeader { from, to, .. } => {
                (self.leader.as_ref() == Some(from) && serving.contains(to)).then_some(())?;
                self.leader = Some(to.clone());
                self.term += 1;
            }
        }
        // Whatever was changed, those that are left go on: as far as etcd knew, or as it is.
        self.quorum_given_away |= !self.is_quorate_without(None) && self.serving().is_empty();
        Some(())
    }

    /// Whether those that etcd was last in touch with are a majority, also without this one.
    pub(super) fn is_quorate_without(&self, member: Option<&String>) -> bool {
        let voters = self.listed.iter().filter(|(name, listed)| !listed.learner && Some(*name) != member);
        let (mut size, mut connected) = (0, 0);
        for (name, _) in voters {
            size += 1;
            connected += usize::from(self.connected.contains(name));
        }
        quorum::is_quorate(connected, size)
    }

    pub(super) fn notice_who_is_there(&mut self) {
        self.connected = self.alive().cloned().collect();
    }

    /// Whoever is removed is beyond what is wished for, or has nothing that it could start from.
    fn judge_removal(&mut self, member: &str, id: &str) {
        let is_surplus = names::ordinal_of("etcd", member).is_none_or(|ordinal| ordinal >= self.cluster.spec.replicas);
        let is_sound = self.volumes.get(member).is_some_and(|volume| {
            let is_its_own = volume.data.as_ref().is_some_and(|data| data.member_id == id);
            is_its_own && !volume.damaged && volume.kept.fence.is_none()
        });
        // Whose volume was touched since it began may have been looked at before it was put right.
        let is_sound = is_sound && !self.recoveries.harmed.contains(member);
        if is_sound && !is_surplus {
            self.wrongly_removed.push(member.to_owned());
        }
    }
}
