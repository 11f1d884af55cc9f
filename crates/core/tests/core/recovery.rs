//! The loss of a quorum: what is proven to be gone, which copy begins anew, and what is said about it.

use crate::sim::{Volume, World};
use k8s_openapi::api::core::v1::Service;
use quorate_api::conditions::ConditionType::{DataLoss, Degraded, Ready, Stalled};
use quorate_api::member::Ticket;
use quorate_api::names::annotations;
use quorate_api::recovery::QuorumLossPolicy;
use quorate_api::status::{ClusterPhase, LatchState, QuorumRecovery};
use quorate_core::object::{Kind, Object, ObjectKey};

use crate::common::{condition, running, says, seconds, settle, status, until_calm};

pub(crate) fn wipe(world: &mut World, names: &[&str]) {
    for name in names {
        world.kill_pod(name);
        world.volumes.insert((*name).to_owned(), Volume::default());
        world.recoveries.harmed.insert((*name).to_owned());
    }
}

fn manual(world: &mut World) {
    world.cluster.spec.recovery.quorum_loss = Some(QuorumLossPolicy::Manual);
}

pub(crate) fn annotate(world: &mut World, key: &str, value: &str) {
    world.cluster.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

pub(crate) fn epoch(world: &World) -> i64 {
    status(world).latch.as_ref().unwrap().epoch
}

pub(crate) fn recovery(world: &World) -> Option<&QuorumRecovery> {
    status(world).latch.as_ref().unwrap().recovery.as_ref()
}

fn ticket(world: &World, name: &str) -> Ticket {
    match &world.objects[&ObjectKey::new(Kind::EtcdMember, name)] {
        Object::EtcdMember(member) => member.spec.ticket.clone(),
        other => panic!("{other:?}"),
    }
}

fn client_service(world: &World) -> &Service {
    match &world.objects[&ObjectKey::new(Kind::Service, "etcd-client")] {
        Object::Service(service) => service,
        other => panic!("{other:?}"),
    }
}

fn selects_nobody(world: &World) -> bool {
    let selector = client_service(world).spec.as_ref().unwrap().selector.as_ref().unwrap();
    selector["quorate.dev/serving"] != "true"
}

/// The operator alone gets a turn.
fn settle_tickets(world: &mut World) {
    world.operate(None);
}

/// Rounds until the latch has moved on to where a copy is chosen or has begun.
pub(crate) fn until(world: &mut World, what: &str, reached: impl Fn(&World) -> bool) {
    for _ in 0..60 {
        if reached(world) {
            return;
        }
        world.round();
    }
    panic!("{what}: {:#?}", status(world));
}

#[test]
fn the_last_copy_becomes_the_only_member_of_a_new_epoch_and_the_others_join_it() {
    let mut world = running(3);
    let before = status(&world).cluster_id.clone();
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until_calm(&mut world);
    assert!(world.recoveries.wrong.is_empty() && world.recoveries.count == 1, "{:?}", world.recoveries);
    assert_eq!((status(&world).phase, epoch(&world)), (Some(ClusterPhase::Running), 2), "{:#?}", status(&world));
    assert_ne!(status(&world).cluster_id, before, "no member of the old cluster can talk to one of the new");
    assert_eq!(status(&world).cluster_size, Some(3));
    assert!(!world.lost_writes);
    let loss = status(&world).data_loss.as_ref().unwrap();
    assert_eq!((loss.from.as_str(), loss.epoch), ("etcd-1", 2));
    says(status(&world), DataLoss, "True", "DataLost");
    assert!(condition(status(&world), DataLoss).message.contains("etcd-1"));
}

#[test]
fn what_was_lost_is_said_until_somebody_acknowledges_that_very_loss() {
    let mut world = running(3);
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until_calm(&mut world);
    annotate(&mut world, annotations::ACKNOWLEDGE_DATA_LOSS, "1");
    settle(&mut world);
    says(status(&world), DataLoss, "True", "DataLost");
    annotate(&mut world, annotations::ACKNOWLEDGE_DATA_LOSS, "2");
    settle(&mut world);
    says(status(&world), DataLoss, "False", "DataLossAcknowledged");
    assert_eq!(status(&world).data_loss, None);
}

#[test]
fn clients_are_cut_off_from_the_first_step_to_the_last() {
    let mut world = running(3);
    assert!(!selects_nobody(&world));
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until(&mut world, "it begins", |world| recovery(world).is_some());
    while recovery(&world).is_some() {
        says(status(&world), Ready, "False", "QuorumLost");
        assert_eq!(status(&world).phase, Some(ClusterPhase::Recovering));
        let survivor_runs =
            world.volumes["etcd-1"].running && world.volumes["etcd-1"].data.as_ref().unwrap().epoch == 2;
        assert!(!survivor_runs || selects_nobody(&world), "a client could reach it before it is formed");
        world.round();
    }
    until_calm(&mut world);
    assert!(!selects_nobody(&world));
}

#[test]
fn the_copy_that_goes_farthest_is_chosen_and_everybody_is_stopped_first() {
    let mut world = running(5);
    // It falls behind, and then three of the others are lost.
    world.frozen = vec!["etcd-1".to_owned()];
    for _ in 0..3 {
        world.round();
    }
    world.frozen.clear();
    let farthest = world.volumes["etcd-3"].data.as_ref().unwrap().last_index;
    wipe(&mut world, &["etcd-0", "etcd-2", "etcd-4"]);
    world.volumes.entry("etcd-1".to_owned()).and_modify(|volume| {
        volume.data.iter_mut().for_each(|data| data.last_index = farthest - 1);
        volume.kept.reached_index = 0;
    });
    until(&mut world, "a copy is chosen", |world| recovery(world).is_some_and(|recovery| recovery.survivor.is_some()));
    assert_eq!(recovery(&world).unwrap().survivor.as_deref(), Some("etcd-3"));
    settle_tickets(&mut world);
    assert!(matches!(ticket(&world, "etcd-3"), Ticket::Recover { epoch: 2, .. }), "{:?}", ticket(&world, "etcd-3"));
    assert_eq!(ticket(&world, "etcd-1"), Ticket::Resume { epoch: 2 });
    assert!(!world.volumes["etcd-1"].running && !world.volumes["etcd-3"].running);
    until_calm(&mut world);
    assert!(world.recoveries.wrong.is_empty(), "{:?}", world.recoveries.wrong);
    assert_eq!(status(&world).cluster_size, Some(5));
}

#[test]
fn a_copy_that_is_out_of_reach_is_waited_for_unless_somebody_names_another() {
    let mut world = running(5);
    wipe(&mut world, &["etcd-0", "etcd-2", "etcd-4"]);
    world.frozen = vec!["etcd-3".to_owned()];
    for _ in 0..5 {
        settle(&mut world);
        world.advance(seconds(600));
    }
    assert_eq!(recovery(&world).map(|recovery| recovery.survivor.is_some()), Some(false));
    says(status(&world), Stalled, "True", "CopyOutOfReach");
    assert!(condition(status(&world), Stalled).message.contains("etcd-3"));
    annotate(&mut world, annotations::RECOVER_QUORUM, "1:etcd-1");
    until(&mut world, "the named one begins", |world| status(world).data_loss.is_some());
    assert_eq!(status(&world).data_loss.as_ref().unwrap().from, "etcd-1");
    world.frozen.clear();
    until_calm(&mut world);
    assert_eq!(status(&world).cluster_size, Some(5), "whoever comes back joins as a new member: {:#?}", status(&world));
}

#[test]
fn with_manual_nothing_is_touched_until_consent_and_the_status_says_from_which_copy() {
    let mut world = running(3);
    manual(&mut world);
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    for _ in 0..3 {
        settle(&mut world);
        world.advance(seconds(600));
    }
    assert_eq!((epoch(&world), world.starts.len()), (1, 3));
    says(status(&world), Stalled, "True", "RecoveryNeedsConsent");
    let told = &condition(status(&world), Stalled).message;
    assert!(told.contains("etcd-1") && told.contains("quorate.dev/recover-quorum=1"), "{told}");
    assert!(world.volumes["etcd-1"].running, "the last copy is left alone");
    annotate(&mut world, annotations::RECOVER_QUORUM, "7");
    settle(&mut world);
    assert_eq!(epoch(&world), 1, "consent is for one epoch");
    annotate(&mut world, annotations::RECOVER_QUORUM, "1");
    until_calm(&mut world);
    assert_eq!((status(&world).phase, epoch(&world)), (Some(ClusterPhase::Running), 2));
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    for _ in 0..3 {
        settle(&mut world);
    }
    assert_eq!(epoch(&world), 2, "consent was for the loss before");
}

#[test]
fn without_a_copy_it_stays_down_and_names_the_ways_out() {
    for replicas in [1, 3] {
        let mut world = running(replicas);
        let names = world.member_names();
        let starts = world.starts.len();
        wipe(&mut world, &names.iter().map(String::as_str).collect::<Vec<_>>());
        for _ in 0..4 {
            settle(&mut world);
            world.advance(seconds(600));
        }
        assert_eq!((epoch(&world), world.starts.len()), (1, starts), "nothing ever begins anew by itself");
        says(status(&world), Stalled, "True", "NoCopyLeft");
        says(status(&world), Ready, "False", "QuorumLost");
    }
}

#[test]
fn members_whose_volumes_are_intact_are_restarted_and_never_recovered() {
    let mut world = running(3);
    world.member_names().iter().for_each(|name| world.kill_pod(name));
    world.frozen = vec!["etcd-0".to_owned(), "etcd-1".to_owned()];
    for _ in 0..5 {
        settle(&mut world);
        world.advance(seconds(600));
    }
    assert_eq!(epoch(&world), 1);
    world.frozen.clear();
    until_calm(&mut world);
    assert_eq!((status(&world).phase, epoch(&world)), (Some(ClusterPhase::Running), 1));
}

#[test]
fn a_copy_that_turns_out_to_be_damaged_is_given_up_for_the_next_best() {
    let mut world = running(5);
    wipe(&mut world, &["etcd-0", "etcd-2", "etcd-4"]);
    until(&mut world, "a copy is chosen", |world| recovery(world).is_some_and(|recovery| recovery.survivor.is_some()));
    let chosen = recovery(&world).unwrap().survivor.clone().unwrap();
    world.volumes.entry(chosen.clone()).and_modify(|volume| volume.damaged = true);
    world.recoveries.harmed.insert(chosen.clone());
    until_calm(&mut world);
    let loss = status(&world).data_loss.as_ref().unwrap();
    assert_ne!(loss.from, chosen);
    assert_eq!(epoch(&world), 3, "nobody knows how far the first attempt got");
    assert!(world.recoveries.wrong.is_empty(), "{:?}", world.recoveries.wrong);
}

#[test]
fn whoever_comes_back_from_the_epoch_before_is_refused_and_replaced() {
    let mut world = running(3);
    let old = world.volumes["etcd-0"].clone();
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until(&mut world, "it is recovered", |world| status(world).data_loss.is_some());
    world.kill_pod("etcd-0");
    world.volumes.insert("etcd-0".to_owned(), Volume { running: false, ..old });
    for _ in 0..40 {
        world.round();
        let volume = &world.volumes["etcd-0"];
        assert!(!volume.running || volume.data.as_ref().unwrap().epoch == 2, "it serves what was given up");
    }
    until_calm(&mut world);
    assert_eq!((status(&world).phase, status(&world).cluster_size), (Some(ClusterPhase::Running), Some(3)));
}

#[test]
fn an_operator_that_dies_after_any_write_ends_in_the_same() {
    for writes in 0..40 {
        let mut world = running(3);
        wipe(&mut world, &["etcd-0", "etcd-2"]);
        let before = world.writes;
        let mut died = false;
        for _ in 0..60 {
            world.live_until_operator();
            let left = (before + writes).saturating_sub(world.writes);
            let crash = (!died).then_some(crate::sim::Crash(left));
            let planned = world.writes;
            world.operate(crash);
            died |= world.writes - planned >= left;
        }
        until_calm(&mut world);
        assert_eq!((status(&world).phase, epoch(&world)), (Some(ClusterPhase::Running), 2), "died after {writes}");
        assert_eq!(world.recoveries.count, 1);
        assert!(world.recoveries.wrong.is_empty(), "{:?}", world.recoveries.wrong);
    }
}

#[test]
fn a_status_that_is_wiped_meanwhile_neither_ends_it_nor_begins_it_twice() {
    for rounds in 0..14 {
        let mut world = running(3);
        wipe(&mut world, &["etcd-0", "etcd-2"]);
        for _ in 0..rounds {
            world.round();
        }
        world.cluster.status = None;
        for wait in [61, 301, 301] {
            settle(&mut world);
            world.advance(seconds(wait));
        }
        until_calm(&mut world);
        let latch = status(&world).latch.as_ref().unwrap();
        assert_eq!((status(&world).phase, latch.state), (Some(ClusterPhase::Running), LatchState::Formed), "{rounds}");
        assert_eq!(
            status(&world).data_loss.is_some(),
            world.recoveries.count > 0,
            "what was lost is said all the same"
        );
        assert!(world.recoveries.wrong.is_empty(), "{:?}", world.recoveries.wrong);
        says(status(&world), Degraded, "False", "AsExpected");
    }
}

#[test]
fn a_cluster_that_is_paused_is_not_recovered_and_goes_on_when_it_is_not() {
    let mut world = running(3);
    world.cluster.spec.maintenance.paused = true;
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    for _ in 0..3 {
        settle(&mut world);
        world.advance(seconds(600));
    }
    assert_eq!(epoch(&world), 1);
    world.cluster.spec.maintenance.paused = false;
    until_calm(&mut world);
    assert_eq!((status(&world).phase, epoch(&world)), (Some(ClusterPhase::Running), 2));
}

#[test]
fn volumes_that_are_put_back_one_after_the_other_are_all_waited_for() {
    let mut world = running(3);
    let old = world.volumes.clone();
    wipe(&mut world, &["etcd-0", "etcd-1", "etcd-2"]);
    settle(&mut world);
    says(status(&world), Stalled, "True", "NoCopyLeft");
    let put_back = |world: &mut World, name: &str| {
        world.kill_pod(name);
        world.volumes.insert(name.to_owned(), Volume { running: false, ..old[name].clone() });
    };
    put_back(&mut world, "etcd-0");
    for _ in 0..3 {
        settle(&mut world);
        world.advance(seconds(600));
    }
    assert_eq!(epoch(&world), 1, "the others may be on their way, and may have more");
    says(status(&world), Stalled, "True", "CopyCameBack");
    put_back(&mut world, "etcd-1");
    put_back(&mut world, "etcd-2");
    until_calm(&mut world);
    assert_eq!((status(&world).phase, epoch(&world)), (Some(ClusterPhase::Running), 1), "{:#?}", status(&world));
    assert!(!world.lost_writes);
}

#[test]
fn what_was_reported_from_pods_that_are_gone_proves_nothing() {
    let mut world = running(3);
    let old = world.volumes.clone();
    manual(&mut world);
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    settle(&mut world);
    world.cluster.spec.recovery.quorum_loss = None;
    // While nothing runs, the right volumes come back.
    for name in ["etcd-0", "etcd-1", "etcd-2"] {
        world.kill_pod(name);
    }
    for name in ["etcd-0", "etcd-2"] {
        world.volumes.insert(name.to_owned(), Volume { running: false, ..old[name].clone() });
    }
    for _ in 0..3 {
        world.operate(None);
        world.advance(seconds(30));
    }
    assert_eq!(epoch(&world), 1, "nobody has looked at the volumes that are there now");
    until_calm(&mut world);
    assert!(!world.lost_writes);
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
}

#[test]
fn a_copy_is_chosen_only_once_every_agent_has_looked_again() {
    let mut world = running(5);
    let old = world.volumes["etcd-4"].clone();
    wipe(&mut world, &["etcd-0", "etcd-2", "etcd-4"]);
    until(&mut world, "it begins", |world| recovery(world).is_some());
    // The one that goes farthest is put back in the last moment, before its agent has heard of the new epoch.
    world.kill_pod("etcd-4");
    world.volumes.insert("etcd-4".to_owned(), Volume { running: false, ..old });
    for name in ["etcd-1", "etcd-3"] {
        world.volumes.entry(name.to_owned()).and_modify(|volume| {
            volume.data.iter_mut().for_each(|data| data.last_index -= 1);
            volume.kept.reached_index = 0;
        });
    }
    world.operate(None);
    assert_eq!(recovery(&world).and_then(|recovery| recovery.survivor.clone()), None);
    until(&mut world, "a copy is chosen", |world| recovery(world).is_some_and(|recovery| recovery.survivor.is_some()));
    assert_eq!(recovery(&world).unwrap().survivor.as_deref(), Some("etcd-4"));
}

#[test]
fn a_named_copy_that_is_of_no_use_is_said_and_another_can_be_named() {
    let mut world = running(5);
    wipe(&mut world, &["etcd-0", "etcd-2", "etcd-4"]);
    annotate(&mut world, annotations::RECOVER_QUORUM, "1:etcd-9");
    for _ in 0..3 {
        settle(&mut world);
    }
    says(status(&world), Stalled, "True", "NamedCopyUnusable");
    annotate(&mut world, annotations::RECOVER_QUORUM, "1:etcd-1");
    until_calm(&mut world);
    assert_eq!(status(&world).data_loss.as_ref().unwrap().from, "etcd-1");
}

#[test]
fn a_chosen_copy_that_does_not_begin_is_said_and_can_be_exchanged() {
    let mut world = running(5);
    wipe(&mut world, &["etcd-0", "etcd-2", "etcd-4"]);
    until(&mut world, "a copy is chosen", |world| recovery(world).is_some_and(|recovery| recovery.survivor.is_some()));
    let chosen = recovery(&world).unwrap().survivor.clone().unwrap();
    world.frozen = vec![chosen.clone()];
    settle(&mut world);
    world.advance(seconds(600));
    settle(&mut world);
    says(status(&world), Stalled, "True", "SurvivorStuck");
    let other = if chosen == "etcd-1" { "etcd-3" } else { "etcd-1" };
    annotate(&mut world, annotations::RECOVER_QUORUM, &format!("1:{other}"));
    until(&mut world, "the other begins", |world| status(world).data_loss.is_some());
    assert_eq!(status(&world).data_loss.as_ref().unwrap().from, other);
    world.frozen.clear();
    until_calm(&mut world);
    assert_eq!((status(&world).phase, status(&world).cluster_size), (Some(ClusterPhase::Running), Some(5)));
}

#[test]
fn a_cluster_whose_service_leads_nowhere_is_not_called_ready() {
    let mut world = running(3);
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until(&mut world, "it is recovered", |world| status(world).data_loss.is_some());
    world.cluster.spec.maintenance.paused = true;
    for _ in 0..3 {
        world.round();
        assert!(condition(status(&world), Ready).status != "True" || !selects_nobody(&world));
    }
}
