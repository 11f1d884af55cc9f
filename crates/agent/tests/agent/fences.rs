//! A volume that has gone back, or that was found to differ, does not start, whatever the API does meanwhile.

use std::fs;

use quorate_api::member::{DataState, Ticket};

use crate::{
    api::Mood,
    pod::{Pod, eventually},
};

/// A member whose volume is older than its record. Nothing runs.
fn rolled_back() -> Pod {
    let mut pod = Pod::running("3.6");
    pod.stop();
    pod.copy_volume("old");
    pod.start_agent();
    pod.start_launcher();
    pod.is_settled();
    pod.put("acknowledged");
    pod.stop();
    pod.put_back("old", "");
    pod
}

#[test]
fn a_fence_stays_closed_while_the_api_is_silent_or_refuses_or_is_unavailable() {
    let mut pod = rolled_back();
    pod.start_agent();
    pod.start_launcher();
    eventually("the volume is fenced", || pod.data_state() == Some(DataState::Fenced));
    for mood in [Mood::Silent, Mood::Refuses, Mood::Unavailable] {
        pod.api.mood(mood);
        pod.kill_agent();
        pod.start_agent();
        pod.agent_has_decided();
        assert_eq!(pod.etcd(), None, "{mood:?}");
    }
    pod.api.mood(Mood::Answers);
    pod.kill_agent();
    pod.start_agent();
    pod.agent_has_decided();
    assert_eq!((pod.etcd(), pod.data_state()), (None, Some(DataState::Fenced)));
}

fn is_killed_and_fenced(pod: &mut Pod) {
    eventually("etcd is stopped", || pod.etcd().is_none());
    eventually("the volume is fenced", || pod.data_state() == Some(DataState::Fenced));
    assert_eq!(pod.restart_ended_launcher(), None, "its container goes on, and need not be started again");
}

#[test]
fn an_etcd_that_started_without_the_api_is_stopped_when_the_record_says_more() {
    let mut pod = rolled_back();
    let record = pod.api.lease();
    pod.api.mood(Mood::Silent);
    pod.start_agent();
    pod.start_launcher();
    eventually("etcd runs", || pod.probe("/readyz") == Some(200));
    // The agent that stops it is not the one that let it start.
    pod.kill_agent();
    pod.start_agent();
    eventually("etcd runs beside another agent", || pod.probe("/readyz") == Some(200));
    pod.api.mood(Mood::Answers);
    is_killed_and_fenced(&mut pod);
    assert_ne!(pod.probe("/readyz"), Some(200));
    pod.agent_has_decided();
    assert_eq!(pod.etcd(), None);
    assert_eq!((pod.api.lease().last_index, pod.api.lease().boot_count), (record.last_index, record.boot_count));
}

#[test]
fn an_etcd_that_must_not_run_and_has_no_launcher_is_reported_and_its_record_stays() {
    let mut pod = rolled_back();
    let record = pod.api.report().data.unwrap();
    pod.api.mood(Mood::Silent);
    pod.start_agent();
    pod.start_launcher();
    eventually("etcd runs", || pod.probe("/readyz") == Some(200));
    pod.kill_agent();
    let _etcd = pod.orphan_etcd();
    pod.api.mood(Mood::Answers);
    pod.start_agent();
    eventually("that it is fenced is reported", || pod.data_state() == Some(DataState::Fenced));
    let report = pod.api.report();
    assert!(report.etcd.is_some_and(|etcd| etcd.running));
    let data = report.data.unwrap();
    assert!(data.reason.as_ref().unwrap().contains("delete the pod"), "{data:?}");
    assert_eq!((data.member_id, data.boot_count), (record.member_id, record.boot_count));
}

#[test]
fn sound_data_starts_without_the_api_and_is_reported_when_it_is_back() {
    for mood in [Mood::Refuses, Mood::Silent] {
        let mut pod = Pod::running("3.6");
        pod.put("acknowledged");
        // In order, so that the volume says how far it has got: that is what vouches for it if the API refuses to.
        pod.stop_in_order();
        let boots = pod.api.lease().boot_count.unwrap();
        pod.api.mood(mood);
        pod.start_agent();
        pod.start_launcher();
        eventually("etcd runs", || pod.probe("/readyz") == Some(200));
        assert_eq!(pod.etcdctl(&["get", "key", "--print-value-only"]).trim(), "acknowledged");
        assert_eq!(pod.api.lease().boot_count, Some(boots), "nothing is said before it was compared");
        pod.api.mood(Mood::Answers);
        eventually("the start is on record", || pod.api.lease().boot_count == Some(boots + 1));
        assert_eq!(pod.data_state(), Some(DataState::Valid));
    }
}

#[test]
fn a_data_directory_that_went_back_alone_does_not_start_though_nobody_can_be_asked() {
    let mut pod = Pod::running("3.6");
    pod.stop();
    pod.copy_volume("old");
    pod.start_agent();
    pod.start_launcher();
    pod.is_settled();
    pod.put("acknowledged");
    pod.stop_in_order();
    pod.put_back("old", "data");
    pod.api.mood(Mood::Silent);
    pod.start_agent();
    pod.start_launcher();
    pod.agent_has_decided();
    assert_eq!(pod.etcd(), None);
}

#[test]
fn a_wiped_volume_waits_though_the_api_is_away_and_keeps_its_record() {
    let mut pod = Pod::running("3.6");
    let record = pod.api.report().data.unwrap();
    pod.stop();
    fs::remove_dir_all(pod.path("volume")).unwrap();
    fs::create_dir(pod.path("volume")).unwrap();
    pod.api.mood(Mood::Refuses);
    pod.start_agent();
    pod.start_launcher();
    pod.agent_has_decided();
    assert_eq!(pod.etcd(), None);
    pod.api.mood(Mood::Answers);
    eventually("the loss is reported", || pod.data_state() == Some(DataState::Empty));
    assert_eq!(pod.api.report().data.unwrap().member_id, record.member_id);
    pod.agent_has_decided();
    assert_eq!(pod.etcd(), None);
}

/// A ticket that fences this member, whoever asks.
fn fence(member_id: &str) -> Ticket {
    Ticket::Fence { epoch: 1, member_id: member_id.to_owned(), reason: "it differs".to_owned() }
}

#[test]
fn a_ticket_that_fences_a_running_member_stops_it_and_holds_whatever_happens_to_agent_and_api() {
    let mut pod = Pod::running("3.6");
    pod.put("acknowledged");
    let record = pod.api.report().data.unwrap();
    pod.api.set_ticket(&fence(record.member_id.as_deref().unwrap()));
    is_killed_and_fenced(&mut pod);
    let report = pod.api.report().data.unwrap();
    assert!(report.diverged && report.reason.is_some_and(|reason| reason.contains("majority")));
    assert_eq!((report.member_id, report.epoch), (record.member_id, record.epoch), "the record stays");
    assert_ne!(pod.probe("/readyz"), Some(200));
    for mood in [Mood::Answers, Mood::Silent, Mood::Refuses, Mood::Unavailable] {
        pod.api.mood(mood);
        pod.kill_agent();
        pod.start_agent();
        pod.agent_has_decided();
        assert_eq!(pod.etcd(), None, "{mood:?}");
    }
    // A ticket that knows nothing of it does not open it; one that says so does.
    pod.api.set_ticket(&Ticket::Hold { reason: "report first".to_owned(), epoch: None });
    pod.api.mood(Mood::Answers);
    pod.agent_has_decided();
    assert_eq!(pod.etcd(), None);
    pod.api.set_ticket(&Ticket::Resume { epoch: 1 });
    pod.is_settled();
    assert_eq!(pod.etcdctl(&["get", "key", "--print-value-only"]).trim(), "acknowledged", "its data was never touched");
    assert!(!pod.api.report().data.unwrap().diverged);
}

#[test]
fn a_fence_that_was_ordered_while_the_agent_was_down_or_could_not_ask_is_kept_when_it_hears_of_it() {
    let mut pod = Pod::running("3.6");
    let id = pod.api.report().data.unwrap().member_id.unwrap();
    pod.kill_agent();
    pod.api.set_ticket(&fence(&id));
    pod.api.mood(Mood::Silent);
    pod.start_agent();
    pod.agent_has_decided();
    assert!(pod.etcd().is_some(), "nobody has said yet that it must not run");
    pod.api.mood(Mood::Answers);
    eventually("etcd is stopped", || pod.etcd().is_none());
    eventually("the volume is fenced", || pod.data_state() == Some(DataState::Fenced));
    assert_eq!(pod.etcd(), None);
}

#[test]
fn a_ticket_that_fences_another_member_changes_nothing() {
    let mut pod = Pod::running("3.6");
    let etcd = pod.etcd();
    pod.api.set_ticket(&fence("cafe"));
    for _ in 0..2 {
        let before = pod.api.lease().renewed;
        eventually("the Lease is renewed", || pod.api.lease().renewed > before);
    }
    assert_eq!((pod.etcd(), pod.probe("/readyz")), (etcd, Some(200)));
    pod.stop();
    pod.start_agent();
    pod.start_launcher();
    pod.is_settled();
}
