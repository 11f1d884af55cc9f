//! A member whose cluster has lost its quorum, and what is promised of the incarnation that begins from its data.

use std::{
    net::Ipv4Addr,
    process::{Command, Stdio},
};

use quorate_api::member::{DataReport, DataState, Peer, RecoveredFrom, Ticket};
use quorate_etcd::membership::{InitialCluster, hex_id};
use serde_json::Value;

use crate::{
    mount::copy_dir,
    neighbour::{Neighbour, is_learning},
    pod::{MEMBER, Pod, binary, eventually},
    replacing::{put_aside, volume_identity},
};

/// Written while there was a quorum, and after.
pub(crate) const ACKNOWLEDGED: usize = 300;
pub(crate) const IN_VAIN: usize = 5;
/// Farther than the least by which a revision is raised.
pub(crate) const RAISE_TO: i64 = 5_000_000_000;

/// Who the member was.
pub(crate) struct Lost {
    pub(crate) cluster_id: String,
    pub(crate) member_id: String,
}

/// A learner of a neighbour's cluster, which holds some keys.
pub(crate) fn joined(pod: &mut Pod) -> (Neighbour, Lost) {
    joined_at(Ipv4Addr::LOCALHOST, pod)
}

fn joined_at(address: Ipv4Addr, pod: &mut Pod) -> (Neighbour, Lost) {
    // Short of this a leader that hears nothing of the others takes no more writes.
    pod.settings.election_milliseconds = 5_000;
    let neighbour = Neighbour::at(address, pod, &["--election-timeout=5000"]);
    put(pod, neighbour.client_url(), "key", ACKNOWLEDGED);
    let member_id = neighbour.invite(pod);
    pod.start_agent();
    pod.start_launcher();
    is_learning(pod, &member_id);
    let cluster_id = pod.api.report().data.unwrap().cluster_id.unwrap();
    (neighbour, Lost { cluster_id, member_id })
}

/// Its etcd runs, has led, and its log holds what nobody else has.
pub(crate) fn lost(pod: &mut Pod) -> Lost {
    lost_at(Ipv4Addr::LOCALHOST, pod).0
}

/// And the address at which it would still reach the one that it has lost.
pub(crate) fn lost_at(address: Ipv4Addr, pod: &mut Pod) -> (Lost, String) {
    let (neighbour, lost) = joined_at(address, pod);
    let other = neighbour.peer_url().rsplit('/').next().unwrap().to_owned();
    neighbour.promote(pod, &lost.member_id);
    eventually("the voter is ready", || pod.probe("/readyz") == Some(200));
    pod.api.set_ticket(&Ticket::Resume { epoch: 1 });
    neighbour.etcdctl(pod, &["move-leader", &lost.member_id]);
    drop(neighbour);
    // All at once, because a leader that hears nothing takes writes for a while only, and with time enough to arrive on a busy
    // machine.
    let put = |key: usize| {
        let arguments = ["--command-timeout=3s", "put", &format!("vain {key}"), "x"];
        let mut put = pod.etcdctl_command(&pod.client_url(), &arguments);
        put.stderr(Stdio::null()).spawn().unwrap()
    };
    for mut put in (0..IN_VAIN).map(put).collect::<Vec<_>>() {
        assert!(!put.wait().unwrap().success(), "nobody was there to acknowledge it");
    }
    (lost, other)
}

pub(crate) fn lost_with_authentication(pod: &mut Pod) -> Lost {
    let (neighbour, lost) = joined(pod);
    for arguments in [&["user", "add", "root:secret"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
    {
        neighbour.etcdctl(pod, arguments);
    }
    drop(neighbour);
    lost
}

/// A lost member of which nothing runs any more.
pub(crate) fn stopped(minor: &'static str) -> (Pod, Lost) {
    let mut pod = Pod::new(minor);
    let lost = lost(&mut pod);
    pod.stop();
    (pod, lost)
}

/// Another pod with a copy of that one's volume.
pub(crate) fn with_volume_of(other: &Pod) -> Pod {
    let pod = Pod::new(other.minor);
    copy_dir(&other.path("volume"), &pod.path("volume"));
    pod
}

pub(crate) fn put(pod: &Pod, url: &str, prefix: &str, keys: usize) {
    // One process for all of them.
    let value = format!("needle{}", "x".repeat(500));
    let script = (0..keys).map(|key| format!("put '{prefix} {key}' {value}\n")).collect::<String>();
    for puts in script.lines().collect::<Vec<_>>().chunks(100) {
        let transaction = format!("\n{}\n\n\n", puts.join("\n"));
        let mut etcdctl = Command::new(binary(pod.minor, "etcdctl"));
        etcdctl.args(["--endpoints", url]);
        if pod.settings.tls {
            let file = |name: &str| pod.path("tls").join(name).display().to_string();
            etcdctl.args(["--cacert", &file("server/ca.crt"), "--cert", &file("agent/tls.crt")]);
            etcdctl.args(["--key", &file("agent/tls.key")]);
        }
        let mut etcdctl = etcdctl.arg("txn").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut etcdctl.stdin.take().unwrap(), transaction.as_bytes()).unwrap();
        assert!(etcdctl.wait().unwrap().success());
    }
}

fn initial_cluster(pod: &Pod) -> Vec<Peer> {
    let scheme = if pod.settings.tls { "https" } else { "http" };
    vec![Peer { name: MEMBER.to_owned(), url: format!("{scheme}://127.0.0.1:{}", pod.settings.peer_port) }]
}

pub(crate) fn ticket(pod: &Pod, lost: &Lost, raise_to: i64) -> Ticket {
    Ticket::Recover {
        epoch: 2,
        token: "second".to_owned(),
        initial_cluster: initial_cluster(pod),
        cluster_id: lost.cluster_id.clone(),
        member_id: lost.member_id.clone(),
        raise_to,
        even_if_fenced: false,
    }
}

/// The cluster that a ticket makes.
pub(crate) fn new_cluster(pod: &Pod) -> String {
    let url = &initial_cluster(pod)[0].url;
    hex_id(InitialCluster::parse(&format!("{MEMBER}={url}"), "second").unwrap().cluster_id())
}

pub(crate) fn is_on_record(pod: &Pod) -> Option<DataReport> {
    pod.api.report().data.filter(|data| data.epoch == Some(2) && data.recovered.is_some())
}

pub(crate) fn count(pod: &Pod, prefix: &str, more: &[&str]) -> usize {
    let keys = pod.etcdctl(&[&["get", prefix, "--prefix", "--keys-only"], more].concat());
    keys.lines().filter(|line| !line.is_empty()).count()
}

/// Waits for the new incarnation and checks all that is promised of it.
#[track_caller]
pub(crate) fn is_recovered(pod: &mut Pod, raise_to: i64, user: &[&str], what: &str) {
    eventually("the new incarnation serves", || {
        assert_eq!(pod.restart_ended_launcher(), None, "{what}: the container goes on");
        let ready = pod.probe("/readyz") == Some(200);
        assert!(!ready || is_on_record(pod).is_some(), "{what}: it serves before it is on record");
        ready && pod.api.report().etcd.is_some_and(|etcd| etcd.running)
    });
    let data = is_on_record(pod).unwrap();
    let RecoveredFrom { epoch, revision, raised_to } = data.recovered.unwrap();
    assert_eq!((data.state, epoch), (DataState::Valid, 2), "{what}");
    assert!(raised_to >= raise_to && raised_to >= revision + 1_000_000_000, "{what}: {revision} to {raised_to}");
    assert_eq!(data.cluster_id, Some(new_cluster(pod)), "{what}");
    assert_eq!(pod.api.report().etcd.unwrap().cluster_id, Some(new_cluster(pod)), "{what}");
    assert_eq!(count(pod, "key", user), ACKNOWLEDGED, "{what}");

    pod.etcdctl(&[&["put", "after", "x"], user].concat());
    let answer: Value =
        serde_json::from_str(&pod.etcdctl(&[&["get", "after", "--write-out=json"], user].concat())).unwrap();
    assert_eq!(answer["header"]["revision"], raised_to + 1, "{what}");
    assert_is_compacted(pod, revision, user, what);
    let listed: Value =
        serde_json::from_str(&pod.etcdctl(&[&["member", "list", "--write-out=json"], user].concat())).unwrap();
    let members = listed["members"].as_array().unwrap();
    assert_eq!(members.len(), 1, "{what}: {members:?}");
    assert_ne!(members[0]["isLearner"], true, "{what}");

    let aside = put_aside(pod);
    assert_eq!(aside.len(), 1, "{what}: {aside:?}");
    assert!(aside[0].join("data/member/wal").exists() && !aside[0].join("data.part").exists(), "{what}");
    assert_eq!(volume_identity(&aside[0])["epoch"], 1, "{what}: what is put aside says whose it is");
    assert_eq!(volume_identity(&pod.path("volume"))["successor"], Value::Null, "{what}");
}

/// Whoever watches from a revision of the lost incarnation is told that it is gone.
fn assert_is_compacted(pod: &Pod, revision: i64, user: &[&str], what: &str) {
    let old = format!("--rev={revision}");
    let read = pod.try_etcdctl(&[&["get", "key 0", &old], user].concat());
    assert!(String::from_utf8_lossy(&read.stderr).contains("compacted"), "{what}: {read:?}");
    if pod.settings.tls || !user.is_empty() {
        return;
    }
    let mut watch = Command::new(binary(pod.minor, "etcdctl"))
        .args(["--endpoints", &pod.client_url(), "watch", "key 0", &old])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the watch is canceled", || watch.try_wait().unwrap().is_some());
    let said = watch.wait_with_output().unwrap().stderr;
    assert!(String::from_utf8_lossy(&said).contains("compacted"), "{what}: {}", String::from_utf8_lossy(&said));
}
