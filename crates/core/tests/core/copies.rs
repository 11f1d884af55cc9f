//! What counts as a copy after a quorum was lost, when somebody has to agree, and what stays until the loss is acknowledged.

use quorate_api::conditions::ConditionType::{DataLoss, Stalled};
use quorate_api::member::{DataState, EtcdMemberStatus, EtcdReport, Ticket};
use quorate_api::names::{self, annotations};
use quorate_api::status::{ClusterPhase, LatchState};
use quorate_api::storage::RetentionPolicy;
use quorate_core::node::NodeFact;
use quorate_core::object::{Kind, Object, ObjectKey};
use quorate_core::read::Read;
use quorate_core::record::{Inspection, Orders, VolumeRecord, judge, running_report};
use quorate_core::start::{ApiAnswer, Identity, Refusal, Start, Unusable};
use quorate_core::{Effect, decide};

use crate::common::{condition, running, says, seconds, settle, status, until_calm};
use crate::recovery::{annotate, epoch, recovery, until, wipe};
use crate::sim::{Volume, World};

const ALL: [&str; 3] = ["etcd-0", "etcd-1", "etcd-2"];

fn wish(world: &mut World, replicas: i32) {
    world.cluster.spec.replicas = replicas;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
}

fn put_back(world: &mut World, name: &str, volume: &Volume) {
    world.kill_pod(name);
    world.volumes.insert(name.to_owned(), Volume { running: false, ..volume.clone() });
}

/// Long enough for whatever the operator does by itself.
fn wait(world: &mut World) {
    for _ in 0..3 {
        settle(world);
        world.advance(seconds(600));
    }
    settle(world);
}

fn report<'a>(world: &'a mut World, member: &str) -> &'a mut EtcdMemberStatus {
    let member = world.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, member)).unwrap();
    let Object::EtcdMember(member) = member else { panic!() };
    member.status.as_mut().unwrap()
}

fn chosen(world: &World) -> Option<&str> {
    recovery(world)?.survivor.as_deref()
}

fn is_recovered_from(world: &World, member: &str, epoch_now: i64) {
    let loss = status(world).data_loss.as_ref();
    assert_eq!(loss.map(|loss| loss.from.as_str()), Some(member), "{:#?}", status(world));
    assert_eq!((status(world).phase, epoch(world)), (Some(ClusterPhase::Running), epoch_now), "{:#?}", status(world));
    assert!(world.recoveries.wrong.is_empty(), "{:?}", world.recoveries.wrong);
}

/// One member, and another that has been added and has started, with no data yet.
fn with_learner() -> World {
    let mut world = running(1);
    wish(&mut world, 3);
    world.starved.insert("etcd-1".to_owned());
    until(&mut world, "a learner has started", |world| {
        world.listed.get("etcd-1").is_some_and(|listed| listed.learner && listed.started)
    });
    world
}

#[test]
fn an_empty_learner_is_no_copy_not_even_if_it_is_named() {
    let mut world = with_learner();
    assert_eq!(world.volumes["etcd-1"].data.as_ref().unwrap().last_index, 0);
    wipe(&mut world, &["etcd-0"]);
    wait(&mut world);
    says(status(&world), Stalled, "True", "NoCopyLeft");
    assert_eq!((epoch(&world), world.recoveries.count), (1, 0), "nothing begins without data");
    annotate(&mut world, annotations::RECOVER_QUORUM, "1:etcd-1");
    wait(&mut world);
    assert_eq!(world.recoveries.count, 0, "there is nothing that it could begin from");
}

#[test]
fn a_learner_alone_is_no_copy_however_much_it_has_unless_somebody_names_it() {
    let mut world = with_learner();
    world.starved.clear();
    world.starved.insert("etcd-2".to_owned());
    world.run_etcd();
    assert_eq!(world.volumes["etcd-1"].data.as_ref().unwrap().last_index, world.acknowledged);
    wipe(&mut world, &["etcd-0"]);
    world.starved.clear();
    wait(&mut world);
    says(status(&world), Stalled, "True", "NoCopyLeft");
    let told = &condition(status(&world), Stalled).message;
    assert!(told.contains("quorate.dev/recover-quorum=1:MEMBER") && told.contains("etcd-1"), "{told}");
    annotate(&mut world, annotations::RECOVER_QUORUM, "1:etcd-1");
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-1", 2);
    assert_eq!(status(&world).cluster_size, Some(3));
}

#[test]
fn a_learner_that_never_began_is_not_waited_for() {
    let mut world = running(3);
    wish(&mut world, 5);
    until(&mut world, "a learner is added", |world| world.listed.contains_key("etcd-3"));
    assert!(world.volumes["etcd-3"].data.is_none());
    world.frozen = vec!["etcd-3".to_owned()];
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until(&mut world, "a copy is chosen", |world| chosen(world).is_some());
    assert_eq!(chosen(&world), Some("etcd-1"));
    world.frozen.clear();
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-1", 2);
}

#[test]
fn that_all_was_lost_is_remembered_while_the_cluster_is_paused_or_sleeps() {
    for sleeps in [false, true] {
        let mut world = running(3);
        let old = world.volumes.clone();
        wipe(&mut world, &ALL);
        settle(&mut world);
        says(status(&world), Stalled, "True", "NoCopyLeft");
        if sleeps {
            wish(&mut world, 0);
        } else {
            world.cluster.spec.maintenance.paused = true;
        }
        settle(&mut world);
        put_back(&mut world, "etcd-0", &old["etcd-0"]);
        settle(&mut world);
        if sleeps {
            wish(&mut world, 3);
        } else {
            world.cluster.spec.maintenance.paused = false;
        }
        wait(&mut world);
        assert_eq!(epoch(&world), 1, "the others may be on their way, sleeps: {sleeps}");
        says(status(&world), Stalled, "True", "CopyCameBack");
        put_back(&mut world, "etcd-1", &old["etcd-1"]);
        put_back(&mut world, "etcd-2", &old["etcd-2"]);
        until_calm(&mut world);
        assert_eq!((status(&world).phase, epoch(&world)), (Some(ClusterPhase::Running), 1), "{:#?}", status(&world));
        // It was long ago, and says nothing about the next time.
        wipe(&mut world, &["etcd-0", "etcd-2"]);
        until_calm(&mut world);
        is_recovered_from(&world, "etcd-1", 2);
    }
}

#[test]
fn consent_from_before_all_was_lost_is_not_about_the_copy_that_came_back() {
    let mut world = running(3);
    let old = world.volumes["etcd-0"].clone();
    annotate(&mut world, annotations::RECOVER_QUORUM, "1");
    wipe(&mut world, &ALL);
    settle(&mut world);
    says(status(&world), Stalled, "True", "NoCopyLeft");
    put_back(&mut world, "etcd-0", &old);
    wait(&mut world);
    says(status(&world), Stalled, "True", "CopyCameBack");
    assert_eq!(epoch(&world), 1);
    world.cluster.metadata.annotations = None;
    settle(&mut world);
    assert_eq!(epoch(&world), 1);
    annotate(&mut world, annotations::RECOVER_QUORUM, "1");
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-0", 2);
}

#[test]
fn naming_the_copy_that_came_back_is_consent() {
    let mut world = running(3);
    let old = world.volumes["etcd-0"].clone();
    annotate(&mut world, annotations::RECOVER_QUORUM, "1");
    wipe(&mut world, &ALL);
    settle(&mut world);
    put_back(&mut world, "etcd-0", &old);
    settle(&mut world);
    annotate(&mut world, annotations::RECOVER_QUORUM, "1:etcd-0");
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-0", 2);
}

#[test]
fn volumes_of_members_that_go_stay_until_the_loss_is_acknowledged() {
    let mut world = running(3);
    world.cluster.spec.storage.retention.on_scale_down = Some(RetentionPolicy::Delete);
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-1", 2);
    wish(&mut world, 1);
    wait(&mut world);
    assert_eq!(status(&world).cluster_size, Some(1));
    assert_eq!(world.claims.len(), 3, "what was put aside on them may be missed");
    annotate(&mut world, annotations::ACKNOWLEDGE_DATA_LOSS, "2");
    until_calm(&mut world);
    assert_eq!(world.claims.len(), 1);
}

#[test]
fn the_volume_of_a_lost_node_stays_until_the_loss_is_acknowledged() {
    let mut world = World::new(3);
    world.nodes.local = true;
    world.cluster.spec.recovery.node_lost_after = Some("1m".to_owned());
    until_calm(&mut world);
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-1", 2);
    world.node_becomes("node-of-etcd-1", NodeFact::Gone);
    world.kill_pod("etcd-1");
    for _ in 0..200 {
        let decision = world.round();
        let deletes = |effect: &Effect| matches!(effect, Effect::DeleteClaim { .. });
        assert!(!decision.actions.iter().any(|action| deletes(&action.effect)), "{:?}", decision.actions);
    }
    annotate(&mut world, annotations::ACKNOWLEDGE_DATA_LOSS, "2");
    for _ in 0..100 {
        world.round();
    }
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running), "{:#?}", status(&world));
}

fn own(boot_count: i64, last_index: i64) -> Identity {
    Identity { cluster_id: "cafe".to_owned(), member_id: "beef".to_owned(), epoch: 1, boot_count, last_index }
}

fn orders(record: &Identity, ticket: Ticket) -> Orders {
    Orders {
        ticket: ApiAnswer::Known(ticket),
        recorded: ApiAnswer::Known(record.clone()),
        last_report: Some(running_report(record, None)),
    }
}

fn join(member_id: &str) -> Ticket {
    let (cluster_id, member_id) = ("cafe-2".to_owned(), member_id.to_owned());
    Ticket::Join { epoch: 2, cluster_id, member_id, initial_cluster: Vec::new() }
}

#[test]
fn a_fence_is_not_dropped_by_the_ticket_of_a_later_epoch() {
    let diverged = VolumeRecord { fence: Some(Refusal::Diverged), ..VolumeRecord::default() };
    let reached = VolumeRecord { reached_index: 101, ..VolumeRecord::default() };
    let none = VolumeRecord::default();
    let same = own(4, 100);
    for (kept, record, why) in [
        (&diverged, &same, Refusal::Diverged),
        (&reached, &same, Refusal::RolledBack),
        (&none, &own(4, 101), Refusal::RolledBack),
        (&none, &own(5, 100), Refusal::RolledBack),
        (&none, &Identity { member_id: "dead".to_owned(), ..same.clone() }, Refusal::IdentityChanged),
    ] {
        let found = Inspection::valid(same.clone());
        let verdict = judge(&found, &orders(record, Ticket::Resume { epoch: 2 }), kept);
        assert_eq!((verdict.start, verdict.report.state), (Start::Refuse(why), DataState::Fenced), "{record:?}");
        assert_eq!((verdict.keep.fence, verdict.report.ticket_epoch), (Some(why), Some(2)));
        let replaced = judge(&found, &orders(record, join("f00d")), kept);
        assert_eq!(replaced.start, Start::Quarantine(Unusable::EarlierEpoch), "another takes its place");
    }
}

#[test]
fn a_fenced_copy_begins_only_if_its_ticket_says_that_somebody_has_named_it() {
    let recover = |even_if_fenced| Ticket::Recover {
        epoch: 2,
        token: "t-2".to_owned(),
        initial_cluster: Vec::new(),
        cluster_id: "cafe".to_owned(),
        member_id: "beef".to_owned(),
        raise_to: 1_000,
        even_if_fenced,
    };
    let diverged = VolumeRecord { fence: Some(Refusal::Diverged), ..VolumeRecord::default() };
    let reached = VolumeRecord { reached_index: 101, ..VolumeRecord::default() };
    let start = |record: &Identity, kept: &VolumeRecord, even_if_fenced: bool| {
        judge(&Inspection::valid(own(4, 100)), &orders(record, recover(even_if_fenced)), kept).start
    };
    for (record, kept) in [
        (own(4, 100), &diverged),
        (own(4, 100), &reached),
        (own(4, 101), &VolumeRecord::default()),
        (own(5, 100), &VolumeRecord::default()),
    ] {
        assert!(matches!(start(&record, kept, false), Start::Refuse(_)), "{record:?} {kept:?}");
        assert!(matches!(start(&record, kept, true), Start::Recover { epoch: 2, .. }), "{record:?} {kept:?}");
    }
    let begun = Identity { epoch: 2, cluster_id: "new".to_owned(), ..own(4, 100) };
    let another = Identity { member_id: "dead".to_owned(), ..own(4, 100) };
    for record in [begun, another] {
        assert!(matches!(start(&record, &VolumeRecord::default(), true), Start::Refuse(_)), "{record:?}");
    }
}

#[test]
fn a_member_that_differed_is_no_copy() {
    let mut world = running(5);
    wipe(&mut world, &["etcd-0", "etcd-2", "etcd-4"]);
    until(&mut world, "it begins", |world| recovery(world).is_some());
    world.operate(None);
    // It was fenced just before, and the first that it hears of is the new epoch.
    let volume = world.volumes.get_mut("etcd-1").unwrap();
    volume.kept.fence = Some(Refusal::Diverged);
    volume.stop();
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-3", 2);
}

#[test]
fn a_copy_that_is_fenced_by_its_starts_alone_is_not_tried_again_and_again() {
    let mut world = running(5);
    let Some(Object::Lease(lease)) = world.objects.get_mut(&ObjectKey::new(Kind::Lease, "etcd-1")) else { panic!() };
    let figures = lease.metadata.annotations.as_mut().unwrap();
    figures.insert(annotations::BOOT_COUNT.to_owned(), "9".to_owned());
    world.kill_pod("etcd-1");
    world.recoveries.harmed.insert("etcd-1".to_owned());
    wipe(&mut world, &["etcd-0", "etcd-2", "etcd-4"]);
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-3", 2);
}

#[test]
fn volumes_from_snapshots_are_used_if_somebody_names_one_and_what_is_missing_is_said() {
    let mut world = running(3);
    let old = world.volumes.clone();
    for _ in 0..5 {
        world.round();
    }
    for name in ALL {
        put_back(&mut world, name, &old[name]);
        world.recoveries.harmed.insert(name.to_owned());
    }
    wait(&mut world);
    says(status(&world), Stalled, "True", "NoCopyLeft");
    let told = condition(status(&world), Stalled).message.clone();
    assert!(told.contains("quorate.dev/recover-quorum=1:MEMBER"), "{told}");
    assert_eq!(epoch(&world), 1);
    annotate(&mut world, annotations::RECOVER_QUORUM, "1:etcd-1");
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-1", 2);
    let loss = status(&world).data_loss.as_ref().unwrap();
    assert!(loss.revision < loss.highest_known_revision, "{loss:?}");
}

#[test]
fn the_last_copy_is_used_though_its_claim_is_being_deleted() {
    let end_claim = |world: &mut World, name: &str| {
        world.claims.entry(names::data_claim(name)).and_modify(|claim| claim.terminating = true);
    };
    let mut world = running(3);
    end_claim(&mut world, "etcd-1");
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-1", 2);
    let mut world = running(5);
    end_claim(&mut world, "etcd-1");
    wipe(&mut world, &["etcd-0", "etcd-2", "etcd-4"]);
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-3", 2);
}

/// Its copy is chosen, and then its agent says nothing any more but this.
fn that_says(progress: &str) -> World {
    let mut world = running(3);
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until(&mut world, "a copy is chosen", |world| chosen(world).is_some());
    world.frozen = vec!["etcd-1".to_owned()];
    report(&mut world, "etcd-1").etcd =
        Some(EtcdReport { progress: Some(progress.to_owned()), ..EtcdReport::default() });
    world
}

#[test]
fn a_chosen_copy_is_busy_only_while_it_says_so_from_a_pod_that_is_there_and_not_for_ever() {
    for idle in ["etcd has not started yet", "etcd has ended", "it is tried again: no room"] {
        let mut world = that_says(idle);
        settle(&mut world);
        world.advance(seconds(600));
        settle(&mut world);
        says(status(&world), Stalled, "True", "SurvivorStuck");
        assert!(condition(status(&world), Stalled).message.contains(idle));
    }
    for busy in ["checking the last copy", "replaying the log", "writing the new incarnation, 5 of 7 MiB"] {
        let mut world = that_says(busy);
        settle(&mut world);
        world.advance(seconds(600));
        settle(&mut world);
        says(status(&world), Stalled, "False", "AsExpected");
        let mut gone = world.clone();
        gone.pods.get_mut("etcd-1").unwrap().terminating = Some(gone.now);
        gone.operate(None);
        says(status(&gone), Stalled, "True", "SurvivorStuck");
        world.advance(seconds(3600));
        settle(&mut world);
        says(status(&world), Stalled, "True", "SurvivorStuck");
    }
}

#[test]
fn a_second_loss_does_not_hide_the_first() {
    let mut world = running(3);
    for _ in 0..5 {
        world.round();
    }
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until_calm(&mut world);
    let first = status(&world).data_loss.clone().unwrap();
    annotate(&mut world, annotations::ACKNOWLEDGE_DATA_LOSS, "1");
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-1", 3);
    let both = status(&world).data_loss.clone().unwrap();
    assert_eq!((both.epoch, &both.time, both.revision), (3, &first.time, first.revision));
    assert!(both.highest_known_revision > first.highest_known_revision && both.raised_to > first.raised_to);
    assert!(both.last_heard == first.last_heard);
    annotate(&mut world, annotations::ACKNOWLEDGE_DATA_LOSS, "3");
    settle(&mut world);
    says(status(&world), DataLoss, "False", "DataLossAcknowledged");
}

#[test]
fn after_a_recovery_only_the_survivor_is_remembered_and_nothing_is_recovered_twice() {
    let mut world = running(3);
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    until(&mut world, "it is recovered", |world| status(world).data_loss.is_some());
    let latch = status(&world).latch.clone().unwrap();
    assert_eq!((latch.state, latch.epoch), (LatchState::Formed, 2));
    let members = status(&world).members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>();
    assert_eq!(members, ["etcd-1"]);
    // It is away at once, and its agent has said that nothing runs.
    let id = world.volumes["etcd-1"].data.as_ref().unwrap().member_id.clone();
    assert_eq!(status(&world).members[0].id.as_ref(), Some(&id));
    world.kill_pod("etcd-1");
    world.frozen = vec!["etcd-1".to_owned()];
    report(&mut world, "etcd-1").etcd = Some(EtcdReport::default());
    wait(&mut world);
    assert_eq!((epoch(&world), recovery(&world)), (2, None), "{:#?}", status(&world));
    world.frozen.clear();
    until_calm(&mut world);
    is_recovered_from(&world, "etcd-1", 2);
}

#[test]
fn that_nobody_could_be_asked_does_not_prove_that_no_quorum_answers() {
    let mut world = running(3);
    wipe(&mut world, &["etcd-0", "etcd-2"]);
    for _ in 0..5 {
        world.live_until_operator();
    }
    let mut view = world.view();
    let decision = loop {
        let decision = decide(&view, world.now);
        if decision.reads.is_empty() {
            break decision;
        }
        // What is there is true already. etcd was to be asked, and there was nothing to ask it with.
        decision.reads.into_iter().for_each(|read| view.reads.insert(read));
    };
    assert_eq!(decision.status.epoch, Some(1));
    let endpoints = |read: &Read| matches!(read, Read::MemberList(_));
    assert!(decide(&world.view(), world.now).reads.iter().any(endpoints), "it asks");
    assert_eq!(world.round().status.epoch, Some(2), "nobody answers for a quorum");
}
