//! The decision table of the operator, row by row.
//!
//! Rows that are not carried out yet are in [`crate::pending`], with what is done instead.

use k8s_openapi::api::coordination::v1::Lease;
use quorate_api::conditions::ConditionType::{AllMembersReady, Ready};
use quorate_api::status::MemberHealth::{NotReady, Ready as MemberReady, Unknown};
use quorate_api::status::{ClusterPhase, MemberReason, MemberRole};
use quorate_core::{Effect, Guard, Kind, Object, ObjectKey, Reason};

use crate::common::{
    condition, decision, health, member, running, says, seconds, settle, status, status_mut, without_heartbeat_from,
};

#[test]
fn row_01_a_healthy_cluster_is_left_alone() {
    for replicas in [1, 3, 5, 7] {
        let mut world = running(replicas);
        for _ in 0..3 {
            let before = world.cluster.status.clone();
            let decision = world.round();
            assert_eq!(decision.actions, []);
            assert_eq!(Some(decision.status), before);
        }
        says(status(&world), Ready, "True", "Quorate");
        says(status(&world), AllMembersReady, "True", "AllMembersReady");
        assert_eq!(health(status(&world)), vec![MemberReady; usize::try_from(replicas).unwrap()]);
    }
}

#[test]
fn row_02_members_follow_their_leases() {
    let mut world = running(3);
    let id = member(status(&world), "etcd-1").id.clone();
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(11));
    let decision = decision(&world);
    let silent = member(&decision.status, "etcd-1");
    assert_eq!((silent.status, silent.reason), (Unknown, MemberReason::LeaseExpired));
    assert_eq!((silent.id.clone(), silent.last_transition_time.0), (id, world.now));
    for name in ["etcd-0", "etcd-2"] {
        let member = member(&decision.status, name);
        assert_eq!((member.status, member.reason), (MemberReady, MemberReason::LeaseSucceeded));
        assert!(member.id.is_some());
    }
    let actions = decision.actions.iter().map(|action| action.reason).collect::<Vec<_>>();
    assert_eq!(actions, [Reason::MemberHidden], "it is not restarted");
}

#[test]
fn row_02_the_lease_names_the_identifier_and_the_role() {
    let world = running(3);
    let leaders = status(&world).members.iter().filter(|member| member.role == Some(MemberRole::Leader));
    assert_eq!(leaders.count(), 1);
    assert!(status(&world).members.iter().all(|member| member.id.as_ref().is_some_and(|id| id.contains("-of-"))));
}

#[test]
fn row_03_all_members_ready_turns_true() {
    let mut world = running(3);
    let stale = status_mut(&mut world).conditions.iter_mut().find(|c| c.type_ == "AllMembersReady").unwrap();
    stale.status = "False".to_owned();
    world.advance(seconds(1));
    let decision = decision(&world);
    says(&decision.status, AllMembersReady, "True", "AllMembersReady");
}

#[test]
fn row_04_all_members_ready_turns_false() {
    let mut world = running(3);
    without_heartbeat_from(&mut world, &["etcd-2"], seconds(11));
    let decision = decision(&world);
    says(&decision.status, AllMembersReady, "False", "NotAllMembersReady");
    says(&decision.status, Ready, "True", "Quorate");
    assert_eq!(decision.status.phase, Some(ClusterPhase::Degraded));
}

#[test]
fn row_05_ready_turns_true_with_a_majority() {
    let mut world = running(3);
    let stale = status_mut(&mut world).conditions.iter_mut().find(|c| c.type_ == "Ready").unwrap();
    stale.status = "False".to_owned();
    without_heartbeat_from(&mut world, &["etcd-2"], seconds(11));
    says(&decision(&world).status, Ready, "True", "Quorate");
}

#[test]
fn row_06_ready_turns_false_without_a_majority() {
    let mut world = running(3);
    without_heartbeat_from(&mut world, &["etcd-1", "etcd-2"], seconds(11));
    for name in ["etcd-1", "etcd-2"] {
        world.pods.get_mut(name).unwrap().ready = false;
    }
    let decision = decision(&world);
    says(&decision.status, Ready, "False", "QuorumLost");
    assert_eq!(decision.status.phase, Some(ClusterPhase::QuorumLost));
    assert!(decision.status.message.as_ref().unwrap().contains("2 are needed"), "{:?}", decision.status.message);
}

#[test]
fn row_06_silence_alone_does_not_say_that_the_quorum_is_lost() {
    let mut world = running(3);
    without_heartbeat_from(&mut world, &["etcd-1", "etcd-2"], seconds(11));
    let silent = world.operate(None);
    says(&silent.status, Ready, "Unknown", "QuorumUnknown");
    assert_eq!(silent.status.phase, Some(ClusterPhase::Unknown));
    assert!(silent.events.iter().any(|event| event.reason == Reason::QuorumUnknown), "{:?}", silent.events);
    without_heartbeat_from(&mut world, &["etcd-1", "etcd-2"], seconds(60));
    let lost = world.operate(None);
    says(&lost.status, Ready, "False", "QuorumLost");
    assert!(lost.events.iter().any(|event| event.reason == Reason::QuorumLost), "{:?}", lost.events);
}

#[test]
fn row_07_unknown_for_long_is_not_ready() {
    let mut world = running(3);
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(11));
    world.operate(None);
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(59));
    assert_eq!(member(&decision(&world).status, "etcd-1").status, Unknown);
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(1));
    world.operate(None);
    let late = member(status(&world), "etcd-1");
    assert_eq!((late.status, late.reason), (NotReady, MemberReason::UnknownGracePeriodExceeded));
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(30));
    let later = decision(&world).status;
    assert_eq!(member(&later, "etcd-1"), member(status(&world), "etcd-1"), "it stays so, since the same moment");
}

#[test]
fn row_08_a_pod_that_is_not_ready_makes_its_member_not_ready() {
    let mut world = running(3);
    world.pods.get_mut("etcd-0").unwrap().ready = false;
    world.kill_pod("etcd-2");
    let decision = decision(&world);
    for name in ["etcd-0", "etcd-2"] {
        let member = member(&decision.status, name);
        assert_eq!((member.status, member.reason), (NotReady, MemberReason::PodNotReady));
    }
    assert_eq!(decision.actions, []);
}

#[test]
fn row_09_a_member_that_does_not_come_back_gets_a_new_pod() {
    let mut world = running(3);
    let stuck = |world: &mut crate::sim::World, time| {
        without_heartbeat_from(world, &["etcd-1"], seconds(time));
        world.pods.get_mut("etcd-1").unwrap().ready = false;
        world.operate(None)
    };
    assert_eq!(stuck(&mut world, 11).actions, []);
    assert_eq!(stuck(&mut world, 299).actions, []);
    let uid = world.pods["etcd-1"].uid.clone();
    let decision = stuck(&mut world, 1);
    let [action] = &decision.actions[..] else { panic!("{:#?}", decision.actions) };
    assert_eq!(action.reason, Reason::MemberStuck);
    assert_eq!(action.effect, Effect::RestartPod { name: "etcd-1".to_owned(), guard: Guard::PodStillUnready(uid) });
    // The new pod is there, and its containers have not started yet.
    world.schedule();
    let after = world.operate(None);
    assert_eq!(after.actions, [], "a new pod gets its time");
    assert_eq!(stuck(&mut world, 299).actions, []);
    assert_eq!(decision_requeue(&world), seconds(1), "and the next look is when that ends");
    assert_eq!(stuck(&mut world, 1).actions.len(), 1);
    world.frozen.clear();
    settle(&mut world);
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
    assert_eq!(world.starts.len(), 3, "it came back from its own data");
}

fn decision_requeue(world: &crate::sim::World) -> jiff::SignedDuration {
    let mut world = world.clone();
    // Only the member that is away has a deadline: the others were just heard.
    world.run_etcd();
    world.pods.get_mut("etcd-1").unwrap().ready = false;
    decision(&world).requeue
}

#[test]
fn row_09_a_pod_that_became_ready_meanwhile_is_not_deleted() {
    let mut world = running(3);
    for time in [11, 300] {
        without_heartbeat_from(&mut world, &["etcd-1"], seconds(time));
        world.pods.get_mut("etcd-1").unwrap().ready = false;
        if time == 11 {
            world.operate(None);
        }
    }
    let actions = decision(&world).actions;
    assert_eq!(actions.len(), 1);
    let uid = world.pods["etcd-1"].uid.clone();
    world.pods.get_mut("etcd-1").unwrap().ready = true;
    world.act_all(&actions);
    assert_eq!(world.pods["etcd-1"].uid, uid);
}

#[test]
fn row_09_no_pod_is_deleted_while_another_is_away_or_the_quorum_would_go() {
    let mut world = running(5);
    let down = ["etcd-1", "etcd-2"];
    for time in [11, 300] {
        without_heartbeat_from(&mut world, &down, seconds(time));
        for name in down {
            world.pods.get_mut(name).unwrap().ready = false;
        }
        if time == 11 {
            world.operate(None);
        }
    }
    let restarts = decision(&world).actions;
    assert_eq!(restarts.len(), 1, "one at a time: {restarts:#?}");
    world.kill_pod("etcd-3");
    assert_eq!(decision(&world).actions, [], "a third one is away already");
}

#[test]
fn until_row_10_is_there_a_lost_quorum_is_stated_and_nothing_is_torn_down() {
    let mut world = running(3);
    for (time, ready) in [(11, "Unknown"), (300, "False"), (300, "False")] {
        without_heartbeat_from(&mut world, &["etcd-1", "etcd-2"], seconds(time));
        let decision = world.operate(None);
        assert_eq!(decision.actions, []);
        assert_eq!(condition(&decision.status, Ready).status, ready);
    }
}

#[test]
fn row_13_superfluous_members_leave_the_status_and_their_leases_go() {
    let mut world = running(3);
    let mut extra = member(status(&world), "etcd-2").clone();
    extra.name = "etcd-3".to_owned();
    status_mut(&mut world).members.push(extra);
    let Some(Object::Lease(lease)) = world.objects.get(&ObjectKey::new(Kind::Lease, "etcd-2")) else { panic!() };
    let mut lease: Lease = (**lease).clone();
    lease.metadata.name = Some("etcd-10".to_owned());
    lease.metadata.uid = Some("extra".to_owned());
    world.objects.insert(ObjectKey::new(Kind::Lease, "etcd-10"), lease.into());
    let decision = decision(&world);
    assert_eq!(decision.status.members.len(), 3);
    let [action] = &decision.actions[..] else { panic!("{:#?}", decision.actions) };
    assert_eq!(action.reason, Reason::ObjectSuperfluous);
    let key = ObjectKey::new(Kind::Lease, "etcd-10");
    assert_eq!(action.effect, Effect::Delete { key, guard: Guard::Uid("extra".to_owned()) });
}

#[test]
fn at_most_one_leader_is_shown_and_it_is_that_of_the_highest_term() {
    let mut world = running(3);
    for (name, term) in [("etcd-0", "7"), ("etcd-1", "9"), ("etcd-2", "10")] {
        let key = ObjectKey::new(Kind::Lease, name);
        let Some(Object::Lease(lease)) = world.objects.get_mut(&key) else { panic!() };
        lease.metadata.annotations.get_or_insert_default().insert("quorate.dev/term".to_owned(), term.to_owned());
        lease.spec.as_mut().unwrap().holder_identity = Some(format!("{name}:Leader"));
    }
    let leaders = |world: &crate::sim::World| {
        let members = decision(world).status.members;
        let leads = members.into_iter().filter(|member| member.role == Some(MemberRole::Leader));
        leads.map(|member| member.name).collect::<Vec<_>>()
    };
    assert_eq!(leaders(&world), ["etcd-2"], "10 is more than 9");
    world.pods.get_mut("etcd-2").unwrap().ready = false;
    assert_eq!(leaders(&world), ["etcd-1"], "a member that is not ready leads nobody");
}

#[test]
fn a_member_is_judged_by_when_it_was_heard_and_not_by_its_own_clock() {
    let world = running(3);
    let mut view = world.view();
    // Its clock is an hour behind, and it was heard of just now.
    let key = ObjectKey::new(Kind::Lease, "etcd-1");
    let Some(Object::Lease(lease)) = view.objects.get_mut(&key) else { panic!() };
    let renewed = &mut lease.spec.as_mut().unwrap().renew_time.as_mut().unwrap().0;
    *renewed -= seconds(3600);
    view.heard.insert("etcd-1".to_owned(), world.now);
    let judge = |view: &quorate_core::View, after: i64| {
        let later = quorate_core::decide(view, world.now + seconds(after));
        (member(&later.status, "etcd-1").status, later.requeue)
    };
    assert_eq!(judge(&view, 7).0, MemberReady);
    assert_eq!(judge(&view, 8).0, Unknown);
    assert_eq!(judge(&view, 3).1, seconds(5));
    // An hour ahead, and silent: it does not live an hour longer.
    let Some(Object::Lease(lease)) = view.objects.get_mut(&key) else { panic!() };
    lease.spec.as_mut().unwrap().renew_time.as_mut().unwrap().0 += seconds(7200);
    assert_eq!(judge(&view, 10).0, Unknown);
}

#[test]
fn the_next_pass_is_due_when_the_first_lease_runs_out() {
    let world = running(3);
    assert_eq!(decision(&world).requeue, seconds(8));
}

#[test]
fn events_tell_of_changes_and_a_settled_cluster_is_silent() {
    let mut world = crate::sim::World::new(3);
    let mut told = Vec::new();
    for _ in 0..12 {
        told.extend(world.round().events.into_iter().map(|event| event.reason));
    }
    let expected =
        [Reason::BootstrapIssued, Reason::Formed, Reason::Quorate, Reason::LeaderElected, Reason::MemberReady];
    for reason in expected {
        let count = told.iter().filter(|other| **other == reason).count();
        assert_eq!(count, if reason == Reason::MemberReady { 3 } else { 1 }, "{reason}: {told:?}");
    }
    assert_eq!(world.round().events, []);
    without_heartbeat_from(&mut world, &["etcd-0", "etcd-1"], seconds(11));
    let told = world.operate(None).events.into_iter().map(|event| event.reason).collect::<Vec<_>>();
    // Without a quorum the third knows no leader and is silent too.
    assert_eq!(told, [Reason::MemberUnknown, Reason::MemberUnknown, Reason::MemberUnknown, Reason::QuorumUnknown]);
}
