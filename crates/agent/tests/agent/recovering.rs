//! The quorum is lost for good, and this member's data is the best copy that is left: a new incarnation begins from it, with
//! all that its log holds, once, and whatever dies meanwhile.

use std::{
    fs::{self, File},
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket},
    os::unix::fs::FileExt,
    path::Path,
};

use quorate_api::member::{DataState, Ticket};
use quorate_etcd::{
    membership::hex_id,
    wal::{read_metadata, scan_dir},
};

use crate::{
    api::Mood,
    interruptions::Step,
    pod::{Pod, eventually},
    replacing::{put_aside, volume_identity},
    survivor::{
        ACKNOWLEDGED, IN_VAIN, Lost, RAISE_TO, count, is_on_record, is_recovered, joined, lost, lost_at,
        lost_with_authentication, new_cluster, put, stopped, ticket, with_volume_of,
    },
};

const PAGE: usize = 4096;

#[test]
fn a_survivor_is_stopped_and_begins_a_new_incarnation_with_everything_that_its_log_holds() {
    for (minor, tls) in [("3.5", true), ("3.6", false), ("3.7", true)] {
        let mut pod = if tls { Pod::with_tls(minor) } else { Pod::new(minor) };
        let lost = lost(&mut pod);
        pod.api.set_ticket(&ticket(&pod, &lost, RAISE_TO));
        eventually("the etcd of the lost incarnation is stopped", || pod.probe("/readyz") == Some(503));
        is_recovered(&mut pod, RAISE_TO, &[], minor);
        assert_eq!(count(&pod, "vain", &[]), IN_VAIN, "{minor}");
        // And from here on it is a member like any other.
        pod.api.set_ticket(&Ticket::Resume { epoch: 2 });
        pod.kill_etcd();
        pod.start_launcher();
        eventually("it has started again", || pod.api.lease().boot_count == Some(2));
        assert_eq!(count(&pod, "vain", &[]), IN_VAIN, "{minor}");
        assert!(is_on_record(&pod).is_some(), "{minor}: what it was recovered from is still told");
    }
}

#[test]
fn a_learner_that_is_left_alone_becomes_the_only_voter() {
    for minor in ["3.5", "3.6", "3.7"] {
        let mut pod = Pod::new(minor);
        let (neighbour, lost) = joined(&mut pod);
        drop(neighbour);
        pod.api.set_ticket(&ticket(&pod, &lost, 0));
        is_recovered(&mut pod, 0, &[], minor);
    }
}

#[test]
fn a_survivor_whose_database_holds_all_of_its_log_begins_without_applying_it_again() {
    for minor in ["3.5", "3.6", "3.7"] {
        let mut pod = Pod::running(minor);
        put(&pod, &pod.client_url(), "key", ACKNOWLEDGED);
        let data = pod.api.report().data.unwrap();
        let lost = Lost { cluster_id: data.cluster_id.unwrap(), member_id: data.member_id.unwrap() };
        pod.terminate_launcher();
        pod.api.set_ticket(&ticket(&pod, &lost, 0));
        pod.start_launcher();
        is_recovered(&mut pod, 0, &[], minor);
        assert!(!pod.path("run/replay.yaml").exists(), "{minor}");
    }
}

#[test]
fn a_survivor_that_tells_its_status_to_nobody_is_recovered_all_the_same() {
    for minor in ["3.5", "3.6", "3.7"] {
        let mut pod = Pod::new(minor);
        let lost = lost_with_authentication(&mut pod);
        pod.api.set_ticket(&ticket(&pod, &lost, 0));
        is_recovered(&mut pod, 0, &["--user=root:secret"], minor);
    }
}

/// An address of this machine at which others would reach it. There is none where there is no network.
fn own_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    // Nothing is sent.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    match socket.local_addr().unwrap().ip() {
        IpAddr::V4(address) if !address.is_loopback() => Some(address),
        _ => None,
    }
}

/// Left to itself etcd dials the members that it is about to forget, and would hear whatever they still have to say.
#[test]
fn an_etcd_that_applies_its_log_calls_nobody() {
    let Some(address) = own_address() else { return };
    for minor in ["3.5", "3.6", "3.7"] {
        let mut pod = Pod::new(minor);
        let (lost, other) = lost_at(address, &mut pod);
        pod.kill_agent();
        pod.kill_container();
        let listener = TcpListener::bind(other).unwrap();
        listener.set_nonblocking(true).unwrap();
        pod.api.set_ticket(&ticket(&pod, &lost, 0));
        pod.start_agent();
        pod.start_launcher();
        is_recovered(&mut pod, 0, &[], minor);
        assert!(pod.path("run/replay.yaml").exists(), "{minor}: else this shows nothing");
        let called = listener.accept().map_err(|error| error.kind());
        assert!(matches!(called, Err(ErrorKind::WouldBlock)), "{minor}: {called:?}");
    }
}

#[test]
fn a_container_that_is_stopped_while_etcd_applies_its_log_ends_and_does_not_count_as_failed() {
    let (template, lost) = stopped("3.6");
    let mut pod = with_volume_of(&template);
    pod.api.set_ticket(&ticket(&pod, &lost, RAISE_TO));
    pod.start_launcher();
    pod.start_agent();
    eventually("etcd applies its log", || pod.etcd().is_some());
    let etcd = pod.etcd().unwrap();
    assert_eq!(pod.terminate_launcher(), Some(0));
    assert!(!Path::new(&format!("/proc/{etcd}")).exists());
    pod.start_launcher();
    is_recovered(&mut pod, RAISE_TO, &[], "another container goes on");
}

/// Whose log lies where etcd looks for it.
fn owner(pod: &Pod) -> Option<String> {
    read_metadata(&pod.path("volume/data/member/wal")).ok()?.cluster_id.map(hex_id)
}

fn volume_says(pod: &Pod, what: &str) -> bool {
    let said = fs::read_to_string(pod.path("volume/quorate.json")).unwrap_or_default();
    said.contains(what) || said.contains("\"epoch\":2,\"bootCount\"")
}

/// What can be seen from outside on the way, in its order.
const STEPS: [Step; 11] = [
    ("it has reported", |pod| pod.api.report().data.is_some()),
    ("the volume says that a successor is made", |pod| volume_says(pod, "successor")),
    ("a replay is configured", |pod| pod.path("run/replay.yaml").exists()),
    ("etcd applies its log", |pod| pod.etcd().is_some()),
    ("there is a place for the successor", |pod| !put_aside(pod).is_empty()),
    ("the successor is written", |pod| put_aside(pod).iter().any(|aside| aside.join("data").exists())),
    ("the volume says what it was made from", |pod| volume_says(pod, "raisedTo")),
    ("it is in its place", |pod| owner(pod) == Some(new_cluster(pod))),
    ("it is on record", |pod| is_on_record(pod).is_some()),
    ("the volume says that it was let start", |pod| volume_says(pod, "\"epoch\":2,\"bootCount\":1")),
    ("it serves", |pod| pod.probe("/readyz") == Some(200)),
];

#[test]
fn a_recovery_survives_the_death_of_its_agent_at_every_step_and_ends_in_the_same() {
    let (template, lost) = stopped("3.6");
    for (what, reached) in STEPS {
        let mut pod = with_volume_of(&template);
        pod.api.set_ticket(&ticket(&pod, &lost, RAISE_TO));
        pod.start_launcher();
        pod.start_agent();
        eventually(what, || reached(&pod));
        pod.kill_agent();
        pod.start_agent();
        is_recovered(&mut pod, RAISE_TO, &[], what);
        assert_eq!(count(&pod, "vain", &[]), IN_VAIN, "{what}");
    }
}

#[test]
fn a_recovered_member_that_is_on_record_and_was_not_let_start_begins_when_its_ticket_is_back() {
    let (template, lost) = stopped("3.6");
    let mut pod = with_volume_of(&template);
    pod.api.set_ticket(&ticket(&pod, &lost, RAISE_TO));
    pod.api.set_ticket_on_record(2, Ticket::Hold { reason: "wait".to_owned(), epoch: None });
    pod.start_launcher();
    pod.start_agent();
    eventually("it is on record", || is_on_record(&pod).is_some());
    for _ in 0..2 {
        pod.agent_has_decided();
        assert_eq!((pod.etcd(), pod.data_state()), (None, Some(DataState::Valid)));
        assert_eq!(volume_identity(&pod.path("volume"))["bootCount"], 0, "it was not let start");
        pod.kill_agent();
        pod.start_agent();
    }
    pod.api.set_ticket(&ticket(&pod, &lost, RAISE_TO));
    is_recovered(&mut pod, RAISE_TO, &[], "the ticket is back");
    eventually("that it was let start is on record", || pod.api.lease().boot_count == Some(1));
}

#[test]
fn a_recovery_survives_the_death_of_its_whole_pod_at_every_step() {
    let (template, lost) = stopped("3.7");
    for (what, reached) in STEPS.into_iter().skip(1).step_by(2) {
        let mut pod = with_volume_of(&template);
        pod.api.set_ticket(&ticket(&pod, &lost, RAISE_TO));
        pod.start_launcher();
        pod.start_agent();
        eventually(what, || reached(&pod));
        pod.kill_agent();
        pod.kill_container();
        pod.start_launcher();
        pod.start_agent();
        is_recovered(&mut pod, RAISE_TO, &[], what);
        assert_eq!(count(&pod, "vain", &[]), IN_VAIN, "{what}");
    }
}

#[test]
fn an_etcd_that_dies_while_it_applies_its_log_is_started_again() {
    let (template, lost) = stopped("3.6");
    let mut pod = with_volume_of(&template);
    pod.api.set_ticket(&ticket(&pod, &lost, RAISE_TO));
    pod.start_launcher();
    pod.start_agent();
    eventually("etcd applies its log", || pod.etcd().is_some());
    pod.kill_replay();
    eventually("that it failed is told", || {
        let told = pod.api.report().etcd.and_then(|etcd| etcd.progress);
        told.is_some_and(|told| told.contains("tried again"))
    });
    is_recovered(&mut pod, RAISE_TO, &[], "after a failed replay");
    assert_eq!(count(&pod, "vain", &[]), IN_VAIN);
}

#[test]
fn a_copy_that_is_damaged_where_a_glance_does_not_see_it_is_reported_and_never_used() {
    let (template, lost) = stopped("3.6");
    let mut pod = with_volume_of(&template);
    let path = pod.path("volume/data/member/snap/db");
    let content = fs::read(&path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    // Not the last of them, which is looked at every time.
    let pages = content.chunks(PAGE).enumerate().skip(2);
    let pages = pages.filter(|(_, page)| page.windows(6).any(|bytes| bytes == b"needle")).map(|(number, _)| number);
    let pages = pages.collect::<Vec<_>>();
    file.write_all_at(&[0xFF; 16], (pages[pages.len() / 4] * PAGE) as u64).unwrap();
    let log = scan_dir(&pod.path("volume/data/member/wal")).unwrap();
    pod.start_agent();
    eventually("a glance does not see it", || pod.data_state() == Some(DataState::Valid));
    pod.api.set_ticket(&ticket(&pod, &lost, RAISE_TO));
    pod.start_launcher();
    eventually("the damage is reported", || pod.data_state() == Some(DataState::Damaged));
    let reason = pod.api.report().data.unwrap().reason.unwrap();
    assert!(reason.contains("page-damaged"), "{reason}");
    for _ in 0..3 {
        pod.agent_has_decided();
        assert_eq!((pod.etcd(), pod.data_state()), (None, Some(DataState::Damaged)));
    }
    // Neither does another agent take it for sound at first sight.
    pod.kill_agent();
    pod.api.forget_report();
    pod.start_agent();
    eventually("it reports", || pod.data_state().is_some());
    assert_eq!(pod.data_state(), Some(DataState::Damaged));
    assert_eq!(scan_dir(&pod.path("volume/data/member/wal")).unwrap(), log, "the log was not touched");
    assert!(put_aside(&pod).is_empty());
}

#[test]
fn a_wiped_survivor_waits() {
    let (template, lost) = stopped("3.6");
    for keep_identity in [true, false] {
        let mut pod = with_volume_of(&template);
        fs::remove_dir_all(pod.path("volume/data")).unwrap();
        if !keep_identity {
            fs::remove_file(pod.path("volume/quorate.json")).unwrap();
        }
        pod.api.set_ticket(&ticket(&pod, &lost, RAISE_TO));
        pod.start_agent();
        pod.start_launcher();
        eventually("the loss is reported", || pod.data_state() == Some(DataState::Empty));
        pod.agent_has_decided();
        assert_eq!((pod.etcd(), pod.data_state()), (None, Some(DataState::Empty)));
    }
}

#[test]
fn data_that_was_made_ready_for_a_successor_never_runs_again_as_what_it_was() {
    let (template, lost) = stopped("3.6");
    let mut pod = with_volume_of(&template);
    pod.api.set_ticket(&ticket(&pod, &lost, RAISE_TO));
    pod.start_launcher();
    pod.start_agent();
    eventually("etcd applies its log", || pod.etcd().is_some());
    pod.api.set_ticket(&Ticket::Hold { reason: "another copy was found".to_owned(), epoch: None });
    eventually("etcd is ended", || pod.etcd().is_none());
    for ticket in [Ticket::Hold { reason: "wait".to_owned(), epoch: None }, Ticket::Resume { epoch: 1 }] {
        pod.api.set_ticket(&ticket);
        pod.agent_has_decided();
        assert_eq!(pod.etcd(), None, "{ticket:?}");
    }
    pod.api.mood(Mood::Silent);
    pod.kill_agent();
    pod.start_agent();
    pod.agent_has_decided();
    assert_eq!(pod.etcd(), None, "nor while nobody can be asked");
    pod.api.mood(Mood::Answers);
    pod.api.set_ticket(&ticket(&pod, &lost, RAISE_TO));
    is_recovered(&mut pod, RAISE_TO, &[], "the ticket came again");
    assert_eq!(count(&pod, "vain", &[]), IN_VAIN);
}
