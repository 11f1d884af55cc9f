//! etcd's own word that a member is corrupt: looked at again at once, then the member goes, and the alarm last.

use std::collections::BTreeMap;

use quorate_api::conditions::ConditionType::{Degraded, Ready, Stalled};
use quorate_api::member::Ticket;
use quorate_api::names::annotations;
use quorate_core::action::MemberChange;
use quorate_core::hashes::{DataHash, HashAnswer};
use quorate_core::object::Object;
use quorate_core::{Effect, Reason};

use crate::common::{condition, running, says, seconds, settle, status, until_calm, without_heartbeat_from};
use crate::sim::{Listed, World};

/// As etcd writes it.
fn alarm(id: &str) -> String {
    format!("memberID:{} alarm:CORRUPT ", u64::from_str_radix(id, 16).unwrap())
}

fn raise(world: &mut World, name: &str) -> String {
    let id = world.listed[name].id.clone();
    world.alarms.push(alarm(&id));
    id
}

fn fenced(world: &World) -> Vec<String> {
    let records = world.objects.iter().filter_map(|(key, object)| match object {
        Object::EtcdMember(member) => Some((key.name.clone(), &member.spec.ticket)),
        _ => None,
    });
    records.filter(|(_, ticket)| matches!(ticket, Ticket::Fence { .. })).map(|(name, _)| name).collect()
}

/// The members answer with these hashes, by ordinal; one without any does not answer.
fn answers<const N: usize>(world: &World, hashes: [Option<u32>; N]) -> HashAnswer {
    let each = hashes.into_iter().enumerate().map(|(ordinal, hash)| {
        let name = format!("etcd-{ordinal}");
        let data = world.volumes[&name].data.clone().unwrap();
        let found = hash.map(|hash| DataHash {
            cluster_id: data.cluster_id,
            member_id: data.member_id,
            revision: 7,
            compact_revision: 3,
            hash,
        });
        (name, found.ok_or_else(|| "no answer".to_owned()))
    });
    HashAnswer::Answered(each.collect::<BTreeMap<_, _>>())
}

fn is_safe(world: &World) {
    assert!(!world.quorum_given_away && !world.lost_writes);
    assert_eq!((&world.wrongly_removed[..], &world.torn_down[..]), (&[][..], &[][..]));
}

#[test]
fn a_member_that_etcd_calls_corrupt_is_replaced_and_its_alarm_ends_with_it() {
    for rotten in [true, false] {
        let mut world = running(3);
        world.volumes.get_mut("etcd-1").unwrap().rotten = rotten;
        let id = raise(&mut world, "etcd-1");
        world.round();
        says(status(&world), Degraded, "True", "MemberCorrupt");
        says(status(&world), Stalled, "False", "AsExpected");
        assert!(status(&world).consistency.as_ref().unwrap().last_compared.is_some(), "it is looked at at once");
        let mut changes = Vec::new();
        for _ in 0..60 {
            changes.extend(world.round().actions.into_iter().filter_map(|action| match action.effect {
                Effect::ChangeMembers { change, .. } => Some((action.reason, change)),
                _ => None,
            }));
            let is_listed = world.listed.values().any(|listed| listed.id == id);
            assert!(!is_listed || !world.alarms.is_empty(), "its alarm was disarmed while it was a member");
        }
        let reasons = changes.iter().map(|(reason, _)| *reason).collect::<Vec<_>>();
        let begins = [Reason::MemberReplaced, Reason::AlarmDisarmed, Reason::LearnerAdded];
        let without_move = reasons.iter().copied().filter(|reason| *reason != Reason::LeaderMoved);
        assert_eq!(without_move.take(3).collect::<Vec<_>>(), begins, "{reasons:?}");
        assert!(changes.iter().any(|(_, change)| *change == MemberChange::DisarmCorrupt { id: id.clone() }));
        until_calm(&mut world);
        assert_eq!((world.alarms.len(), world.serving().len()), (0, 3));
        assert_ne!(world.listed["etcd-1"].id, id);
        says(status(&world), Degraded, "False", "AsExpected");
        is_safe(&world);
    }
}

#[test]
fn a_member_that_does_not_answer_any_more_is_fenced_on_etcds_word_and_that_of_all_others() {
    let mut world = running(3);
    raise(&mut world, "etcd-1");
    world.hashes = Some(answers(&world, [Some(1), None, Some(1)]));
    world.round();
    world.round();
    assert_eq!(fenced(&world), ["etcd-1"]);
}

#[test]
fn nobody_is_fenced_if_the_others_do_not_agree_or_have_not_all_answered() {
    for hashes in [[Some(1), Some(1), Some(2)], [Some(1), Some(2), Some(3)], [Some(1), Some(1), None], [None; 3]] {
        let mut world = running(3);
        raise(&mut world, "etcd-1");
        world.hashes = Some(answers(&world, hashes));
        for _ in 0..20 {
            world.round();
            assert!(!fenced(&world).contains(&"etcd-1".to_owned()), "{hashes:?}");
        }
    }
    let mut world = running(3);
    raise(&mut world, "etcd-1");
    world.hashes = Some(answers(&world, [Some(1), Some(2), Some(3)]));
    for _ in 0..20 {
        world.round();
    }
    says(status(&world), Stalled, "True", "MembersDiffer");
    let said = &condition(status(&world), Degraded).message;
    assert!(said.contains(Reason::MemberCorrupt.sentence()), "{said}");
}

#[test]
fn nobody_is_compared_or_fenced_while_another_member_is_not_there() {
    let mut world = running(3);
    raise(&mut world, "etcd-1");
    world.frozen = vec!["etcd-2".to_owned()];
    without_heartbeat_from(&mut world, &["etcd-2"], seconds(20));
    for _ in 0..10 {
        world.round();
    }
    assert_eq!((fenced(&world).len(), status(&world).consistency.clone()), (0, None));
    world.frozen.clear();
    for _ in 0..40 {
        world.round();
    }
    assert_eq!(world.alarms.len(), 0, "and then it goes on by itself");
    is_safe(&world);
}

#[test]
fn where_nobody_could_say_who_is_right_a_human_must() {
    let mut alone = running(1);
    raise(&mut alone, "etcd-0");
    settle(&mut alone);
    assert_eq!((fenced(&alone).len(), alone.alarms.len()), (0, 1));
    says(status(&alone), Stalled, "True", "MemberCorrupt");

    let mut all = running(3);
    all.alarms.push("alarm:CORRUPT ".to_owned());
    settle(&mut all);
    assert_eq!((fenced(&all).len(), all.alarms.len()), (0, 1), "etcd does not say who");
    says(status(&all), Stalled, "True", "AlarmRaised");
}

#[test]
fn a_member_that_its_owner_trusts_stays_and_so_does_the_alarm() {
    let mut world = running(3);
    let id = raise(&mut world, "etcd-1");
    world.cluster.metadata.annotations.get_or_insert_default().insert(annotations::TRUSTED_MEMBER.to_owned(), id);
    for _ in 0..20 {
        world.round();
    }
    assert_eq!((fenced(&world).len(), world.alarms.len()), (0, 1));
    says(status(&world), Stalled, "True", "MemberCorrupt");
}

#[test]
fn an_alarm_of_a_member_that_left_long_ago_is_disarmed_and_nothing_else_happens() {
    let mut world = running(3);
    world.alarms.push(alarm("beef"));
    settle(&mut world);
    assert_eq!(world.alarms, [""; 0]);
    assert_eq!(status(&world).consistency, None, "nobody is suspected");
    let mut paused = running(3);
    paused.cluster.spec.maintenance.paused = true;
    paused.alarms.push(alarm("beef"));
    settle(&mut paused);
    assert_eq!(paused.alarms.len(), 1);
}

#[test]
fn an_alarm_that_was_disarmed_by_hand_and_is_raised_again_is_looked_at_again() {
    let mut world = running(3);
    raise(&mut world, "etcd-1");
    world.hashes = Some(answers(&world, [Some(1), Some(1), Some(2)]));
    world.round();
    let compared = |world: &World| status(world).consistency.clone().unwrap();
    assert_eq!(compared(&world).alarmed.len(), 1);
    world.hashes = Some(answers(&world, [Some(1), Some(1), Some(1)]));
    world.alarms.clear();
    for _ in 0..6 {
        world.round();
    }
    assert_eq!(compared(&world).alarmed.len(), 0);
    raise(&mut world, "etcd-1");
    world.round();
    assert_eq!(compared(&world).alarmed.len(), 1);
}

#[test]
fn what_one_that_is_gone_has_said_last_is_no_alarm() {
    let mut world = running(5);
    world.alarms.push(alarm("abcdef"));
    world.live_until_operator();
    // It was disarmed meanwhile, which one that is gone will never tell.
    world.alarms.clear();
    world.frozen = vec!["etcd-4".to_owned()];
    world.kill_pod("etcd-4");
    world.advance(seconds(20));
    for _ in 0..10 {
        let decision = world.round();
        let disarms = |action: &&quorate_core::Action| action.reason == Reason::AlarmDisarmed;
        assert_eq!(decision.actions.iter().filter(disarms).count(), 0);
    }
}

#[test]
fn nothing_is_called_ready_while_etcd_refuses_to_answer() {
    let mut world = running(3);
    raise(&mut world, "etcd-1");
    world.hashes = Some(answers(&world, [Some(1), Some(2), Some(3)]));
    world.round();
    says(status(&world), Ready, "False", "MemberCorrupt");
    world.alarms.clear();
    world.hashes = None;
    settle(&mut world);
    says(status(&world), Ready, "True", "Quorate");
}

#[test]
fn a_learner_that_etcd_calls_corrupt_is_replaced_and_somebody_elses_member_is_named() {
    let mut world = running(3);
    world.cluster.spec.replicas = 5;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
    world.starved.insert("etcd-3".to_owned());
    while !world.listed.get("etcd-3").is_some_and(|listed| listed.started) {
        world.round();
    }
    let id = raise(&mut world, "etcd-3");
    for _ in 0..5 {
        world.round();
    }
    assert!(world.listed.values().all(|listed| listed.id != id), "{:?}", world.listed);
    world.starved.clear();
    until_calm(&mut world);
    assert_eq!(world.serving().len(), 5);
    assert!(!world.quorum_given_away && !world.lost_writes);

    let mut world = running(3);
    world.change_members_by_hand(|listed| {
        let stranger = Listed { id: "beef".to_owned(), ..Listed::by_hand("elsewhere", true) };
        listed.insert("elsewhere".to_owned(), stranger);
    });
    raise(&mut world, "elsewhere");
    settle(&mut world);
    says(status(&world), Ready, "False", "MemberCorrupt");
    says(status(&world), Stalled, "True", "MemberCorrupt");
}
