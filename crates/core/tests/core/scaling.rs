//! Members come and go: one at a time, as learners first, and never at the cost of the quorum.

use std::collections::BTreeSet;

use quorate_api::conditions::ConditionType::{Degraded, Progressing, Ready, Stalled};
use quorate_api::member::Ticket;
use quorate_api::recovery::QuorumLossPolicy;
use quorate_api::status::{ClusterPhase, MemberReason};
use quorate_api::storage::RetentionPolicy;
use quorate_core::action::MemberChange;
use quorate_core::object::{Kind, Object, ObjectKey};
use quorate_core::record::beginning_report;
use quorate_core::start::Identity;
use quorate_core::{Effect, Reason};

use crate::common::{member, running, says, seconds, settle, status, until_calm, without_heartbeat_from};
use crate::sim::{Listed, Volume, World};

fn wish(world: &mut World, replicas: i32) {
    world.cluster.spec.replicas = replicas;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
}

/// Rounds until there is nothing more to do.
fn settle_at(world: &mut World, size: i32) {
    until_calm(world);
    let status = status(world);
    assert_eq!((status.phase, status.cluster_size), (Some(ClusterPhase::Running), Some(size)), "{status:#?}");
    assert_eq!(settle(world).actions, [], "{size} members");
    is_safe(world);
}

fn is_safe(world: &World) {
    assert!(!world.quorum_given_away && !world.lost_writes);
    assert_eq!((&world.wrongly_removed[..], &world.torn_down[..]), (&[][..], &[][..]));
}

fn ids(world: &World) -> BTreeSet<String> {
    world.listed.values().map(|listed| listed.id.clone()).collect()
}

/// What etcd is asked to change in the next rounds, up to the first change.
fn next_changes(world: &mut World) -> Vec<MemberChange> {
    for _ in 0..30 {
        let decision = world.round();
        let changes = decision.actions.into_iter().filter_map(|action| match action.effect {
            Effect::ChangeMembers { change, .. } => Some(change),
            _ => None,
        });
        let changes = changes.collect::<Vec<_>>();
        if !changes.is_empty() {
            return changes;
        }
    }
    Vec::new()
}

#[test]
fn a_cluster_goes_from_any_size_to_any_other_and_back() {
    let mut world = running(1);
    for size in [3, 5, 7, 5, 3, 1, 7, 1, 5, 3] {
        wish(&mut world, size);
        settle_at(&mut world, size);
        let pods = world.pods.keys().cloned().collect::<Vec<_>>();
        assert_eq!(pods, (0..size).map(|ordinal| format!("etcd-{ordinal}")).collect::<Vec<_>>());
        assert_eq!(world.claims.len(), pods.len(), "{:?}", world.claims);
        let records = world.objects.keys().filter(|key| matches!(key.kind, Kind::EtcdMember | Kind::Lease)).count();
        assert_eq!(records, 2 * pods.len());
    }
}

#[test]
fn nobody_has_a_vote_before_it_has_caught_up_and_one_joins_at_a_time() {
    let mut world = running(3);
    wish(&mut world, 5);
    world.starved.insert("etcd-3".to_owned());
    let added = next_changes(&mut world);
    assert!(matches!(&added[..], [MemberChange::AddLearner { member, .. }] if member == "etcd-3"), "{added:?}");
    for _ in 0..6 {
        world.round();
    }
    assert_eq!(world.listed.len(), 4);
    assert!(world.listed["etcd-3"].learner);
    says(status(&world), Progressing, "True", "MemberJoining");
    says(status(&world), Stalled, "False", "AsExpected");
    assert_eq!((status(&world).cluster_size, status(&world).members.len()), (Some(3), 4));
    world.starved.clear();
    settle_at(&mut world, 5);
}

#[test]
fn whoever_is_to_join_says_first_what_is_on_its_volume() {
    let mut world = running(1);
    wish(&mut world, 3);
    world.frozen = vec!["etcd-1".to_owned()];
    for _ in 0..20 {
        world.round();
    }
    assert_eq!(world.listed.len(), 1, "nothing is known about the volume of etcd-1");
    says(status(&world), Progressing, "True", "WaitingForPod");
    world.frozen.clear();
    settle_at(&mut world, 3);
}

#[test]
fn one_whose_pod_does_not_come_keeps_no_other_from_joining_except_where_two_would_be_worse_than_one() {
    let mut world = running(3);
    wish(&mut world, 5);
    world.frozen = vec!["etcd-3".to_owned()];
    let added = next_changes(&mut world);
    assert!(matches!(&added[..], [MemberChange::AddLearner { member, .. }] if member == "etcd-4"), "{added:?}");
    world.frozen.clear();
    settle_at(&mut world, 5);

    let mut world = running(1);
    wish(&mut world, 3);
    world.frozen = vec!["etcd-2".to_owned()];
    assert_eq!(next_changes(&mut world), [], "two members cannot spare one");
    world.frozen.clear();
    settle_at(&mut world, 3);
}

#[test]
fn of_those_that_are_too_many_one_that_does_not_serve_goes_first() {
    let mut world = running(3);
    world.frozen = vec!["etcd-1".to_owned()];
    world.advance(seconds(20));
    wish(&mut world, 1);
    let changes = next_changes(&mut world);
    assert!(matches!(&changes[..], [MemberChange::Remove { member, .. }] if member == "etcd-1"), "{changes:?}");
    settle_at(&mut world, 1);
}

#[test]
fn a_vote_is_not_asked_for_while_a_learner_is_far_behind_and_its_way_is_told() {
    let mut world = running(3);
    world.acknowledged += 100_000;
    let data = world.volumes.values_mut().filter_map(|volume| volume.data.as_mut());
    data.for_each(|data| data.last_index = world.acknowledged);
    settle(&mut world);
    wish(&mut world, 5);
    world.starved.insert("etcd-3".to_owned());
    next_changes(&mut world);
    assert_eq!(next_changes(&mut world), [], "etcd would refuse it every second");
    says(status(&world), Progressing, "True", "MemberCatchingUp");
    world.starved.clear();
    settle_at(&mut world, 5);
}

/// Whoever replaces another within a moment: members that have not been asked since still tell of the one before, or of nobody.
#[test]
fn a_ticket_to_join_outlives_a_list_that_is_older_than_it() {
    let mut world = running(3);
    let told = |world: &mut World, name: &str, list: &mut Vec<_>| {
        let record = world.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, name));
        let Some(Object::EtcdMember(member)) = record else { panic!("{name} has no record") };
        std::mem::swap(&mut member.status.as_mut().unwrap().etcd.as_mut().unwrap().members, list);
    };
    let mut before = Vec::new();
    told(&mut world, "etcd-0", &mut before);
    world.kill_pod("etcd-2");
    world.volumes.insert("etcd-2".to_owned(), Volume::default());
    while next_changes(&mut world).iter().all(|change| !matches!(change, MemberChange::AddLearner { .. })) {}
    world.operate(None);
    assert!(matches!(ticket(&world, "etcd-2"), Ticket::Join { .. }), "{:?}", ticket(&world, "etcd-2"));
    let without = before.iter().filter(|listed| listed.name != "etcd-2").cloned().collect();
    for stale in [before, without] {
        for name in ["etcd-0", "etcd-1"] {
            told(&mut world, name, &mut stale.clone());
        }
        world.operate(None);
        assert!(matches!(ticket(&world, "etcd-2"), Ticket::Join { .. }), "{:?}", ticket(&world, "etcd-2"));
    }
    settle_at(&mut world, 3);
}

fn ticket<'a>(world: &'a World, name: &str) -> &'a Ticket {
    match world.objects.get(&ObjectKey::new(Kind::EtcdMember, name)) {
        Some(Object::EtcdMember(member)) => &member.spec.ticket,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_learner_that_never_starts_goes_when_the_wish_goes_back() {
    let mut world = running(3);
    wish(&mut world, 5);
    next_changes(&mut world);
    world.frozen = vec!["etcd-3".to_owned()];
    for _ in 0..20 {
        world.round();
    }
    assert!(world.listed["etcd-3"].learner && !world.listed["etcd-3"].started);
    wish(&mut world, 3);
    settle_at(&mut world, 3);
}

#[test]
fn whoever_leads_gives_its_place_up_before_it_goes() {
    let mut world = running(3);
    world.leader = Some("etcd-2".to_owned());
    settle(&mut world);
    wish(&mut world, 1);
    let changes = next_changes(&mut world);
    assert!(
        matches!(&changes[..], [MemberChange::MoveLeader { from, .. }, MemberChange::Remove { member, .. }]
            if from == "etcd-2" && member == "etcd-2"),
        "{changes:?}"
    );
    settle_at(&mut world, 1);
}

#[test]
fn nobody_who_is_well_goes_while_one_that_stays_is_not() {
    let mut world = running(5);
    wish(&mut world, 3);
    let pods = world.pods.clone();
    without_heartbeat_from(&mut world, &["etcd-0"], seconds(20));
    world.pods = pods;
    for _ in 0..3 {
        world.operate(None);
    }
    assert_eq!(world.listed.len(), 5);
    world.frozen.clear();
    settle_at(&mut world, 3);
}

#[test]
fn a_wish_that_changes_midway_is_followed_from_where_the_cluster_is() {
    for turns in (1..30).step_by(3) {
        let mut world = running(3);
        wish(&mut world, 7);
        for _ in 0..turns {
            world.round();
        }
        wish(&mut world, 1);
        for _ in 0..turns / 2 {
            world.round();
        }
        wish(&mut world, 5);
        settle_at(&mut world, 5);
    }
}

#[test]
fn volumes_are_kept_if_they_are_to_be_and_put_aside_when_their_members_come_back() {
    let mut world = running(3);
    world.cluster.spec.storage.retention.on_scale_down = Some(RetentionPolicy::Retain);
    wish(&mut world, 1);
    settle_at(&mut world, 1);
    assert_eq!(world.claims.len(), 3);
    assert!(world.volumes["etcd-2"].data.is_some());
    let before = ids(&world);
    wish(&mut world, 3);
    settle_at(&mut world, 3);
    assert_eq!(ids(&world).intersection(&before).count(), 1, "whoever comes back is another member");
}

#[test]
fn volumes_that_were_kept_stay_when_the_policy_changes() {
    let mut world = running(3);
    world.cluster.spec.storage.retention.on_scale_down = Some(RetentionPolicy::Retain);
    wish(&mut world, 1);
    settle_at(&mut world, 1);
    world.cluster.spec.storage.retention.on_scale_down = Some(RetentionPolicy::Delete);
    settle_at(&mut world, 1);
    assert_eq!(world.claims.len(), 3);
}

#[test]
fn a_member_that_has_lost_its_data_is_replaced_by_a_new_one_of_its_name() {
    for spoil in [|volume: &mut Volume| *volume = Volume::default(), |volume: &mut Volume| volume.damaged = true] {
        let mut world = running(3);
        let before = ids(&world);
        world.kill_pod("etcd-1");
        world.volumes.entry("etcd-1".to_owned()).and_modify(spoil);
        settle_at(&mut world, 3);
        assert_eq!(ids(&world).intersection(&before).count(), 2);
        assert_ne!(member(status(&world), "etcd-1").id.as_ref(), before.iter().nth(1));
    }
}

#[test]
fn nobody_is_replaced_while_the_others_are_no_quorum_without_it() {
    let mut world = running(3);
    world.cluster.spec.recovery.quorum_loss = Some(QuorumLossPolicy::Manual);
    for name in ["etcd-0", "etcd-1"] {
        world.kill_pod(name);
        world.volumes.insert(name.to_owned(), Volume::default());
    }
    for _ in 0..5 {
        settle(&mut world);
        world.advance(seconds(600));
    }
    assert_eq!(world.listed.len(), 3);
    says(status(&world), Stalled, "True", "RecoveryNeedsConsent");
}

#[test]
fn a_member_that_is_silent_is_never_replaced() {
    let mut world = running(3);
    world.frozen = vec!["etcd-1".to_owned()];
    let before = ids(&world);
    for _ in 0..20 {
        settle(&mut world);
        world.advance(seconds(3600));
    }
    assert_eq!(ids(&world), before);
}

#[test]
fn a_joiner_that_is_wiped_after_its_first_start_does_not_start_twice_and_is_replaced() {
    let mut world = running(3);
    wish(&mut world, 5);
    world.starved.insert("etcd-3".to_owned());
    for _ in 0..10 {
        world.round();
    }
    let first = world.listed["etcd-3"].id.clone();
    assert!(world.volumes["etcd-3"].running);
    world.kill_pod("etcd-3");
    world.volumes.insert("etcd-3".to_owned(), Volume::default());
    world.starved.clear();
    settle_at(&mut world, 5);
    assert_ne!(world.listed["etcd-3"].id, first);
    assert_eq!(world.starts.iter().filter(|start| start.id == first).count(), 1);
}

#[test]
fn a_cluster_that_sleeps_wakes_with_the_same_members_whatever_it_had_grown_to() {
    for (from, grown, woken) in [(3, 5, 5), (5, 3, 3), (3, 5, 3), (1, 3, 5)] {
        let mut world = running(from);
        wish(&mut world, grown);
        settle_at(&mut world, grown);
        let before = ids(&world);
        wish(&mut world, 0);
        settle(&mut world);
        assert_eq!((status(&world).phase, world.pods.len()), (Some(ClusterPhase::Hibernated), 0));
        assert_eq!(ids(&world), before);
        wish(&mut world, woken);
        settle_at(&mut world, woken);
        let kept = usize::try_from(grown.min(woken)).unwrap();
        assert_eq!(ids(&world).intersection(&before).count(), kept, "{from}, {grown}, {woken}");
    }
}

#[test]
fn a_cluster_that_wakes_has_lost_no_quorum_unless_it_takes_too_long() {
    let mut world = running(3);
    wish(&mut world, 0);
    settle(&mut world);
    wish(&mut world, 3);
    world.frozen = world.member_names();
    world.round();
    let woken = world.now;
    while world.now < woken + seconds(290) {
        let status = status(&world);
        assert_eq!(status.phase, Some(ClusterPhase::Waking), "{status:#?}");
        says(status, Ready, "False", "Waking");
        says(status, Progressing, "True", "Waking");
        world.round();
    }
    let mut slow = world.clone();
    world.frozen.clear();
    let mut phases = Vec::new();
    for _ in 0..20 {
        world.round();
        phases.extend(status(&world).phase);
    }
    assert!(!phases.contains(&ClusterPhase::QuorumLost), "{phases:?}");
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
    for _ in 0..10 {
        slow.round();
    }
    assert_eq!(status(&slow).phase, Some(ClusterPhase::QuorumLost), "{:#?}", status(&slow));
    slow.frozen.clear();
    settle_at(&mut slow, 3);
}

/// What is told of scaling until nothing more happens.
fn told(world: &mut World) -> Vec<(Reason, String)> {
    let mut told = Vec::new();
    for _ in 0..100 {
        let events = world.round().events.into_iter();
        let of_scaling = |reason: Reason| reason.as_str().starts_with("Scaling");
        told.extend(events.filter(|event| of_scaling(event.reason)).map(|event| {
            let way = event.message.split_once(" members").map(|(way, _)| way.to_owned());
            (event.reason, way.unwrap_or_default())
        }));
    }
    told
}

#[test]
fn a_way_from_one_number_to_another_is_told_when_it_begins_and_when_it_ends() {
    let way = |reason: Reason, way: &str| (reason, way.to_owned());
    let mut world = running(3);
    wish(&mut world, 5);
    let both = [way(Reason::ScalingBegun, "3 -> 5"), way(Reason::ScalingEnded, "3 -> 5")];
    assert_eq!(told(&mut world), both);
    assert_eq!(status(&world).scaling, None);
    wish(&mut world, 1);
    for _ in 0..4 {
        world.round();
    }
    assert_eq!(status(&world).scaling.as_ref().map(|way| (way.from, way.to)), Some((5, 1)));
    wish(&mut world, 7);
    let told_on = told(&mut world);
    assert_eq!(told_on.first().map(|(reason, _)| *reason), Some(Reason::ScalingBegun));
    assert_eq!(told_on.len(), 2, "{told_on:?}");

    let mut stuck = running(3);
    wish(&mut stuck, 5);
    stuck.frozen = vec!["etcd-3".to_owned()];
    stuck.round();
    wish(&mut stuck, 3);
    assert_eq!(told(&mut stuck), [way(Reason::ScalingTakenBack, "3 -> 5")]);
}

#[test]
fn a_member_that_is_replaced_is_no_change_of_their_number() {
    let mut world = running(3);
    world.kill_pod("etcd-1");
    world.volumes.insert("etcd-1".to_owned(), Volume::default());
    assert_eq!(told(&mut world), []);
    settle_at(&mut world, 3);
}

#[test]
fn the_record_of_a_removed_member_goes_after_its_volume() {
    let mut world = running(3);
    wish(&mut world, 1);
    let record = ObjectKey::new(Kind::EtcdMember, "etcd-2");
    for _ in 0..60 {
        world.round();
        let has_volume = world.claims.contains_key("data-etcd-2");
        assert!(!has_volume || world.objects.contains_key(&record), "nobody would know any more whose volume it was");
    }
    assert!(!world.objects.contains_key(&record));
}

#[test]
fn a_member_that_was_added_by_hand_is_spoken_of_for_ten_minutes_and_then_removed() {
    let mut world = running(3);
    world.change_members_by_hand(|listed| listed.extend([("etcd-3".to_owned(), Listed::by_hand("etcd-3", false))]));
    settle(&mut world);
    assert_eq!(world.listed.len(), 4);
    says(status(&world), Degraded, "True", "MemberNotAskedFor");
    world.advance(seconds(600));
    settle_at(&mut world, 3);
}

#[test]
fn a_joiner_that_died_before_it_began_goes_when_it_is_not_wished_for() {
    let mut world = running(3);
    wish(&mut world, 7);
    next_changes(&mut world);
    world.round();
    world.run_agent_that_dies_before_etcd_begins("etcd-3");
    wish(&mut world, 1);
    settle_at(&mut world, 1);
}

#[test]
fn a_member_whose_agent_cannot_say_that_etcd_runs_is_not_taken_for_one_that_has_lost_its_data() {
    let mut world = running(3);
    let Some(Object::EtcdMember(record)) = world.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, "etcd-1")) else {
        panic!()
    };
    let data = record.status.as_mut().unwrap().data.as_mut().unwrap();
    let own = Identity {
        cluster_id: data.cluster_id.clone().unwrap(),
        member_id: data.member_id.clone().unwrap(),
        epoch: 1,
        boot_count: 1,
        last_index: 0,
    };
    // What was put on record before etcd began is the last that the API has heard of it.
    record.status.as_mut().unwrap().data = Some(beginning_report(&own));
    record.status.as_mut().unwrap().etcd = None;
    world.objects.insert(
        ObjectKey::new(Kind::Lease, "etcd-1"),
        Object::from(k8s_openapi::api::coordination::v1::Lease {
            metadata: world.objects[&ObjectKey::new(Kind::Lease, "etcd-1")].metadata().clone(),
            ..Default::default()
        }),
    );
    world.away.insert("etcd-1".to_owned());
    let before = ids(&world);
    for _ in 0..10 {
        settle(&mut world);
        world.advance(seconds(600));
    }
    assert_eq!(ids(&world), before);
    is_safe(&world);
}

#[test]
fn a_founder_that_may_not_begin_any_more_is_replaced() {
    let mut world = World::new(3);
    world.frozen = vec!["etcd-2".to_owned()];
    for _ in 0..20 {
        world.round();
    }
    world.cluster.status = None;
    world.frozen.clear();
    for _ in 0..3 {
        settle(&mut world);
        world.advance(seconds(301));
    }
    settle_at(&mut world, 3);
}

#[test]
fn a_learner_that_does_not_come_keeps_nobody_from_being_replaced() {
    let mut world = running(3);
    wish(&mut world, 5);
    next_changes(&mut world);
    world.frozen = vec!["etcd-3".to_owned()];
    world.kill_pod("etcd-1");
    world.volumes.insert("etcd-1".to_owned(), Volume::default());
    let lost = world.listed["etcd-1"].id.clone();
    for _ in 0..4 {
        settle(&mut world);
        world.advance(seconds(301));
    }
    assert!(world.listed.values().all(|listed| listed.id != lost), "{:?}", world.listed);
    is_safe(&world);
}

#[test]
fn nobody_is_stopped_whose_volume_goes_with_its_pod() {
    let mut world = running(1);
    world.claims.values_mut().for_each(|claim| claim.terminating = true);
    world.delete(&ObjectKey::new(Kind::ServiceAccount, "etcd-member"));
    let pod = world.pods["etcd-0"].uid.clone();
    for _ in 0..5 {
        settle(&mut world);
        world.advance(seconds(600));
    }
    assert_eq!(world.pods["etcd-0"].uid, pod);
    says(status(&world), Stalled, "True", "VolumeEnding");
}

#[test]
fn nobody_is_removed_while_a_learner_of_somebody_else_keeps_others_from_being_added() {
    let mut world = running(3);
    let stranger = Listed { learner: true, ..Listed::by_hand("elsewhere", true) };
    world.change_members_by_hand(|listed| drop(listed.insert("elsewhere".to_owned(), stranger.clone())));
    world.kill_pod("etcd-1");
    world.volumes.insert("etcd-1".to_owned(), Volume::default());
    settle(&mut world);
    assert!(world.listed.contains_key("etcd-1"));
    says(status(&world), Degraded, "True", "MemberDataLost");
    says(status(&world), Progressing, "True", "ForeignLearner");
    says(status(&world), Stalled, "False", "AsExpected");
    world.change_members_by_hand(|listed| drop(listed.remove("elsewhere")));
    settle_at(&mut world, 3);
}

#[test]
fn a_learner_is_never_called_ready_though_its_kubelet_says_so() {
    let mut world = running(3);
    wish(&mut world, 5);
    world.starved.insert("etcd-3".to_owned());
    for _ in 0..8 {
        world.round();
    }
    assert!(world.listed["etcd-3"].started && world.listed["etcd-3"].learner);
    world.pods.get_mut("etcd-3").unwrap().ready = true;
    let decision = world.operate(None);
    assert_eq!(member(&decision.status, "etcd-3").reason, MemberReason::Learning);
    assert!(!world.pods["etcd-3"].serving, "no client is led to it");
}

#[test]
fn a_lease_that_is_heard_of_before_its_report_is_no_proof_of_a_loss() {
    let mut world = running(3);
    wish(&mut world, 5);
    world.starved.insert("etcd-3".to_owned());
    for _ in 0..8 {
        world.round();
    }
    let learner = world.listed["etcd-3"].id.clone();
    let Some(Object::EtcdMember(record)) = world.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, "etcd-3")) else {
        panic!()
    };
    let data = record.status.as_mut().unwrap().data.as_mut().unwrap();
    data.state = quorate_api::member::DataState::Empty;
    record.status.as_mut().unwrap().etcd = None;
    world.operate(None);
    assert_eq!(world.listed.get("etcd-3").map(|listed| &listed.id), Some(&learner));
}

#[test]
fn a_cluster_that_grows_from_one_never_says_that_it_has_lost_its_quorum() {
    let mut world = running(1);
    wish(&mut world, 3);
    let mut voters = BTreeSet::from(["etcd-0".to_owned()]);
    for _ in 0..40 {
        world.live_until_operator();
        // A kubelet that has not looked since the member got its vote.
        for (name, pod) in &mut world.pods {
            pod.ready &= voters.contains(name);
        }
        voters = world.serving().into_iter().collect();
        world.operate(None);
        assert_ne!(status(&world).phase, Some(ClusterPhase::QuorumLost), "{:#?}", status(&world));
    }
}

/// Otherwise no later action of any pass would be taken: the guard of a ticket that was used never holds.
#[test]
fn the_record_of_one_that_has_used_its_ticket_is_put_right_around_it() {
    let mut world = running(3);
    wish(&mut world, 5);
    next_changes(&mut world);
    world.operate(None);
    let Ticket::Join { member_id, .. } = ticket(&world, "etcd-3").clone() else { panic!("it may join") };
    let Some(Object::EtcdMember(member)) = world.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, "etcd-3")) else {
        panic!()
    };
    member.status.as_mut().unwrap().data.as_mut().unwrap().member_id = Some(member_id);
    member.metadata.labels = None;
    let decision = world.operate(None);
    let repaired = decision.actions.iter().find_map(|action| match &action.effect {
        Effect::Apply { object, guard, .. } if object.name() == "etcd-3" => Some(guard),
        _ => None,
    });
    assert!(matches!(repaired, Some(quorate_core::Guard::EpochStands { .. })), "{repaired:?}");
}
