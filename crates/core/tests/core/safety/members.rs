//! Members come and go, whatever happens meanwhile.

use proptest::prelude::*;
use quorate_api::status::ClusterPhase;

use super::events::{Event, replacing, scaling, sizes};
use super::history::{History, check_writes, one_cluster};
use super::pace::over;
use crate::common::status;

#[test]
fn no_change_of_the_members_ever_costs_the_quorum_or_a_sound_member() {
    over((sizes(), prop::collection::vec(scaling(), 1..160)), |(replicas, events)| {
        let mut history = History::of_settled(replicas);
        for event in &events {
            history.happen(event);
            check_writes(&history.world)?;
        }
        one_cluster(&history.world)
    });
}

#[test]
fn whatever_is_lost_meanwhile_nobody_begins_twice_and_no_sound_member_is_replaced() {
    over((sizes(), prop::collection::vec(replacing(), 1..160)), |(replicas, events)| {
        let mut history = History::of_settled(replicas);
        for event in &events {
            history.happen(event);
            check_writes(&history.world)?;
        }
        one_cluster(&history.world)
    });
}

#[test]
fn every_wish_is_fulfilled_once_the_faults_stop() {
    let wiped = prop::option::of(0..5_usize);
    over((sizes(), prop::collection::vec(scaling(), 0..120), sizes(), wiped), |(replicas, events, wish, wiped)| {
        let mut history = History::of_settled(replicas);
        history.happen_all(&events)?;
        history.end_faults()?;
        history.happen(&Event::Wish(wish));
        let last = history.world.listed.len();
        history.calm_down(&[301, 301, 301, 301])?;
        // One volume of a whole cluster of at least three is always replaceable.
        if let Some(n) = wiped.filter(|_| wish >= 3) {
            history.happen(&Event::Wipe(n % usize::try_from(wish).unwrap_or(1)));
        }
        history.calm_down(&[61, 61, 301, 301, 3601])?;
        let world = &history.world;
        check_writes(world)?;
        let told = (status(world).phase, status(world).cluster_size, world.pods.len(), world.listed.len());
        let size = usize::try_from(wish).unwrap_or_default();
        prop_assert_eq!(told, (Some(ClusterPhase::Running), Some(wish), size, size), "{} {:#?}", last, status(world));
        history.is_silent()
    });
}
