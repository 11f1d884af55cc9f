//! A member joins a running cluster as its ticket says: once, as a learner that no client is led to, until it has a vote.

use std::fs;

use quorate_api::{
    member::{DataState, Ticket},
    status::MemberRole,
};

use crate::{
    api::Mood,
    interruptions::{STEPS, Step},
    neighbour::{Neighbour, is_learning, value_on},
    pod::{Pod, eventually},
};

const MINORS: [&str; 3] = ["3.5", "3.6", "3.7"];

/// It is alive and says so, again and again, and is never ready.
fn is_alive_and_not_ready(pod: &Pod, what: &str) {
    for _ in 0..2 {
        let before = pod.api.lease().renewed;
        eventually("the Lease is renewed", || pod.api.lease().renewed > before);
        assert_eq!((pod.probe("/healthz"), pod.probe("/readyz")), (Some(200), Some(503)), "{what}");
        assert_eq!(pod.api.lease().role, Some(MemberRole::Learner), "{what}");
    }
}

#[test]
fn a_member_that_waits_for_its_ticket_waits_for_an_api_that_is_slow() {
    let mut pod = Pod::new("3.6");
    pod.api.mood(Mood::Slow);
    pod.start_agent();
    pod.start_launcher();
    eventually("it has begun", || pod.path("volume/data/member/wal").exists());
    pod.api.mood(Mood::Answers);
    pod.is_settled();
}

#[test]
fn a_joiner_receives_the_data_and_is_a_learner_that_is_not_ready_until_it_is_promoted() {
    for minor in MINORS {
        for mut pod in [Pod::new(minor), Pod::with_tls(minor)] {
            let what = format!("{minor}, TLS {}", pod.settings.tls);
            let neighbour = Neighbour::of(&pod, &[]);
            neighbour.etcdctl(&pod, &["put", "key", "from before"]);
            let id = neighbour.invite(&pod);
            pod.start_agent();
            pod.start_launcher();
            is_learning(&mut pod, &id);
            is_alive_and_not_ready(&pod, &what);
            assert_eq!(value_on(&pod), "from before", "{what}");
            let (etcd, report) = (pod.etcd(), pod.api.report());
            let (data, told) = (report.data.unwrap(), report.etcd.unwrap());
            assert_eq!((data.state, data.member_id.as_ref()), (DataState::Valid, Some(&id)), "{what}");
            assert_eq!((told.running, told.role), (true, Some(MemberRole::Learner)), "{what}");
            assert_eq!(told.member_id.as_ref(), Some(&id), "{what}");
            assert!(told.progress.as_ref().is_some_and(|told| told.starts_with("catching up, ")), "{what}: {told:?}");
            assert_eq!(told.members, [], "{what}: a learner does not say who the others are");
            neighbour.promote(&pod, &id);
            eventually("the voter is ready", || pod.probe("/readyz") == Some(200));
            eventually("its report says so", || {
                let told = pod.api.report().etcd.unwrap();
                told.progress.is_none() && told.role == Some(MemberRole::Member) && told.members.len() == 2
            });
            eventually("its Lease says so", || pod.api.lease().role == Some(MemberRole::Member));
            assert_eq!(pod.etcd(), etcd, "{what}: it was not started again for that");
            assert_eq!(pod.etcdctl(&["get", "key", "--print-value-only"]).trim(), "from before", "{what}");
        }
    }
}

#[test]
fn a_joiner_that_is_sent_a_snapshot_has_all_of_it_and_starts_again_from_it() {
    for minor in MINORS {
        let mut pod = Pod::new(minor);
        let catch_up = match minor {
            "3.5" => "--experimental-snapshot-catchup-entries=5",
            _ => "--snapshot-catchup-entries=5",
        };
        let neighbour = Neighbour::of(&pod, &["--snapshot-count=10", catch_up]);
        for n in 0..40 {
            neighbour.etcdctl(&pod, &["put", "key", &n.to_string()]);
        }
        let id = neighbour.invite(&pod);
        pod.start_agent();
        pod.start_launcher();
        is_learning(&mut pod, &id);
        assert!(pod.etcd_log().contains("saved database snapshot"), "{minor}: else this shows nothing");
        assert_eq!(value_on(&pod), "39", "{minor}");
        pod.kill_etcd();
        pod.start_launcher();
        eventually("it has started again", || pod.api.lease().boot_count == Some(2));
        assert_eq!(value_on(&pod), "39", "{minor}");
        neighbour.promote(&pod, &id);
        eventually("the voter is ready", || pod.probe("/readyz") == Some(200));
    }
}

#[test]
fn a_learner_that_keeps_its_status_to_itself_is_known_as_one_all_the_same() {
    for minor in MINORS {
        let mut pod = Pod::new(minor);
        let mut neighbour = Neighbour::of(&pod, &[]);
        for arguments in
            [&["user", "add", "root:secret"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
        {
            neighbour.etcdctl(&pod, arguments);
        }
        neighbour.user = Some("--user=root:secret");
        let id = neighbour.invite(&pod);
        pod.start_agent();
        pod.start_launcher();
        is_learning(&mut pod, &id);
        assert!(!pod.try_etcdctl(&["endpoint", "status"]).status.success(), "{minor}: else this shows nothing");
        is_alive_and_not_ready(&pod, minor);
        assert_eq!(pod.api.report().etcd.unwrap().progress.as_deref(), Some("catching up"), "{minor}");
        neighbour.promote(&pod, &id);
        eventually("the voter is ready", || pod.probe("/readyz") == Some(200));
        eventually("it is a learner no more", || pod.api.lease().role != Some(MemberRole::Learner));
    }
}

const LEARNS: Step = ("it renews its Lease as a learner", |pod| pod.api.lease().role == Some(MemberRole::Learner));

/// Its volume and its record both say who it is.
fn is_known(pod: &Pod, id: &str) -> bool {
    let on_record = pod.api.report().data.and_then(|data| data.member_id);
    let volume = fs::read_to_string(pod.path("volume/quorate.json")).unwrap_or_default();
    on_record.as_deref() == Some(id) && volume.contains(&format!("\"memberID\":\"{id}\""))
}

#[test]
fn a_joiner_survives_the_death_of_its_agent_at_every_step_and_starts_once() {
    // The last of them is that it serves, which a learner never does.
    for (what, reached) in STEPS.into_iter().take(7).chain([LEARNS]) {
        let mut pod = Pod::new("3.6");
        let neighbour = Neighbour::of(&pod, &[]);
        neighbour.etcdctl(&pod, &["put", "key", "from before"]);
        let id = neighbour.invite(&pod);
        pod.start_launcher();
        pod.start_agent();
        eventually(what, || {
            let runs = pod.etcd().is_some();
            assert!(!runs || is_known(&pod, &id), "{what}: etcd is let start before it is on record");
            reached(&pod)
        });
        pod.kill_agent();
        pod.start_agent();
        is_learning(&mut pod, &id);
        let (data, etcd) = (pod.api.report().data.unwrap(), pod.api.report().etcd.unwrap());
        assert_eq!((data.cluster_id, data.member_id.as_ref()), (etcd.cluster_id, etcd.member_id.as_ref()), "{what}");
        assert_eq!((data.member_id, data.boot_count), (Some(id.clone()), Some(1)), "{what}: it started once");
        assert_eq!(value_on(&pod), "from before", "{what}");
        neighbour.promote(&pod, &id);
        eventually("the voter is ready", || pod.probe("/readyz") == Some(200));
    }
}

#[test]
fn a_joiner_that_is_wiped_after_its_first_start_does_not_start_again_and_joins_as_another() {
    let mut pod = Pod::new("3.6");
    let neighbour = Neighbour::of(&pod, &[]);
    neighbour.etcdctl(&pod, &["put", "key", "from before"]);
    let id = neighbour.invite(&pod);
    pod.start_agent();
    pod.start_launcher();
    is_learning(&mut pod, &id);
    pod.stop();
    fs::remove_dir_all(pod.path("volume")).unwrap();
    fs::create_dir(pod.path("volume")).unwrap();
    pod.start_agent();
    pod.start_launcher();
    eventually("the loss is reported", || pod.data_state() == Some(DataState::Empty));
    pod.agent_has_decided();
    assert_eq!((pod.etcd(), pod.data_state()), (None, Some(DataState::Empty)));
    assert_eq!(pod.api.report().data.unwrap().member_id.as_ref(), Some(&id), "it is still known who it was");
    neighbour.remove(&pod, &id);
    let successor = neighbour.invite(&pod);
    is_learning(&mut pod, &successor);
    assert_eq!(value_on(&pod), "from before");
    assert_eq!(pod.api.report().data.unwrap().boot_count, Some(1));
}

#[test]
fn nothing_joins_while_the_api_is_away() {
    let mut pod = Pod::new("3.6");
    let neighbour = Neighbour::of(&pod, &[]);
    let id = neighbour.invite(&pod);
    for mood in [Mood::Silent, Mood::Refuses, Mood::Unavailable] {
        pod.api.mood(mood);
        pod.kill_agent();
        pod.start_agent();
        if mood == Mood::Silent {
            pod.start_launcher();
        }
        pod.agent_has_decided();
        assert_eq!((pod.etcd(), pod.path("volume/quorate.json").exists()), (None, false), "{mood:?}");
    }
    pod.api.mood(Mood::Answers);
    is_learning(&mut pod, &id);
}

#[test]
fn a_joiner_that_the_cluster_does_not_list_any_more_ends_is_reported_and_joins_as_another() {
    for minor in MINORS {
        let mut pod = Pod::new(minor);
        let neighbour = Neighbour::of(&pod, &[]);
        let id = neighbour.invite(&pod);
        neighbour.remove(&pod, &id);
        pod.start_agent();
        pod.start_launcher();
        eventually("that etcd has ended is reported", || {
            let told = pod.api.report().etcd.and_then(|etcd| etcd.progress);
            told.is_some_and(|told| told.contains("ended before it joined"))
        });
        assert_eq!((pod.etcd(), pod.data_state()), (None, Some(DataState::Empty)), "{minor}");
        // Nothing has come of it, so it may be tried again.
        assert!(pod.restart_ended_launcher().is_some_and(|code| code != 0), "{minor}");
        eventually("etcd has ended again", || pod.restart_ended_launcher().is_some());
        let successor = neighbour.invite(&pod);
        is_learning(&mut pod, &successor);
        assert_eq!(pod.api.report().data.unwrap().boot_count, Some(1), "{minor}");
    }
}

#[test]
fn a_ticket_that_is_withdrawn_at_the_last_moment_is_not_used_and_may_come_again() {
    let mut pod = Pod::new("3.6");
    let neighbour = Neighbour::of(&pod, &[]);
    let ticket = neighbour.add_learner(&pod, 1);
    let Ticket::Join { member_id, .. } = &ticket else { panic!() };
    pod.api.set_ticket(&ticket);
    let held = Ticket::Hold { reason: "another is removed first".to_owned(), epoch: None };
    pod.api.set_ticket_on_record(1, held);
    pod.start_agent();
    pod.start_launcher();
    eventually("it is on record", || pod.api.report().data.is_some_and(|data| data.member_id.is_some()));
    pod.agent_has_decided();
    assert_eq!((pod.etcd(), pod.data_state()), (None, Some(DataState::Empty)));
    pod.api.set_ticket(&ticket);
    is_learning(&mut pod, member_id);
    assert_eq!(pod.api.report().data.unwrap().boot_count, Some(1));
}

/// etcd begins as whoever the cluster lists with its address, whatever its ticket says.
#[test]
fn a_joiner_whose_place_was_given_to_another_at_the_last_moment_is_on_record_as_that_and_begins_once() {
    for minor in MINORS {
        let mut pod = Pod::new(minor);
        let neighbour = Neighbour::of(&pod, &[]);
        neighbour.etcdctl(&pod, &["put", "key", "from before"]);
        let removed = neighbour.invite(&pod);
        neighbour.remove(&pod, &removed);
        let ticket = neighbour.add_learner(&pod, 1);
        let Ticket::Join { member_id, .. } = &ticket else { panic!() };
        pod.start_agent();
        pod.start_launcher();
        is_learning(&mut pod, member_id);
        assert_eq!(pod.api.report().data.unwrap().member_id.as_ref(), Some(member_id), "{minor}");
        pod.api.set_ticket(&ticket);
        pod.kill_etcd();
        pod.start_launcher();
        eventually("it starts from its data", || pod.api.lease().boot_count == Some(2));
        assert_eq!(pod.api.lease().member_id.as_ref(), Some(member_id), "{minor}");
        assert_eq!(value_on(&pod), "from before", "{minor}");
        neighbour.promote(&pod, member_id);
        eventually("the voter is ready", || pod.probe("/readyz") == Some(200));
    }
}
