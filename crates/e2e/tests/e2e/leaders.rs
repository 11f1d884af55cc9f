//! Leaders that die or freeze while clients write.

use quorate_e2e::{
    Clients, Cluster, beside_others, eventually,
    faults::{self, Program},
};
use rustix::process::Signal;
use serde_json::json;

use crate::scaling::{ids, scale, settles_at};

/// Who of them leads by its own word. The status may be a moment behind.
async fn leader_among(cluster: &Cluster, ordinals: &[i32]) -> i32 {
    eventually("one of them says that it leads", async || {
        for ordinal in ordinals {
            let Some(client) = cluster.try_connect(*ordinal).await else { continue };
            let Ok(status) = client.status().await else { continue };
            if status.header.is_some_and(|header| header.member_id == status.leader) {
                return Some(*ordinal);
            }
        }
        None
    })
    .await
}

#[test]
fn leaders_that_are_killed_in_a_row_and_one_that_freezes_cost_no_write() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "dying-leaders", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let before = ids(&cluster).await;
        for _ in 0..3 {
            let leader = leader_among(&cluster, &[0, 1, 2]).await;
            let killed = faults::signal(&cluster, leader, Program::Etcd, Signal::KILL).await;
            clients.have_written(50).await;
            eventually("a new etcd runs", async || {
                faults::process(&cluster, leader, Program::Etcd).await.filter(|now| *now != killed)
            })
            .await;
            cluster.is_whole().await;
        }

        let leader = leader_among(&cluster, &[0, 1, 2]).await;
        let process = faults::process(&cluster, leader, Program::Etcd).await.unwrap();
        let frozen = faults::freeze(process);
        let others = (0..3).filter(|ordinal| *ordinal != leader).collect::<Vec<_>>();
        leader_among(&cluster, &others).await;
        clients.have_written(50).await;
        frozen.thaw();
        clients.have_written(50).await;
        cluster.is_whole().await;
        assert_eq!(faults::process(&cluster, leader, Program::Etcd).await, Some(process), "it was left alone");
        assert_eq!(ids(&cluster).await, before, "the same members");
        clients.were_told_the_truth().await;
    });
}

#[test]
fn a_leader_that_dies_while_a_learner_is_listed_keeps_nobody_from_joining() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "learners-leader", json!({ "replicas": 3, "spread": "None" })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let before = ids(&cluster).await;
        let leader = leader_among(&cluster, &[0, 1, 2]).await;
        let witness = cluster.connect((leader + 1) % 3).await;
        scale(&cluster, 5).await;
        eventually("a learner is listed", async || {
            let listed = witness.member_list(false).await.ok()?.members;
            listed.iter().any(|member| member.is_learner).then_some(())
        })
        .await;
        faults::signal(&cluster, leader, Program::Etcd, Signal::KILL).await;
        clients.have_written(50).await;
        settles_at(&cluster, 5).await;
        assert!(before.is_subset(&ids(&cluster).await), "those that were there are still there");
        clients.were_told_the_truth().await;
    });
}
