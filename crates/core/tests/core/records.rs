//! What is on record of a member, outside of its volume and on it, and that nobody ever lowers it.

use crate::common::{running, settle};
use crate::sim::World;
use quorate_api::member::{DataReport, DataState, Ticket};
use quorate_core::object::{Kind, Object, ObjectKey};
use quorate_core::record::{Inspection, Orders, VolumeRecord, confirm, fenced_report, judge, renewed, running_report};
use quorate_core::start::{ApiAnswer, Found, Identity, Refusal, Start, WaitFor};

fn identity(boot_count: i64, last_index: i64) -> Identity {
    Identity { cluster_id: "cafe".to_owned(), member_id: "beef".to_owned(), epoch: 1, boot_count, last_index }
}

fn inspection(identity: Identity) -> Inspection {
    let committed_index = Some(identity.last_index);
    Inspection { committed_index, revision: committed_index, ..Inspection::valid(identity) }
}

/// An API that has this on record and says that the member may resume.
fn known(record: &Identity, epoch: i64) -> Orders {
    let report = running_report(record, None);
    Orders {
        ticket: ApiAnswer::Known(Ticket::Resume { epoch }),
        recorded: ApiAnswer::Known(record.clone()),
        last_report: Some(DataReport { last_index: Some(record.last_index), ..report }),
    }
}

/// An API that knows nothing about the member yet, or nothing any more.
fn blank() -> Orders {
    Orders {
        ticket: ApiAnswer::Known(Ticket::Hold { reason: "wait".to_owned(), epoch: None }),
        recorded: ApiAnswer::Nothing,
        last_report: None,
    }
}

fn silent() -> [Orders; 3] {
    let missing = Orders { ticket: ApiAnswer::Nothing, recorded: ApiAnswer::Nothing, last_report: None };
    [Orders::unreachable(), Orders::refused(), missing]
}

fn on_record(world: &World, name: &str) -> DataReport {
    let Some(Object::EtcdMember(member)) = world.objects.get(&ObjectKey::new(Kind::EtcdMember, name)) else { panic!() };
    member.status.clone().unwrap().data.unwrap()
}

#[test]
fn a_volume_that_is_refused_leaves_no_trace_in_the_record() {
    let mut world = running(3);
    let before = world.orders("etcd-0").recorded;
    world.kill_pod("etcd-0");
    let volume = world.volumes.get_mut("etcd-0").unwrap();
    let strange = volume.data.as_mut().unwrap();
    strange.member_id = "stranger".to_owned();
    (strange.boot_count, strange.last_index) = (50, 9_000);
    world.schedule();
    world.run_agent("etcd-0");
    assert_eq!(on_record(&world, "etcd-0").state, DataState::Fenced);
    assert_eq!(world.orders("etcd-0").recorded, before);
}

#[test]
fn a_fence_stays_closed_while_the_api_is_away_or_refuses_or_finds_nothing() {
    let old = inspection(identity(3, 50));
    let fenced = judge(&old, &known(&identity(4, 100), 1), &VolumeRecord::default());
    assert_eq!(fenced.start, Start::Refuse(Refusal::RolledBack));
    for orders in silent() {
        let later = judge(&old, &orders, &fenced.keep);
        assert_eq!((later.start, &later.keep), (Start::Refuse(Refusal::RolledBack), &fenced.keep), "{orders:?}");
    }
    let right = judge(&inspection(identity(4, 100)), &known(&identity(4, 100), 1), &fenced.keep);
    assert_eq!((right.start, right.keep.fence), (Start::Resume, None), "an API that answers opens it");
}

#[test]
fn a_fence_for_the_wrong_incarnation_stays_closed_too() {
    for (epoch, fence) in [(2, Refusal::EarlierEpoch), (0, Refusal::LaterEpoch)] {
        let orders = Orders { recorded: ApiAnswer::Nothing, last_report: None, ..known(&identity(1, 1), epoch) };
        let first = judge(&inspection(identity(1, 1)), &orders, &VolumeRecord::default());
        assert_eq!(first.keep.fence, Some(fence));
        for orders in silent() {
            assert_eq!(judge(&inspection(identity(1, 1)), &orders, &first.keep).start, Start::Refuse(fence));
        }
    }
}

#[test]
fn a_member_that_differs_is_fenced_while_it_runs_and_only_a_ticket_to_resume_lets_it_start_again() {
    let ticket = |ticket| Orders { ticket: ApiAnswer::Known(ticket), ..known(&identity(4, 100), 1) };
    let fence = |id: &str| Ticket::Fence { epoch: 1, member_id: id.to_owned(), reason: "it differs".to_owned() };
    let compared = judge(&inspection(identity(4, 100)), &known(&identity(4, 100), 1), &VolumeRecord::default()).keep;
    let (start, kept) = confirm(&ticket(fence("beef")), &compared);
    assert_eq!((start, kept.fence), (Start::Refuse(Refusal::Diverged), Some(Refusal::Diverged)));
    assert_eq!(confirm(&ticket(fence("dead")), &compared).0, Start::Resume, "that is for somebody else");
    let hold = ticket(Ticket::Hold { reason: "report first".to_owned(), epoch: None });
    for orders in silent().into_iter().chain([hold, ticket(fence("beef")), ticket(fence("dead"))]) {
        let later = judge(&inspection(identity(4, 100)), &orders, &kept);
        assert_eq!((later.start, later.keep.fence), (Start::Refuse(Refusal::Diverged), kept.fence), "{orders:?}");
        assert_eq!((later.report.state, later.report.diverged), (DataState::Fenced, true));
        assert_eq!(confirm(&orders, &kept).0, Start::Refuse(Refusal::Diverged), "it still runs beside a new agent");
    }
    let opened = judge(&inspection(identity(4, 100)), &known(&identity(4, 100), 1), &kept);
    assert_eq!((opened.start, opened.keep.fence, opened.report.diverged), (Start::Resume, None, false));
}

#[test]
fn a_fence_survives_a_moment_in_which_the_volume_could_not_be_read() {
    let away = Orders { recorded: ApiAnswer::Nothing, last_report: None, ..known(&identity(1, 1), 2) };
    let fenced = judge(&inspection(identity(1, 1)), &away, &VolumeRecord::default()).keep;
    let unreadable = Inspection::unusable(DataState::Unreadable, "input/output error".to_owned());
    for orders in [Orders::unreachable(), known(&identity(1, 1), 2)] {
        let kept = judge(&unreadable, &orders, &fenced).keep;
        let again = judge(&inspection(identity(1, 1)), &Orders::unreachable(), &kept).start;
        assert_eq!(again, Start::Refuse(Refusal::EarlierEpoch), "{orders:?}");
    }
}

#[test]
fn data_is_compared_with_the_last_known_record_while_the_api_is_away() {
    let seen = judge(&inspection(identity(4, 100)), &known(&identity(4, 100), 1), &VolumeRecord::default());
    assert_eq!(seen.start, Start::Resume);
    for orders in silent() {
        let start = |found| judge(&inspection(found), &orders, &seen.keep).start;
        assert_eq!(start(identity(5, 100)), Start::Resume);
        assert_eq!(start(identity(5, 99)), Start::Refuse(Refusal::RolledBack));
        assert_eq!(start(identity(3, 100)), Start::Refuse(Refusal::RolledBack));
    }
}

#[test]
fn a_data_directory_that_went_back_alone_is_fenced_without_any_api() {
    let kept = VolumeRecord { reached_index: 100, ..VolumeRecord::default() };
    let gone_back = judge(&inspection(identity(4, 99)), &Orders::unreachable(), &kept);
    assert_eq!(
        (gone_back.start, gone_back.keep.fence),
        (Start::Refuse(Refusal::RolledBack), Some(Refusal::RolledBack))
    );
    let whole = judge(&inspection(identity(4, 100)), &Orders::unreachable(), &kept);
    assert_eq!(whole.start, Start::Resume);
}

#[test]
fn sound_data_starts_behind_an_api_that_does_not_answer() {
    let verdict = judge(&inspection(identity(4, 100)), &Orders::unreachable(), &VolumeRecord::default());
    assert_eq!(verdict.start, Start::Resume);
    assert_eq!(verdict.keep.unconfirmed, Some(identity(4, 100)), "and what it began from is remembered");
    let empty = judge(&Inspection::empty(), &Orders::unreachable(), &VolumeRecord::default());
    assert_eq!(empty.start, Start::Wait(WaitFor::KubernetesApi));
}

#[test]
fn data_that_nothing_vouches_for_does_not_start_behind_an_api_that_answers_and_refuses() {
    let start = |kept: &VolumeRecord| judge(&inspection(identity(4, 100)), &Orders::refused(), kept).start;
    let access = Start::Wait(WaitFor::KubernetesApiAccess);
    assert_eq!(start(&VolumeRecord::default()), access);
    assert_eq!(judge(&Inspection::empty(), &Orders::refused(), &VolumeRecord::default()).start, access);
    let seen = judge(&inspection(identity(4, 100)), &known(&identity(4, 100), 1), &VolumeRecord::default()).keep;
    assert_eq!(start(&seen), Start::Resume, "what was last known of its record vouches for it");
    let further = VolumeRecord { reached_index: 101, ..seen.clone() };
    assert_eq!(start(&further), Start::Refuse(Refusal::RolledBack));
    // It began while the API was away, so it has never been compared.
    let began = judge(&inspection(identity(4, 100)), &Orders::unreachable(), &VolumeRecord::default()).keep;
    let further = VolumeRecord { reached_index: 90, ..began };
    assert_eq!(start(&further), access, "a refusal compares nothing");
    let reached = |reached_index: i64| VolumeRecord { reached_index, ..VolumeRecord::default() };
    assert_eq!(start(&reached(90)), Start::Resume, "so does what it is known to have reached");
    assert_eq!(start(&reached(101)), Start::Refuse(Refusal::RolledBack));
    let fenced = VolumeRecord { fence: Some(Refusal::RolledBack), ..seen };
    assert_eq!(start(&fenced), Start::Refuse(Refusal::RolledBack), "and opens nothing");
}

#[test]
fn an_etcd_that_started_without_the_api_is_compared_when_it_comes_back() {
    let began = judge(&inspection(identity(4, 100)), &Orders::unreachable(), &VolumeRecord::default()).keep;
    let began = VolumeRecord { reached_index: 300, ..began };
    assert_eq!(confirm(&Orders::refused(), &began), (Start::Resume, began.clone()), "it is still not known");
    let (start, keep) = confirm(&known(&identity(4, 100), 1), &began);
    assert_eq!((start, keep.unconfirmed, keep.reached_index), (Start::Resume, None, 300));
    for record in [identity(5, 100), identity(4, 101), Identity { member_id: "dead".to_owned(), ..identity(4, 100) }] {
        let (start, keep) = confirm(&known(&record, 1), &began);
        assert!(matches!(start, Start::Refuse(_)), "{record:?}");
        assert!(keep.fence.is_some());
        let (start, _) = confirm(&Orders::unreachable(), &keep);
        assert!(matches!(start, Start::Refuse(_)), "an agent that is restarted before it could stop etcd knows");
    }
    assert_eq!(confirm(&known(&identity(4, 100), 2), &began).1.fence, Some(Refusal::EarlierEpoch));
}

#[test]
fn data_that_outgrew_the_record_without_a_comparison_is_worth_what_it_began_from() {
    let began = judge(&inspection(identity(4, 100)), &Orders::unreachable(), &VolumeRecord::default()).keep;
    let again = judge(&inspection(identity(5, 300)), &Orders::unreachable(), &began).keep;
    assert_eq!(again.unconfirmed, Some(identity(4, 100)), "the first of several starts counts");
    let api = known(&identity(4, 200), 1);
    let mut kept = again;
    for _ in 0..2 {
        let verdict = judge(&inspection(identity(6, 900)), &api, &kept);
        assert_eq!(verdict.start, Start::Refuse(Refusal::RolledBack));
        assert_eq!((verdict.report.last_index, verdict.report.boot_count), (Some(200), Some(4)));
        kept = verdict.keep;
    }
}

#[test]
fn a_volume_that_continues_the_record_moves_it_on_and_never_back() {
    let verdict = judge(&inspection(identity(5, 100)), &known(&identity(4, 90), 1), &VolumeRecord::default());
    assert_eq!((verdict.report.boot_count, verdict.report.last_index), (Some(5), Some(100)));
    let uncommitted = Inspection { committed_index: Some(80), ..inspection(identity(5, 100)) };
    let verdict = judge(&uncommitted, &known(&identity(4, 90), 1), &VolumeRecord::default());
    assert_eq!((verdict.report.boot_count, verdict.report.last_index), (Some(5), Some(90)));
    assert_eq!(verdict.keep.mark, Some(identity(5, 90)), "and the volume keeps what is reported");
}

#[test]
fn a_record_that_was_lost_is_made_again_from_the_volume() {
    let kept = judge(&inspection(identity(4, 100)), &known(&identity(4, 100), 1), &VolumeRecord::default()).keep;
    let wiped = judge(&Inspection::empty(), &blank(), &kept);
    assert_eq!((wiped.report.state, wiped.report.member_id.as_deref()), (DataState::Empty, Some("beef")));
    assert_eq!((wiped.report.boot_count, wiped.report.last_index), (Some(4), Some(100)));
    let older = judge(&inspection(identity(3, 50)), &blank(), &kept);
    assert_eq!(older.start, Start::Refuse(Refusal::RolledBack));
}

#[test]
fn a_new_incarnation_replaces_the_record() {
    let new = Identity { member_id: "f00d".to_owned(), epoch: 2, ..identity(1, 5) };
    let verdict = judge(&inspection(new.clone()), &known(&identity(4, 100), 2), &VolumeRecord::default());
    assert_eq!((verdict.start, verdict.keep.mark), (Start::Resume, Some(new)));
    assert_eq!((verdict.report.epoch, verdict.report.last_index), (Some(2), Some(5)));
}

#[test]
fn a_lease_of_an_earlier_incarnation_says_nothing_about_this_one() {
    let mut world = running(1);
    let Some(Object::Lease(lease)) = world.objects.get_mut(&ObjectKey::new(Kind::Lease, "etcd-0")) else { panic!() };
    lease.spec.as_mut().unwrap().holder_identity = Some("another:Leader".to_owned());
    let figures = lease.metadata.annotations.as_mut().unwrap();
    for value in figures.values_mut() {
        "9000".clone_into(value);
    }
    let ApiAnswer::Known(recorded) = world.orders("etcd-0").recorded else { panic!() };
    assert_eq!(recorded.boot_count, 1);
}

#[test]
fn a_renewal_never_says_less_than_is_on_record() {
    let figures = |mark: Option<&Identity>, running: &Identity| {
        let renewed = renewed(mark, running);
        (renewed.boot_count, renewed.last_index)
    };
    assert_eq!(figures(Some(&identity(4, 100)), &identity(5, 90)), (5, 100));
    assert_eq!(figures(Some(&identity(4, 100)), &identity(5, 110)), (5, 110));
    let other = Identity { epoch: 2, ..identity(1, 5) };
    assert_eq!(figures(Some(&identity(4, 100)), &other), (1, 5));
    assert_eq!(figures(None, &other), (1, 5));
}

#[test]
fn an_agent_that_takes_over_a_running_etcd_goes_on_from_the_record_and_not_from_the_volume() {
    let left = VolumeRecord { mark: Some(identity(5, 50)), reached_index: 50, ..VolumeRecord::default() };
    let (start, keep) = confirm(&known(&identity(5, 100), 1), &left);
    assert_eq!((start, keep.mark.as_ref()), (Start::Resume, Some(&identity(5, 100))));
    assert_eq!(renewed(keep.mark.as_ref(), &identity(5, keep.reached_index)).last_index, 100);
}

#[test]
fn a_member_that_nobody_can_stop_is_reported_as_fenced_and_its_record_stays() {
    let last = known(&identity(4, 100), 1).last_report.unwrap();
    let report = fenced_report(Refusal::RolledBack, &last);
    assert_eq!(report.state, DataState::Fenced);
    assert!(report.reason.as_ref().unwrap().ends_with("delete the pod"), "{report:?}");
    assert_eq!(DataReport { state: last.state, reason: None, ..report }, last);
    let mut world = running(3);
    let key = ObjectKey::new(Kind::EtcdMember, "etcd-1");
    let Some(Object::EtcdMember(member)) = world.objects.get_mut(&key) else { panic!() };
    let told = member.status.as_mut().unwrap().data.as_mut().unwrap();
    *told = fenced_report(Refusal::RolledBack, told);
    let decision = crate::common::decision(&world);
    crate::common::says(&decision.status, quorate_api::conditions::ConditionType::Degraded, "True", "MemberFenced");
}

#[test]
fn an_unreadable_volume_is_left_alone_and_its_record_stays() {
    let found = Inspection::unusable(DataState::Unreadable, "input/output error".to_owned());
    let verdict = judge(&found, &known(&identity(4, 100), 1), &VolumeRecord::default());
    assert_eq!(verdict.start, Start::Wait(WaitFor::ReadableVolume));
    assert_eq!((verdict.report.state, verdict.report.last_index), (DataState::Unreadable, Some(100)));
    let none = Found { state: DataState::Unreadable, identity: None, prepared: None };
    assert_eq!(found.found, none);
}

#[test]
fn a_cluster_goes_on_through_an_outage_of_the_api_and_is_settled_after_it() {
    let mut world = running(3);
    world.away = world.member_names().into_iter().collect();
    for name in world.member_names() {
        world.kill_pod(&name);
        settle(&mut world);
    }
    assert_eq!(world.serving().len(), 3, "sound data starts");
    world.away.clear();
    settle(&mut world);
    assert_eq!(world.serving().len(), 3);
    assert!(world.volumes.values().all(|volume| volume.kept.unconfirmed.is_none()));
}
