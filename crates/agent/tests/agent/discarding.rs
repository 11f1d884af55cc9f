//! What was put aside stays, until somebody asks for it to go, or until a voter needs the room.

use std::{
    fs::{self, File},
    path::PathBuf,
};

use quorate_api::{
    member::{Ticket, VolumeState},
    names::annotations::DISCARD_QUARANTINE,
};
use rustix::fs::{FallocateFlags, fallocate, statvfs};

use crate::{
    full_disk::{reserve, volume_state},
    neighbour::{Neighbour, is_learning},
    pod::{Pod, eventually},
    replacing::put_aside,
};

/// A quarter of it is what a database and the reserve take.
const MEBIBYTES: u64 = 1024;
const NAMES: [&str; 3] =
    ["quarantine-20260101T000000.000Z", "quarantine-20260201T000000.000Z", "quarantine-20260301T000000.000Z"];

fn take(path: PathBuf, mebibytes: u64) {
    fallocate(File::create(path).unwrap(), FallocateFlags::empty(), 0, mebibytes << 20).unwrap();
}

/// Somebody else's file takes the rest. The reserve does not count.
fn fill_to_percent(pod: &Pod, percent: u64) {
    let figures = statvfs(pod.path("volume")).unwrap();
    let [size, free] = [figures.f_blocks, figures.f_bavail].map(|blocks| blocks * figures.f_frsize);
    let bytes = free + reserve(pod) - size / 100 * (100 - percent);
    take(pod.path("volume/lost+found/hog"), bytes >> 20);
}

/// As if this member had been here before, in the present incarnation.
fn put_there(pod: &Pod, name: &str, mebibytes: u64) -> PathBuf {
    let aside = pod.path("volume").join(name);
    fs::create_dir_all(aside.join("data")).unwrap();
    fs::copy(pod.path("volume/quorate.json"), aside.join("quorate.json")).unwrap();
    take(aside.join("data/database"), mebibytes);
    aside
}

fn exists(pod: &Pod) -> [bool; 3] {
    NAMES.map(|name| pod.path("volume").join(name).exists())
}

#[test]
fn what_is_asked_for_by_name_goes_while_etcd_runs_and_while_it_does_not() {
    let mut pod = Pod::running("3.6");
    for name in NAMES {
        put_there(&pod, name, 1);
    }
    eventually("the report names what there is", || {
        let said = pod.api.report().volume.and_then(|volume| volume.reason).unwrap_or_default();
        NAMES.iter().all(|name| said.contains(name))
    });
    pod.api.annotate(DISCARD_QUARANTINE, NAMES[1]);
    eventually("it is gone", || exists(&pod) == [true, false, true]);
    eventually("the report no longer names it", || {
        let said = pod.api.report().volume.and_then(|volume| volume.reason).unwrap_or_default();
        said.contains(NAMES[0]) && !said.contains(NAMES[1])
    });
    pod.stop();
    // As an agent leaves it that dies in the middle.
    let half = pod.path("volume").join(format!("{}.removing", NAMES[2]));
    fs::rename(pod.path("volume").join(NAMES[2]), &half).unwrap();
    pod.api.annotate(DISCARD_QUARANTINE, &format!("{},{}", NAMES[0], NAMES[1]));
    pod.api.set_ticket(&Ticket::Hold { reason: "wait".to_owned(), epoch: Some(2) });
    pod.start_agent();
    pod.start_launcher();
    eventually("that is gone too, and what was half removed", || exists(&pod) == [false; 3] && !half.exists());
    assert_eq!(pod.etcd(), None);
}

#[test]
fn for_room_a_voter_gives_up_the_oldest_that_is_superseded_and_a_member_of_another_epoch_nothing() {
    let pod = Pod::with_volume_of("3.6", MEBIBYTES).run();
    for name in NAMES {
        put_there(&pod, name, 150);
    }
    // What an earlier incarnation has left.
    let text = fs::read_to_string(pod.path("volume/quorate.json")).unwrap();
    let cluster = pod.api.report().data.unwrap().cluster_id.unwrap();
    fs::write(pod.path("volume").join(NAMES[0]).join("quorate.json"), text.replace(&cluster, "cafe")).unwrap();
    eventually("they are seen", || {
        pod.api.report().volume.and_then(|volume| volume.reason).is_some_and(|said| said.contains(NAMES[2]))
    });
    assert_eq!((volume_state(&pod), exists(&pod)), (Some(VolumeState::Ample), [true; 3]));
    fill_to_percent(&pod, 82);
    eventually("one is given up", || exists(&pod) != [true; 3]);
    eventually("that is enough", || volume_state(&pod) == Some(VolumeState::Ample));
    assert_eq!(exists(&pod), [true, false, true]);
}

#[test]
fn a_learner_gives_nothing_up_before_it_has_a_vote() {
    let mut pod = Pod::with_volume_of("3.6", MEBIBYTES);
    let neighbour = Neighbour::of(&pod, &[]);
    let id = neighbour.invite(&pod);
    pod.start_agent();
    pod.start_launcher();
    is_learning(&mut pod, &id);
    put_there(&pod, NAMES[0], 300);
    fill_to_percent(&pod, 84);
    eventually("the volume is filling, and the report names what was put aside", || {
        volume_state(&pod) == Some(VolumeState::Filling)
            && pod.api.report().volume.and_then(|volume| volume.reason).is_some_and(|said| said.contains(NAMES[0]))
    });
    // Longer than it takes to see to the volume again.
    for _ in 0..4 {
        let before = pod.api.lease().renewed;
        eventually("the Lease is renewed", || pod.api.lease().renewed > before);
    }
    assert_eq!(put_aside(&pod).len(), 1);
    neighbour.promote(&pod, &id);
    eventually("the voter gives it up", || put_aside(&pod).is_empty());
}
