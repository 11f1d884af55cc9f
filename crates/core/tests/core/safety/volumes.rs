//! Volumes that go back, lose bits or are lost, and what is on record of them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use quorate_core::start::Refusal;

use super::events::{Event, harmless, outages, records_stay, rotting};
use super::history::{History, check, check_writes};
use super::pace::over;
use crate::sim::{Volume, World};

#[test]
fn a_rolled_back_volume_never_serves_without_the_acknowledged_writes() {
    let event = prop_oneof![
        4 => records_stay(harmless()),
        1 => (0..3_usize).prop_map(Event::RollBack),
    ];
    over(prop::collection::vec(event, 1..120), |events| no_write_is_lost(&events));
}

#[test]
fn a_data_directory_that_goes_back_alone_never_serves_though_the_api_is_away() {
    let event = prop_oneof![
        6 => outages(),
        1 => (0..3_usize).prop_map(Event::RollBackData),
    ];
    over(prop::collection::vec(event, 1..120), |events| no_write_is_lost(&events));
}

fn no_write_is_lost(events: &[Event]) -> TestCaseResult {
    let mut history = History::of_settled(3);
    for event in events {
        history.happen(event);
        check_writes(&history.world)?;
    }
    Ok(())
}

#[test]
fn a_rolled_back_volume_is_stopped_by_the_first_word_of_the_api_and_never_starts_again() {
    let event = prop_oneof![
        6 => outages(),
        1 => (0..3_usize).prop_map(Event::RollBack),
    ];
    over(prop::collection::vec(event, 1..120), |events| {
        let mut history = History::of_settled(3);
        let mut stopped = BTreeSet::new();
        for event in &events {
            history.happen(event);
            check(&history.world)?;
            stopped.retain(|name| history.forgetful.contains(name));
            let pick = |n: &usize| history.world.member_names()[n % 3].clone();
            if let Event::RollBack(n) = event {
                // Another volume, and nobody has looked at it.
                stopped.remove(&pick(n));
            }
            if let Event::Agent(n) = event {
                let name = pick(n);
                let heard = history.world.orders(&name).answered() && !history.world.frozen.contains(&name);
                if heard && history.forgetful.contains(&name) && history.world.pods.contains_key(&name) {
                    stopped.insert(name);
                }
            }
            for name in &stopped {
                prop_assert!(!history.world.volumes[name].running, "{name} runs on a volume that has gone back");
            }
        }
        Ok(())
    });
}

#[test]
fn whoever_is_fenced_has_other_data_and_stays_so_and_alone_until_another_takes_its_place() {
    over(prop::collection::vec(rotting(), 1..120), |events| {
        let mut history = History::of_settled(3);
        let mut fenced = BTreeSet::new();
        for event in &events {
            history.happen(event);
            let world = &history.world;
            check(world)?;
            let is_fenced = |volume: &Volume| volume.kept.fence == Some(Refusal::Diverged);
            let id = |volume: &Volume| volume.data.as_ref().map(|data| data.member_id.clone());
            let closed = world.volumes.iter().filter(|(_, volume)| is_fenced(volume));
            let closed = closed.filter_map(|(name, volume)| Some((name.clone(), id(volume)?))).collect::<BTreeSet<_>>();
            prop_assert!(closed.len() <= 1, "{closed:?} are fenced");
            // What was put aside for another member is fenced for good.
            fenced.retain(|(name, fenced): &(String, String)| id(&world.volumes[name]).as_ref() == Some(fenced));
            prop_assert!(fenced.is_subset(&closed), "{fenced:?} were fenced, and {closed:?} are");
            for found in &closed {
                let (name, volume) = (&found.0, &world.volumes[&found.0]);
                prop_assert!(fenced.contains(found) || volume.rotten, "{name} has the same data as all others");
                prop_assert!(!fenced.contains(found) || !volume.running, "{name} runs behind its fence");
            }
            fenced = closed;
        }
        Ok(())
    });
}

#[test]
fn a_record_is_never_lowered() {
    let event = prop_oneof![
        8 => outages(),
        1 => (0..3_usize).prop_map(Event::RollBack),
        1 => (0..3_usize).prop_map(Event::RollBackData),
        1 => (0..3_usize).prop_map(Event::Wipe),
        1 => (0..3_usize).prop_map(Event::Damage),
        1 => (0..3_usize, 1..3_usize).prop_map(|(n, m)| Event::Exchange(n, m)),
        1 => (0..3_usize).prop_map(Event::Foreign),
    ];
    over(prop::collection::vec(event, 1..120), |events| {
        let mut history = History::of_settled(3);
        let records = |world: &World| {
            let names = world.member_names();
            names.iter().map(|name| world.records(name).recorded.known().cloned()).collect::<Vec<_>>()
        };
        let mut before = records(&history.world);
        for event in &events {
            history.happen(event);
            check(&history.world)?;
            let after = records(&history.world);
            for (before, after) in before.iter().zip(&after) {
                let Some(before) = before else { continue };
                let after = after.as_ref();
                prop_assert!(
                    after.is_some_and(|after| after.epoch > before.epoch
                        || after.is_of(before)
                            && after.boot_count >= before.boot_count
                            && after.last_index >= before.last_index),
                    "{before:?} became {after:?}"
                );
            }
            before = after;
        }
        Ok(())
    });
}
