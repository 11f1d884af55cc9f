//! While etcd runs, its database is read through: damage is said, and a busy member is never called damaged.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    ops::Range,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use quorate_api::member::{DataState, Verified};
use quorate_core::verification::{Proof, Reading, proof};
use quorate_etcd::{
    bbolt::Place,
    client::{Client, Options},
    pb::rpc::kv::{CompactionRequest, PutRequest},
    validate::database_in_use,
};

use crate::pod::{Pod, eventually};

const PAGE: usize = 4096;

/// A running member whose database is read through as often as possible.
fn often_verified() -> Pod {
    let mut pod = Pod::new("3.6");
    pod.arguments = vec!["--verify-every", "1s"];
    pod.run()
}

fn verified(pod: &Pod) -> Option<Verified> {
    pod.api.report().data?.verified
}

async fn put(client: &Client, keys: Range<usize>, value: &[u8]) -> i64 {
    let mut revision = 0;
    for key in keys {
        let request = PutRequest { key: key.to_be_bytes().to_vec(), value: value.to_vec(), ..PutRequest::default() };
        revision = client.put(request).await.unwrap().header.unwrap().revision;
    }
    revision
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_page_that_is_damaged_under_a_running_etcd_is_said_and_etcd_is_left_alone() {
    let pod = often_verified();
    let value = format!("needle{}", "x".repeat(200));
    runtime().block_on(async {
        let client = Client::new(Options::new(pod.client_url())).unwrap();
        put(&client, 0..100, value.as_bytes()).await;
        // What comes next is written behind these, so that etcd does not meet the damage.
        put(&client, 100..200, &[b'x'; 200]).await;
    });
    let path = pod.path("volume/data/member/snap/db");
    // Old copies of pages hold it too, and it does no harm to damage them as well.
    let with_needle = || {
        let content = fs::read(&path).unwrap();
        let pages = content.chunks(PAGE).enumerate().skip(2);
        let found = pages.filter(|(_, page)| page.windows(6).any(|bytes| bytes == b"needle")).map(|(number, _)| number);
        found.collect::<Vec<_>>()
    };
    eventually("it is on disk", || with_needle().len() >= 100 * value.len() / PAGE);
    let first = verified(&pod).map(|verified| verified.time);
    eventually("it was read through", || verified(&pod).is_some_and(|verified| Some(verified.time) > first));
    assert_eq!(verified(&pod).unwrap().damaged, None);
    let etcd = pod.etcd();
    let file = File::options().write(true).open(&path).unwrap();
    for page in with_needle() {
        file.write_all_at(&[0xFF; 16], (page * PAGE) as u64).unwrap();
    }
    eventually("the damage is said, though etcd is busy", || {
        pod.etcdctl(&["put", "key", "value"]);
        verified(&pod).is_some_and(|verified| verified.damaged.is_some())
    });
    let said = verified(&pod).unwrap().damaged.unwrap();
    assert!(said.contains("its header says it is page"), "{said}");
    assert_eq!((pod.etcd(), pod.data_state()), (etcd, Some(DataState::Valid)));
    assert!(etcd.is_some());
}

/// Writes, and now and then forgets what was written before, until it is told to stop.
fn keep_busy(url: String, stop: Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let busy = async move {
        let client = Client::new(Options::new(url)).unwrap();
        let value = vec![b'x'; 20_000];
        for round in 1.. {
            let revision = put(&client, 0..200, &value).await;
            if round % 8 == 0 {
                client.compact(CompactionRequest { revision, ..CompactionRequest::default() }).await.unwrap();
            }
            if stop.load(Ordering::Relaxed) {
                return;
            }
            // A fast machine would make the database grow faster than anybody reads it.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    thread::spawn(move || runtime().block_on(busy))
}

#[test]
fn a_busy_member_is_read_through_many_times_and_never_called_damaged() {
    let pod = often_verified();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = keep_busy(pod.client_url(), Arc::clone(&stop));
    let path = pod.path("volume/data/member/snap/db");
    let (mut sound, mut readings) = (BTreeSet::new(), 0);
    eventually("it was read through often enough", || {
        if let Some(verified) = verified(&pod) {
            assert_eq!(verified.damaged, None);
            sound.insert(verified.time);
        }
        // In one go it may take so long that pages are used anew meanwhile, and what is then found is not there.
        let read = database_in_use(&path, &Place::default(), u64::MAX).unwrap();
        let damage = read.findings.is_damaged().then(|| format!("{:?}", read.findings));
        readings += 1;
        let reading = Reading { damage, transactions: read.transactions, replaced: read.replaced };
        assert!(!matches!(proof(&reading), Proof::Damaged(_)), "{reading:?}");
        sound.len() >= 4 && readings >= 20
    });
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}
