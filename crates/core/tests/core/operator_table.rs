//! The decision table of the operator, row by row.
//!
//! Rows that are not carried out yet are in [`crate::pending`], with what is done instead.

use k8s_openapi::api::coordination::v1::Lease;
use quorate_api::conditions::ConditionType::{AllMembersReady, Ready};
use quorate_api::status::MemberHealth::{NotReady, Ready as MemberReady, Unknown};
use quorate_api::status::{ClusterPhase, MemberReason, MemberRole};
use quorate_core::{Effect, Guard, Kind, Object, ObjectKey, Reason};

use crate::common::{
    condition, decision, deeds, health, member, running, says, seconds, settle, status, status_mut, until_calm,
    without_heartbeat_from,
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
    let actions = deeds(&decision).iter().map(|action| action.reason).collect::<Vec<_>>();
    assert_eq!(actions, [Reason::MemberHidden], "it is not restarted");
}

#[test]
fn row_02_the_lease_names_the_identifier_and_the_role() {
    let world = running(3);
    let leaders = status(&world).members.iter().filter(|member| member.role == Some(MemberRole::Leader));
    assert_eq!(leaders.count(), 1);
    assert!(status(&world).members.iter().all(|member| member.id.is_some()));
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
    assert_eq!(deeds(&decision), []);
}

#[test]
fn row_09_a_member_that_does_not_come_back_gets_a_new_pod() {
    let mut world = running(3);
    let stuck = |world: &mut crate::sim::World, time| {
        without_heartbeat_from(world, &["etcd-1"], seconds(time));
        world.pods.get_mut("etcd-1").unwrap().ready = false;
        world.operate(None)
    };
    assert_eq!(deeds(&stuck(&mut world, 11)), []);
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
    world.pods.get_mut("etcd-2").unwrap().ready = true;
    world.frozen = vec!["etcd-1".to_owned()];
    world.run_etcd();
    world.kill_pod("etcd-3");
    assert_eq!(deeds(&decision(&world)), [], "another one is away already");
}

#[test]
fn row_10_a_quorum_whose_data_is_gone_is_recovered_from_the_best_copy_that_is_left() {
    let mut world = running(3);
    for name in ["etcd-0", "etcd-2"] {
        world.kill_pod(name);
        world.volumes.insert(name.to_owned(), crate::sim::Volume::default());
    }
    until_calm(&mut world);
    let told = (status(&world).phase, status(&world).cluster_size, status(&world).epoch);
    assert_eq!(told, (Some(ClusterPhase::Running), Some(3), Some(2)));
    assert_eq!(status(&world).data_loss.as_ref().map(|loss| loss.from.as_str()), Some("etcd-1"));
}

#[test]
fn row_10_a_quorum_that_is_merely_silent_is_stated_and_nothing_is_torn_down() {
    let mut world = running(3);
    for (time, ready) in [(11, "Unknown"), (300, "False"), (300, "False")] {
        without_heartbeat_from(&mut world, &["etcd-1", "etcd-2"], seconds(time));
        let decision = world.operate(None);
        assert_eq!(deeds(&decision), []);
        assert_eq!(condition(&decision.status, Ready).status, ready);
    }
}

#[test]
fn row_11_a_healthy_cluster_grows_by_one_learner_at_a_time() {
    let mut world = running(3);
    world.cluster.spec.replicas = 5;
    for _ in 0..60 {
        world.round();
        let learners = world.listed.values().filter(|listed| listed.learner).count();
        assert!(learners <= 1 && world.serving().len() >= 3);
    }
    assert_eq!((status(&world).phase, status(&world).cluster_size), (Some(ClusterPhase::Running), Some(5)));
    assert!(world.listed.values().all(|listed| !listed.learner));
}

#[test]
fn row_12_a_healthy_cluster_shrinks_from_the_highest_number_etcd_first_and_then_its_pod() {
    let mut world = running(5);
    world.cluster.spec.replicas = 3;
    for _ in 0..60 {
        world.round();
        assert!(world.listed.keys().all(|member| world.pods.contains_key(member)), "{:?}", world.pods.keys());
        assert!(world.listed.contains_key("etcd-3") || !world.listed.contains_key("etcd-4"), "the highest goes first");
    }
    assert_eq!((status(&world).phase, status(&world).cluster_size), (Some(ClusterPhase::Running), Some(3)));
    assert_eq!(world.pods.len(), 3);
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
    let (cluster_uid, object_uid) = ("cluster-uid".to_owned(), Some("extra".to_owned()));
    let guard = Guard::SameIncarnation { cluster_uid, generation: Some(1), epoch: Some(1), object_uid };
    assert_eq!(action.effect, Effect::Delete { key, guard });
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

/// Two or all members hang, though their data is sound; the kubelet says so.
fn hang(world: &mut crate::sim::World, names: &[&str], time: i64) -> quorate_core::Decision {
    without_heartbeat_from(world, names, seconds(time));
    for name in names {
        world.pods.get_mut(*name).unwrap().ready = false;
    }
    world.operate(None)
}

#[test]
fn a_hung_etcd_is_restarted_also_where_there_is_no_quorum_to_lose() {
    for (replicas, hung) in [(1, vec!["etcd-0"]), (3, vec!["etcd-1", "etcd-2"])] {
        let mut world = running(replicas);
        hang(&mut world, &hung, 11);
        assert_eq!(deeds(&hang(&mut world, &hung, 299)), [], "it gets its time");
        let restarts = deeds(&hang(&mut world, &hung, 1));
        let [restart] = &restarts[..] else { panic!("one at a time: {restarts:#?}") };
        assert_eq!((restart.reason, restart.target()), (Reason::MemberStuck, format!("Pod {}", hung[0])));
        world.frozen.clear();
        settle(&mut world);
        assert_eq!(deeds(&decision(&world)), []);
    }
}

#[test]
fn a_silent_member_whose_kubelet_calls_it_ready_is_not_restarted_without_a_quorum() {
    let mut world = running(3);
    for time in [11, 60, 300, 3600] {
        without_heartbeat_from(&mut world, &["etcd-1", "etcd-2"], seconds(time));
        assert_eq!(deeds(&world.operate(None)), [], "silence alone is no reason");
    }
}

#[test]
fn restarts_that_do_not_help_become_rarer() {
    let mut world = running(3);
    hang(&mut world, &["etcd-1"], 11);
    let mut restarts = Vec::new();
    for minute in 1..=120 {
        let restarted = deeds(&hang(&mut world, &["etcd-1"], 60));
        if restarted.iter().any(|action| action.reason == Reason::MemberStuck) {
            restarts.push(minute);
            world.schedule();
        }
    }
    assert_eq!(restarts, [5, 10, 20, 40, 80]);
}

/// Minutes at which the member's pod is replaced, if this happens to it every minute.
fn restarts(
    world: &mut crate::sim::World,
    minutes: i64,
    mut happens: impl FnMut(&mut crate::sim::World, i64),
) -> Vec<i64> {
    let mut restarts = Vec::new();
    for minute in 1..=minutes {
        happens(world, minute);
        let restarted = deeds(&hang(world, &["etcd-1"], 60));
        if restarted.iter().any(|action| action.reason == Reason::MemberStuck) {
            restarts.push(minute);
            world.schedule();
        }
    }
    restarts
}

#[test]
fn a_moment_of_silence_or_of_readiness_does_not_make_restarts_frequent_again() {
    let mut world = running(3);
    hang(&mut world, &["etcd-1"], 11);
    let silent = restarts(&mut world, 100, |world, minute| {
        if minute % 7 == 0 {
            // The kubelet calls it ready, and nobody has heard of it.
            without_heartbeat_from(world, &["etcd-1"], seconds(0));
            world.pods.get_mut("etcd-1").unwrap().ready = true;
            world.operate(None);
        }
    });
    let mut world = running(3);
    hang(&mut world, &["etcd-1"], 11);
    let ready = restarts(&mut world, 100, |world, minute| {
        if minute % 7 == 0 {
            world.frozen.clear();
            settle(world);
            assert_eq!(member(status(world), "etcd-1").status, MemberReady);
        }
    });
    for restarts in [silent, ready] {
        let gaps = restarts.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
        assert!(restarts.len() <= 6, "{restarts:?}");
        assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]), "each waits longer than the one before: {restarts:?}");
    }
}

#[test]
fn what_a_member_went_through_is_forgotten_once_it_has_been_ready_for_as_long() {
    let mut world = running(3);
    hang(&mut world, &["etcd-1"], 11);
    assert_eq!(restarts(&mut world, 21, |_, _| {}), [5, 10, 20]);
    assert!(member(status(&world), "etcd-1").troubled_since.is_some());
    world.frozen.clear();
    settle(&mut world);
    assert!(member(status(&world), "etcd-1").troubled_since.is_some(), "it is ready, and only just");
    world.advance(seconds(22 * 60));
    settle(&mut world);
    assert_eq!(member(status(&world), "etcd-1").troubled_since, None);
    hang(&mut world, &["etcd-1"], 11);
    assert_eq!(restarts(&mut world, 12, |_, _| {}), [5, 10]);
}

#[test]
fn the_status_says_what_a_slow_member_waits_for_and_does_not_change_with_every_figure() {
    let mut world = running(3);
    hang(&mut world, &["etcd-1"], 11);
    let said = |world: &mut crate::sim::World| {
        world.operate(None);
        let message = member(status(world), "etcd-1").message.clone().unwrap_or_default();
        let all = condition(status(world), AllMembersReady).message.clone();
        assert!(all.contains(&message) && status(world).message.as_ref().unwrap().contains(&message), "{all}");
        message
    };
    for (reason, expected) in [
        ("etcd: ContainerCreating", "its volume is being mounted, or an image pulled"),
        ("etcd: ErrImagePull", "the image of container etcd cannot be pulled"),
        ("etcd: ImagePullBackOff", "the image of container etcd cannot be pulled"),
        ("waiting for a node", "waiting for a node"),
    ] {
        world.pods.get_mut("etcd-1").unwrap().starting = Some(reason.to_owned());
        assert_eq!(said(&mut world), expected);
    }
    world.pods.get_mut("etcd-1").unwrap().starting = None;
    for mebibytes in [1, 512] {
        let key = ObjectKey::new(Kind::EtcdMember, "etcd-1");
        let Some(Object::EtcdMember(member)) = world.objects.get_mut(&key) else { panic!() };
        let progress = format!("receiving a snapshot, {mebibytes} MiB so far");
        member.status.as_mut().unwrap().etcd.as_mut().unwrap().progress = Some(progress);
        assert_eq!(said(&mut world), "receiving a snapshot");
        assert!(!decision(&world).status_changed, "nothing is new");
    }
    world.frozen.clear();
    settle(&mut world);
    assert_eq!(member(status(&world), "etcd-1").message, None, "a member that is ready waits for nothing");
}

#[test]
fn a_member_that_is_getting_somewhere_is_left_alone() {
    let mut world = running(3);
    hang(&mut world, &["etcd-1"], 11);
    world.pods.get_mut("etcd-1").unwrap().starting = Some("agent: ContainerCreating".to_owned());
    assert_eq!(deeds(&hang(&mut world, &["etcd-1"], 3600)), [], "its image is on its way");
    world.pods.get_mut("etcd-1").unwrap().starting = None;
    let key = ObjectKey::new(Kind::EtcdMember, "etcd-1");
    let progress = |world: &mut crate::sim::World, text: Option<&str>| {
        let Some(Object::EtcdMember(member)) = world.objects.get_mut(&key) else { panic!() };
        member.status.as_mut().unwrap().etcd.as_mut().unwrap().progress = text.map(str::to_owned);
    };
    progress(&mut world, Some("receiving a snapshot, 512 MiB so far"));
    assert_eq!(deeds(&hang(&mut world, &["etcd-1"], 3600)), []);
    progress(&mut world, None);
    assert_eq!(deeds(&hang(&mut world, &["etcd-1"], 1)).len(), 1);
}
