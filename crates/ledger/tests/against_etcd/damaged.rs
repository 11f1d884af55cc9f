//! What etcd does with files that have lost bits, or parts. It starts from many of them, and tells what is not true.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use quorate_etcd::client::{Client, Options, WHOLE_KEYSPACE, prefix_end};
use quorate_etcd::pb::rpc::kv::{PutRequest, RangeRequest};
use quorate_ledger::{Endpoint, Ledger, Load, Rule};

use crate::damages::{Damage, Needle, is_stored};
use crate::etcd_process::{Server, copy_dir};
use crate::{eventually, on_each_version, writes_go_on};

const KEYS: usize = 100;
/// One that has not begun to serve by then has no leader and gets none.
const PATIENCE: Duration = Duration::from_secs(8);

/// What became of an etcd on damaged files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Ends,
    /// Runs, and commits nothing: it may answer who reads, or nobody at all.
    Mute,
    TellsTheTruth,
    Lies,
}

type Content = BTreeMap<Vec<u8>, (Vec<u8>, i64, i64)>;

async fn content(url: &str) -> Option<Content> {
    let client = Client::new(Options::new(url)).unwrap();
    let (key, range_end) = (WHOLE_KEYSPACE.0.to_vec(), WHOLE_KEYSPACE.1.to_vec());
    let answer = client.range(RangeRequest { key, range_end, ..RangeRequest::default() }).await.ok()?;
    Some(answer.kvs.into_iter().map(|kv| (kv.key, (kv.value, kv.create_revision, kv.mod_revision))).collect())
}

/// A data directory with keys in it, and one of them.
async fn written(server: &Server) -> (Content, Needle) {
    let running = server.start();
    let client = Client::new(Options::new(&server.client_url)).unwrap();
    let mut needles = Vec::new();
    for n in 0..KEYS {
        let (key, value) = (format!("key/{n:03}").into_bytes(), format!("the value of {n:03}").into_bytes());
        let request = PutRequest { key: key.clone(), value: value.clone(), ..PutRequest::default() };
        let revision = client.put(request).await.unwrap().header.unwrap().revision;
        needles.push(Needle { key, value, revision });
    }
    eventually("all of it is in the file", || is_stored(&server.data_dir, &needles[KEYS - 1]));
    let truth = content(&server.client_url).await.unwrap();
    running.kill();
    (truth, needles.swap_remove(KEYS / 2))
}

async fn outcome(server: &Server, truth: &Content) -> Outcome {
    let mut running = match server.try_start_within(PATIENCE) {
        Ok(running) => running,
        Err(log) if log.contains("\"level\":\"fatal\"") || log.contains("\"level\":\"panic\"") => return Outcome::Ends,
        Err(log) if log.contains("panic: ") || log.contains("fatal error: ") || log.contains("SIGSEGV") => {
            return Outcome::Ends;
        }
        Err(_) => return Outcome::Mute,
    };
    match content(&server.client_url).await {
        Some(content) if content != *truth => Outcome::Lies,
        Some(_) if writes(&server.client_url).await => Outcome::TellsTheTruth,
        _ if running.has_ended() => Outcome::Ends,
        _ => Outcome::Mute,
    }
}

async fn writes(url: &str) -> bool {
    let options = Options { call_timeout: Duration::from_secs(3), ..Options::new(url) };
    let request = PutRequest { key: b"another".to_vec(), ..PutRequest::default() };
    Client::new(options).unwrap().put(request).await.is_ok()
}

async fn outcomes(version: &str, dir: &Path) -> BTreeMap<Damage, Outcome> {
    let sound = Server::single(version, &dir.join("sound"));
    let (truth, needle) = written(&sound).await;
    let mut found = BTreeMap::new();
    for damage in Damage::all() {
        let server = Server { data_dir: dir.join(format!("{damage:?}")), ..sound.clone() };
        copy_dir(&sound.data_dir, &server.data_dir);
        damage.inflict(&server.data_dir, &needle);
        found.insert(damage, outcome(&server, &truth).await);
    }
    found
}

#[test]
fn etcd_starts_from_some_damaged_files_and_lies_and_from_others_and_says_nothing() {
    on_each_version(|version| async move {
        let dir = tempfile::tempdir().unwrap();
        let found = outcomes(version, dir.path()).await;
        println!("{version}: {found:?}");
        for (outcome, damages) in [
            (Outcome::Lies, &[Damage::Value, Damage::Key, Damage::PageCount][..]),
            (Outcome::Ends, &[Damage::Revision, Damage::PageNumber, Damage::PageKind, Damage::BothMetas]),
            (Outcome::Ends, &[Damage::EntryPlace, Damage::EntryLength, Damage::LogBit]),
            (Outcome::Mute, &[Damage::LogCut, Damage::LogMissing]),
            (Outcome::TellsTheTruth, &[Damage::OneMeta]),
        ] {
            for damage in damages {
                assert_eq!(found[damage], outcome, "{version}: {damage:?}");
            }
        }
        let somewhere = found.iter().filter(|(damage, _)| matches!(damage, Damage::Somewhere(_)));
        assert!(somewhere.filter(|(_, outcome)| **outcome == Outcome::Lies).count() >= 1, "{version}");
    });
}

#[test]
fn a_bit_that_is_lost_in_a_stored_value_is_found_out() {
    on_each_version(|version| async move {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::single(version, &dir.path().join("m0"));
        let running = server.start();
        let ledger = Ledger::start(vec![Endpoint::new("m0", Options::new(&server.client_url))], Load::default());
        writes_go_on(&ledger, 100);
        // One that nobody writes a second time.
        let client = Client::new(Options::new(&server.client_url)).unwrap();
        let all = RangeRequest {
            key: b"/quorate-ledger/".to_vec(),
            range_end: prefix_end(b"/quorate-ledger/"),
            ..RangeRequest::default()
        };
        let kvs = client.range(all).await.unwrap().kvs;
        let kv = kvs.into_iter().find(|kv| String::from_utf8_lossy(&kv.key).contains("/once/")).unwrap();
        let needle = Needle { key: kv.key, value: kv.value, revision: kv.mod_revision };
        eventually("it is in the file", || is_stored(&server.data_dir, &needle));
        running.kill();
        Damage::Value.inflict(&server.data_dir, &needle);
        let running = server.start();
        writes_go_on(&ledger, 100);
        let verdict = ledger.stop().await;
        drop(running);
        println!("{version}: {verdict}");
        let broken = |rule| verdict.violations.iter().any(|violation| violation.rule == rule);
        assert!(verdict.void.is_none() && broken(Rule::NothingLost), "{version}: {verdict}");
    });
}
