//! A quorum that is lost for good.

use proptest::prelude::*;
use quorate_api::status::ClusterPhase;

use super::events::{Event, harmless, records_stay, scaling, sizes};
use super::history::{History, check_writes, one_cluster};
use super::pace::over;
use crate::common::status;

/// One copy at least is untouched. The others are wiped, damaged, exchanged or go back, while everything else goes on.
#[test]
fn a_quorum_that_is_lost_for_good_is_recovered_from_the_best_copy_that_is_left() {
    let harm = prop::collection::vec((0..5_usize, 0..5_u8), 1..8);
    let after = prop_oneof![20 => records_stay(harmless()), 1 => Just(Event::WriteAlone)];
    let (before, after) = (prop::collection::vec(scaling(), 0..60), prop::collection::vec(after, 0..100));
    over((sizes(), before, harm, after, 0..5_usize), |(replicas, before, harm, after, spared)| {
        let mut history = History::of_settled(replicas);
        history.happen_all(&before)?;
        let wish = replicas.max(3);
        history.happen_safely(&Event::Wish(wish))?;
        let spared = history.world.member_names()[spared % history.world.member_names().len()].clone();
        let own = history.world.volumes.get(&spared).and_then(|volume| volume.data.as_ref());
        let listed = history.world.listed.get(&spared);
        let is_voter = own.zip(listed).is_some_and(|(own, it)| own.member_id == it.id && !it.learner);
        // A learner alone does not stand for the voters.
        prop_assume!(is_voter);
        for (n, how) in harm {
            let names = history.world.member_names();
            let is_spared = |n: usize| names[n % names.len()] == spared;
            if is_spared(n) || (how == 4 && is_spared(n + 1)) {
                continue;
            }
            history.happen_safely(&match how {
                0 => Event::Wipe(n),
                1 => Event::Damage(n),
                2 => Event::RollBack(n),
                3 => Event::Foreign(n),
                _ => Event::Exchange(n, 1),
            })?;
        }
        for event in &after {
            history.happen(event);
            check_writes(&history.world)?;
        }
        history.end_faults()?;
        history.calm_down(&[61, 61, 301, 301, 3601])?;
        let world = &history.world;
        check_writes(world)?;
        one_cluster(world)?;
        prop_assert_eq!(status(world).phase, Some(ClusterPhase::Running), "{:#?}", status(world));
        prop_assert_eq!(status(world).cluster_size, Some(wish), "{:#?}", status(world));
        prop_assert_eq!(status(world).data_loss.is_some(), world.recoveries.count > 0);
        Ok(())
    });
}
