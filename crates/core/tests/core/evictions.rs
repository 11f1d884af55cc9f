//! How many pods Kubernetes may take away: never so many that the rest is no quorum, and never none without a reason.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quorate_api::storage::Ephemeral;
use quorate_core::Reason;
use quorate_core::object::{Kind, Object, ObjectKey};

use crate::common::{running, seconds, settle, until_calm, without_heartbeat_from};
use crate::sim::{Volume, World};

/// How many pods Kubernetes would let go, as its controller reckons.
fn allowed(world: &World) -> i32 {
    let ready = world.pods.values().filter(|pod| pod.ready && pod.terminating.is_none()).count();
    (i32::try_from(ready).unwrap() - least(world)).max(0)
}

/// Whether it would let one go that is not ready itself.
fn may_unready_go(world: &World) -> bool {
    let ready = world.pods.values().filter(|pod| pod.ready && pod.terminating.is_none()).count();
    i32::try_from(ready).unwrap() >= least(world)
}

fn least(world: &World) -> i32 {
    let key = ObjectKey::new(Kind::PodDisruptionBudget, "etcd");
    let Some(Object::PodDisruptionBudget(budget)) = world.objects.get(&key) else { panic!() };
    match budget.spec.as_ref().unwrap().min_available {
        Some(IntOrString::Int(least)) => least,
        ref other => panic!("{other:?}"),
    }
}

fn wish(world: &mut World, replicas: i32) {
    world.cluster.spec.replicas = replicas;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
}

fn ephemeral(replicas: i32) -> World {
    let mut world = World::new(replicas);
    world.cluster.spec.storage.ephemeral = Some(Ephemeral::default());
    until_calm(&mut world);
    world
}

#[test]
fn one_at_a_time_may_go_while_all_are_ready() {
    for size in [1, 3, 5, 7] {
        assert_eq!(allowed(&running(size)), 1, "{size}");
    }
}

#[test]
fn nobody_is_evicted_while_any_voter_is_not_ready_by_our_own_judgement() {
    let mut world = running(3);
    // Cut off from its peers: it knows no leader, and its pod is ready all the same.
    without_heartbeat_from(&mut world, &["etcd-2"], seconds(8));
    let told = world.operate(None);
    assert!(told.actions.iter().any(|action| action.reason == Reason::EvictionsStopped), "{:?}", told.actions);
    assert_eq!(allowed(&world), 0);
    assert!(world.pods.values().all(|pod| pod.ready));
    world.frozen.clear();
    settle(&mut world);
    assert_eq!(allowed(&world), 1);
    let mut single = running(1);
    without_heartbeat_from(&mut single, &["etcd-0"], seconds(8));
    single.operate(None);
    assert_eq!(allowed(&single), 1, "or its node could never be drained");
}

#[test]
fn one_that_is_not_ready_itself_may_go_if_all_others_are_and_nobody_else_may() {
    let mut world = running(3);
    world.frozen = vec!["etcd-1".to_owned()];
    for _ in 0..5 {
        world.round();
    }
    assert!(!world.pods["etcd-1"].ready);
    assert_eq!((allowed(&world), may_unready_go(&world)), (0, true), "or the node of a broken member is never drained");
    world.frozen.push("etcd-2".to_owned());
    for _ in 0..5 {
        world.round();
    }
    assert_eq!((allowed(&world), may_unready_go(&world)), (0, false));
}

#[test]
fn members_that_never_come_keep_no_node_from_being_drained() {
    let mut world = running(3);
    wish(&mut world, 5);
    world.frozen = vec!["etcd-3".to_owned(), "etcd-4".to_owned()];
    for _ in 0..20 {
        world.round();
    }
    assert_eq!((world.pods.len(), world.listed.len()), (5, 3));
    assert_eq!(allowed(&world), 1);
    // Also if the first of them was added before it fell silent.
    world.frozen = vec!["etcd-4".to_owned()];
    world.starved.insert("etcd-3".to_owned());
    for _ in 0..10 {
        world.round();
    }
    assert!(world.listed["etcd-3"].learner);
    world.frozen.push("etcd-3".to_owned());
    world.volumes.get_mut("etcd-3").unwrap().stop();
    for _ in 0..20 {
        world.round();
    }
    assert_eq!(allowed(&world), 1);
}

#[test]
fn at_no_moment_of_any_change_may_so_many_go_that_the_rest_is_no_quorum() {
    let is_safe = |world: &World, when: &str| {
        let voters = world.listed.values().filter(|listed| !listed.learner).count();
        let serving = world.serving().len();
        let most = usize::try_from(allowed(world)).unwrap();
        let is_alone = voters == 1 && serving == 1 && !world.is_ephemeral();
        let left = serving.saturating_sub(most);
        assert!(most <= 1, "{when}: {most} of {voters}");
        assert!(most == 0 || is_alone || quorate(left, voters), "{when}: {most} of {serving} of {voters}");
    };
    for begin in [running as fn(i32) -> World, ephemeral] {
        let mut world = begin(3);
        for (size, wiped) in [(5, None), (7, Some("etcd-2")), (3, None), (3, Some("etcd-0")), (1, None), (3, None)] {
            wish(&mut world, size);
            if let Some(name) = wiped {
                world.kill_pod(name);
                world.volumes.insert(name.to_owned(), Volume::default());
            }
            for round in 0..60 {
                world.live_until_operator();
                is_safe(&world, &format!("before round {round} to {size}"));
                world.operate(None);
                is_safe(&world, &format!("after round {round} to {size}"));
            }
            assert_eq!(world.listed.len(), usize::try_from(size).unwrap());
        }
    }
}

fn quorate(ready: usize, size: usize) -> bool {
    quorate_core::quorum::is_quorate(ready, size)
}

#[test]
fn a_single_member_whose_data_goes_with_its_pod_stays_where_it_is() {
    assert_eq!(allowed(&ephemeral(1)), 0);
    assert_eq!(allowed(&ephemeral(3)), 1);
}

#[test]
fn nobody_whose_volume_would_go_with_it_is_evicted() {
    for size in [1, 3] {
        let mut world = running(size);
        world.claims.get_mut("data-etcd-0").unwrap().terminating = true;
        settle(&mut world);
        assert_eq!(allowed(&world), 0, "{size}");
    }
}
