//! Worlds to begin with, and short questions to ask them.

use crate::sim::World;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quorate_api::conditions::{self, ConditionType};
use quorate_api::status::{ClusterPhase, EtcdClusterStatus, MemberHealth, MemberStatus};
use quorate_core::{Action, Decision, Reason};

/// More rounds than forming takes.
pub(crate) const ROUNDS: usize = 12;

pub(crate) fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

/// A cluster that has formed and settled.
pub(crate) fn running(replicas: i32) -> World {
    let mut world = World::new(replicas);
    settle(&mut world);
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running), "{:#?}", status(&world));
    world
}

pub(crate) fn settle(world: &mut World) -> Decision {
    let mut last = world.round();
    for _ in 0..ROUNDS {
        last = world.round();
    }
    assert_eq!(world.wrongs, [] as [&str; 0]);
    last
}

/// Rounds until three in a row have written nothing. How many that took.
pub(crate) fn until_calm(world: &mut World) -> usize {
    let mut calm = 0;
    for round in 1..200 {
        let writes = world.writes;
        world.round();
        calm = if world.writes == writes { calm + 1 } else { 0 };
        if calm == 3 {
            assert_eq!(world.wrongs, [] as [&str; 0]);
            return round;
        }
    }
    panic!("it never comes to rest: {:#?}", status(world))
}

pub(crate) fn status(world: &World) -> &EtcdClusterStatus {
    world.cluster.status.as_ref().unwrap()
}

pub(crate) fn status_mut(world: &mut World) -> &mut EtcdClusterStatus {
    world.cluster.status.as_mut().unwrap()
}

pub(crate) fn condition(status: &EtcdClusterStatus, type_: ConditionType) -> &Condition {
    conditions::find(&status.conditions, type_).unwrap()
}

pub(crate) fn says(status: &EtcdClusterStatus, type_: ConditionType, state: &str, reason: &str) {
    let condition = condition(status, type_);
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), (state, reason), "{condition:?}");
}

pub(crate) fn member<'a>(status: &'a EtcdClusterStatus, name: &str) -> &'a MemberStatus {
    status.members.iter().find(|member| member.name == name).unwrap()
}

pub(crate) fn health(status: &EtcdClusterStatus) -> Vec<MemberHealth> {
    status.members.iter().map(|member| member.status).collect()
}

/// What a decision does, besides letting members be evicted or not.
pub(crate) fn deeds(decision: &Decision) -> Vec<Action> {
    let is_budget = |action: &&Action| !matches!(action.reason, Reason::EvictionsStopped | Reason::EvictionsAllowed);
    decision.actions.iter().filter(is_budget).cloned().collect()
}

pub(crate) fn decision(world: &World) -> Decision {
    world.decide()
}

/// Time passes and only some members renew their Leases.
pub(crate) fn without_heartbeat_from(world: &mut World, silent: &[&str], time: SignedDuration) {
    let pods = world.pods.clone();
    world.frozen = silent.iter().map(|&name| name.to_owned()).collect();
    world.advance(time);
    world.run_etcd();
    // A frozen process does not make its pod unready by itself: that is the kubelet's doing.
    world.pods = pods;
}
