//! Nodes that are gone for good take volumes with them that can be used nowhere else. Nobody else goes with them.

use std::collections::BTreeSet;

use quorate_api::conditions::ConditionType::{Degraded, Stalled};
use quorate_api::status::ClusterPhase;
use quorate_core::action::MemberChange;
use quorate_core::node::NodeFact;
use quorate_core::{Decision, Effect, Reason};

use crate::common::{condition, running, says, seconds, settle, status, status_mut, until_calm};
use crate::sim::World;

const NODE: &str = "node-of-etcd-1";
const CLAIM: &str = "data-etcd-1";

/// With volumes that are made of their nodes' own disks, and perhaps a time after which they are given up.
fn local(replicas: i32, lost_after: Option<&str>) -> World {
    let mut world = World::new(replicas);
    world.nodes.local = true;
    world.cluster.spec.recovery.node_lost_after = lost_after.map(str::to_owned);
    until_calm(&mut world);
    is_whole(&world, replicas);
    world
}

fn is_whole(world: &World, size: i32) {
    let status = status(world);
    assert_eq!((status.phase, status.cluster_size), (Some(ClusterPhase::Running), Some(size)), "{status:#?}");
    assert_eq!(status.lost_nodes, []);
    is_safe(world);
}

fn is_safe(world: &World) {
    assert!(!world.quorum_given_away && !world.lost_writes);
    assert_eq!((&world.wrongly_removed[..], &world.torn_down[..]), (&[][..], &[][..]));
}

fn ids(world: &World) -> BTreeSet<String> {
    world.listed.values().map(|listed| listed.id.clone()).collect()
}

/// So many rounds of three seconds, and what was decided in them.
fn live(world: &mut World, rounds: usize) -> Vec<Decision> {
    (0..rounds).map(|_| world.round()).collect()
}

/// Long enough for anything that is going to happen.
fn live_long(world: &mut World) {
    for _ in 0..10 {
        settle(world);
        world.advance(seconds(3600));
    }
    settle(world);
}

/// The node is gone, and Kubernetes has removed the pods that it had.
fn lose_node(world: &mut World, member: &str) {
    world.node_becomes(&format!("node-of-{member}"), NodeFact::Gone);
    world.kill_pod(member);
}

/// The node is not there, and what is on its disk is.
fn take_node_away(world: &mut World) {
    world.nodes.facts.insert(NODE.to_owned(), NodeFact::Gone);
    world.kill_pod("etcd-1");
}

fn is_done(decision: &Decision, reason: Reason) -> bool {
    decision.actions.iter().any(|action| action.reason == reason)
}

#[test]
fn a_member_of_a_silent_node_is_never_given_up_and_its_pod_never_removed() {
    let mut world = local(3, Some("1s"));
    let (before, claims, pod) = (ids(&world), world.claims.clone(), world.pods["etcd-1"].clone());
    world.node_becomes(NODE, NodeFact::Silent);
    live_long(&mut world);
    assert_eq!((ids(&world), &world.claims), (before.clone(), &claims));
    assert_eq!(world.pods["etcd-1"].uid, pod.uid);
    says(status(&world), Degraded, "True", "NodeSilent");
    // Also if somebody has removed the pod, and the next one finds no place.
    world.kill_pod("etcd-1");
    live_long(&mut world);
    assert_eq!((ids(&world), &world.claims), (before.clone(), &claims));
    says(status(&world), Degraded, "True", "NodeSilent");
    world.node_becomes(NODE, NodeFact::Ready);
    until_calm(&mut world);
    is_whole(&world, 3);
    assert_eq!(ids(&world), before);
}

#[test]
fn a_member_goes_with_its_node_first_from_etcd_and_then_with_its_volume() {
    let mut world = local(3, Some("1m"));
    let before = ids(&world);
    lose_node(&mut world, "etcd-1");
    let early = live(&mut world, 15);
    assert!(early.iter().all(|decision| !is_done(decision, Reason::MemberGivenUp)), "a minute is not over");
    says(status(&world), Degraded, "True", "MemberGoesWithNode");
    let late = live(&mut world, 60);
    let given_up = late.iter().position(|decision| is_done(decision, Reason::MemberGivenUp)).unwrap();
    let deleted = late.iter().position(|decision| is_done(decision, Reason::VolumeGivenUp)).unwrap();
    let added = late.iter().position(|decision| is_done(decision, Reason::LearnerAdded)).unwrap();
    assert!(given_up < deleted && deleted < added, "{given_up} {deleted} {added}");
    until_calm(&mut world);
    is_whole(&world, 3);
    assert_eq!(ids(&world).difference(&before).count(), 1);
    assert_eq!(world.pods["etcd-1"].node.as_deref(), Some("spare-for-etcd-1"));
}

#[test]
fn without_a_word_of_the_owner_a_volume_waits_for_its_node_for_ever() {
    let mut world = local(3, None);
    let (before, claims) = (ids(&world), world.claims.clone());
    take_node_away(&mut world);
    live_long(&mut world);
    assert_eq!((ids(&world), &world.claims), (before.clone(), &claims));
    says(status(&world), Stalled, "True", "VolumeStranded");
    let message = &condition(status(&world), Stalled).message;
    assert!(message.contains("etcd-1 (node-of-etcd-1)") && message.contains("nodeLostAfter"), "{message}");
    world.node_becomes(NODE, NodeFact::Ready);
    until_calm(&mut world);
    is_whole(&world, 3);
    assert_eq!(ids(&world), before);
}

#[test]
fn a_volume_that_can_be_used_elsewhere_is_never_given_up() {
    let mut world = running(3);
    world.cluster.spec.recovery.node_lost_after = Some("1s".to_owned());
    let (before, claims) = (ids(&world), world.claims.clone());
    world.node_becomes(NODE, NodeFact::Gone);
    live_long(&mut world);
    is_whole(&world, 3);
    assert_eq!((ids(&world), &world.claims), (before, &claims));
    assert_eq!(world.pods["etcd-1"].node.as_deref(), Some("spare-for-etcd-1"));
}

#[test]
fn a_pod_that_stays_on_a_node_that_is_gone_is_removed_after_a_minute() {
    let mut world = running(3);
    let pod = world.pods["etcd-1"].uid.clone();
    world.node_becomes(NODE, NodeFact::Gone);
    let early = live(&mut world, 19);
    assert!(early.iter().all(|decision| !is_done(decision, Reason::PodOnLostNode)));
    assert_eq!(world.pods["etcd-1"].uid, pod);
    says(status(&world), Degraded, "True", "NodeLost");
    let late = live(&mut world, 10);
    assert!(late.iter().any(|decision| is_done(decision, Reason::PodOnLostNode)));
    until_calm(&mut world);
    is_whole(&world, 3);
}

#[test]
fn a_pod_whose_member_is_heard_is_not_removed_whatever_is_said_of_its_node() {
    let mut world = running(3);
    // Its Node was deleted while the machine runs on.
    world.nodes.facts.insert("another".to_owned(), NodeFact::Gone);
    world.pods.get_mut("etcd-1").unwrap().node = Some("another".to_owned());
    let pod = world.pods["etcd-1"].uid.clone();
    for _ in 0..60 {
        world.advance(seconds(3));
        world.run_etcd();
        world.operate(None);
    }
    assert_eq!(world.pods["etcd-1"].uid, pod);
}

#[test]
fn a_node_that_was_made_again_under_its_name_is_waited_for_anew() {
    let mut world = local(3, Some("1m"));
    let before = ids(&world);
    take_node_away(&mut world);
    live(&mut world, 15);
    let since = status(&world).lost_nodes[0].since.clone();
    // It is there again, and does not answer yet.
    world.nodes.facts.insert(NODE.to_owned(), NodeFact::Silent);
    live_long(&mut world);
    assert_eq!((ids(&world), &status(&world).lost_nodes[..]), (before.clone(), &[][..]));
    world.nodes.facts.insert(NODE.to_owned(), NodeFact::Gone);
    live(&mut world, 15);
    assert!(status(&world).lost_nodes[0].since.0 > since.0);
    assert_eq!(ids(&world), before);
    world.node_becomes(NODE, NodeFact::Ready);
    until_calm(&mut world);
    is_whole(&world, 3);
    assert_eq!(ids(&world), before);
}

#[test]
fn two_nodes_at_once_are_two_of_five_that_are_replaced_and_two_of_three_that_are_waited_for() {
    let mut five = local(5, Some("1m"));
    let before = ids(&five);
    lose_node(&mut five, "etcd-1");
    lose_node(&mut five, "etcd-3");
    for decision in live(&mut five, 120) {
        let changes = decision.actions.iter().filter(|action| {
            matches!(&action.effect, Effect::ChangeMembers { change: MemberChange::Remove { .. }, .. })
        });
        assert!(changes.count() <= 1, "{decision:#?}");
        is_safe(&five);
    }
    until_calm(&mut five);
    is_whole(&five, 5);
    assert_eq!(ids(&five).difference(&before).count(), 2);

    let mut three = local(3, Some("1m"));
    let (before, claims) = (ids(&three), three.claims.clone());
    lose_node(&mut three, "etcd-1");
    lose_node(&mut three, "etcd-2");
    live_long(&mut three);
    assert_eq!((ids(&three), &three.claims), (before, &claims), "the rest is no quorum");
    says(status(&three), Stalled, "True", "VolumeStranded");
}

#[test]
fn since_when_a_node_is_gone_is_in_the_status_and_begins_anew_if_that_is_removed() {
    let mut world = local(3, Some("10m"));
    let before = ids(&world);
    lose_node(&mut world, "etcd-1");
    live(&mut world, 100);
    let since = status(&world).lost_nodes[0].since.0;
    live(&mut world, 50);
    assert_eq!(status(&world).lost_nodes[0].since.0, since, "whichever operator looks");
    status_mut(&mut world).lost_nodes.clear();
    live(&mut world, 100);
    assert!(status(&world).lost_nodes[0].since.0 > since);
    world.cluster.status = None;
    live(&mut world, 150);
    assert_eq!(ids(&world), before, "none of these was ten minutes");
    live(&mut world, 200);
    until_calm(&mut world);
    is_safe(&world);
    assert_eq!(ids(&world).difference(&before).count(), 1);
}

#[test]
fn an_operator_that_may_not_ask_says_so_and_does_nothing_that_needs_an_answer() {
    let mut world = local(3, Some("1s"));
    let (before, claims) = (ids(&world), world.claims.clone());
    world.nodes.refused = true;
    take_node_away(&mut world);
    live_long(&mut world);
    assert_eq!((ids(&world), &world.claims), (before.clone(), &claims));
    says(status(&world), Degraded, "True", "NodesOutOfReach");
    assert_eq!(status(&world).phase, Some(ClusterPhase::Degraded), "the others serve");
    // Everything else goes on.
    world.cluster.spec.replicas = 1;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
    world.node_becomes(NODE, NodeFact::Ready);
    until_calm(&mut world);
    assert_eq!((status(&world).phase, world.listed.len()), (Some(ClusterPhase::Running), 1));
    is_safe(&world);
}

#[test]
fn nothing_is_done_to_a_cluster_that_was_made_anew_or_to_a_node_that_came_back_meanwhile() {
    let mut world = local(3, Some("1m"));
    lose_node(&mut world, "etcd-1");
    let mut due = None;
    for _ in 0..60 {
        world.live_until_operator();
        let decision = world.decide();
        if is_done(&decision, Reason::VolumeGivenUp) {
            due = Some(decision);
            break;
        }
        world.operate(None);
    }
    let action = due.unwrap().actions.into_iter().find(|action| action.reason == Reason::VolumeGivenUp).unwrap();
    let mut anew = world.clone();
    anew.recreate();
    assert_eq!(anew.act(&action), None);
    let mut back = world.clone();
    back.nodes.facts.clear();
    assert_eq!(back.act(&action), None);
    let mut other = world.clone();
    other.claims.get_mut(CLAIM).unwrap().uid = "another".to_owned();
    assert_eq!(other.act(&action), None);
    assert_eq!(world.act(&action), Some(()));
    assert!(!world.claims.contains_key(CLAIM));
}

#[test]
fn a_learner_goes_with_its_node_and_another_takes_its_place() {
    let mut world = local(3, Some("1m"));
    let before = ids(&world);
    world.cluster.spec.replicas = 5;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
    world.starved.insert("etcd-3".to_owned());
    live(&mut world, 15);
    let learner = world.listed["etcd-3"].id.clone();
    assert!(world.listed["etcd-3"].learner && world.volumes["etcd-3"].running);
    lose_node(&mut world, "etcd-3");
    world.starved.clear();
    live(&mut world, 60);
    until_calm(&mut world);
    is_whole(&world, 5);
    assert!(!ids(&world).contains(&learner) && before.is_subset(&ids(&world)));
}

#[test]
fn the_last_voter_is_never_given_up() {
    let mut world = local(1, Some("1s"));
    let (before, claims) = (ids(&world), world.claims.clone());
    lose_node(&mut world, "etcd-0");
    live_long(&mut world);
    assert_eq!((ids(&world), &world.claims), (before, &claims));
    says(status(&world), Stalled, "True", "VolumeStranded");
}

#[test]
fn nothing_goes_while_the_cluster_is_paused_and_the_status_says_what_waits() {
    let mut world = local(3, Some("1m"));
    let (before, claims) = (ids(&world), world.claims.clone());
    world.cluster.spec.maintenance.paused = true;
    lose_node(&mut world, "etcd-1");
    live_long(&mut world);
    assert_eq!((ids(&world), &world.claims), (before, &claims));
    assert_eq!(status(&world).lost_nodes[0].node, NODE);
}

#[test]
fn a_volume_on_a_cordoned_node_is_said_to_wait_for_it() {
    let mut world = local(3, Some("1s"));
    let before = ids(&world);
    world.nodes.facts.insert(NODE.to_owned(), NodeFact::Cordoned);
    world.kill_pod("etcd-1");
    live_long(&mut world);
    assert_eq!(ids(&world), before);
    says(status(&world), Stalled, "True", "NodeCordoned");
    world.node_becomes(NODE, NodeFact::Ready);
    until_calm(&mut world);
    is_whole(&world, 3);
    assert_eq!(ids(&world), before);
}

#[test]
fn nobody_asks_about_nodes_while_all_members_are_heard() {
    let mut world = local(3, Some("1m"));
    world.nodes.refused = true;
    settle(&mut world);
    is_whole(&world, 3);
    let view = world.view();
    let reads = quorate_core::decide(&view, world.now).reads;
    assert_eq!(reads, []);
}
