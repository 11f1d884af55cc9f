//! What only one member is left to tell: etcd itself drops what it does not know to be committed, and applies all of it once
//! the log says so.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod etcd_process;

use std::path::Path;
use std::process::{Command, Stdio};

use etcd_process::{Running, Server, VERSIONS, binary, copy_dir, free_port};
use quorate_etcd::wal::{Vote, commit_all, scan_dir};
use serde_json::Value;

/// Short of this a leader that hears nothing of the others steps down, and takes no more writes.
const PATIENT: [&str; 2] = ["--election-timeout=5000", "--heartbeat-interval=50"];

fn server(version: &str, dir: &Path, name: &str) -> Server {
    Server {
        version: version.to_owned(),
        name: name.to_owned(),
        data_dir: dir.join(name),
        client_url: format!("http://127.0.0.1:{}", free_port()),
        peer_url: format!("http://127.0.0.1:{}", free_port()),
        initial_cluster: String::new(),
        extra: Vec::new(),
    }
}

/// A cluster of three that serves.
fn three(version: &str, dir: &Path) -> Vec<Running> {
    let mut servers = ["a", "b", "c"].map(|name| server(version, dir, name));
    let cluster = servers.iter().map(|server| format!("{}={}", server.name, server.peer_url)).collect::<Vec<_>>();
    for server in &mut servers {
        server.initial_cluster = cluster.join(",");
        server.extra = PATIENT.map(str::to_owned).to_vec();
    }
    // A member is ready only when there is a quorum, so all of them have to start at once.
    std::thread::scope(|scope| {
        let starts = servers.iter().map(|server| scope.spawn(|| server.start())).collect::<Vec<_>>();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    })
}

fn json(running: &Running, arguments: &[&str]) -> Value {
    serde_json::from_slice(&running.etcdctl(arguments).stdout).unwrap()
}

fn leads(running: &Running) -> bool {
    let status = &json(running, &["endpoint", "status", "--write-out=json"])[0]["Status"];
    status["leader"] == status["header"]["member_id"]
}

/// Gives up waiting for an answer that never comes.
fn put_in_vain(running: &Running, keys: std::ops::Range<u32>) {
    let put = |key: u32| {
        Command::new(binary(&running.server.version, "etcdctl"))
            .args([
                "--endpoints",
                &running.server.client_url,
                "--command-timeout=2s",
                "put",
                &format!("key {key}"),
                "x",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    for mut waiting in keys.map(put).collect::<Vec<_>>() {
        assert!(!waiting.wait().unwrap().success(), "nobody was there to acknowledge it");
    }
}

/// What a lone member holds after it was made to forget the others.
fn keys_alone(server: &Server) -> Result<(usize, Value), String> {
    let alone = Server { extra: vec!["--force-new-cluster".to_owned()], ..server.clone() };
    let running = alone.try_start()?;
    let keys = json(&running, &["get", "key", "--prefix", "--keys-only", "--write-out=json"]);
    let members = json(&running, &["member", "list", "--write-out=json"])["members"].clone();
    Ok((keys["kvs"].as_array().map_or(0, Vec::len), members))
}

#[test]
fn a_leader_that_lost_its_followers_keeps_what_it_could_not_commit_only_if_the_log_says_that_all_of_it_counts() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let mut members = three(version, dir.path());
        let leader = members.iter().position(leads).unwrap();
        let leader = members.swap_remove(leader);
        for key in 0..5 {
            leader.etcdctl(&["put", &format!("key {key}"), "x"]);
        }
        for follower in &members {
            follower.freeze();
        }
        put_in_vain(&leader, 5..12);
        let server = leader.server.clone();
        leader.kill();
        drop(members);

        let forgetful = Server { data_dir: dir.path().join("forgetful"), ..server.clone() };
        copy_dir(&server.data_dir, &forgetful.data_dir);
        assert_eq!(keys_alone(&forgetful).unwrap().0, 5, "{version}: else this shows nothing");

        let wal = server.data_dir.join("member/wal");
        let before = scan_dir(&wal).unwrap();
        let committed = commit_all(&wal, Vote::Has).unwrap();
        assert!(before.hard_state.commit < committed.hard_state.commit, "{version}: {before:?}");
        let (keys, members) = keys_alone(&server).unwrap();
        assert_eq!((keys, members.as_array().unwrap().len()), (12, 1), "{version}");
    }
}

/// Adds a learner to a lone voter, and waits until it has all that the voter has.
fn learner_of(voter: &Running, dir: &Path, more: &[&str]) -> Running {
    let mut learner = server(&voter.server.version, dir, "learner");
    learner.extra.extend(more.iter().map(|argument| (*argument).to_owned()));
    learner.extra.push("--initial-cluster-state=existing".to_owned());
    learner.initial_cluster = format!("{},learner={}", voter.server.initial_cluster, learner.peer_url);
    voter.etcdctl(&["member", "add", "learner", "--learner", &format!("--peer-urls={}", learner.peer_url)]);
    let learner = learner.start();
    for key in 0..40 {
        voter.etcdctl(&["put", &format!("key {key}"), "x"]);
    }
    let get = ["get", "key", "--prefix", "--keys-only", "--consistency=s", "--write-out=json"];
    while json(&learner, &get)["count"].as_u64() != Some(40) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    learner
}

#[test]
fn a_learner_that_alone_is_left_becomes_the_only_voter_and_has_everything() {
    for version in VERSIONS {
        // From its log alone, and from what a snapshot says about who votes.
        for more in [&[][..], &["--snapshot-count=10"]] {
            let dir = tempfile::tempdir().unwrap();
            let mut voter = Server::single(version, &dir.path().join("voter"));
            voter.extra.extend(more.iter().map(|argument| (*argument).to_owned()));
            let voter = voter.start();
            let learner = learner_of(&voter, dir.path(), more);
            let server = learner.server.clone();
            learner.kill();
            voter.kill();

            let without = Server { data_dir: dir.path().join("without"), ..server.clone() };
            copy_dir(&server.data_dir, &without.data_dir);
            commit_all(&without.data_dir.join("member/wal"), Vote::Has).unwrap();
            assert!(keys_alone(&without).is_err(), "{version} {more:?}: raft takes no cluster without a voter");

            commit_all(&server.data_dir.join("member/wal"), Vote::Gets).unwrap();
            let (keys, members) = keys_alone(&server).unwrap();
            let members = members.as_array().unwrap().clone();
            assert_eq!((keys, members.len()), (40, 1), "{version} {more:?}: {members:?}");
            assert_ne!(members[0]["isLearner"], true, "{version} {more:?}");
        }
    }
}

#[test]
fn to_a_member_that_has_a_vote_the_promotion_does_nothing() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::single(version, &dir.path().join("data"));
        let running = server.start();
        running.etcdctl(&["put", "key", "x"]);
        running.kill();
        for _ in 0..2 {
            commit_all(&server.data_dir.join("member/wal"), Vote::Gets).unwrap();
            let (keys, members) = keys_alone(&server).unwrap();
            assert_eq!((keys, members.as_array().unwrap().len()), (1, 1), "{version}");
        }
    }
}
