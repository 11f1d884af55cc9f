//! Random histories: what must never happen, and that everything settles once the faults stop.

use crate::sim::{Crash, Volume, World};
use proptest::prelude::*;
use quorate_api::status::{ClusterPhase, MemberRole};
use quorate_core::Decision;

use crate::common::{seconds, settle, status};

/// What may happen, in any order.
#[derive(Clone, Debug)]
enum Event {
    Operate,
    OperateAndCrash(usize),
    /// A pass over a view that is as old as the previous one of this kind.
    OperateOnOldView,
    Schedule,
    Agent(usize),
    Etcd,
    Advance(i64),
    KillPod(usize),
    Freeze(usize),
    Thaw,
    DeleteObject(usize),
    Pause(bool),
    Wipe(usize),
    Damage(usize),
    RollBack(usize),
    WipeStatus,
}

fn harmless() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Operate),
        2 => (0..20_usize).prop_map(Event::OperateAndCrash),
        1 => Just(Event::OperateOnOldView),
        4 => Just(Event::Schedule),
        6 => (0..5_usize).prop_map(Event::Agent),
        4 => Just(Event::Etcd),
        2 => (1..90_i64).prop_map(Event::Advance),
        2 => (0..5_usize).prop_map(Event::KillPod),
        1 => (0..5_usize).prop_map(Event::Freeze),
        1 => Just(Event::Thaw),
        1 => (0..30_usize).prop_map(Event::DeleteObject),
        1 => any::<bool>().prop_map(Event::Pause),
    ]
}

fn harmful() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => harmless(),
        1 => (0..5_usize).prop_map(Event::Wipe),
        1 => (0..5_usize).prop_map(Event::Damage),
        1 => (0..5_usize).prop_map(Event::RollBack),
    ]
}

/// Histories in which the volumes and the records of the members may go, or the volumes and the status: whoever removes
/// all three has removed every trace that there ever was a cluster.
fn history() -> impl Strategy<Value = Vec<Event>> {
    let status_may_go = prop_oneof![
        15 => harmful().prop_filter("records stay", |event| !matches!(event, Event::DeleteObject(_))),
        1 => Just(Event::WipeStatus),
    ];
    prop_oneof![prop::collection::vec(harmful(), 1..120), prop::collection::vec(status_may_go, 1..120)]
}

struct History {
    world: World,
    old: Option<(String, Decision)>,
    old_volumes: Vec<(String, Volume)>,
}

impl History {
    fn new(replicas: i32) -> Self {
        Self { world: World::new(replicas), old: None, old_volumes: Vec::new() }
    }

    fn happen_all(&mut self, events: &[Event]) {
        for event in events {
            self.happen(event);
        }
    }

    fn happen(&mut self, event: &Event) {
        let world = &mut self.world;
        let names = world.member_names();
        let pick = |n: usize| names[n % names.len()].clone();
        match event {
            Event::Operate => drop(world.operate(None)),
            Event::OperateAndCrash(writes) => drop(world.operate(Some(Crash(*writes)))),
            Event::OperateOnOldView => self.operate_on_old_view(),
            Event::Schedule => world.schedule(),
            Event::Agent(n) => world.run_agent(&pick(*n)),
            Event::Etcd => world.run_etcd(),
            Event::Advance(by) => world.advance(seconds(*by)),
            Event::KillPod(n) => world.kill_pod(&pick(*n)),
            Event::Freeze(n) => world.frozen.push(pick(*n)),
            Event::Thaw => world.frozen.clear(),
            Event::DeleteObject(n) => {
                let key = world.objects.keys().nth(n % world.objects.len().max(1)).cloned();
                if let Some(key) = key {
                    world.delete(&key);
                }
            }
            Event::Pause(paused) => world.cluster.spec.maintenance.paused = *paused,
            Event::Wipe(n) => {
                world.kill_pod(&pick(*n));
                world.volumes.insert(pick(*n), Volume::default());
            }
            Event::Damage(n) => {
                world.kill_pod(&pick(*n));
                world.volumes.entry(pick(*n)).and_modify(|volume| volume.damaged = volume.data.is_some());
            }
            Event::RollBack(n) => self.roll_back(&pick(*n)),
            Event::WipeStatus => world.cluster.status = None,
        }
    }

    /// What an operator does whose view is old: the status write is refused, because the EtcdCluster has changed, and if
    /// it has not, the actions still meet their guards.
    fn operate_on_old_view(&mut self) {
        let version = format!("{:?}", self.world.cluster);
        if let Some((seen, decision)) = self.old.take()
            && seen == version
        {
            self.world.act_all(&decision.actions);
        }
        self.old = Some((version, quorate_core::decide(&self.world.view(), self.world.now)));
    }

    /// The first time a copy of the volume is made, the second time it comes back.
    fn roll_back(&mut self, name: &str) {
        if let Some(position) = self.old_volumes.iter().position(|(copied, _)| copied == name) {
            let (_, mut copy) = self.old_volumes.remove(position);
            copy.stop();
            self.world.kill_pod(name);
            self.world.volumes.insert(name.to_owned(), copy);
        } else {
            let copy = self.world.volumes.get(name).cloned();
            self.old_volumes.extend(copy.map(|volume| (name.to_owned(), volume)));
        }
    }
}

fn check(world: &World) -> Result<(), TestCaseError> {
    for start in &world.starts {
        prop_assert!(!start.after_formed, "a new start next to a formed cluster: {:?}", start);
    }
    if let Some(status) = &world.cluster.status {
        let leaders = status.members.iter().filter(|member| member.role == Some(MemberRole::Leader)).count();
        prop_assert!(leaders <= 1, "{} leaders shown", leaders);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_member_starts_new_after_formed_and_no_second_cluster_appears(
        replicas in prop_oneof![Just(1), Just(3), Just(5)],
        events in history(),
    ) {
        let mut history = History::new(replicas);
        for event in &events {
            history.happen(event);
            check(&history.world)?;
        }
        let ids = history.world.volumes.values().filter_map(|volume| volume.data.as_ref().map(|data| &data.cluster_id));
        let distinct = ids.collect::<std::collections::BTreeSet<_>>();
        prop_assert!(distinct.len() <= 1, "two clusters: {:?}", distinct);
    }

    #[test]
    fn two_wiped_volumes_of_three_never_lead_to_a_new_start(
        before in prop::collection::vec(harmless(), 0..40),
        after in prop::collection::vec(harmless(), 0..80),
        spared in 0..3_usize,
    ) {
        let mut history = History::new(3);
        settle(&mut history.world);
        history.happen_all(&before);
        let starts = history.world.starts.len();
        for n in (0..3).filter(|n| *n != spared) {
            history.happen(&Event::Wipe(n));
        }
        for event in &after {
            history.happen(event);
            check(&history.world)?;
        }
        prop_assert_eq!(history.world.starts.len(), starts);
    }

    #[test]
    fn everything_settles_once_the_faults_stop(
        replicas in prop_oneof![Just(1), Just(3), Just(5)],
        events in prop::collection::vec(harmless(), 0..120),
    ) {
        let mut history = History::new(replicas);
        history.happen_all(&events);
        let world = &mut history.world;
        world.frozen.clear();
        world.cluster.spec.maintenance.paused = false;
        for _ in 0..4 {
            settle(world);
            world.advance(seconds(61));
        }
        settle(world);
        prop_assert!(!world.lost_writes);
        // A latecomer that lost its right to start empty waits to be replaced, which is stated.
        let all_started = world.starts.len() == usize::try_from(replicas).unwrap_or_default();
        if all_started {
            prop_assert_eq!(status(world).phase, Some(ClusterPhase::Running), "{:#?}", status(world));
        } else {
            prop_assert_eq!(status(world).phase, Some(ClusterPhase::Degraded), "{:#?}", status(world));
            prop_assert_eq!(status(world).reason.as_deref(), Some("MemberDataLost"));
        }
        for _ in 0..3 {
            let before = world.cluster.status.clone();
            let decision = world.round();
            prop_assert_eq!(&decision.actions, &[]);
            prop_assert_eq!(Some(decision.status), before);
        }
    }

    #[test]
    fn a_rolled_back_volume_never_serves_without_the_acknowledged_writes(
        events in prop::collection::vec(prop_oneof![
            4 => harmless().prop_filter("records stay", |event| !matches!(event, Event::DeleteObject(_))),
            1 => (0..3_usize).prop_map(Event::RollBack),
        ], 1..120),
    ) {
        let mut history = History::new(3);
        settle(&mut history.world);
        for event in &events {
            history.happen(event);
            prop_assert!(!history.world.lost_writes, "acknowledged writes are gone");
        }
    }
}
