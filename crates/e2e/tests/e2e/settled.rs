//! A cluster on which nothing happens.

use std::time::Duration;

use quorate_e2e::{
    Cluster,
    audit::{Position, Write, position, writes_since},
    beside_others,
    cluster::Kind,
    eventually,
};
use serde_json::json;

fn writes(from: Position) -> Vec<Write> {
    writes_since(from).into_iter().filter(|write| write.namespace == "settled").collect()
}

#[test]
fn a_settled_cluster_causes_no_writes_but_the_renewals_of_its_leases() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "settled", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        // Settled: a while without any write, longer than an agent takes to ask again who the members are.
        let mut last = position();
        eventually("nobody has anything left to say", async || {
            tokio::time::sleep(Duration::from_secs(8)).await;
            let quiet = writes(last).iter().all(|write| write.resource == "leases");
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
        let (leases, others): (Vec<_>, Vec<_>) = writes(from).into_iter().partition(|write| write.resource == "leases");
        assert!(others.is_empty(), "{others:?}");
        assert!(leases.iter().all(|write| write.user.ends_with(":db-member")), "{leases:?}");
        let renewals = leases.len();
        assert!(renewals >= 12, "the audit log shows {renewals} renewals of three Leases");
    });
}
