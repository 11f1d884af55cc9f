//! Whoever was removed is not reckoned with any more, whatever those say who have not heard of it.

use quorate_api::conditions::ConditionType::Stalled;
use quorate_api::status::ClusterPhase;
use quorate_api::storage::Ephemeral;
use quorate_core::node::NodeFact;

use crate::common::{running, says, seconds, settle, status, until_calm};
use crate::sim::{Volume, World};

fn wish(world: &mut World, replicas: i32) {
    world.cluster.spec.replicas = replicas;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
}

/// Passes, as fast as the operator can, until a quorum has confirmed that so many are gone.
fn until_gone(world: &mut World, gone: usize) {
    for _ in 0..20 {
        if status(world).former_members.len() == gone {
            return;
        }
        world.operate(None);
        world.run_etcd();
    }
    panic!("{:#?}", status(world));
}

#[test]
fn those_that_went_are_not_missed_when_the_one_that_stays_falls_silent() {
    let mut world = running(3);
    wish(&mut world, 1);
    until_gone(&mut world, 2);
    world.frozen = vec!["etcd-0".to_owned()];
    for name in ["etcd-1", "etcd-2"] {
        world.kill_pod(name);
        world.volumes.insert(name.to_owned(), Volume::default());
    }
    for _ in 0..20 {
        world.round();
        world.advance(seconds(61));
    }
    assert_eq!((world.recoveries.count, &status(&world).data_loss), (0, &None), "nothing was lost");
    world.frozen.clear();
    until_calm(&mut world);
    assert_eq!((status(&world).phase, status(&world).cluster_size), (Some(ClusterPhase::Running), Some(1)));
}

#[test]
fn what_one_that_was_removed_has_on_its_volume_tells_that_the_rest_has_lost_its_quorum() {
    let mut world = World::new(5);
    world.cluster.spec.storage.ephemeral = Some(Ephemeral::default());
    settle(&mut world);
    wish(&mut world, 1);
    until_gone(&mut world, 1);
    while world.listed.len() > 3 {
        world.operate(None);
        world.run_etcd();
    }
    // The last that knew of it falls silent while another goes, and with the next the data of the third is gone.
    world.node_becomes("node-of-etcd-1", NodeFact::Silent);
    world.operate(None);
    world.kill_pod("etcd-0");
    world.nodes_come_back();
    for _ in 0..20 {
        world.round();
        world.advance(seconds(61));
    }
    let status = status(&world);
    assert_eq!((status.phase, status.cluster_size), (Some(ClusterPhase::Running), Some(1)), "{status:#?}");
    assert_eq!((world.recoveries.count, &world.recoveries.wrong[..]), (1, &[][..]));
}

#[test]
fn a_quorum_that_does_not_come_back_by_itself_takes_a_human() {
    let mut world = running(3);
    world.frozen = vec!["etcd-1".to_owned(), "etcd-2".to_owned()];
    for _ in 0..9 {
        world.round();
        world.advance(seconds(60));
    }
    says(status(&world), Stalled, "False", "AsExpected");
    for _ in 0..4 {
        world.round();
        world.advance(seconds(60));
    }
    says(status(&world), Stalled, "True", "QuorumNotBack");
    world.frozen.clear();
    until_calm(&mut world);
    says(status(&world), Stalled, "False", "AsExpected");
}
