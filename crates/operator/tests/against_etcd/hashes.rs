//! Whether all members have the same data, asked of real ones, one of which has lost a bit of a value.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use quorate_core::hashes::DataHash;
use quorate_etcd::client::{Client, Options, Tls};
use quorate_etcd::pb::rpc::kv::{CompactionRequest, PutRequest};
use quorate_operator::etcd::{Hashes, hash_members};

use crate::etcd_process::VERSIONS;
use crate::members::{Certificates, Member, client_url, endpoint, hosts, requests, target};
use crate::network;
use crate::peers::{operator, quorum, start};

const VALUE: &[u8] = b"a value that one of the members will remember differently";

pub(crate) async fn ask(tls: &Tls) -> Hashes {
    let members = [0, 1, 2].map(endpoint);
    hash_members(&target(&members), Some(tls)).await
}

pub(crate) fn all(hashes: &Hashes, version: &str) -> Vec<DataHash> {
    let found = hashes.values().cloned().collect::<Result<Vec<_>, _>>();
    found.unwrap_or_else(|error| panic!("{version}: {error}"))
}

/// Three members that have a few keys, and a connection to the first.
pub(crate) async fn with_keys(version: &str, dir: &Path, certificates: &Certificates) -> (Vec<Member>, Client) {
    let (members, tls) = (start(version, dir, certificates, 3), operator(certificates));
    for member in 0..3 {
        quorum(version, &members, member, &tls).await;
    }
    let client = Client::new(Options::new(client_url(0)).tls(tls)).unwrap();
    for key in 0..3 {
        put(&client, key, VALUE).await;
    }
    (members, client)
}

pub(crate) async fn put(client: &Client, key: u8, value: &[u8]) -> i64 {
    let request = PutRequest { key: vec![b'k', key], value: value.to_vec(), ..PutRequest::default() };
    client.put(request).await.unwrap().header.unwrap().revision
}

/// Flips a bit of every copy of the value that there is in the file of an etcd that runs: nothing there has a checksum, and
/// etcd reads the file through memory.
fn flip_a_bit(database: &Path) {
    let bytes = std::fs::read(database).unwrap();
    let places = bytes.windows(VALUE.len()).enumerate().filter(|(_, window)| *window == VALUE);
    let file = File::options().write(true).open(database).unwrap();
    for (place, _) in places {
        file.write_all_at(&[VALUE[0] ^ 1], place as u64).unwrap();
    }
}

/// The members whose hash is another one than the first member's.
pub(crate) fn others(hashes: &[DataHash]) -> Vec<usize> {
    (0..hashes.len()).filter(|&member| hashes[member].hash != hashes[0].hash).collect()
}

/// Flips the bit until it shows on the second member and on no other. Etcd may have been about to write what it had in memory
/// from before.
async fn differs(database: &Path, tls: &Tls, version: &str) {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        flip_a_bit(database);
        let found = all(&ask(tls).await, version);
        match others(&found)[..] {
            [1] => return,
            [] if Instant::now() < until => tokio::time::sleep(Duration::from_millis(50)).await,
            _ => panic!("{version}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_flipped_bit_shows_on_exactly_the_member_that_has_it_and_one_that_is_down_says_nothing() {
    let test = "hashes::a_flipped_bit_shows_on_exactly_the_member_that_has_it_and_one_that_is_down_says_nothing";
    if !network::is_inside(test, &hosts(3)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let (mut members, client) = with_keys(version, dir.path(), &certificates).await;
        let tls = operator(&certificates);
        let equal = all(&ask(&tls).await, version);
        assert_eq!(others(&equal), [0; 0], "{version}: {equal:?}");
        let ids = equal.iter().map(|found| found.member_id.clone()).collect::<BTreeSet<_>>();
        assert_eq!(ids.len(), 3, "{version}: {equal:?}");
        let of = |found: &DataHash| (found.cluster_id.clone(), found.revision, found.compact_revision);
        assert!(equal.iter().all(|found| of(found) == of(&equal[0]) && found.revision == 4), "{version}: {equal:?}");

        // From now on etcd remembers a hash for the newest revision, from before the bit was lost.
        let everything = CompactionRequest { revision: 4, physical: true };
        client.compact(everything).await.unwrap();
        let database = dir.path().join("data-1/member/snap/db");
        differs(&database, &tls, version).await;
        for key in 0..3 {
            put(&client, key + 10, b"more").await;
            differs(&database, &tls, version).await;
        }

        drop(members.remove(1));
        let found = ask(&tls).await;
        assert!(
            found["etcd-1"].as_ref().is_err_and(|failure| failure.cause.contains("10.0.1.1")),
            "{version}: {found:?}"
        );
        assert_eq!(found["etcd-0"].as_ref().unwrap().hash, found["etcd-2"].as_ref().unwrap().hash, "{version}");
    }
}
