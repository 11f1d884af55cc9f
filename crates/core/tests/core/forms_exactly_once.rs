//! Bootstrap: from nothing, or from volumes of a deleted cluster, to a formed cluster, once.

use crate::sim::World;
use quorate_api::conditions::ConditionType::{Degraded, Progressing, Ready};
use quorate_api::member::Ticket;
use quorate_api::recovery::QuorumLossPolicy;
use quorate_api::status::{ClusterPhase, LatchState};
use quorate_core::{Effect, Guard, Kind, Object, ObjectKey};

use crate::common::{decision, deeds, running, says, seconds, settle, status};

fn tickets(world: &World) -> Vec<Option<Ticket>> {
    let ticket = |name: String| match world.objects.get(&ObjectKey::new(Kind::EtcdMember, name))? {
        Object::EtcdMember(member) => Some(member.spec.ticket.clone()),
        _ => None,
    };
    world.member_names().into_iter().map(ticket).collect()
}

fn has_client_service(world: &World) -> bool {
    world.objects.contains_key(&ObjectKey::new(Kind::Service, "etcd-client"))
}

#[test]
fn one_three_and_five_members_form_one_cluster() {
    for replicas in [1, 3, 5, 7] {
        let world = running(replicas);
        assert_eq!(world.starts.len(), usize::try_from(replicas).unwrap());
        assert!(world.starts.iter().all(|start| start.latch == Some(LatchState::Issued)), "{:?}", world.starts);
        let latch = status(&world).latch.clone().unwrap();
        assert_eq!((latch.state, latch.epoch), (LatchState::Formed, 1));
        assert_eq!(status(&world).cluster_id, latch.cluster_id);
        assert!(tickets(&world).iter().all(|ticket| *ticket == Some(Ticket::Resume { epoch: 1 })));
        assert!(has_client_service(&world));
    }
}

#[test]
fn the_first_pass_makes_everything_but_what_clients_see() {
    let mut world = World::new(3);
    let decision = world.operate(None);
    assert_eq!(decision.status.phase, Some(ClusterPhase::Creating));
    assert!(tickets(&world).iter().all(|ticket| matches!(ticket, Some(Ticket::Hold { .. }))));
    assert!(!has_client_service(&world));
    assert!(world.objects.contains_key(&ObjectKey::new(Kind::StatefulSet, "etcd")));
    says(&decision.status, Ready, "False", "NotFormed");
}

#[test]
fn no_member_may_start_empty_before_all_have_reported() {
    let mut world = World::new(3);
    world.operate(None);
    world.schedule();
    for name in ["etcd-0", "etcd-1"] {
        world.run_agent(name);
        let decision = world.operate(None);
        assert_eq!(decision.status.reason.as_deref(), Some("WaitingForReports"));
        assert!(decision.status.message.unwrap().contains("etcd-2"));
    }
    assert_eq!(world.latch_state(), None);
    world.run_agent("etcd-2");
    world.operate(None);
    assert_eq!(world.latch_state(), Some(LatchState::Issued));
    assert!(
        tickets(&world).iter().all(|ticket| matches!(ticket, Some(Ticket::Hold { .. }))),
        "the latch is written a pass before anyone may rely on it"
    );
}

#[test]
fn tickets_to_start_empty_are_guarded_by_the_latch() {
    let mut world = World::new(3);
    world.operate(None);
    world.schedule();
    world.member_names().iter().for_each(|name| world.run_agent(name));
    world.operate(None);
    let actions = decision(&world).actions;
    assert_eq!(actions.len(), 3);
    for action in &actions {
        let Effect::Apply { guard, .. } = &action.effect else { panic!("{action:?}") };
        assert_eq!(*guard, Guard::BootstrapOpen { cluster_uid: "cluster-uid".to_owned(), epoch: 1 });
    }
    // The latch moved on after the view was taken, to another incarnation: the tickets are void.
    world.cluster.status.as_mut().unwrap().latch.as_mut().unwrap().epoch = 2;
    world.act_all(&actions);
    assert!(tickets(&world).iter().all(|ticket| matches!(ticket, Some(Ticket::Hold { .. }))));
}

#[test]
fn the_initial_cluster_names_every_member_and_the_token_this_incarnation() {
    let mut world = World::new(3);
    while !tickets(&world).iter().any(|ticket| matches!(ticket, Some(Ticket::Bootstrap { .. }))) {
        world.round();
    }
    let Some(Some(Ticket::Bootstrap { token, initial_cluster, .. })) = tickets(&world).into_iter().next() else {
        panic!()
    };
    assert_eq!(token, "etcd-cluster-uid-1");
    let urls = initial_cluster.iter().map(|peer| peer.url.as_str()).collect::<Vec<_>>();
    assert_eq!(
        urls,
        [
            "https://etcd-0.etcd-peer.default.svc:2380",
            "https://etcd-1.etcd-peer.default.svc:2380",
            "https://etcd-2.etcd-peer.default.svc:2380",
        ]
    );
}

#[test]
fn a_member_that_is_slow_to_start_begins_however_late_and_only_once() {
    let mut world = World::new(3);
    world.operate(None);
    world.schedule();
    world.member_names().iter().for_each(|name| world.run_agent(name));
    world.operate(None);
    world.operate(None);
    // Two of three start; the image of the third is still being pulled.
    world.frozen = vec!["etcd-2".to_owned()];
    for _ in 0..10 {
        world.round();
    }
    assert_eq!(world.latch_state(), Some(LatchState::Formed), "a quorum is enough");
    assert!(matches!(tickets(&world)[2], Some(Ticket::Bootstrap { epoch: 1, .. })), "{:?}", tickets(&world));
    assert!(tickets(&world)[..2].iter().all(|ticket| *ticket == Some(Ticket::Resume { epoch: 1 })));
    says(status(&world), Ready, "True", "Quorate");
    says(status(&world), Degraded, "False", "AsExpected");
    says(status(&world), Progressing, "True", "WaitingForMembers");
    world.advance(seconds(3600));
    for _ in 0..10 {
        world.round();
    }
    world.frozen.clear();
    settle(&mut world);
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
    assert_eq!(world.starts.len(), 3, "{:?}", world.starts);
    // From here on it has run, and a volume that is wiped does not make it new.
    world.kill_pod("etcd-2");
    world.volumes.insert("etcd-2".to_owned(), crate::sim::Volume::default());
    let names = world.member_names();
    world.cut_off.extend(names);
    settle(&mut world);
    assert_eq!((world.starts.len(), status(&world).reason.as_deref()), (3, Some("MemberDataLost")));
}

#[test]
fn a_member_that_never_ran_and_whose_record_was_deleted_begins_only_on_the_word_of_a_quorum() {
    let mut world = World::new(3);
    while !matches!(tickets(&world)[2], Some(Ticket::Bootstrap { .. })) {
        world.round();
    }
    world.frozen = vec!["etcd-2".to_owned()];
    for _ in 0..10 {
        world.round();
    }
    for kind in [Kind::EtcdMember, Kind::Lease] {
        world.delete(&ObjectKey::new(kind, "etcd-2"));
    }
    let mut alone = world.clone();
    alone.frozen = alone.member_names();
    for _ in 0..5 {
        alone.operate(None);
    }
    assert_eq!(tickets(&alone)[2], Some(Ticket::Resume { epoch: 1 }), "nobody can tell whether it has run");
    world.frozen.clear();
    settle(&mut world);
    assert_eq!((status(&world).phase, world.starts.len()), (Some(ClusterPhase::Running), 3));
}

#[test]
fn volumes_are_adopted_by_the_membership_that_they_hold_and_the_wish_is_followed_from_there() {
    for (had, wished) in [(5, 3), (3, 5), (1, 3), (3, 1)] {
        let mut world = running(had);
        let cluster_id = status(&world).cluster_id.clone();
        world.recreate_with(wished);
        world.cut_off.extend((0..5).map(|ordinal| format!("etcd-{ordinal}")));
        settle(&mut world);
        let what = format!("{had} volumes, {wished} wished for: {:#?}", status(&world));
        assert_eq!((status(&world).cluster_id.clone(), world.starts.len()), (cluster_id.clone(), 0), "{what}");
        assert_eq!(status(&world).cluster_size, Some(had), "{what}");
        let pending = &status(&world).pending;
        assert!(pending.iter().any(|change| change.field == "spec.replicas"), "{pending:?}");
        says(status(&world), Progressing, "True", "EtcdOutOfReach");
        world.cut_off.clear();
        for _ in 0..6 {
            settle(&mut world);
        }
        let what = format!("{had} volumes, {wished} wished for: {:#?}", status(&world));
        assert_eq!(
            (status(&world).cluster_id.clone(), status(&world).cluster_size),
            (cluster_id, Some(wished)),
            "{what}"
        );
        assert_eq!(world.pods.len(), usize::try_from(wished).unwrap(), "{what}");
        assert_eq!(status(&world).phase, Some(ClusterPhase::Running), "{what}");
        assert_eq!(settle(&mut world).actions, [], "{what}");
        assert!(!world.lost_writes);
    }
}

#[test]
fn a_volume_that_knows_one_member_does_not_hide_the_volumes_of_another_cluster() {
    let mut world = running(3);
    let mut alone = running(1);
    let other = alone.volumes.get_mut("etcd-0").unwrap();
    other.stop();
    other.becomes_one_of_cluster("other");
    let other = other.clone();
    world.recreate();
    world.volumes.insert("etcd-0".to_owned(), other);
    // Only the one member that the exchanged volume knows is listed.
    world.listed.retain(|name, _| name == "etcd-0");
    for _ in 0..10 {
        world.round();
        assert_eq!((world.latch_state(), world.starts.len()), (None, 0));
    }
    assert_eq!(status(&world).reason.as_deref(), Some("ClusterIdMismatch"));
    assert_eq!(world.pods.len(), 3);
}

#[test]
fn a_member_that_was_about_to_begin_and_lost_its_volume_never_begins_and_is_replaced() {
    let mut world = World::new(3);
    while !matches!(tickets(&world)[2], Some(Ticket::Bootstrap { .. })) {
        world.round();
    }
    assert_eq!(world.starts, [], "nobody has made use of it yet");
    world.run_agent_that_dies_before_etcd_begins("etcd-2");
    world.volumes.insert("etcd-2".to_owned(), crate::sim::Volume::default());
    for _ in 0..120 {
        world.round();
    }
    assert_eq!(world.starts.iter().filter(|start| start.id.starts_with("etcd-2-")).count(), 0, "{:?}", world.starts);
    assert_eq!(
        (status(&world).phase, world.starts.len()),
        (Some(ClusterPhase::Running), 3),
        "another has taken its place"
    );
}

#[test]
fn no_pod_goes_before_a_quorum_has_confirmed_that_its_member_is_none() {
    let mut world = running(3);
    world.change_members_by_hand(|listed| drop(listed.remove("etcd-2")));
    world.cluster.spec.replicas = 1;
    world.cut_off.extend(world.member_names());
    settle(&mut world);
    assert_eq!(world.pods.len(), 3, "etcd cannot be asked");
    world.cut_off.clear();
    for _ in 0..3 {
        settle(&mut world);
    }
    assert_eq!(world.pods.len(), 1);
}

#[test]
fn two_wiped_volumes_of_three_never_start_new_and_the_loss_is_stated() {
    let mut world = running(3);
    world.cluster.spec.recovery.quorum_loss = Some(QuorumLossPolicy::Manual);
    for name in ["etcd-1", "etcd-2"] {
        world.kill_pod(name);
        world.volumes.insert(name.to_owned(), crate::sim::Volume::default());
    }
    settle(&mut world);
    assert_eq!(world.starts.len(), 3);
    says(status(&world), Ready, "False", "QuorumLost");
    says(status(&world), Degraded, "True", "MemberDataLost");
    assert!(status(&world).message.as_ref().unwrap().contains("etcd-1, etcd-2"), "{:?}", status(&world).message);
}

#[test]
fn all_pods_killed_at_once_come_back_with_their_data() {
    let mut world = running(3);
    let cluster_id = status(&world).cluster_id.clone();
    world.member_names().iter().for_each(|name| world.kill_pod(name));
    settle(&mut world);
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
    assert_eq!((world.starts.len(), world.lost_writes), (3, false));
    assert_eq!(status(&world).cluster_id, cluster_id);
}

#[test]
fn an_identical_cluster_created_again_goes_on_from_the_old_volumes() {
    let mut world = running(3);
    let cluster_id = status(&world).cluster_id.clone();
    world.recreate();
    settle(&mut world);
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
    assert_eq!(status(&world).cluster_id, cluster_id);
    assert_eq!((world.starts.len(), world.lost_writes), (0, false), "nothing started empty");
}

#[test]
fn a_single_old_volume_is_enough_to_forbid_a_new_cluster() {
    let mut world = running(3);
    for name in ["etcd-0", "etcd-2"] {
        world.volumes.insert(name.to_owned(), crate::sim::Volume::default());
    }
    world.recreate();
    settle(&mut world);
    assert_eq!(world.starts, []);
    says(status(&world), Ready, "False", "QuorumLost");
}

#[test]
fn one_volume_does_not_speak_for_a_cluster_whose_other_members_are_silent() {
    let mut world = running(3);
    let cluster_id = status(&world).cluster_id.clone();
    world.recreate();
    world.operate(None);
    world.schedule();
    world.run_agent("etcd-0");
    let decision = world.operate(None);
    assert_eq!((world.latch_state(), decision.status.reason.as_deref()), (None, Some("WaitingForReports")));
    assert!(decision.status.message.unwrap().contains("etcd-1, etcd-2"));
    world.run_agent("etcd-1");
    world.operate(None);
    assert_eq!(world.latch_state(), Some(LatchState::Formed), "a majority is enough");
    assert_eq!(status(&world).cluster_id, cluster_id);
}

#[test]
fn no_new_cluster_is_formed_beside_the_volumes_of_a_larger_one() {
    let mut world = running(3);
    world.volumes.insert("etcd-0".to_owned(), crate::sim::Volume::default());
    world.cluster.spec.replicas = 1;
    world.recreate();
    settle(&mut world);
    assert_eq!((world.latch_state(), world.starts.len()), (None, 0));
    says(status(&world), Degraded, "True", "DataNotEmpty");
    assert!(status(&world).message.as_ref().unwrap().contains("data-etcd-1, data-etcd-2"));
    world.claims.retain(|name, _| name == "data-etcd-0");
    settle(&mut world);
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
}

#[test]
fn a_member_of_another_cluster_is_not_counted_and_not_restarted() {
    let mut world = running(3);
    world.kill_pod("etcd-2");
    world.volumes.get_mut("etcd-2").unwrap().becomes_one_of_cluster("other");
    let member = world.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, "etcd-2")).unwrap();
    let Object::EtcdMember(member) = member else { panic!() };
    member.status = None;
    settle(&mut world);
    // A single member of its own cluster serves by itself.
    let mut actions = 0;
    for _ in 0..150 {
        world.advance(seconds(3));
        world.run_etcd();
        world.pods.get_mut("etcd-2").unwrap().ready = true;
        let renewed = world.now;
        let Some(Object::Lease(lease)) = world.objects.get_mut(&ObjectKey::new(Kind::Lease, "etcd-2")) else {
            panic!()
        };
        lease.spec.as_mut().unwrap().renew_time.as_mut().unwrap().0 = renewed;
        actions += deeds(&world.operate(None)).len();
    }
    assert_eq!(actions, 0);
    says(status(&world), Degraded, "True", "MemberOfAnotherCluster");
    says(status(&world), Ready, "True", "Quorate");
    let stranger = crate::common::member(status(&world), "etcd-2");
    assert_eq!(stranger.reason, quorate_api::status::MemberReason::OtherCluster);
}

#[test]
fn a_fenced_member_is_stated_with_its_reason_and_its_pod_is_left_alone() {
    let mut world = running(3);
    let old = world.volumes["etcd-1"].clone();
    settle(&mut world);
    world.kill_pod("etcd-1");
    world.volumes.insert("etcd-1".to_owned(), crate::sim::Volume { running: false, ..old });
    world.cut_off.extend(["etcd-0", "etcd-1", "etcd-2"].map(str::to_owned));
    for _ in 0..150 {
        assert_eq!(deeds(&world.round()), []);
    }
    assert_eq!(world.starts.len(), 3);
    says(status(&world), Degraded, "True", "MemberFenced");
    let message = status(&world).message.clone().unwrap();
    assert!(message.contains("etcd-1") && message.contains("forgotten writes"), "{message}");
}

#[test]
fn volumes_of_different_clusters_are_not_started_over() {
    let mut world = running(3);
    world.volumes.get_mut("etcd-1").unwrap().becomes_one_of_cluster("other");
    world.recreate();
    settle(&mut world);
    assert_eq!((world.latch_state(), world.starts.len()), (None, 0));
    assert_eq!(status(&world).reason.as_deref(), Some("ClusterIdMismatch"));
}

#[test]
fn damaged_volumes_are_not_formed_over() {
    let mut world = running(3);
    world.volumes.values_mut().for_each(|volume| volume.damaged = true);
    world.recreate();
    settle(&mut world);
    assert_eq!((world.latch_state(), world.starts.len()), (None, 0));
    assert_eq!(status(&world).reason.as_deref(), Some("DataNotEmpty"));
    assert!(world.volumes.values().all(|volume| volume.data.is_some()), "what is there stays there");
}

#[test]
fn a_status_that_was_wiped_is_found_again_from_the_members() {
    let mut world = running(3);
    let latch = status(&world).latch.clone().unwrap();
    world.cluster.status = None;
    settle(&mut world);
    let found = status(&world).latch.clone().unwrap();
    assert_eq!((found.state, found.epoch, found.cluster_id), (latch.state, latch.epoch, latch.cluster_id));
}

#[test]
fn a_status_that_was_wiped_while_forming_does_not_leave_tickets_behind() {
    let mut world = World::new(3);
    while !tickets(&world).iter().all(|ticket| matches!(ticket, Some(Ticket::Bootstrap { .. }))) {
        world.round();
    }
    world.run_agent("etcd-0");
    world.cluster.status = None;
    world.operate(None);
    assert_eq!(world.latch_state(), None, "first the tickets go");
    world.operate(None);
    assert_eq!(world.latch_state(), Some(LatchState::Formed));
    settle(&mut world);
    assert_eq!(world.starts.len(), 1, "{:?}", world.starts);
}

#[test]
fn a_status_and_all_volumes_wiped_at_once_do_not_make_a_new_cluster() {
    let mut world = running(3);
    for name in world.member_names() {
        world.kill_pod(&name);
        world.volumes.insert(name, crate::sim::Volume::default());
    }
    world.cluster.status = None;
    settle(&mut world);
    assert_eq!((world.latch_state(), world.starts.len()), (None, 3));
    assert_eq!(status(&world).reason.as_deref(), Some("DataNotEmpty"));
}

#[test]
fn no_members_wanted_means_no_members_until_some_are() {
    let mut world = World::new(0);
    settle(&mut world);
    assert_eq!(status(&world).phase, Some(ClusterPhase::Hibernated));
    assert_eq!((world.pods.len(), world.latch_state()), (0, None));
    world.cluster.spec.replicas = 3;
    settle(&mut world);
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
}
