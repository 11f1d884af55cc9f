//! What a new incarnation keeps of the one before: all that was acknowledged where it can be known, and no revision twice.

use crate::common::{running, status, until_calm};
use crate::recovery::wipe;

#[test]
fn a_longer_log_of_an_older_term_is_not_the_best_copy() {
    let mut world = running(5);
    let leader = world.leader.clone().unwrap();
    let others = world.member_names().into_iter().filter(|name| *name != leader).collect::<Vec<_>>();
    // The leader is left alone and goes on appending. Then the others elect another, and acknowledge.
    world.frozen.clone_from(&others);
    for _ in 0..9 {
        world.write_alone();
    }
    world.frozen = vec![leader.clone()];
    world.round();
    world.round();
    world.frozen.clear();
    let newest = &world.volumes[&others[0]];
    let ends = |name: &str| {
        let volume = &world.volumes[name];
        (volume.log_term, volume.data.as_ref().unwrap().last_index + volume.unacknowledged)
    };
    assert!(ends(&leader).0 < newest.log_term && ends(&leader).1 > ends(&others[0]).1, "{:?}", ends(&leader));
    let lost = others[1..].iter().map(String::as_str).collect::<Vec<_>>();
    wipe(&mut world, &lost);
    until_calm(&mut world);
    assert_eq!(status(&world).data_loss.as_ref().map(|loss| loss.from.as_str()), Some(others[0].as_str()));
    assert!(world.recoveries.wrong.is_empty() && !world.lost_writes, "{:?}", world.recoveries.wrong);
}

#[test]
fn no_revision_is_used_twice_however_often_a_quorum_is_lost() {
    let mut world = running(3);
    for (epoch, spared) in [(2, "etcd-1"), (3, "etcd-0"), (4, "etcd-1")] {
        // It has fallen behind the others when they are lost.
        world.frozen = vec![spared.to_owned()];
        for _ in 0..3 {
            world.live_until_operator();
        }
        let acknowledged = world.revision;
        let others = ["etcd-0", "etcd-1", "etcd-2"].into_iter().filter(|name| *name != spared).collect::<Vec<_>>();
        wipe(&mut world, &others);
        world.frozen.clear();
        until_calm(&mut world);
        let loss = status(&world).data_loss.as_ref().unwrap();
        assert_eq!((loss.epoch, loss.from.as_str()), (epoch, spared));
        assert!(loss.raised_to > acknowledged, "{} and {acknowledged}", loss.raised_to);
        assert_eq!(world.wrongs, [] as [&str; 0]);
    }
}
