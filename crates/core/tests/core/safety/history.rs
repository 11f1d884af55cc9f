//! One history: a world, and what happens in it.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use quorate_api::names::annotations;
use quorate_api::status::{LatchState, MemberRole};
use quorate_api::storage::Ephemeral;
use quorate_core::object::{Kind, Object, ObjectKey};

use super::events::Event;
use super::pace;
use crate::common::{seconds, settle};
use crate::sim::{Answer, Crash, Listed, Volume, World};

pub(super) struct History {
    pub(super) world: World,
    old_volumes: Vec<(String, Volume)>,
    /// Members whose volume is older than their record.
    pub(super) forgetful: BTreeSet<String>,
    /// Faults so far.
    faults: u64,
}

/// What the volumes are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    /// They follow their pods.
    Moving,
    /// Of a node's own disk, and given up a minute after that is gone for good.
    Local,
    /// They go with their pods.
    Ephemeral,
}

impl Drop for History {
    fn drop(&mut self) {
        pace::count(self.world.steps + self.faults);
    }
}

impl History {
    pub(super) fn new(replicas: i32) -> Self {
        Self::of(World::new(replicas))
    }

    fn of(world: World) -> Self {
        Self { world, old_volumes: Vec::new(), forgetful: BTreeSet::new(), faults: 0 }
    }

    /// It begins with a cluster that has formed and settled.
    pub(super) fn of_settled(replicas: i32) -> Self {
        Self::of_settled_on(Ground::Moving, replicas)
    }

    pub(super) fn of_settled_on(ground: Ground, replicas: i32) -> Self {
        static SETTLED: [[OnceLock<World>; 6]; 3] = [const { [const { OnceLock::new() }; 6] }; 3];
        let form = || {
            let mut world = World::new(replicas);
            match ground {
                Ground::Moving => {}
                Ground::Local => {
                    world.nodes.local = true;
                    world.cluster.spec.recovery.node_lost_after = Some("1m".to_owned());
                }
                Ground::Ephemeral => world.cluster.spec.storage.ephemeral = Some(Ephemeral::default()),
            }
            settle(&mut world);
            world.steps = 0;
            world
        };
        Self::of(SETTLED[ground as usize][usize::try_from(replicas).unwrap()].get_or_init(form).clone())
    }

    /// The same, and nothing that must never happen has happened after any of it.
    pub(super) fn happen_all(&mut self, events: &[Event]) -> TestCaseResult {
        events.iter().try_for_each(|event| self.happen_safely(event))
    }

    pub(super) fn happen_safely(&mut self, event: &Event) -> TestCaseResult {
        self.happen(event);
        check(&self.world)
    }

    /// Everything that was taken away comes back.
    pub(super) fn end_faults(&mut self) -> TestCaseResult {
        let ends = [Event::Thaw, Event::Pause(false), Event::Reconnect, Event::ApiBack, Event::Feed, Event::NodesBack];
        self.happen_all(&ends)
    }

    /// Rounds until two in a row have written nothing, and again after each of these times.
    pub(super) fn calm_down(&mut self, waits: &[i64]) -> TestCaseResult {
        for wait in waits {
            self.calm_down_once()?;
            self.world.advance(seconds(*wait));
        }
        self.calm_down_once()
    }

    fn calm_down_once(&mut self) -> TestCaseResult {
        let mut calm = 0;
        for _ in 0..60 {
            let writes = self.world.writes;
            self.world.round();
            check(&self.world)?;
            calm = if self.world.writes == writes { calm + 1 } else { 0 };
            if calm == 2 {
                break;
            }
        }
        Ok(())
    }

    /// Three more passes change nothing.
    pub(super) fn is_silent(&mut self) -> TestCaseResult {
        for _ in 0..3 {
            let before = self.world.cluster.status.clone();
            let decision = self.world.round();
            check(&self.world)?;
            prop_assert_eq!(&decision.actions, &[]);
            prop_assert_eq!(Some(decision.status), before);
        }
        Ok(())
    }

    #[expect(clippy::too_many_lines, reason = "a line or two for each of the many things that can happen")]
    pub(super) fn happen(&mut self, event: &Event) {
        self.faults += u64::from(event.is_fault());
        let world = &mut self.world;
        let names = if event.is_about_a_member() { world.member_names() } else { Vec::new() };
        let pick = |n: usize| names.get(n % names.len().max(1)).cloned().unwrap_or_default();
        match event {
            Event::Operate => drop(world.operate(None)),
            Event::OperateAndCrash(writes) => drop(world.operate(Some(Crash(*writes)))),
            Event::OperateAsHeard => world.operate_as_heard(None),
            Event::OperateSlowly => world.operate_slowly(),
            Event::AReadFails => world.a_read_fails(),
            Event::Hear(stream) => world.hear(*stream),
            Event::Schedule => world.schedule(),
            Event::Agent(n) => world.run_agent(&pick(*n)),
            Event::AgentDiesBeforeEtcdBegins(n) => world.run_agent_that_dies_before_etcd_begins(&pick(*n)),
            Event::Etcd => world.run_etcd(),
            Event::Advance(by) => world.advance(seconds(*by)),
            Event::KillPod(n) => world.kill_pod(&pick(*n)),
            Event::Freeze(n) => world.frozen.push(pick(*n)),
            Event::Thaw => world.frozen.clear(),
            Event::DeleteObject(n) => {
                let key = world.objects.keys().nth(n % world.objects.len().max(1)).cloned();
                // Until the cluster is formed, its record alone tells that a member has begun: who removes that and the
                // volume within these seconds has removed every trace.
                let latch = world.cluster.status.as_ref().and_then(|status| status.latch.as_ref());
                let is_forming =
                    latch.is_some_and(|latch| latch.state == LatchState::Issued && latch.recovery.is_none());
                let is_only_trace = |key: &ObjectKey| key.kind == Kind::EtcdMember && is_forming;
                if let Some(key) = key.filter(|key| !is_only_trace(key)) {
                    world.delete(&key);
                }
            }
            Event::Pause(paused) => world.cluster.spec.maintenance.paused = *paused,
            Event::Wipe(n) => {
                world.kill_pod(&pick(*n));
                world.recoveries.harmed.insert(pick(*n));
                world.volumes.insert(pick(*n), Volume::default());
            }
            Event::Damage(n) => {
                world.kill_pod(&pick(*n));
                world.recoveries.harmed.insert(pick(*n));
                world.volumes.entry(pick(*n)).and_modify(|volume| volume.damaged = volume.data.is_some());
            }
            Event::RollBack(n) => self.roll_back(&pick(*n), false),
            Event::RollBackData(n) => self.roll_back(&pick(*n), true),
            Event::ApiAway(n) => drop(world.away.insert(pick(*n))),
            Event::ApiRefuses(n) => drop(world.refused.insert(pick(*n))),
            Event::ApiBack => {
                world.away.clear();
                world.refused.clear();
            }
            Event::CutOff(n) => drop(world.cut_off.insert(pick(*n))),
            Event::Impostor(n) => drop(world.impostors.insert(pick(*n))),
            Event::Reconnect => {
                world.cut_off.clear();
                world.impostors.clear();
            }
            Event::WipeStatus => world.cluster.status = None,
            Event::ScaleByHand(more) => {
                // It takes a human longer than a pass.
                world.a_read_fails();
                if let Some(Object::StatefulSet(set)) =
                    world.objects.get_mut(&ObjectKey::new(Kind::StatefulSet, "etcd"))
                    && let Some(pods) = set.spec.as_mut().and_then(|spec| spec.replicas.as_mut())
                {
                    *pods += more;
                }
            }
            Event::AddByHand(n) => world.change_members_by_hand(|listed| {
                let name = if *n == 0 { "elsewhere".to_owned() } else { format!("etcd-{n}") };
                listed.entry(name.clone()).or_insert_with(|| Listed::by_hand(&name, false));
            }),
            Event::RemoveByHand(n) => world.change_members_by_hand(|listed| {
                if listed.len() > 1 {
                    listed.remove(&pick(*n));
                }
            }),
            Event::Recreate(replicas) => world.recreate_with(*replicas),
            // One at a time: of two that are rotten alike nobody could tell that they are.
            Event::Rot(n) if world.volumes.values().all(|volume| !volume.rotten) => {
                world.volumes.entry(pick(*n)).and_modify(|volume| volume.rotten = volume.data.is_some());
            }
            Event::Rot(_) => {}
            Event::Wish(replicas) => {
                world.cluster.spec.replicas = *replicas;
                *world.cluster.metadata.generation.get_or_insert_default() += 1;
            }
            Event::Exchange(n, by) => {
                let (one, other) = (pick(*n), pick(n + by));
                for name in [&one, &other] {
                    world.kill_pod(name);
                    world.recoveries.harmed.insert(name.clone());
                }
                let volumes = (world.volumes.remove(&one), world.volumes.remove(&other));
                world.volumes.extend(volumes.1.map(|volume| (one, volume)));
                world.volumes.extend(volumes.0.map(|volume| (other, volume)));
            }
            Event::Foreign(n) => {
                world.kill_pod(&pick(*n));
                world.recoveries.harmed.insert(pick(*n));
                world.volumes.insert(pick(*n), Volume::of_strangers());
            }
            Event::CopyData(n, by) => {
                let (from, to) = (pick(*n), pick(n + by));
                let copied = world.volumes.get(&from).filter(|_| from != to).cloned();
                if let Some(copied) = copied {
                    world.kill_pod(&to);
                    world.recoveries.harmed.insert(to.clone());
                    world.volumes.entry(to).and_modify(|volume| volume.gets_data_of(&copied));
                }
            }
            Event::WriteAlone => world.write_alone(),
            Event::AnswerLost => world.next_answer = Answer::Lost,
            Event::AnswerDoubled => world.next_answer = Answer::Doubled,
            Event::Node(n, spare, fact) => {
                let place = if *spare { "spare-for" } else { "node-of" };
                world.node_becomes(&format!("{place}-{}", pick(*n)), *fact);
            }
            Event::NodesBack => world.nodes_come_back(),
            Event::Starve(n) => drop(world.starved.insert(pick(*n))),
            Event::Feed => world.starved.clear(),
            Event::Compare(number) => {
                let annotations = world.cluster.metadata.annotations.get_or_insert_default();
                annotations.insert(annotations::COMPARE_NOW.to_owned(), number.to_string());
            }
        }
    }

    /// The first time a copy of the volume is made, the second time it comes back.
    fn roll_back(&mut self, name: &str, data_alone: bool) {
        if let Some(position) = self.old_volumes.iter().position(|(copied, _)| copied == name) {
            let (_, mut copy) = self.old_volumes.remove(position);
            copy.stop();
            self.world.kill_pod(name);
            self.world.recoveries.harmed.insert(name.to_owned());
            let Some(volume) = self.world.volumes.get_mut(name) else { return };
            if data_alone {
                // How often etcd was started is not written in etcd's own files.
                let boots = volume.data.as_ref().map(|data| data.boot_count);
                copy.kept = volume.kept.clone();
                copy.data.iter_mut().zip(boots).for_each(|(data, boots)| data.boot_count = boots);
            }
            *volume = copy;
            self.remember_whether_forgetful(name);
        } else {
            let copy = self.world.volumes.get(name).cloned();
            self.old_volumes.extend(copy.map(|volume| (name.to_owned(), volume)));
        }
    }

    fn remember_whether_forgetful(&mut self, name: &str) {
        let recorded = self.world.records(name).recorded;
        let data = self.world.volumes.get(name).and_then(|volume| volume.data.as_ref());
        let older = data.zip(recorded.known()).is_some_and(|(data, recorded)| {
            data.last_index < recorded.last_index || data.boot_count < recorded.boot_count
        });
        if older {
            self.forgetful.insert(name.to_owned())
        } else {
            self.forgetful.remove(name)
        };
    }
}

/// What must never have happened.
pub(super) fn check(world: &World) -> TestCaseResult {
    if let Some(status) = &world.cluster.status {
        let leaders = status.members.iter().filter(|member| member.role == Some(MemberRole::Leader)).count();
        prop_assert!(leaders <= 1, "{} leaders shown", leaders);
    }
    prop_assert!(world.torn_down.is_empty(), "{:?} are members, and were removed", world.torn_down);
    prop_assert!(world.wrongly_removed.is_empty(), "{:?} were sound, and were removed", world.wrongly_removed);
    prop_assert!(!world.quorum_given_away, "a change of the members has cost the quorum");
    prop_assert!(world.recoveries.wrong.is_empty(), "{:?}", world.recoveries.wrong);
    prop_assert!(world.wrongs.is_empty(), "{:?}", world.wrongs);
    Ok(())
}

/// The same, and no majority has ever served without all that was acknowledged.
pub(super) fn check_writes(world: &World) -> TestCaseResult {
    check(world)?;
    prop_assert!(!world.lost_writes, "acknowledged writes are gone");
    Ok(())
}

pub(super) fn one_cluster(world: &World) -> TestCaseResult {
    let strange = Volume::of_strangers().data.map(|data| data.cluster_id);
    let data = world.volumes.values().filter_map(|volume| volume.data.as_ref());
    let data = data.filter(|data| Some(&data.cluster_id) != strange.as_ref());
    let ids = data.map(|data| (data.epoch, &data.cluster_id)).collect::<BTreeSet<_>>();
    let epochs = ids.iter().map(|(epoch, _)| epoch).collect::<BTreeSet<_>>();
    prop_assert!(ids.len() == epochs.len(), "two clusters of one epoch: {:?}", ids);
    Ok(())
}
