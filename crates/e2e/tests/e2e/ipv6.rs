//! Where there are no addresses but those of IPv6.

use std::net::Ipv6Addr;

use quorate_e2e::{Cluster, Keys, cluster::Kind, on_ipv6};
use serde_json::json;

#[test]
fn members_find_each_other_serve_and_return_where_there_are_only_addresses_of_ipv6() {
    on_ipv6(async |bed| {
        let cluster = Cluster::create(&bed, "only-ipv6", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        for ordinal in 0..3 {
            let pod = cluster.pod(ordinal).await;
            let addresses = pod["status"]["podIPs"].as_array().unwrap();
            assert!(addresses.iter().all(|one| one["ip"].as_str().unwrap().parse::<Ipv6Addr>().is_ok()), "{pod:#}");
        }
        let mut keys = Keys::default();
        keys.write(&cluster, 20).await;
        let victim = cluster.leader().await;
        cluster.kubernetes.delete(&cluster.path(Kind::Pod, &cluster.member(victim))).await;
        keys.write(&cluster, 20).await;
        cluster.is_whole().await;
        keys.is_held_by_all(&cluster).await;
    });
}
