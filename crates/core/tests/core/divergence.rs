//! The members' data, compared: who is suspected, who is believed to differ, and who is kept from running.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use quorate_api::conditions::ConditionType::{Degraded, Ready, Stalled};
use quorate_api::member::{DataState, Ticket};
use quorate_api::names::annotations;
use quorate_api::status::ConsistencyStatus;
use quorate_core::hashes::{DataHash, HashAnswer};
use quorate_core::read::Read;
use quorate_core::{Decision, Effect, Kind, Object, ObjectKey, Reason, decide};

use crate::common::{condition, decision, running, says, seconds, settle, status, status_mut, without_heartbeat_from};
use crate::sim::World;

const PERIOD: SignedDuration = SignedDuration::from_hours(6);

fn answer(world: &World, name: &str, hash: u32) -> DataHash {
    let data = world.volumes[name].data.clone().unwrap();
    DataHash { cluster_id: data.cluster_id, member_id: data.member_id, revision: 7, compact_revision: 3, hash }
}

/// The members answer with these hashes, by ordinal.
fn answers<const N: usize>(world: &World, hashes: [u32; N]) -> HashAnswer {
    let each = hashes.into_iter().enumerate().map(|(ordinal, hash)| {
        let name = format!("etcd-{ordinal}");
        (name.clone(), Ok(answer(world, &name, hash)))
    });
    HashAnswer::Answered(each.collect())
}

/// One pass of an operator that is answered so.
fn look(world: &mut World, hashes: HashAnswer) -> Decision {
    world.hashes = Some(hashes);
    let decision = world.operate(None);
    world.hashes = None;
    decision
}

fn find<const N: usize>(world: &mut World, hashes: [u32; N]) -> Decision {
    let answers = answers(world, hashes);
    look(world, answers)
}

/// Time passes, members renew their Leases, and nobody is asked.
fn pass(world: &mut World, time: SignedDuration) {
    world.advance(time);
    world.run_etcd();
}

fn consistency(world: &World) -> ConsistencyStatus {
    status(world).consistency.clone().unwrap_or_default()
}

/// Names of those that differ, and how often that was seen.
fn differing(world: &World) -> Vec<(String, i32)> {
    consistency(world).differing.into_iter().map(|found| (found.name, found.seen)).collect()
}

fn request(world: &mut World, value: &str) {
    annotate(world, annotations::COMPARE_NOW, value);
}

fn annotate(world: &mut World, key: &str, value: &str) {
    world.cluster.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

fn ticket(world: &World, name: &str) -> Ticket {
    let Some(Object::EtcdMember(member)) = world.objects.get(&ObjectKey::new(Kind::EtcdMember, name)) else { panic!() };
    member.spec.ticket.clone()
}

fn fenced(world: &World) -> Vec<String> {
    let has_fence = |name: &String| matches!(ticket(world, name), Ticket::Fence { .. });
    world.member_names().into_iter().filter(has_fence).collect()
}

/// A cluster whose members are to be compared now.
fn due(replicas: i32) -> World {
    let mut world = running(replicas);
    request(&mut world, "now");
    world
}

/// Two looks that find the same.
fn look_twice<const N: usize>(world: &mut World, hashes: [u32; N]) -> Decision {
    find(world, hashes);
    pass(world, seconds(10));
    find(world, hashes)
}

/// A cluster in which etcd-1 was found to differ, and is fenced.
fn with_fenced_member() -> World {
    let mut world = due(3);
    look_twice(&mut world, [1, 2, 1]);
    world.operate(None);
    assert_eq!(fenced(&world), ["etcd-1"]);
    nobody_can_be_replaced(&mut world);
    settle(&mut world);
    world
}

/// The operator does not get through to etcd.
fn nobody_can_be_replaced(world: &mut World) {
    world.cut_off.extend(world.member_names());
}

/// Whether the members would be asked, by an operator that has not asked anybody yet.
fn asks(world: &World) -> bool {
    let view = world.view();
    decide(&view, world.now).reads.iter().any(|read| matches!(read, Read::Hashes(_)))
}

/// From a look that was made now on.
fn asks_after(world: &mut World, time: SignedDuration) -> bool {
    pass(world, time);
    asks(world)
}

#[test]
fn a_comparison_that_takes_its_time_holds_up_nothing_and_is_asked_for_again_soon() {
    let mut world = due(3);
    let before = status(&world).clone();
    let decision = look(&mut world, HashAnswer::Pending);
    assert!(decision.is_settled() && decision.requeue <= seconds(1), "{}", decision.requeue);
    assert_eq!(*status(&world), before);
    find(&mut world, [1, 1, 1]);
    assert!(consistency(&world).last_compared.is_some());
}

#[test]
fn members_that_agree_are_left_alone_and_that_is_written_once() {
    let mut world = due(3);
    let first = find(&mut world, [5, 5, 5]);
    assert_eq!((first.actions.len(), first.status_changed), (0, true));
    let known = consistency(&world);
    assert_eq!((known.revision, known.differing.len(), known.requested.as_deref()), (Some(7), 0, Some("now")));
    pass(&mut world, seconds(3));
    assert!(!find(&mut world, [5, 5, 5]).status_changed, "and not again");
}

#[test]
fn a_member_that_differs_from_a_majority_twice_is_fenced_and_the_others_go_on() {
    let mut world = due(3);
    let suspected = find(&mut world, [1, 2, 1]);
    assert_eq!((differing(&world), suspected.events), (vec![("etcd-1".to_owned(), 1)], Vec::new()));
    world.operate(None);
    assert_eq!(fenced(&world), [""; 0], "one look is none");
    says(status(&world), Degraded, "False", "AsExpected");
    pass(&mut world, seconds(10));
    let believed = find(&mut world, [1, 2, 1]);
    assert_eq!(believed.events.iter().map(|event| event.reason).collect::<Vec<_>>(), [Reason::MemberDiverged]);
    let ordered = world.operate(None);
    assert_eq!(ordered.events, [], "it is told once");
    let reasons = ordered.actions.iter().map(|action| action.reason).collect::<Vec<_>>();
    assert_eq!(reasons, [Reason::EvictionsStopped, Reason::FenceOrdered]);
    assert_eq!(fenced(&world), ["etcd-1"]);
    says(&ordered.status, Degraded, "True", "MemberDiverged");
    nobody_can_be_replaced(&mut world);
    settle(&mut world);
    assert_eq!(world.serving(), ["etcd-0", "etcd-2"]);
    says(status(&world), Ready, "True", "Quorate");
    says(status(&world), Degraded, "True", "MemberFenced");
    let said = condition(status(&world), Degraded).message.clone();
    assert!(said.contains("etcd-1") && said.contains("differs from what a majority"), "{said}");
    assert_eq!(world.volumes["etcd-1"].kept.fence, Some(quorate_core::start::Refusal::Diverged));
    assert!(world.volumes["etcd-1"].data.is_some(), "its data is left as it is");
    let fenced = world.volumes["etcd-1"].data.clone().unwrap().member_id;
    world.cut_off.clear();
    world.hashes = None;
    for _ in 0..4 {
        settle(&mut world);
    }
    assert_eq!(world.serving().len(), 3);
    assert_ne!(world.volumes["etcd-1"].data.as_ref().unwrap().member_id, fenced, "another has taken its place");
    says(status(&world), Degraded, "False", "AsExpected");
}

#[test]
fn the_second_look_comes_soon_and_one_that_finds_nothing_ends_the_suspicion() {
    let mut world = due(3);
    let first = find(&mut world, [1, 2, 1]);
    assert!(first.rest <= seconds(10), "{}", first.rest);
    assert!(!asks_after(&mut world, seconds(9)));
    assert!(asks_after(&mut world, seconds(1)));
    find(&mut world, [1, 1, 1]);
    assert_eq!(differing(&world), []);
    request(&mut world, "again");
    find(&mut world, [1, 2, 1]);
    assert_eq!(differing(&world), [("etcd-1".to_owned(), 1)], "it begins anew");
}

#[test]
fn without_a_majority_nobody_is_fenced_and_it_is_said_that_nobody_can_tell() {
    for (replicas, hashes) in [(3, vec![1, 2, 3]), (5, vec![1, 1, 2, 2, 3])] {
        let mut world = due(replicas);
        for _ in 0..3 {
            let each = hashes.iter().enumerate().map(|(ordinal, hash)| {
                let name = format!("etcd-{ordinal}");
                (name.clone(), Ok(answer(&world, &name, *hash)))
            });
            let each = HashAnswer::Answered(each.collect());
            look(&mut world, each);
            pass(&mut world, seconds(10));
        }
        world.operate(None);
        assert_eq!(fenced(&world), [""; 0], "{hashes:?}");
        says(status(&world), Degraded, "True", "MembersDiffer");
        says(status(&world), Stalled, "True", "MembersDiffer");
        let said = condition(status(&world), Stalled).message.clone();
        assert!(world.member_names().iter().all(|name| said.contains(name)), "{said}");
    }
}

#[test]
fn a_tie_beside_one_that_could_not_be_compared_proves_nothing_about_anybody() {
    let mut world = due(3);
    for _ in 0..2 {
        let HashAnswer::Answered(mut each) = answers(&world, [1, 2, 1]) else { panic!() };
        each.insert("etcd-2".to_owned(), Err("compacted".to_owned()));
        look(&mut world, HashAnswer::Answered(each));
        pass(&mut world, seconds(10));
    }
    world.operate(None);
    assert_eq!(fenced(&world), [""; 0]);
    says(status(&world), Stalled, "True", "MembersDiffer");
}

#[test]
fn what_is_not_comparable_is_not_different() {
    type Change = fn(&mut DataHash);
    let changes: [(&str, Change); 4] = [
        ("another compaction", |found| found.compact_revision = 4),
        ("another revision", |found| found.revision = 6),
        ("another cluster", |found| "stranger".clone_into(&mut found.cluster_id)),
        ("nothing", |_| ()),
    ];
    for (what, change) in changes {
        let mut world = due(3);
        for _ in 0..3 {
            let HashAnswer::Answered(mut each) = answers(&world, [1, 2, 1]) else { panic!() };
            let mut found = each["etcd-1"].clone().unwrap();
            change(&mut found);
            each.insert("etcd-1".to_owned(), if what == "nothing" { Err("no answer".to_owned()) } else { Ok(found) });
            look(&mut world, HashAnswer::Answered(each));
            pass(&mut world, seconds(600));
        }
        world.operate(None);
        assert_eq!((fenced(&world), differing(&world)), (Vec::new(), Vec::new()), "{what}");
        let failure = consistency(&world).failure.unwrap().reason;
        assert!(failure.contains("2 of 3") && failure.contains("etcd-1"), "{what}: {failure}");
        says(status(&world), Degraded, "False", "AsExpected");
    }
}

#[test]
fn whoever_agrees_with_a_majority_is_no_longer_suspected_though_not_all_could_be_asked() {
    let mut world = due(3);
    find(&mut world, [1, 2, 1]);
    pass(&mut world, seconds(10));
    let HashAnswer::Answered(mut each) = answers(&world, [1, 1, 1]) else { panic!() };
    each.insert("etcd-2".to_owned(), Err("behind".to_owned()));
    look(&mut world, HashAnswer::Answered(each));
    assert_eq!(differing(&world), []);
    request(&mut world, "again");
    find(&mut world, [1, 2, 1]);
    assert_eq!(differing(&world), [("etcd-1".to_owned(), 1)]);
}

#[test]
fn a_comparison_that_comes_to_nothing_is_tried_again_with_moderation_and_written_once_each_time() {
    let mut world = due(3);
    let mut waits = Vec::new();
    for _ in 0..8 {
        assert!(look(&mut world, HashAnswer::Failed("refused".to_owned())).status_changed);
        assert!(!look(&mut world, HashAnswer::Failed("refused".to_owned())).status_changed, "it is not due yet");
        let mut waited = 0;
        while !asks_after(&mut world, seconds(60)) {
            waited += 1;
        }
        waits.push(waited + 1);
    }
    assert_eq!(waits, [10, 10, 20, 40, 80, 160, 320, 360], "minutes");
    assert_eq!(consistency(&world).last_compared, None);
    find(&mut world, [1, 1, 1]);
    assert_eq!(consistency(&world).failure, None);
}

#[test]
fn nobody_is_asked_while_a_voter_is_not_ready_or_the_cluster_is_paused_or_alone_or_not_formed() {
    let mut world = due(3);
    assert!(asks(&world));
    world.cluster.spec.maintenance.paused = true;
    assert!(!asks(&world), "paused");
    world.cluster.spec.maintenance.paused = false;
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(11));
    world.operate(None);
    assert!(!asks(&world), "one is silent");
    assert!(!asks(&due(1)), "alone");
    let mut forming = World::new(3);
    request(&mut forming, "now");
    assert!(!asks(&forming), "not formed");
}

#[test]
fn all_voters_are_asked_by_their_addresses() {
    let world = due(3);
    let view = world.view();
    let reads = decide(&view, world.now).reads;
    let [Read::Hashes(endpoints)] = reads.as_slice() else { panic!("{reads:?}") };
    let addresses = endpoints.members.iter().map(|endpoint| endpoint.address.as_str()).collect::<Vec<_>>();
    assert_eq!(addresses, ["10.0.0.0", "10.0.0.1", "10.0.0.2"]);
}

#[test]
fn nobody_is_fenced_without_whom_there_is_no_quorum() {
    let mut world = due(3);
    look_twice(&mut world, [1, 2, 1]);
    without_heartbeat_from(&mut world, &["etcd-0"], seconds(11));
    world.pods.get_mut("etcd-0").unwrap().ready = false;
    let closed = world.operate(None);
    assert_eq!(fenced(&world), [""; 0]);
    says(&closed.status, Degraded, "True", "MemberDiverged");
    world.frozen.clear();
    pass(&mut world, seconds(120));
    settle(&mut world);
    assert_eq!(fenced(&world), [""; 0], "the gate is open, and the finding is old");
    request(&mut world, "again");
    find(&mut world, [1, 2, 1]);
    world.operate(None);
    assert_eq!(fenced(&world), ["etcd-1"], "it still differs");
}

#[test]
fn a_member_that_was_sent_all_data_anew_is_not_fenced_on_an_old_finding() {
    let mut world = due(3);
    look_twice(&mut world, [1, 2, 1]);
    world.cluster.spec.maintenance.paused = true;
    world.operate(None);
    pass(&mut world, seconds(3600));
    world.cluster.spec.maintenance.paused = false;
    find(&mut world, [1, 1, 1]);
    settle(&mut world);
    assert_eq!((fenced(&world), differing(&world)), (Vec::new(), Vec::new()));
}

#[test]
fn a_fence_does_not_open_because_its_record_was_deleted_while_nobody_may_be_fenced() {
    let mut world = with_fenced_member();
    assert_eq!(fenced(&world), ["etcd-1"]);
    without_heartbeat_from(&mut world, &["etcd-0"], seconds(11));
    world.pods.get_mut("etcd-0").unwrap().ready = false;
    world.delete(&ObjectKey::new(Kind::EtcdMember, "etcd-1"));
    world.operate(None);
    assert!(matches!(ticket(&world, "etcd-1"), Ticket::Hold { .. }), "{:?}", ticket(&world, "etcd-1"));
    world.run_agent("etcd-1");
    assert!(!world.volumes["etcd-1"].running, "the fence on the volume is closed");
    world.operate(None);
    assert_eq!(fenced(&world), ["etcd-1"], "and its agent has said so");
}

#[test]
fn nobody_is_evicted_beside_a_member_that_is_about_to_be_fenced() {
    let mut world = due(3);
    look_twice(&mut world, [1, 2, 1]);
    let decision = world.operate(None);
    let kinds = decision.actions.iter().filter_map(|action| match &action.effect {
        Effect::Apply { object, .. } => Some(object.kind()),
        _ => None,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [Kind::PodDisruptionBudget, Kind::EtcdMember]);
}

#[test]
fn a_member_that_answers_in_the_place_of_another_is_counted_once() {
    let mut world = due(3);
    let twice = |world: &World| {
        let mut each = BTreeMap::from(["etcd-0", "etcd-2"].map(|name| (name.to_owned(), Ok(answer(world, name, 1)))));
        each.get_mut("etcd-2").unwrap().as_mut().unwrap().hash = 2;
        each.insert("etcd-1".to_owned(), Ok(answer(world, "etcd-2", 2)));
        HashAnswer::Answered(each)
    };
    for _ in 0..2 {
        let answers = twice(&world);
        look(&mut world, answers);
        pass(&mut world, seconds(10));
    }
    settle(&mut world);
    assert_eq!(fenced(&world), [""; 0], "{:?}", consistency(&world));
    assert!(differing(&world).iter().all(|(name, _)| name != "etcd-0") || consistency(&world).undecided);
}

#[test]
fn of_two_that_differ_one_is_fenced_at_a_time() {
    let mut world = due(5);
    look_twice(&mut world, [1, 2, 1, 3, 1]);
    world.operate(None);
    assert_eq!(fenced(&world), ["etcd-1"]);
    let said = condition(status(&world), Degraded).message.clone();
    assert!(said.contains("etcd-3"), "the other one is named: {said}");
    world.hashes = None;
    for _ in 0..40 {
        world.round();
        assert!(fenced(&world).len() <= 1 && world.serving().len() >= 3, "{:?}", fenced(&world));
    }
    assert_eq!(world.serving().len(), 5);
}

#[test]
fn members_are_read_again_before_one_is_fenced() {
    let mut world = due(3);
    look_twice(&mut world, [1, 2, 1]);
    let view = world.view();
    let asked = decide(&view, world.now).reads;
    for name in world.member_names() {
        assert!(asked.contains(&Read::Member(name.clone())), "{name}: {asked:?}");
    }
    assert!(asked.iter().any(|read| matches!(read, Read::MemberList(_))), "{asked:?}");
    world.cut_off.extend(world.member_names());
    assert_eq!(world.decide().actions, [], "nobody has confirmed who the members are");
}

#[test]
fn a_paused_cluster_says_what_is_known_and_fences_nobody() {
    let mut world = due(3);
    look_twice(&mut world, [1, 2, 1]);
    world.cluster.spec.maintenance.paused = true;
    let decision = world.operate(None);
    assert_eq!((decision.actions.len(), fenced(&world).len()), (0, 0));
    assert!(condition(&decision.status, Degraded).message.contains("etcd-1"));
}

#[test]
fn a_fence_stays_though_the_record_or_the_finding_or_the_whole_status_is_lost_and_goes_with_the_member() {
    let mut world = with_fenced_member();
    let wipes: [fn(&mut World); 3] = [
        |world| world.delete(&ObjectKey::new(Kind::EtcdMember, "etcd-1")),
        |world| status_mut(world).consistency = None,
        |world| world.cluster.status = None,
    ];
    for wipe in wipes {
        wipe(&mut world);
        for _ in 0..12 {
            world.round();
            assert!(!world.volumes["etcd-1"].running);
        }
        assert_eq!((fenced(&world), world.serving().len()), (vec!["etcd-1".to_owned()], 2));
    }
    let Some(Object::EtcdMember(member)) = world.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, "etcd-1")) else {
        panic!()
    };
    let data = member.status.as_mut().unwrap().data.as_mut().unwrap();
    (data.member_id, data.diverged) = (Some("successor".to_owned()), false);
    world.operate(None);
    assert_eq!(ticket(&world, "etcd-1"), Ticket::Resume { epoch: 1 }, "it was never for a successor");
}

#[test]
fn a_finding_about_a_member_that_is_there_no_more_fences_nobody() {
    let mut world = due(3);
    look_twice(&mut world, [1, 2, 1]);
    for found in &mut status_mut(&mut world).consistency.as_mut().unwrap().differing {
        "predecessor".clone_into(&mut found.id);
    }
    settle(&mut world);
    assert_eq!(fenced(&world), [""; 0]);
    says(status(&world), Degraded, "False", "AsExpected");
}

#[test]
fn a_cluster_that_is_created_again_on_its_volumes_keeps_the_fence_and_no_other_finding() {
    let mut world = with_fenced_member();
    world.recreate();
    settle(&mut world);
    assert_eq!((fenced(&world), world.serving().len()), (vec!["etcd-1".to_owned()], 2));
    let mut undecided = due(3);
    look_twice(&mut undecided, [1, 2, 3]);
    undecided.recreate();
    settle(&mut undecided);
    assert_eq!(status(&undecided).consistency, None);
    says(status(&undecided), Degraded, "False", "AsExpected");
}

#[test]
fn a_fence_holds_while_the_api_is_away_and_while_nobody_knows_about_it_any_more() {
    let mut world = with_fenced_member();
    world.away = world.member_names().into_iter().collect();
    for name in world.member_names() {
        world.kill_pod(&name);
    }
    settle(&mut world);
    assert_eq!(world.serving(), ["etcd-0", "etcd-2"]);
}

#[test]
fn a_member_that_its_owner_trusts_runs_though_it_differs_and_that_is_said() {
    let mut world = with_fenced_member();
    assert_eq!(world.volumes["etcd-1"].data.as_ref().unwrap().member_id, consistency(&world).differing[0].id);
    let id = consistency(&world).differing[0].id.clone();
    annotate(&mut world, annotations::TRUSTED_MEMBER, "somebody else");
    settle(&mut world);
    assert_eq!(world.serving().len(), 2);
    annotate(&mut world, annotations::TRUSTED_MEMBER, &id);
    // From now on it could be replaced.
    world.cut_off.clear();
    settle(&mut world);
    assert_eq!((world.serving().len(), fenced(&world).len()), (3, 0));
    assert_eq!(world.listed["etcd-1"].id, id);
    says(status(&world), Degraded, "True", "MemberTrusted");
    assert_eq!(world.volumes["etcd-1"].kept.fence, None);
    request(&mut world, "again");
    find(&mut world, [1, 1, 1]);
    world.operate(None);
    says(status(&world), Degraded, "False", "AsExpected");
}

#[test]
fn a_fenced_member_is_not_restarted_over_and_over() {
    let mut world = with_fenced_member();
    let uid = world.pods["etcd-1"].uid.clone();
    for _ in 0..20 {
        world.advance(seconds(120));
        world.round();
    }
    assert_eq!(world.pods["etcd-1"].uid, uid);
    assert_eq!(
        world.view().member("etcd-1").unwrap().status.as_ref().unwrap().data.as_ref().unwrap().state,
        DataState::Fenced
    );
}

#[test]
fn members_are_compared_every_six_hours_or_a_little_later() {
    let mut world = due(3);
    for _ in 0..3 {
        find(&mut world, [1, 1, 1]);
        assert!(!asks_after(&mut world, PERIOD - seconds(60)));
        let mut waited = 0;
        while !asks(&world) {
            pass(&mut world, seconds(60));
            waited += 1;
        }
        assert!(waited <= 61, "{waited} minutes");
    }
}

#[test]
fn clusters_that_are_all_due_at_once_are_compared_over_an_hour() {
    let mut by_five_minutes = BTreeMap::<i64, usize>::new();
    for number in 0..60 {
        let mut world = World::new(3);
        world.cluster.metadata.uid = Some(format!("uid-{number}"));
        settle(&mut world);
        // As after a day without an operator.
        pass(&mut world, SignedDuration::from_hours(24));
        let begun = world.now;
        while !asks(&world) {
            let rest = decision(&world).rest;
            pass(&mut world, rest);
        }
        *by_five_minutes.entry(world.now.duration_since(begun).as_mins() / 5).or_default() += 1;
    }
    let now = by_five_minutes.remove(&0).unwrap_or_default();
    assert!(now < 23, "a fourth of an hour's worth at once: {now}");
    assert!(by_five_minutes.values().all(|count| *count < 13), "{by_five_minutes:?}");
    assert_eq!(by_five_minutes.keys().copied().collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>(), "{by_five_minutes:?}");
}
