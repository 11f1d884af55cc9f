//! What keeps the operator from etcd: a right that is missing, a way that is closed, and what is said about either.

use quorate_api::conditions::ConditionType::{Degraded, Progressing, Ready, Stalled};
use quorate_core::hashes::HashAnswer;
use quorate_core::membership::ListAnswer;
use quorate_core::read::Read;
use quorate_core::view::{Account, Refusal};
use quorate_core::{Decision, Effect, Reason, decide};

use crate::common::{condition, decision, running, says, seconds, settle, status, until_calm};
use crate::sim::World;

const COMMANDS: [&str; 2] = ["etcdctl user add operator --no-password", "etcdctl user grant-role operator root"];

fn wish(world: &mut World, replicas: i32) {
    world.cluster.spec.replicas = replicas;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
}

/// A cluster that has something to ask etcd for.
fn about_to_shrink() -> World {
    let mut world = running(3);
    wish(&mut world, 1);
    world
}

fn cut_off(world: &mut World) {
    world.cut_off = world.member_names().into_iter().collect();
}

/// What is decided when this is answered to whoever asks for the members.
fn answered(world: &World, list: &ListAnswer) -> Decision {
    let mut view = world.view();
    loop {
        let decision = decide(&view, world.now);
        if decision.reads.is_empty() {
            return decision;
        }
        for read in decision.reads {
            if matches!(read, Read::MemberList(_)) {
                view.member_list = list.clone();
            }
            view.reads.insert(read);
        }
    }
}

#[test]
fn a_list_that_is_refused_names_the_right_and_how_to_give_it() {
    let world = about_to_shrink();
    let refused = ListAnswer::Refused { cause: "etcdserver: permission denied".to_owned() };
    let decision = answered(&world, &refused);
    assert!(decision.actions.iter().all(|action| !matches!(action.effect, Effect::ChangeMembers { .. })));
    for type_ in [Stalled, Degraded, Progressing] {
        says(&decision.status, type_, "True", "EtcdRightsMissing");
    }
    let said = &condition(&decision.status, Stalled).message;
    for part in COMMANDS.into_iter().chain(["list its members (etcdserver: permission denied)"]) {
        assert!(said.contains(part), "{said}");
    }
    assert!(decision.requeue <= seconds(30), "it is asked again");
}

#[test]
fn a_change_that_was_refused_is_said_in_the_next_pass_and_tried_again() {
    let mut world = about_to_shrink();
    let changes = |decision: &Decision| {
        let is_change = |effect: &Effect| matches!(effect, Effect::ChangeMembers { .. });
        decision.actions.iter().filter(|action| is_change(&action.effect)).count()
    };
    let unaware = decision(&world);
    assert_ne!(changes(&unaware), 0);
    says(&unaware.status, Stalled, "False", "AsExpected");

    let (what, cause) = ("remove etcd-2 (beef)".to_owned(), "etcdserver: user name not found".to_owned());
    let refusal = Refusal { what, cause };
    world.refusal = Some(refusal.clone());
    let told = decision(&world);
    assert_eq!(changes(&told), changes(&unaware), "nothing else would show that the right was given");
    says(&told.status, Stalled, "True", "EtcdRightsMissing");
    let said = &condition(&told.status, Stalled).message;
    assert!(said.contains(&refusal.what) && said.contains(&refusal.cause) && said.contains(COMMANDS[1]), "{said}");

    let mut idle = running(3);
    idle.refusal = Some(refusal);
    says(&decision(&idle).status, Stalled, "False", "AsExpected");
}

#[test]
fn without_certificates_there_is_no_user_to_give_a_right_to() {
    let mut world = World::new(3);
    world.cluster.spec.tls.mode = quorate_api::tls::TlsMode::Disabled;
    settle(&mut world);
    wish(&mut world, 1);
    let refused = ListAnswer::Refused { cause: "etcdserver: user name is empty".to_owned() };
    let decision = answered(&world, &refused);
    says(&decision.status, Stalled, "True", "EtcdRightsMissing");
    let said = &condition(&decision.status, Stalled).message;
    assert!(said.contains("spec.tls.mode is Disabled") && !said.contains("user add"), "{said}");
}

#[test]
fn a_comparison_that_is_refused_is_said_until_one_is_not() {
    let mut world = running(3);
    let annotations = world.cluster.metadata.annotations.get_or_insert_default();
    annotations.insert(quorate_api::names::annotations::COMPARE_NOW.to_owned(), "now".to_owned());
    world.hashes = Some(HashAnswer::Refused("etcdserver: permission denied".to_owned()));
    settle(&mut world);
    says(status(&world), Stalled, "True", "EtcdRightsMissing");
    says(status(&world), Ready, "True", "Quorate");
    let said = &condition(status(&world), Stalled).message;
    assert!(said.contains("compare the members' data") && said.contains(COMMANDS[0]), "{said}");
    for _ in 0..6 {
        // However long it lasts, it is tried again soon enough for whoever has given the right.
        world.advance(seconds(601));
        world.run_etcd();
        let tried = |world: &World| status(world).consistency.clone().unwrap().failure.unwrap().last_tried;
        let before = tried(&world);
        settle(&mut world);
        assert!(tried(&world) > before);
    }
    world.hashes = None;
    world.advance(seconds(601));
    settle(&mut world);
    says(status(&world), Stalled, "False", "AsExpected");
}

#[test]
fn a_closed_way_is_named_at_once_and_calls_a_human_when_it_has_lasted() {
    let mut world = running(3);
    let (namespace, name) = ("quorate-system".to_owned(), "quorate-operator".to_owned());
    world.platform.account = Some(Account { namespace, name });
    settle(&mut world);
    wish(&mut world, 1);
    cut_off(&mut world);
    world.round();
    let first = world.now;
    for type_ in [Degraded, Progressing] {
        says(status(&world), type_, "True", "EtcdOutOfReach");
    }
    says(status(&world), Stalled, "False", "AsExpected");
    says(status(&world), Ready, "True", "Quorate");
    assert_eq!(status(&world).etcd_out_of_reach_since.as_ref().map(|since| since.0), Some(first));
    let said = condition(status(&world), Degraded).message.clone();
    let parts = [
        "from the operator in namespace quorate-system to TCP port 2379 of etcd-0",
        "NetworkPolicy",
        "quorate.dev/cluster=etcd",
    ];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    while world.now < first + seconds(55) {
        world.round();
    }
    says(status(&world), Stalled, "False", "AsExpected");
    let until = world.operate(None).requeue;
    assert!(
        until <= (first + seconds(60)).duration_since(world.now),
        "nothing else would tell that a minute is over: {until}"
    );
    world.round();
    world.round();
    says(status(&world), Stalled, "True", "EtcdOutOfReach");
    assert_eq!(status(&world).etcd_out_of_reach_since.as_ref().map(|since| since.0), Some(first));
    let writes = world.writes;
    world.round();
    assert_eq!(world.writes, writes, "the same is not told again");

    world.cut_off.clear();
    until_calm(&mut world);
    assert_eq!((status(&world).cluster_size, status(&world).etcd_out_of_reach_since.clone()), (Some(1), None));
    says(status(&world), Stalled, "False", "AsExpected");
}

#[test]
fn a_way_that_nobody_needs_may_be_closed() {
    let mut world = running(3);
    cut_off(&mut world);
    for _ in 0..10 {
        settle(&mut world);
    }
    says(status(&world), Stalled, "False", "AsExpected");
    says(status(&world), Degraded, "False", "AsExpected");
}

#[test]
fn members_that_do_not_serve_are_not_called_out_of_reach() {
    let mut world = about_to_shrink();
    world.pods.values_mut().for_each(|pod| pod.ready = false);
    let decision = answered(&world, &ListAnswer::OutOfReach);
    assert!(!condition(&decision.status, Degraded).message.contains(Reason::EtcdOutOfReach.sentence()));
    assert_eq!(decision.status.etcd_out_of_reach_since, None);
    let there = answered(&about_to_shrink(), &ListAnswer::Failed);
    says(&there.status, Progressing, "True", "WaitingForMemberList");
}

#[test]
fn who_the_members_are_is_known_from_their_agents_though_the_way_is_closed() {
    let mut world = running(3);
    cut_off(&mut world);
    wish(&mut world, 5);
    for _ in 0..10 {
        world.round();
    }
    assert_eq!((status(&world).cluster_size, status(&world).ready_replicas), (Some(3), 3));
    assert_eq!(world.listed.len(), 3, "and nothing is changed");
}
