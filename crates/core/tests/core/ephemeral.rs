//! Members whose data goes with their pods: each is replaced by itself, and nothing is stopped that could not be.

use std::collections::BTreeSet;

use quorate_api::conditions::ConditionType::Degraded;
use quorate_api::status::ClusterPhase;
use quorate_api::storage::Ephemeral;
use quorate_core::node::NodeFact;
use quorate_core::object::{Kind, ObjectKey};

use crate::common::{condition, decision, says, seconds, settle, status, until_calm};
use crate::sim::World;

fn world(replicas: i32) -> World {
    let mut world = World::new(replicas);
    world.cluster.spec.storage.ephemeral = Some(Ephemeral::default());
    until_calm(&mut world);
    is_whole(&world, replicas);
    world
}

fn is_whole(world: &World, size: i32) {
    let status = status(world);
    assert_eq!((status.phase, status.cluster_size), (Some(ClusterPhase::Running), Some(size)), "{status:#?}");
    assert!(!world.quorum_given_away && !world.lost_writes);
    assert_eq!((&world.wrongly_removed[..], &world.torn_down[..]), (&[][..], &[][..]));
    assert!(world.claims.is_empty());
}

fn ids(world: &World) -> BTreeSet<String> {
    world.listed.values().map(|listed| listed.id.clone()).collect()
}

/// Lets time pass in which the kubelet sees the members as they are.
fn live(world: &mut World, minutes: i64) {
    for _ in 0..minutes {
        settle(world);
        world.advance(seconds(21));
    }
}

#[test]
fn a_member_whose_pod_was_deleted_is_replaced_by_another_of_its_name() {
    for size in [3, 5] {
        let mut world = world(size);
        for name in ["etcd-0", "etcd-1", "etcd-2"] {
            let before = ids(&world);
            world.kill_pod(name);
            until_calm(&mut world);
            is_whole(&world, size);
            assert_eq!(ids(&world).difference(&before).count(), 1, "{name}");
        }
    }
}

#[test]
fn two_of_five_that_lose_their_data_at_once_are_both_replaced() {
    let mut world = world(5);
    let before = ids(&world);
    world.kill_pod("etcd-1");
    world.kill_pod("etcd-4");
    until_calm(&mut world);
    is_whole(&world, 5);
    assert_eq!(ids(&world).difference(&before).count(), 2);
}

#[test]
fn a_majority_at_once_is_a_lost_quorum_which_is_recovered_from_the_last_copy() {
    let mut world = world(3);
    for name in ["etcd-0", "etcd-1"] {
        world.kill_pod(name);
        world.recoveries.harmed.insert(name.to_owned());
    }
    until_calm(&mut world);
    is_whole(&world, 3);
    assert_eq!(status(&world).data_loss.as_ref().map(|loss| loss.from.as_str()), Some("etcd-2"));
    assert!(world.recoveries.wrong.is_empty(), "{:?}", world.recoveries.wrong);
}

#[test]
fn a_hung_member_gets_a_new_pod_if_the_others_can_replace_it() {
    let mut world = world(3);
    let before = ids(&world);
    let pod = world.pods["etcd-1"].uid.clone();
    world.frozen = vec!["etcd-1".to_owned()];
    live(&mut world, 10);
    assert_ne!(world.pods["etcd-1"].uid, pod);
    world.frozen.clear();
    until_calm(&mut world);
    is_whole(&world, 3);
    assert_eq!(ids(&world).difference(&before).count(), 1);
}

#[test]
fn nobody_is_stopped_whose_data_may_be_the_last() {
    for (size, hung) in [(3, &["etcd-0", "etcd-1"][..]), (1, &["etcd-0"][..])] {
        let mut world = world(size);
        world.frozen = hung.iter().map(|&name| name.to_owned()).collect();
        let pods = world.pods.values().map(|pod| pod.uid.clone()).collect::<Vec<_>>();
        live(&mut world, 30);
        assert_eq!(world.pods.values().map(|pod| pod.uid.clone()).collect::<Vec<_>>(), pods);
        world.frozen.clear();
        until_calm(&mut world);
        assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
    }
}

#[test]
fn members_that_cannot_speak_are_left_alone_because_nobody_could_replace_one() {
    for size in [1, 3] {
        let mut world = world(size);
        world.delete(&ObjectKey::new(Kind::ServiceAccount, "etcd-member"));
        let pods = world.pods.values().map(|pod| pod.uid.clone()).collect::<Vec<_>>();
        live(&mut world, 20);
        assert_eq!(world.pods.values().map(|pod| pod.uid.clone()).collect::<Vec<_>>(), pods);
        assert_eq!(world.serving().len(), pods.len(), "they serve all the while");
    }
}

#[test]
fn a_cluster_that_cannot_sleep_is_not_put_to_sleep() {
    let mut world = world(3);
    world.cluster.spec.replicas = 0;
    live(&mut world, 5);
    assert_eq!((world.pods.len(), world.serving().len()), (3, 3));
    says(status(&world), Degraded, "True", "SpecInvalid");
    let message = &condition(status(&world), Degraded).message;
    assert!(message.contains("spec.replicas is 0: cannot be 0 with spec.storage.ephemeral"), "{message}");
    let mut fresh = World::new(0);
    fresh.cluster.spec.storage.ephemeral = Some(Ephemeral::default());
    assert_eq!(decision(&fresh).actions, []);
}

#[test]
fn a_member_of_a_node_that_is_gone_is_replaced_elsewhere_and_one_of_a_silent_node_is_waited_for() {
    let mut gone = world(3);
    let before = ids(&gone);
    gone.node_becomes("node-of-etcd-1", NodeFact::Gone);
    live(&mut gone, 6);
    until_calm(&mut gone);
    is_whole(&gone, 3);
    assert_eq!(ids(&gone).difference(&before).count(), 1);
    assert_eq!(gone.pods["etcd-1"].node.as_deref(), Some("spare-for-etcd-1"));
    assert_eq!(status(&gone).lost_nodes, []);

    let mut silent = world(3);
    let (before, pod) = (ids(&silent), silent.pods["etcd-1"].uid.clone());
    silent.node_becomes("node-of-etcd-1", NodeFact::Silent);
    live(&mut silent, 10);
    assert_eq!(ids(&silent), before);
    says(status(&silent), Degraded, "True", "NodeSilent");
    assert_eq!(silent.pods["etcd-1"].uid, pod, "with it would go what the node may still have");
    silent.node_becomes("node-of-etcd-1", NodeFact::Ready);
    until_calm(&mut silent);
    is_whole(&silent, 3);
    assert_eq!(ids(&silent), before, "it has come back as it was");
}
