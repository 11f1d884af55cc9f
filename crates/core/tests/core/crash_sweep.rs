//! The operator dies after every single write it makes, and the cluster still forms exactly once.

use crate::sim::{Crash, World};
use quorate_api::status::{ClusterPhase, LatchState};

use crate::common::{ROUNDS, settle, status};

/// Runs rounds in which the operator dies after `crash` writes of the `pass`th pass.
fn form_with_crash(replicas: i32, pass: usize, crash: usize) -> World {
    let mut world = World::new(replicas);
    for round in 0..ROUNDS {
        world.advance(crate::common::seconds(3));
        world.schedule();
        world.member_names().iter().for_each(|name| world.run_agent(name));
        world.run_etcd();
        world.operate((round == pass).then_some(Crash(crash)));
    }
    world
}

#[test]
fn a_crash_after_any_write_of_any_pass_still_forms_one_cluster() {
    for replicas in [1, 3] {
        let mut tried = 0;
        for pass in 0..8 {
            for crash in 0..32 {
                let mut world = form_with_crash(replicas, pass, crash);
                settle(&mut world);
                let context = format!("{replicas} members, pass {pass}, crash after {crash}");
                assert_eq!(status(&world).phase, Some(ClusterPhase::Running), "{context}");
                assert_eq!(world.starts.len(), usize::try_from(replicas).unwrap(), "{context}: {:?}", world.starts);
                assert!(world.starts.iter().all(|start| start.latch == Some(LatchState::Issued)), "{context}");
                assert_eq!(settle(&mut world).actions, [], "{context}");
                tried += 1;
            }
        }
        assert_eq!(tried, 256);
    }
}

#[test]
fn an_operator_that_never_finishes_a_pass_still_forms_the_cluster() {
    let mut world = World::new(3);
    for _ in 0..200 {
        world.advance(crate::common::seconds(1));
        world.schedule();
        world.member_names().iter().for_each(|name| world.run_agent(name));
        world.run_etcd();
        world.operate(Some(Crash(1)));
    }
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
    assert_eq!(world.starts.len(), 3);
}
