//! Clusters that keep their word, whatever happens to single members.

use std::fs;
use std::time::{Duration, Instant};

use quorate_etcd::client::{ClientError, Options};
use quorate_etcd::pb::rpc::kv::CompactionRequest;
use quorate_ledger::{Endpoint, Ledger, Load, Message, Rule, Verdict, check};

use crate::members::Members;
use crate::{on_each_version, writes_go_on};

fn is_clean(verdict: &Verdict, version: &str) {
    println!("{version}: {verdict}");
    assert!(verdict.is_clean(), "{version}: {verdict}");
    assert!(verdict.events > verdict.acknowledged && verdict.reads > 0, "{version}: {verdict}");
    assert_eq!(verdict.history.finals.len(), 3, "{version}");
}

#[test]
fn a_cluster_that_loses_and_regains_members_and_moves_its_leader_is_clean() {
    on_each_version(|version| async move {
        let dir = tempfile::tempdir().unwrap();
        let mut members = Members::start(version, dir.path());
        let ledger = Ledger::start(members.endpoints(), Load::default());
        writes_go_on(&ledger, 100);
        for n in 0..3 {
            members.kill(n);
            // Once clients are told, once they have to find out.
            if n != 1 {
                members.show(&[(n + 1) % 3, (n + 2) % 3]);
            }
            writes_go_on(&ledger, 60);
            members.show(&[0, 1, 2]);
            members.run(&[n]);
            writes_go_on(&ledger, 30);
        }
        let (leader, other) = members.leader().await;
        members.client(leader).move_leader(other).await.unwrap();
        writes_go_on(&ledger, 100);
        is_clean(&ledger.stop().await, version);
    });
}

#[test]
fn a_leader_that_freezes_with_writes_under_way_leaves_their_fate_open_and_nothing_else() {
    on_each_version(|version| async move {
        let dir = tempfile::tempdir().unwrap();
        let mut members = Members::start(version, dir.path());
        let ledger = Ledger::start(members.endpoints(), Load::default());
        writes_go_on(&ledger, 60);
        let (leader, _) = members.leader().await;
        members.freeze(leader);
        writes_go_on(&ledger, 100);
        members.kill(leader);
        members.run(&[leader]);
        writes_go_on(&ledger, 60);
        let verdict = ledger.stop().await;
        is_clean(&verdict, version);
        assert!(verdict.unknown > 0, "{version}: {verdict}");
    });
}

/// etcd changes members only when all of them have been connected for some seconds, and promotes none that lags.
async fn at_last<T>(mut attempt: impl AsyncFnMut() -> Result<T, ClientError>) -> T {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_member_that_is_replaced_through_a_learner_is_clean_and_holds_everything() {
    on_each_version(|version| async move {
        let dir = tempfile::tempdir().unwrap();
        let mut members = Members::start(version, dir.path());
        let ledger = Ledger::start(members.endpoints(), Load::default());
        writes_go_on(&ledger, 60);
        let status = members.client(2).status().await.unwrap();
        members.kill(2);
        members.show(&[0, 1]);
        let (id, client) = (status.header.unwrap().member_id, members.client(0));
        at_last(async || client.member_remove(id).await).await;
        let peer = members.servers[2].peer_url.clone();
        writes_go_on(&ledger, 20);
        let added = at_last(async || client.member_add(vec![peer.clone()], true).await).await.member.unwrap();
        fs::remove_dir_all(&members.servers[2].data_dir).unwrap();
        members.servers[2].extra = vec!["--initial-cluster-state=existing".to_owned()];
        members.show(&[0, 1, 2]);
        members.run(&[2]);
        at_last(async || client.member_promote(added.id).await).await;
        writes_go_on(&ledger, 60);
        is_clean(&ledger.stop().await, version);
    });
}

#[test]
fn a_cluster_that_is_compacted_all_the_time_is_clean() {
    on_each_version(|version| async move {
        let dir = tempfile::tempdir().unwrap();
        let members = Members::start(version, dir.path());
        let ledger = Ledger::start(members.endpoints(), Load::default());
        for n in 0..20 {
            writes_go_on(&ledger, 20);
            let client = members.client(n % 3);
            let revision = client.status().await.unwrap().header.unwrap().revision - 15;
            client.compact(CompactionRequest { revision, physical: n % 2 == 0 }).await.unwrap();
        }
        let verdict = ledger.stop().await;
        is_clean(&verdict, version);
        let told = |message: &quorate_ledger::StreamMessage| matches!(message.body, Message::Compacted(_));
        let listed_anew = verdict.history.streams.iter().filter(|stream| stream.messages.iter().any(told)).count();
        assert!(listed_anew >= 3, "{version}: watches from the beginning have to begin anew");
    });
}

#[tokio::test]
async fn anomalies_planted_into_a_real_history_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let members = Members::start("3.6", dir.path());
    let ledger = Ledger::start(members.endpoints(), Load::default());
    writes_go_on(&ledger, 150);
    let real = ledger.stop().await.history;
    let finds = |rule: Rule, plant: &dyn Fn(&mut quorate_ledger::History)| {
        let mut history = real.clone();
        plant(&mut history);
        let violations = check(&history);
        assert!(violations.iter().any(|violation| violation.rule == rule), "{rule:?}: {violations:?}");
    };
    assert_eq!(check(&real), []);
    let lasting = real.streams.iter().position(|stream| stream.messages.len() > 50).unwrap();
    for place in [5, 20, 40] {
        finds(Rule::WatchReliable, &|history| _ = history.streams[lasting].messages.remove(place));
        finds(Rule::WatchUnique, &|history| {
            let messages = &mut history.streams[lasting].messages;
            messages.insert(place, messages[place].clone());
        });
        finds(Rule::WatchOrdered, &|history| history.streams[lasting].messages.swap(place, place + 1));
    }
    for member in 0..3 {
        finds(Rule::NothingLost, &|history| _ = history.finals[member].found.pop());
    }
}

#[tokio::test]
async fn a_run_without_a_cluster_is_void_and_says_so() {
    let nobody = Endpoint::new("nobody", Options::new("http://127.0.0.1:1"));
    let verdict = Ledger::start(vec![nobody], Load::default()).stop().await;
    assert!(!verdict.is_clean() && verdict.to_string().contains("void: only 0 writes"), "{verdict}");
}
