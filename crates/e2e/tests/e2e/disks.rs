//! Disks of members that are slow, or fail.

use quorate_e2e::{
    Clients, Cluster, beside_others,
    disk::{self, Sync},
    eventually,
    faults::{self, Program},
};
use serde_json::json;

use crate::scaling::ids;

#[test]
fn disks_that_are_slow_to_sync_on_all_members_or_on_the_leader_cost_no_write_and_no_member() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "slow-disks", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let before = ids(&cluster).await;
        let mut slow = Vec::new();
        for ordinal in 0..3 {
            slow.push(disk::of(&cluster, ordinal, Sync::Slow { milliseconds: 150 }).await);
        }
        clients.have_written(50).await;
        drop(slow);
        cluster.is_whole().await;
        let slow = disk::of(&cluster, cluster.leader().await, Sync::Slow { milliseconds: 1000 }).await;
        clients.have_written(50).await;
        slow.mend();
        cluster.is_whole().await;
        assert_eq!(ids(&cluster).await, before, "nobody is removed for being slow");
        clients.were_told_the_truth().await;
    });
}

#[test]
fn a_sync_that_fails_on_the_leader_or_on_all_members_costs_no_write_and_no_member() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "failing-disks", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let before = (ids(&cluster).await, cluster.status().await.epoch);
        let leader = cluster.leader().await;
        for bad in [vec![leader], vec![0, 1, 2]] {
            let mut ended = Vec::new();
            for ordinal in bad {
                let etcd = faults::process(&cluster, ordinal, Program::Etcd).await;
                ended.push((ordinal, etcd, disk::of(&cluster, ordinal, Sync::Fails).await));
            }
            for (ordinal, etcd, disk) in ended {
                eventually("etcd has ended and is started again", async || {
                    let now = faults::process(&cluster, ordinal, Program::Etcd).await;
                    (now.is_some() && now != etcd).then_some(())
                })
                .await;
                disk.mend();
            }
            clients.have_written(50).await;
            cluster.is_whole().await;
        }
        let after = (ids(&cluster).await, cluster.status().await.epoch);
        assert_eq!(after, before, "what is on the disks is as good as before");
        clients.were_told_the_truth().await;
    });
}
