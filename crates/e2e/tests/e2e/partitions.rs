//! Links that break, in one direction or now and then, inside of a pod or to DNS.

use std::{collections::BTreeSet, time::Duration};

use quorate_api::{conditions::ConditionType, status::MemberHealth};
use quorate_e2e::{
    Clients, Cluster, beside_others, eventually,
    faults::{self, Program},
    stays,
};
use serde_json::json;

use crate::scaling::ids;

/// As many as before, and the same ones, as far as any member tells.
async fn are_still_members(cluster: &Cluster, before: &BTreeSet<u64>) -> bool {
    for ordinal in 0..3 {
        let Some(client) = cluster.try_connect(ordinal).await else { continue };
        let Ok(listed) = client.member_list(false).await else { continue };
        if listed.members.iter().map(|member| member.id).collect::<BTreeSet<_>>() != *before {
            return false;
        }
    }
    true
}

#[test]
fn a_follower_and_a_leader_that_are_cut_off_from_their_peers_come_back_as_the_same_members() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "isolated", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let before = ids(&cluster).await;
        let follower = (cluster.leader().await + 1) % 3;
        let etcd = faults::process(&cluster, follower, Program::Etcd).await;
        let cut = faults::isolate_from_peers(&cluster, follower).await;
        eventually("a member without peers is not called ready", async || {
            (cluster.member_status(follower).await?.status != MemberHealth::Ready).then_some(())
        })
        .await;
        clients.have_written(50).await;
        cut.mend();
        cluster.is_whole().await;
        assert_eq!(faults::process(&cluster, follower, Program::Etcd).await, etcd, "it went on running");

        let leader = cluster.leader().await;
        let cut = faults::isolate_from_peers(&cluster, leader).await;
        eventually("another one leads", async || (cluster.leader().await != leader).then_some(())).await;
        clients.have_written(50).await;
        cut.mend();
        cluster.is_whole().await;
        assert_eq!(ids(&cluster).await, before, "the same members");
        clients.were_told_the_truth().await;
    });
}

#[test]
fn an_etcd_that_its_agent_does_not_reach_is_not_ready_and_not_stopped() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "agent-cut-off", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let (before, victim) = (ids(&cluster).await, cluster.leader().await);
        let etcd = faults::process(&cluster, victim, Program::Etcd).await;
        let uid = cluster.pod(victim).await["metadata"]["uid"].clone();

        let cut = faults::close_to_agent(&cluster, victim).await;
        eventually("it is not called ready", async || {
            (cluster.member_status(victim).await?.status != MemberHealth::Ready).then_some(())
        })
        .await;
        clients.have_written(50).await;
        assert!(cluster.is(ConditionType::Ready, "True").await);
        assert_eq!(faults::process(&cluster, victim, Program::Etcd).await, etcd, "a sound etcd was stopped");
        cut.mend();
        cluster.is_whole().await;
        assert_eq!(faults::process(&cluster, victim, Program::Etcd).await, etcd, "a sound etcd was stopped");
        assert_eq!(cluster.pod(victim).await["metadata"]["uid"], uid);
        assert_eq!(ids(&cluster).await, before, "the same members");
        clients.were_told_the_truth().await;
    });
}

#[test]
fn members_that_can_look_up_no_names_keep_the_links_that_they_have() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "nameless", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let before = ids(&cluster).await;
        let mut cuts = Vec::new();
        for ordinal in 0..3 {
            cuts.push(faults::without_names(&cluster, ordinal).await);
        }
        // Longer than it takes until a member that is not heard of is missed.
        stays("nobody is removed", Duration::from_secs(15), async || are_still_members(&cluster, &before).await).await;
        clients.have_written(50).await;
        cluster.is_whole().await;
        cuts.into_iter().for_each(faults::Isolated::mend);
        cluster.is_whole().await;
        assert_eq!(ids(&cluster).await, before, "the same members");
        clients.were_told_the_truth().await;
    });
}

#[test]
#[ignore = "takes minutes: make campaign"]
fn links_that_lose_packets_or_work_one_way_cost_no_member_its_place() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "lossy", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let before = ids(&cluster).await;
        let nobody_goes = async || {
            let long = Duration::from_secs(20);
            stays("nobody is removed", long, async || are_still_members(&cluster, &before).await).await;
        };
        for victim in [cluster.leader().await, (cluster.leader().await + 1) % 3] {
            let cut = faults::deafen(&cluster, victim).await;
            nobody_goes().await;
            clients.have_written(50).await;
            cut.mend();
            cluster.is_whole().await;
        }
        let mut cuts = Vec::new();
        for ordinal in 0..3 {
            cuts.push(faults::lose_packets(&cluster, ordinal).await);
        }
        nobody_goes().await;
        clients.have_written(50).await;
        cuts.into_iter().for_each(faults::Isolated::mend);
        cluster.is_whole().await;
        assert_eq!(ids(&cluster).await, before, "the same members");
        clients.were_told_the_truth().await;
    });
}
