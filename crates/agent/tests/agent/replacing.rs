//! A member joins in the place of another: what was there is put aside, and nothing of it holds the successor back.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use quorate_api::{
    member::{DataState, Ticket},
    status::MemberRole,
};
use serde_json::{Value, json};

use crate::{
    api::Mood,
    neighbour::{Neighbour, is_learning, value_on},
    pod::{Pod, eventually},
};

const MINORS: [&str; 3] = ["3.5", "3.6", "3.7"];
/// Farther than any log of these tests goes.
const FAR: i64 = 1_000_000_000;

/// A pod whose member is a learner of the neighbour's cluster.
fn joined(minor: &'static str) -> (Pod, Neighbour, String) {
    let mut pod = Pod::new(minor);
    let neighbour = Neighbour::of(&pod, &[]);
    neighbour.etcdctl(&pod, &["put", "key", "from before"]);
    let id = neighbour.invite(&pod);
    pod.start_agent();
    pod.start_launcher();
    is_learning(&mut pod, &id);
    (pod, neighbour, id)
}

pub(crate) fn put_aside(pod: &Pod) -> Vec<PathBuf> {
    let entries = fs::read_dir(pod.path("volume")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("quarantine-")).collect()
}

pub(crate) fn volume_identity(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("quorate.json")).unwrap()).unwrap()
}

/// The successor has joined as that, once, and has the data.
fn is_successor(pod: &mut Pod, id: &str) {
    let lease = is_learning(pod, id);
    assert_eq!((lease.role, lease.boot_count), (Some(MemberRole::Learner), Some(1)));
    assert!(lease.last_index < Some(FAR), "{lease:?}");
    assert_eq!(value_on(pod), "from before");
    let data = pod.api.report().data.unwrap();
    assert_eq!((data.state, data.member_id.as_deref(), data.boot_count), (DataState::Valid, Some(id), Some(1)));
}

#[test]
fn the_data_of_the_member_before_is_put_aside_and_neither_its_fence_nor_its_record_hold_the_successor_back() {
    let (mut pod, neighbour, before) = joined("3.6");
    pod.api.set_ticket(&Ticket::Fence { epoch: 1, member_id: before.clone(), reason: "it differs".to_owned() });
    eventually("etcd is stopped", || pod.etcd().is_none());
    eventually("the volume is fenced", || pod.data_state() == Some(DataState::Fenced));
    pod.kill_agent();
    pod.api.raise_last_index(FAR);
    let mut identity = volume_identity(&pod.path("volume"));
    assert_eq!(identity["record"]["fence"], "Diverged");
    identity["record"]["reachedIndex"] = FAR.into();
    identity["record"]["mark"]["lastIndex"] = FAR.into();
    fs::write(pod.path("volume/quorate.json"), identity.to_string()).unwrap();
    neighbour.remove(&pod, &before);
    let successor = neighbour.invite(&pod);
    pod.start_agent();
    is_successor(&mut pod, &successor);
    let aside = put_aside(&pod);
    assert_eq!(aside.len(), 1);
    assert!(aside[0].join("data/member/wal").exists());
    assert_eq!(volume_identity(&aside[0]), identity, "what is put aside says whose it is");
    let own = volume_identity(&pod.path("volume"));
    assert_eq!((&own["memberID"], &own["record"]["fence"]), (&json!(successor), &Value::Null));
    pod.kill_etcd();
    pod.start_launcher();
    eventually("the successor starts from its own data", || pod.api.lease().boot_count == Some(2));
    assert_eq!(value_on(&pod), "from before");
}

#[test]
fn a_fence_stays_closed_until_the_room_is_made_though_the_api_goes_away_meanwhile() {
    let (mut pod, neighbour, before) = joined("3.6");
    pod.api.set_ticket(&Ticket::Fence { epoch: 1, member_id: before.clone(), reason: "it differs".to_owned() });
    eventually("etcd is stopped", || pod.etcd().is_none());
    eventually("the volume is fenced", || pod.data_state() == Some(DataState::Fenced));
    pod.kill_etcd();
    pod.kill_agent();
    neighbour.remove(&pod, &before);
    let successor = neighbour.invite(&pod);
    let is_fenced = |pod: &Pod| pod.data_state() == Some(DataState::Fenced);
    pod.start_agent();
    eventually("the agent has heard of the successor", || !is_fenced(&pod));
    // It has not moved anything yet, because no container asks.
    pod.kill_agent();
    pod.api.mood(Mood::Silent);
    pod.start_agent();
    pod.start_launcher();
    pod.agent_has_decided();
    // Looking for its process would not do: etcd ends as soon as it hears that it was removed.
    assert_eq!(volume_identity(&pod.path("volume"))["bootCount"], 1, "it was not let start again");
    assert_eq!(put_aside(&pod).len(), 0);
    pod.api.mood(Mood::Answers);
    is_successor(&mut pod, &successor);
}

#[test]
fn damaged_data_is_put_aside_for_the_successor_and_not_for_the_member_itself() {
    let (mut pod, neighbour, before) = joined("3.6");
    pod.stop();
    fs::write(pod.path("volume/data/member/snap/db"), "no database").unwrap();
    pod.start_agent();
    pod.start_launcher();
    eventually("the damage is reported", || pod.data_state() == Some(DataState::Damaged));
    pod.agent_has_decided();
    assert_eq!((pod.etcd(), put_aside(&pod).len()), (None, 0));
    neighbour.remove(&pod, &before);
    let successor = neighbour.invite(&pod);
    is_successor(&mut pod, &successor);
    let aside = put_aside(&pod);
    assert_eq!(fs::read(aside[0].join("data/member/snap/db")).unwrap(), b"no database");
}

#[test]
fn data_of_an_earlier_epoch_is_put_aside() {
    let mut pod = Pod::running("3.6");
    pod.put("of the first epoch");
    let before = pod.api.lease().member_id;
    pod.stop();
    let neighbour = Neighbour::of(&pod, &[]);
    neighbour.etcdctl(&pod, &["put", "key", "from before"]);
    let ticket = neighbour.add_learner(&pod, 2);
    pod.api.set_ticket(&ticket);
    pod.start_agent();
    pod.start_launcher();
    let Ticket::Join { member_id, .. } = ticket else { panic!() };
    is_successor(&mut pod, &member_id);
    assert_eq!(pod.api.report().data.unwrap().epoch, Some(2));
    assert_eq!(volume_identity(&put_aside(&pod)[0])["memberID"], json!(before));
}

/// All files below, by path.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_volume_of_somebody_else_is_put_aside_with_every_byte_when_a_ticket_needs_the_room() {
    let owner = json!({
        "namespace": "default", "cluster": "another", "member": "another-0", "clusterID": "cafe", "memberID": "beef",
        "epoch": 7, "bootCount": 3,
    });
    let owner = owner.to_string();
    for theirs in [
        &[("quorate.json", owner.as_str()), ("data/member/wal/0.wal", "log"), ("data/member/snap/db", "db")][..],
        &[("quorate.json", owner.as_str())],
        &[("data/member/snap/db", "a database that nobody knows")],
        &[("photos/2019/beach.jpg", "sand"), ("notes", "to do")],
    ] {
        let mut pod = Pod::new("3.6");
        let neighbour = Neighbour::of(&pod, &[]);
        neighbour.etcdctl(&pod, &["put", "key", "from before"]);
        for (path, text) in theirs {
            let path = pod.path("volume").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let before = files(&pod.path("volume"));
        pod.start_agent();
        pod.start_launcher();
        eventually("that it is somebody else's is reported", || pod.data_state() == Some(DataState::Foreign));
        pod.agent_has_decided();
        assert_eq!((pod.etcd(), files(&pod.path("volume"))), (None, before.clone()), "nothing is touched");
        let id = neighbour.invite(&pod);
        is_successor(&mut pod, &id);
        let aside = put_aside(&pod);
        assert_eq!(aside.len(), 1);
        assert_eq!(files(&aside[0]), before);
    }
}

#[test]
fn a_member_that_was_removed_ends_says_so_does_not_start_again_and_comes_back_as_another() {
    for minor in MINORS {
        let (mut pod, neighbour, before) = joined(minor);
        neighbour.promote(&pod, &before);
        eventually("the voter is ready", || pod.probe("/readyz") == Some(200));
        neighbour.remove(&pod, &before);
        eventually("etcd has ended by itself", || pod.restart_ended_launcher().is_some());
        eventually("that it was removed is reported", || {
            let data = pod.api.report().data.unwrap();
            data.state == DataState::Damaged && data.reason.is_some_and(|reason| reason.contains("was removed"))
        });
        pod.agent_has_decided();
        assert_eq!((pod.etcd(), pod.probe("/readyz")), (None, Some(503)), "{minor}");
        let successor = neighbour.invite(&pod);
        is_successor(&mut pod, &successor);
        assert_eq!(volume_identity(&put_aside(&pod)[0])["memberID"], json!(before), "{minor}");
    }
}

#[test]
fn a_member_that_was_removed_while_it_was_down_ends_is_never_ready_and_comes_back_as_another() {
    for minor in MINORS {
        let (mut pod, neighbour, before) = joined(minor);
        pod.stop();
        neighbour.remove(&pod, &before);
        pod.api.set_ticket(&Ticket::Resume { epoch: 1 });
        pod.start_agent();
        pod.start_launcher();
        eventually("that etcd has ended is reported", || {
            assert_ne!(pod.probe("/readyz"), Some(200), "{minor}");
            let told = pod.api.report().etcd.and_then(|etcd| etcd.progress);
            pod.etcd().is_none() && told.is_some_and(|told| told.contains("etcd has ended"))
        });
        let successor = neighbour.invite(&pod);
        is_successor(&mut pod, &successor);
        assert_eq!(volume_identity(&put_aside(&pod)[0])["memberID"], json!(before), "{minor}");
    }
}
