//! A cluster begins once, and comes to rest.

use proptest::prelude::*;
use quorate_api::recovery::QuorumLossPolicy;
use quorate_api::status::ClusterPhase;

use super::events::{Event, by_hand, harmless, history, sizes};
use super::history::{History, check_writes, one_cluster};
use super::pace::over;
use crate::common::status;

#[test]
fn no_member_begins_twice_and_no_second_cluster_appears() {
    over((sizes(), history()), |(replicas, events)| {
        let mut history = History::new(replicas);
        history.happen_all(&events)?;
        one_cluster(&history.world)
    });
}

#[test]
fn no_member_is_torn_down_whatever_users_do_meanwhile() {
    over((sizes(), prop::collection::vec(by_hand(), 1..120)), |(replicas, events)| {
        let mut history = History::of_settled(replicas);
        for event in &events {
            history.happen(event);
            check_writes(&history.world)?;
        }
        one_cluster(&history.world)
    });
}

#[test]
fn two_wiped_volumes_of_three_never_lead_to_a_new_start_without_consent() {
    let (before, after) = (prop::collection::vec(harmless(), 0..40), prop::collection::vec(harmless(), 0..80));
    over((before, after, 0..3_usize), |(before, after, spared)| {
        let mut history = History::of_settled(3);
        history.world.cluster.spec.recovery.quorum_loss = Some(QuorumLossPolicy::Manual);
        history.happen_all(&before)?;
        let starts = history.world.starts.len();
        for n in (0..3).filter(|n| *n != spared) {
            history.happen_safely(&Event::Wipe(n))?;
        }
        history.happen_all(&after)?;
        prop_assert_eq!(history.world.starts.len(), starts);
        Ok(())
    });
}

#[test]
fn everything_settles_once_the_faults_stop() {
    over((sizes(), prop::collection::vec(harmless(), 0..120)), |(replicas, events)| {
        let mut history = History::new(replicas);
        history.happen_all(&events)?;
        history.end_faults()?;
        // Long enough for every grace period to end, and for a member's trouble to be forgotten.
        history.calm_down(&[61, 61, 301, 3601])?;
        let world = &history.world;
        check_writes(world)?;
        prop_assert_eq!(world.starts.len(), usize::try_from(replicas).unwrap_or_default());
        prop_assert_eq!(status(world).phase, Some(ClusterPhase::Running), "{:#?}", status(world));
        history.is_silent()
    });
}
