//! What is measured, each in a process of its own.

use std::path::Path;

use quorate_etcd::bbolt;
use quorate_etcd::compact::Compact;
use quorate_etcd::events::{Cut, EventStream};
use quorate_etcd::foreign::{Base, DeltaStream};
use quorate_etcd::hash::hash_kv;
use quorate_etcd::history::History;
use quorate_etcd::membership::InitialCluster;
use quorate_etcd::restore::{CompactAt, Restore};
use quorate_etcd::snapshot::{DigestPolicy, Snapshot};
use quorate_etcd::validate::{self, Tier};

pub(crate) fn run(arguments: &[String]) {
    let [action, snapshot, output, deltas @ ..] = arguments else { return };
    let (snapshot, output) = (Path::new(snapshot), Path::new(output));
    let revision = Snapshot::open(snapshot).unwrap().schema.revision();
    let mut stream = deltas.first().map(|dir| DeltaStream::open(Path::new(dir), Base::at(revision), Cut::End).unwrap());
    let events = stream.as_mut().map(|stream| stream as &mut dyn EventStream);
    match action.as_str() {
        "restore" => restore(snapshot, output, events, false),
        "rewrite" => restore(snapshot, output, events, true),
        "compact" => {
            let digest = DigestPolicy::Require;
            let compact = Compact { snapshot, output, cut: Cut::End, at: CompactAt::Head, digest };
            compact.run(events).unwrap();
        }
        "structure" => structure(snapshot),
        "verify" => assert!(validate::snapshot(snapshot, Tier::Full).unwrap().list.is_empty()),
        "hash" => {
            let snapshot = Snapshot::open(snapshot).unwrap();
            let scratch = output.parent().unwrap();
            let history = History::new(&snapshot, None, Cut::End, scratch).unwrap();
            hash_kv(&history, Some(revision)).unwrap();
        }
        other => unreachable!("no operation {other}"),
    }
}

fn structure(snapshot: &Path) {
    let snapshot = Snapshot::open(snapshot).unwrap();
    let checked = bbolt::check(&snapshot.db, |_, _, _| {}).unwrap();
    assert!(checked.findings.is_empty());
}

pub(crate) fn restore(snapshot: &Path, data_dir: &Path, events: Option<&mut dyn EventStream>, rewrite: bool) {
    let url = "http://localhost:2380".to_owned();
    let cluster = InitialCluster::parse(&format!("default={url}"), "etcd-cluster").unwrap();
    let member = cluster.own_member("default", &[url]).unwrap();
    let mut restore = Restore::new(snapshot, data_dir, &cluster, member);
    restore.rewrite = rewrite;
    restore.run(events).unwrap();
}
