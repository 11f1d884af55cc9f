//! A full disk ends etcd, and the reserve lets it start again.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::MetadataExt,
    process::Command,
};

use quorate_api::{
    defaults::RESERVE,
    member::{Ticket, VolumeState},
};

use crate::{
    neighbour::{Neighbour, is_learning, value_on},
    pod::{Pod, binary, eventually},
};

/// Room for the log, a database, the reserve and what fills it.
const MEBIBYTES: u64 = 640;

pub(crate) fn reserve(pod: &Pod) -> u64 {
    fs::metadata(pod.path("volume/quorate.reserve")).map_or(0, |metadata| metadata.blocks() * 512)
}

pub(crate) fn volume_state(pod: &Pod) -> Option<VolumeState> {
    pod.api.report().volume.map(|volume| volume.state)
}

/// Somebody else's file takes every byte that is left.
fn fill(pod: &Pod) {
    let path = pod.path("volume/lost+found/hog");
    let mut hog = File::options().create(true).append(true).open(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        let piece = vec![7; size];
        while hog.write_all(&piece).and_then(|()| hog.sync_data()).is_ok() {}
    }
}

fn is_ended(pod: &Pod) -> bool {
    fill(pod);
    // A write wants room for the database, sooner or later.
    let _ = pod.try_etcdctl(&["--command-timeout=2s", "put", "key", &"x".repeat(100_000)]);
    pod.etcd().is_none()
}

/// A member with a reserve whose etcd has ended because nothing more could be written. Its agent is not there to see it.
fn ended_for_want_of_room(minor: &'static str) -> Pod {
    let mut pod = Pod::with_volume_of(minor, MEBIBYTES).run();
    pod.put("kept");
    eventually("room is held back", || reserve(&pod) >= RESERVE.unsigned_abs());
    assert_eq!(volume_state(&pod), Some(VolumeState::Ample));
    pod.kill_agent();
    eventually("etcd has ended", || is_ended(&pod));
    fill(&pod);
    pod
}

#[test]
fn a_member_whose_disk_is_full_starts_again_from_the_reserve_which_comes_back_when_there_is_room() {
    for minor in ["3.5", "3.6", "3.7"] {
        let mut pod = ended_for_want_of_room(minor);
        pod.start_agent();
        eventually("etcd serves again though nothing was freed", || {
            pod.restart_ended_launcher();
            pod.api.lease().boot_count == Some(2) && pod.probe("/readyz") == Some(200)
        });
        assert_eq!(reserve(&pod), 0, "{minor}");
        let value = pod.etcdctl(&["get", "key", "--print-value-only"]);
        assert!(value.trim() == "kept" || value.starts_with("xxx"), "{minor}: {value}");
        eventually("the report says so", || volume_state(&pod) == Some(VolumeState::Filling));
        let said = pod.api.report().volume.unwrap().reason.unwrap();
        assert!(said.contains("released"), "{minor}: {said}");
        fs::remove_file(pod.path("volume/lost+found/hog")).unwrap();
        eventually("the reserve is back", || reserve(&pod) >= RESERVE.unsigned_abs());
        eventually("the report says so", || volume_state(&pod) == Some(VolumeState::Ample));
    }
}

#[test]
fn on_a_full_disk_the_reserve_lets_what_is_in_the_way_be_put_aside_and_a_successor_begin() {
    let mut pod = ended_for_want_of_room("3.6");
    let neighbour = Neighbour::of(&pod, &[]);
    neighbour.etcdctl(&pod, &["put", "key", "from before"]);
    let successor = neighbour.invite(&pod);
    pod.start_agent();
    is_learning(&mut pod, &successor);
    assert_eq!((reserve(&pod), value_on(&pod).as_str()), (0, "from before"));
}

#[test]
fn on_a_full_disk_the_reserve_is_given_for_what_a_member_keeps_while_it_waits() {
    let mut pod = ended_for_want_of_room("3.6");
    assert!(reserve(&pod) > 0);
    pod.api.set_ticket(&Ticket::Hold { reason: "another incarnation begins".to_owned(), epoch: Some(2) });
    pod.start_agent();
    eventually("that it has heard of the next epoch is said", || {
        pod.api.report().data.is_some_and(|data| data.ticket_epoch == Some(2))
    });
    assert_eq!((reserve(&pod), pod.etcd()), (0, None));
    let kept = fs::read_to_string(pod.path("volume/quorate.json")).unwrap();
    assert!(kept.contains("\"fence\":\""), "and it lasts: {kept}");
}

#[test]
fn without_the_reserve_a_full_disk_keeps_etcd_from_starting_and_the_report_says_full() {
    let mut pod = ended_for_want_of_room("3.6");
    fs::remove_file(pod.path("volume/quorate.reserve")).unwrap();
    fill(&pod);
    let etcd =
        Command::new(binary("3.6", "etcd")).arg("--config-file").arg(pod.path("run/etcd.yaml")).output().unwrap();
    let said = String::from_utf8_lossy(&etcd.stderr);
    assert!(!etcd.status.success() && said.contains("no space left on device"), "{said}");
    fill(&pod);
    pod.start_agent();
    eventually("the report says so", || {
        pod.restart_ended_launcher();
        volume_state(&pod) == Some(VolumeState::Full)
    });
    pod.agent_has_decided();
    assert_eq!(pod.etcd(), None);
}

#[test]
fn a_reserve_that_lies_on_a_new_volume_does_not_make_it_look_used() {
    let mut pod = Pod::with_volume_of("3.6", MEBIBYTES);
    File::create(pod.path("volume/quorate.reserve")).unwrap();
    pod.start_agent();
    pod.start_launcher();
    pod.is_settled();
}

#[test]
fn nothing_is_held_back_on_a_volume_of_somebody_else() {
    let mut pod = Pod::with_volume_of("3.6", MEBIBYTES);
    fs::write(pod.path("volume/photos"), "theirs").unwrap();
    pod.start_agent();
    pod.start_launcher();
    pod.agent_has_decided();
    assert_eq!((pod.etcd(), reserve(&pod)), (None, 0));
}
