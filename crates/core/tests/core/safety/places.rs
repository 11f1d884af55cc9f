//! Where members run: nodes that go and come back, with the volumes that are on them, and data that goes with its pod.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use quorate_api::conditions::{self, ConditionType};
use quorate_api::status::ClusterPhase;

use super::events::{Event, on_nodes, sizes};
use super::history::{Ground, History, check_writes, one_cluster};
use super::pace::over;
use crate::common::status;
use crate::sim::Listed;

/// Whatever is lost, either all is well in the end or somebody is told that it is theirs to act.
fn is_whole_or_says_who_must_act(history: &mut History, wish: i32) -> TestCaseResult {
    history.calm_down(&[61, 61, 301, 301, 3601])?;
    let world = &history.world;
    check_writes(world)?;
    let status = status(world);
    let stalled = conditions::find(&status.conditions, ConditionType::Stalled);
    let is_told = stalled.is_some_and(|stalled| stalled.status == "True");
    let is_whole = (status.phase, status.cluster_size) == (Some(ClusterPhase::Running), Some(wish));
    let is_copy = |(name, listed): (&String, &Listed)| {
        let data = world.volumes.get(name).and_then(|volume| volume.data.as_ref());
        data.is_some_and(|data| data.member_id == listed.id)
    };
    if world.listed.iter().any(is_copy) {
        prop_assert!(is_whole != is_told, "{:#?}\n{:#?}\n{:#?}", world.volumes, world.pods, status);
    } else {
        // Whoever lost all copies within one breath may not be told who has to act, and is not told that all is well.
        prop_assert!(!is_whole, "{status:#?}");
    }
    prop_assert_eq!(is_whole, !world.serving().is_empty(), "{:#?}", status);
    one_cluster(world)?;
    history.is_silent()
}

fn live_through(ground: Ground) {
    over((sizes(), prop::collection::vec(on_nodes(), 1..140), sizes()), |(replicas, events, wish)| {
        let mut history = History::of_settled_on(ground, replicas);
        for event in &events {
            history.happen(event);
            check_writes(&history.world)?;
        }
        history.end_faults()?;
        history.happen(&Event::Wish(wish));
        is_whole_or_says_who_must_act(&mut history, wish)
    });
}

#[test]
fn nodes_that_go_take_nobody_with_them_but_who_was_there_alone() {
    live_through(Ground::Local);
}

#[test]
fn members_whose_data_goes_with_their_pods_are_replaced_and_the_last_copy_never_goes() {
    live_through(Ground::Ephemeral);
}

#[test]
fn nodes_that_go_cost_nothing_where_volumes_follow_their_pods() {
    live_through(Ground::Moving);
}
