//! Members that somebody has added by hand: spoken of, then removed, and never at the cost of the quorum.

use quorate_api::conditions::ConditionType::{Degraded, Progressing, Stalled};
use quorate_api::member::Ticket;
use quorate_core::action::MemberChange;
use quorate_core::object::{Kind, Object, ObjectKey};
use quorate_core::start::Identity;
use quorate_core::{Effect, Reason};

use crate::common::{condition, running, says, seconds, settle, status, until_calm};
use crate::sim::{Listed, Volume, World};

const TEN_MINUTES: i64 = 600;

fn add_by_hand(world: &mut World, name: &str, listed: &Listed) {
    world.change_members_by_hand(|members| drop(members.insert(name.to_owned(), listed.clone())));
}

fn voter(name: &str) -> Listed {
    Listed::by_hand(name, true)
}

fn learner(name: &str) -> Listed {
    Listed { learner: true, ..Listed::by_hand(name, false) }
}

/// One that serves beside ours, and that nobody hears of.
fn add_live_voter(world: &mut World, name: &str) {
    let own = world.volumes["etcd-0"].data.clone().unwrap();
    let data = Identity { member_id: voter(name).id, ..own };
    world.volumes.insert(name.to_owned(), Volume { data: Some(data), running: true, ..Volume::default() });
    add_by_hand(world, name, &voter(name));
}

/// Rounds until this much time has passed.
fn live(world: &mut World, time: i64) {
    let until = world.now + seconds(time);
    while world.now < until {
        world.round();
    }
}

fn ids(world: &World) -> Vec<&str> {
    status(world).strangers.iter().map(|stranger| stranger.id.as_str()).collect()
}

fn is_safe(world: &World) {
    assert!(!world.quorum_given_away && !world.lost_writes);
    assert_eq!((&world.wrongly_removed[..], &world.torn_down[..]), (&[][..], &[][..]));
}

#[test]
fn a_member_of_somebody_else_is_spoken_of_for_ten_minutes_and_then_removed() {
    let cases =
        [("a voter", voter("elsewhere"), "ForeignVoter"), ("a learner", learner("elsewhere"), "ForeignLearner")];
    for (what, listed, reason) in cases {
        let mut world = running(3);
        add_by_hand(&mut world, "elsewhere", &listed);
        world.round();
        let first_seen = world.now;
        live(&mut world, TEN_MINUTES - 30);
        assert_eq!(world.listed.len(), 4, "{what}");
        says(status(&world), Degraded, "True", reason);
        says(status(&world), Progressing, "True", reason);
        says(status(&world), Stalled, "False", "AsExpected");
        let [stranger] = &status(&world).strangers[..] else { panic!("{what}: {:#?}", status(&world)) };
        assert_eq!((stranger.id.as_str(), stranger.first_seen.0), ("id-of-elsewhere", first_seen), "{what}");
        let said = &condition(status(&world), Degraded).message;
        let due = (first_seen + seconds(TEN_MINUTES)).to_string();
        assert!(said.contains("(id-of-elsewhere)") && said.contains(&due), "{what}: {said}");
        live(&mut world, 60);
        until_calm(&mut world);
        assert_eq!((world.listed.len(), ids(&world).len()), (3, 0), "{what}");
        says(status(&world), Degraded, "False", "AsExpected");
        is_safe(&world);
    }
}

#[test]
fn since_when_one_is_there_is_in_the_status_and_nowhere_else() {
    let mut world = running(3);
    add_by_hand(&mut world, "elsewhere", &voter("elsewhere"));
    live(&mut world, TEN_MINUTES - 30);
    // The operator's next life has only the status, and one without knows nothing.
    world.cluster.status = None;
    live(&mut world, TEN_MINUTES - 60);
    assert_eq!(world.listed.len(), 4);
    live(&mut world, 120);
    assert_eq!(world.listed.len(), 3);
}

#[test]
fn one_that_was_removed_and_added_again_is_somebody_else() {
    let mut world = running(3);
    add_by_hand(&mut world, "elsewhere", &voter("elsewhere"));
    live(&mut world, TEN_MINUTES - 30);
    add_by_hand(&mut world, "elsewhere", &Listed { id: "another".to_owned(), ..voter("elsewhere") });
    live(&mut world, TEN_MINUTES - 30);
    assert_eq!((world.listed.len(), ids(&world)), (4, vec!["another"]));
    live(&mut world, 60);
    assert_eq!(world.listed.len(), 3);
}

#[test]
fn a_voter_by_which_the_quorum_may_live_is_not_removed_and_that_is_said() {
    let mut world = running(1);
    for name in ["elsewhere", "farther"] {
        add_live_voter(&mut world, name);
    }
    live(&mut world, 3 * TEN_MINUTES);
    assert_eq!(world.listed.len(), 3, "nobody can tell whether the other one is there");
    says(status(&world), Stalled, "True", "StrangerKept");
    says(status(&world), Degraded, "True", "StrangerKept");
    let said = &condition(status(&world), Stalled).message;
    assert!(said.contains("elsewhere (id-of-elsewhere), farther (id-of-farther)"), "{said}");
    is_safe(&world);
    world.change_members_by_hand(|members| drop(members.remove("farther")));
    live(&mut world, 60);
    assert_eq!(world.listed.len(), 1, "of two both are there, or nobody could have confirmed the list");
    says(status(&world), Stalled, "False", "AsExpected");
}

#[test]
fn while_our_own_members_are_missing_it_may_pass_that_a_voter_is_kept() {
    let mut world = running(3);
    for name in ["elsewhere", "farther"] {
        add_live_voter(&mut world, name);
    }
    live(&mut world, 60);
    world.frozen = vec!["etcd-1".to_owned(), "etcd-2".to_owned()];
    live(&mut world, 2 * TEN_MINUTES);
    assert_eq!(world.listed.len(), 5);
    says(status(&world), Stalled, "False", "AsExpected");
    let said = &condition(status(&world), Degraded).message;
    assert!(said.contains(Reason::StrangerKept.sentence()), "{said}");
    world.frozen.clear();
    live(&mut world, 60);
    until_calm(&mut world);
    assert_eq!(world.listed.len(), 3);
    is_safe(&world);
}

#[test]
fn several_go_one_after_the_other_and_those_without_a_vote_first() {
    let mut world = running(3);
    add_live_voter(&mut world, "elsewhere");
    add_by_hand(&mut world, "listener", &learner("listener"));
    live(&mut world, TEN_MINUTES - 30);
    let mut removed = Vec::new();
    for _ in 0..40 {
        let changes = world.round().actions.into_iter().filter_map(|action| match action.effect {
            Effect::ChangeMembers { change, .. } => Some((action.reason, change)),
            _ => None,
        });
        let changes = changes.collect::<Vec<_>>();
        assert!(changes.len() <= 1, "{changes:?}");
        removed.extend(changes);
    }
    let ids = removed.iter().map(|(reason, change)| match change {
        MemberChange::Remove { id, .. } => (*reason, id.as_str()),
        other => panic!("{other:?}"),
    });
    let both = ["id-of-listener", "id-of-elsewhere"].map(|id| (Reason::StrangerRemoved, id));
    assert_eq!(ids.collect::<Vec<_>>(), both);
    is_safe(&world);
}

#[test]
fn a_wish_for_more_takes_in_whoever_has_the_name_of_a_pod_and_nobody_else() {
    let mut world = running(3);
    add_by_hand(&mut world, "etcd-3", &Listed::by_hand("etcd-3", false));
    live(&mut world, 30);
    says(status(&world), Degraded, "True", "MemberNotAskedFor");
    assert_eq!(ids(&world), ["id-of-etcd-3"]);
    world.cluster.spec.replicas = 5;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
    until_calm(&mut world);
    assert_eq!((ids(&world).len(), world.listed.len()), (0, 5));
    assert_eq!(world.listed["etcd-3"].id, "id-of-etcd-3");

    add_by_hand(&mut world, "elsewhere", &voter("elsewhere"));
    live(&mut world, 30);
    world.cluster.spec.replicas = 7;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
    live(&mut world, 120);
    assert_eq!(
        (ids(&world), world.listed.len()),
        (vec!["id-of-elsewhere"], 6),
        "nobody is added beside one who is away"
    );
    live(&mut world, TEN_MINUTES);
    until_calm(&mut world);
    assert_eq!(world.listed.len(), 7);
    assert!(!world.listed.contains_key("elsewhere"));
    is_safe(&world);
}

#[test]
fn one_that_was_wished_for_goes_at_once_when_it_is_not_any_more() {
    let mut world = running(5);
    world.cluster.spec.replicas = 3;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
    live(&mut world, 120);
    assert_eq!(world.listed.len(), 3);
    assert_eq!(ids(&world).len(), 0);
}

#[test]
fn a_learner_that_has_the_name_of_a_pod_and_was_not_asked_for_does_not_begin() {
    let mut world = running(3);
    add_by_hand(&mut world, "etcd-3", &learner("etcd-3"));
    live(&mut world, TEN_MINUTES / 2);
    assert_eq!(world.pods.len(), 3, "nobody has asked for a pod either");
    let set = ObjectKey::new(Kind::StatefulSet, "etcd");
    let Some(Object::StatefulSet(set)) = world.objects.get_mut(&set) else { panic!() };
    set.spec.as_mut().unwrap().replicas = Some(4);
    live(&mut world, TEN_MINUTES / 2 - 30);
    assert_eq!(ids(&world), ["id-of-etcd-3"]);
    assert!(world.starts.iter().all(|start| start.id != "id-of-etcd-3"));
    let Some(Object::EtcdMember(record)) = world.objects.get(&ObjectKey::new(Kind::EtcdMember, "etcd-3")) else {
        panic!()
    };
    assert!(matches!(record.spec.ticket, Ticket::Hold { .. }), "{:?}", record.spec.ticket);
    live(&mut world, 60);
    until_calm(&mut world);
    assert_eq!((world.listed.len(), world.pods.len()), (3, 3));
    is_safe(&world);
}

#[test]
fn nobody_is_removed_while_the_cluster_is_paused_and_it_is_said_all_the_same() {
    let mut world = running(3);
    world.cluster.spec.maintenance.paused = true;
    add_by_hand(&mut world, "elsewhere", &voter("elsewhere"));
    live(&mut world, 2 * TEN_MINUTES);
    assert_eq!((world.listed.len(), ids(&world).len()), (4, 1));
    world.cluster.spec.maintenance.paused = false;
    settle(&mut world);
    assert_eq!(world.listed.len(), 3);
}

#[test]
fn that_somebody_was_added_is_told_once() {
    let mut world = running(3);
    add_by_hand(&mut world, "elsewhere", &voter("elsewhere"));
    let mut told = Vec::new();
    for _ in 0..10 {
        let events = world.round().events;
        told.extend(events.into_iter().filter(|event| event.reason == Reason::ForeignVoter));
    }
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].message.starts_with("elsewhere (id-of-elsewhere): "), "{told:?}");
}
