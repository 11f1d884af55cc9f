//! A cluster on which nothing happens.

use std::{collections::BTreeMap, time::Duration};

use quorate_e2e::{Cluster, bed, beside_others, cluster::Kind, eventually};
use serde_json::{Value, json};

/// Writes to objects of a namespace, by who and what, from a position of the API server's audit log onwards.
fn writes(namespace: &str, from: u64) -> BTreeMap<(String, String), usize> {
    let log = std::fs::read(bed::testbed().log("audit")).unwrap();
    let new = String::from_utf8_lossy(&log[usize::try_from(from).unwrap()..]).into_owned();
    let mut counts = BTreeMap::new();
    for entry in new.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let write = ["create", "update", "patch", "delete"].iter().any(|verb| entry["verb"] == *verb);
        if write && entry["objectRef"]["namespace"] == namespace {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            *counts.entry((text(&entry["user"]["username"]), text(&entry["objectRef"]["resource"]))).or_default() += 1;
        }
    }
    counts
}

fn position() -> u64 {
    std::fs::metadata(bed::testbed().log("audit")).unwrap().len()
}

#[test]
fn a_settled_cluster_causes_no_writes_but_the_renewals_of_its_leases() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "settled", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        // Settled: a while without any write by the operator.
        let mut last = position();
        eventually("the operator has nothing left to do", async || {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let quiet = !writes("settled", last).keys().any(|(_, what)| what != "leases");
            last = position();
            quiet.then_some(())
        })
        .await;
        let from = position();
        let renewed = async || cluster.get(Kind::Lease, &cluster.member(0)).await["spec"]["renewTime"].clone();
        // Six renewals are about twenty seconds.
        for _ in 0..6 {
            let before = renewed().await;
            eventually("the Lease is renewed", async || (renewed().await != before).then_some(())).await;
        }
        let seen = writes("settled", from);
        let (leases, others): (Vec<_>, Vec<_>) = seen.into_iter().partition(|((_, what), _)| what == "leases");
        assert!(others.is_empty(), "{others:?}");
        assert!(leases.iter().all(|((who, _), _)| who.ends_with(":db-member")), "{leases:?}");
        let renewals: usize = leases.iter().map(|(_, count)| count).sum();
        assert!(renewals >= 12, "the audit log shows {renewals} renewals of three Leases");
    });
}
