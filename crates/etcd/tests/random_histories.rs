//! Whatever happened after a snapshot: all ways to the same revision lead to the same contents.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod golden;

use std::collections::BTreeMap;
use std::path::Path;

use golden::{ALL, REVISION};
use jiff::Timestamp;
use proptest::prelude::*;
use quorate_etcd::backup::{
    DeltaChain, DeltaWriter, FullReader, FullWriter, Header, Key, Keyring, Kind, ObjectName, WriteOptions,
};
use quorate_etcd::compact::Compact;
use quorate_etcd::data_dir::DataDir;
use quorate_etcd::events::{ChangeEvent, Cut, EventKind, EventStream, Events};
use quorate_etcd::hash::{HashKv, hash_kv};
use quorate_etcd::history::{History, HistoryError};
use quorate_etcd::keys::live_keys;
use quorate_etcd::membership::InitialCluster;
use quorate_etcd::restore::{CompactAt, Restore};
use quorate_etcd::snapshot::{DigestPolicy, Snapshot};
use quorate_etcd::validate::{self, Tier};

type Live = BTreeMap<Vec<u8>, (i64, i64, Vec<u8>)>;

/// Keys changed in each revision: a new value, or nothing for a deletion.
fn transactions() -> impl Strategy<Value = Vec<BTreeMap<u8, Option<Vec<u8>>>>> {
    let value = prop_oneof![3 => prop::collection::vec(any::<u8>(), 0..60), 1 => Just(vec![5; 5000])];
    let change = prop_oneof![3 => value.prop_map(Some), 1 => Just(None)];
    prop::collection::vec(prop::collection::btree_map(0_u8..20, change, 1..6), 1..60)
}

/// What a server would send for these transactions, and what would then be alive.
fn play(transactions: &[BTreeMap<u8, Option<Vec<u8>>>], mut live: Live) -> (Vec<ChangeEvent>, Live) {
    let (mut events, mut revision) = (Vec::new(), REVISION);
    for transaction in transactions {
        let mut changed = false;
        for (key, change) in transaction {
            let key = format!("/registry/pods/{key}").into_bytes();
            let event = match (change, live.get(&key)) {
                (Some(value), before) => {
                    let created = before.map_or(revision + 1, |(created, ..)| *created);
                    let version = before.map_or(1, |(_, version, _)| version + 1);
                    live.insert(key.clone(), (created, version, value.clone()));
                    let value = value.clone();
                    ChangeEvent { key, value, create_revision: created, version, ..ChangeEvent::default() }
                }
                (None, Some(_)) => {
                    live.remove(&key);
                    ChangeEvent { key, kind: EventKind::Delete, ..ChangeEvent::default() }
                }
                (None, None) => continue,
            };
            events.push(ChangeEvent { mod_revision: revision + 1, ..event });
            changed = true;
        }
        revision += i64::from(changed);
    }
    (events, live)
}

fn with_history<T>(database: &Path, events: &[ChangeEvent], cut: Cut, look: impl FnOnce(&History<'_>) -> T) -> T {
    let snapshot = Snapshot::open(database).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let mut events = Events::new(events.to_vec());
    let stream: Option<&mut dyn EventStream> = Some(&mut events);
    look(&History::new(&snapshot, stream, cut, scratch.path()).unwrap())
}

fn alive(database: &Path, events: &[ChangeEvent]) -> Live {
    with_history(database, events, Cut::End, |history| {
        let mut live = Live::new();
        live_keys(history, |value| -> Result<(), HistoryError> {
            live.insert(value.key.to_vec(), (value.create_revision, value.version, value.value.to_vec()));
            Ok(())
        })
        .unwrap();
        live
    })
}

fn hash(database: &Path, events: &[ChangeEvent], cut: Cut, compact: Option<i64>) -> HashKv {
    with_history(database, events, cut, |history| hash_kv(history, compact).unwrap())
}

/// The snapshot and the events as stored backups.
fn stored(snapshot: &Path, events: &[ChangeEvent], keys: &Keyring) -> (Vec<u8>, Vec<(ObjectName, Vec<u8>)>) {
    let options = WriteOptions { level: 1, keys: keys.clone() };
    let header = Header { kind: Kind::Full.into(), first_revision: REVISION, ..Header::default() };
    let mut full = FullWriter::begin(Vec::new(), header, &options).unwrap();
    full.push(&std::fs::read(snapshot).unwrap()).unwrap();
    let (full, mut parent) = full.finish().unwrap();
    let mut deltas = Vec::new();
    for events in events.chunk_by(|one, other| one.mod_revision / 9 == other.mod_revision / 9) {
        let (first, last) = (events[0].mod_revision, events[events.len() - 1].mod_revision);
        let digest = parent.digest.to_vec();
        let header = Header { kind: Kind::Delta.into(), first_revision: first, parent: digest, ..Header::default() };
        let mut delta = DeltaWriter::begin(Vec::new(), header, Timestamp::UNIX_EPOCH, &options).unwrap();
        for event in events {
            delta.push(event).unwrap();
        }
        delta.complete(last).unwrap();
        let (object, finished) = delta.finish().unwrap();
        deltas.push((ObjectName::delta(&finished.header, last, finished.trailer.covered()), object));
        parent = finished;
    }
    (full, deltas)
}

/// As `restored`, out of stored backups.
fn received(dir: &Path, snapshot: &Path, events: &[ChangeEvent], change: impl FnOnce(&mut Restore<'_>)) -> HashKv {
    let key = Key::new("k", &[3; 32]).unwrap();
    let keys = Keyring::new(BTreeMap::from([("k".to_owned(), key)]), Some("k".to_owned())).unwrap();
    let (full, deltas) = stored(snapshot, events, &keys);
    let deltas = deltas.iter().map(|(name, object)| (*name, object.as_slice()));
    let mut chain = DeltaChain::new(deltas, keys.clone());
    let mut base = FullReader::open(full.as_slice(), &keys).unwrap();
    restore_by(dir, snapshot, change, |restore| {
        restore.run_received(&mut base, Some(&mut chain)).unwrap();
    })
}

fn restored(dir: &Path, snapshot: &Path, events: &[ChangeEvent], change: impl FnOnce(&mut Restore<'_>)) -> HashKv {
    restore_by(dir, snapshot, change, |restore| {
        restore.run(Some(&mut Events::new(events.to_vec()))).unwrap();
    })
}

fn restore_by(
    dir: &Path,
    snapshot: &Path,
    change: impl FnOnce(&mut Restore<'_>),
    run: impl FnOnce(&Restore<'_>),
) -> HashKv {
    let url = "http://localhost:2380".to_owned();
    let cluster = InitialCluster::parse(&format!("default={url}"), "token").unwrap();
    let member = cluster.own_member("default", &[url]).unwrap();
    let data_dir = dir.join("data");
    let mut restore = Restore::new(snapshot, &data_dir, &cluster, member);
    change(&mut restore);
    run(&restore);
    let (findings, _) = validate::data_dir(&data_dir, Tier::Full).unwrap();
    assert!(findings.list.is_empty(), "{findings:?}");
    let hash = hash(&DataDir::new(&data_dir).db(), &[], Cut::End, None);
    std::fs::remove_dir_all(data_dir).unwrap();
    hash
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn all_ways_lead_to_the_same_contents(transactions in transactions(), at in 0_i64..1000) {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = ALL[1].write_to(dir.path());
        let (events, live) = play(&transactions, alive(&snapshot, &[]));
        prop_assert_eq!(&alive(&snapshot, &events), &live);

        let head = hash(&snapshot, &events, Cut::End, None);
        prop_assert_eq!(restored(dir.path(), &snapshot, &events, |_| {}), head);
        prop_assert_eq!(restored(dir.path(), &snapshot, &events, |restore| restore.rewrite = true), head);
        prop_assert_eq!(received(dir.path(), &snapshot, &events, |_| {}), head);
        prop_assert_eq!(received(dir.path(), &snapshot, &events, |restore| restore.rewrite = true), head);

        let revision = 10 + at % (head.revision - 9);
        let cut = Cut::Revision(revision);
        prop_assert_eq!(
            restored(dir.path(), &snapshot, &events, |restore| restore.cut = cut),
            hash(&snapshot, &events, cut, None)
        );
        prop_assert_eq!(
            received(dir.path(), &snapshot, &events, |restore| restore.cut = cut),
            hash(&snapshot, &events, cut, None)
        );
        let compact = Some(CompactAt::Revision(revision));
        prop_assert_eq!(
            restored(dir.path(), &snapshot, &events, |restore| restore.compact = compact),
            hash(&snapshot, &events, Cut::End, Some(revision))
        );

        let output = dir.path().join("compacted.db");
        let compact = Compact {
            snapshot: &snapshot, output: &output, cut: Cut::End, at: CompactAt::Head, digest: DigestPolicy::Require,
        };
        compact.run(Some(&mut Events::new(events.clone()))).unwrap();
        prop_assert!(validate::snapshot(&output, Tier::Full).unwrap().list.is_empty());
        prop_assert_eq!(hash(&output, &[], Cut::End, None), hash(&snapshot, &events, Cut::End, Some(head.revision)));
        prop_assert_eq!(alive(&output, &[]), live);
    }
}
