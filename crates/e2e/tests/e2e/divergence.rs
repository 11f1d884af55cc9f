//! A member that has lost a bit, and does not know.

use std::{fs, fs::File, os::unix::fs::FileExt};

use quorate_api::{conditions::ConditionType, member::DataState, names::annotations, status::MemberHealth};
use quorate_e2e::{
    Clients, Cluster, beside_others,
    cluster::Kind,
    data, eventually,
    faults::{self, Program},
};
use quorate_etcd::pb::rpc::maintenance::{AlarmAction, AlarmMember, AlarmType};
use serde_json::json;

const VALUE: &[u8] = b"a value that one of the members will remember differently";

async fn compare_now(cluster: &Cluster, value: &str) {
    let annotation = json!({ "metadata": { "annotations": { annotations::COMPARE_NOW: value } } });
    cluster.kubernetes.patch(&cluster.own_path(), &annotation).await;
    eventually("the members have been compared", async || {
        let known = cluster.status().await.consistency?;
        (known.requested.as_deref() == Some(value) && known.failure.is_none()).then_some(())
    })
    .await;
}

/// Flips a bit of a stored value in the file of a member that runs.
async fn flip_a_bit(cluster: &Cluster, ordinal: i32) {
    let database = faults::volume(cluster, ordinal).await.join("data/member/snap/db");
    let etcd = faults::process(cluster, ordinal, Program::Etcd).await.unwrap();
    eventually("the value is in the file", async || {
        // It must not put another page where the value was found.
        let _still = faults::freeze(etcd);
        let bytes = fs::read(&database).unwrap();
        let places = bytes.windows(VALUE.len()).enumerate().filter(|(_, window)| *window == VALUE);
        let places = places.map(|(place, _)| place as u64).collect::<Vec<_>>();
        let file = File::options().write(true).open(&database).unwrap();
        for place in &places {
            file.write_all_at(&[VALUE[0] ^ 1], *place).unwrap();
        }
        (!places.is_empty()).then_some(())
    })
    .await;
}

#[test]
fn a_member_whose_data_differs_is_fenced_and_replaced_and_the_others_serve() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "diverged", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let leader = cluster.leader().await;
        let victim = (leader + 1) % 3;
        data::put(&cluster.connect(leader).await, b"differs", VALUE).await.unwrap();
        let clients = Clients::of(&cluster).await;
        // So many that the page with the value is full, and is not written again.
        clients.have_written(200).await;

        compare_now(&cluster, "before").await;
        assert!(cluster.status().await.consistency.unwrap().differing.is_empty(), "all have the same data");

        let before = cluster.member_status(victim).await.unwrap().id;
        flip_a_bit(&cluster, victim).await;
        compare_now(&cluster, "after").await;
        eventually("the member is fenced", async || {
            let member = cluster.find(Kind::EtcdMember, &cluster.member(victim)).await?;
            let data = &member["status"]["data"];
            (data["state"] == json!(DataState::Fenced) && data["diverged"] == true).then_some(())
        })
        .await;
        clients.have_written(50).await;
        cluster.becomes(ConditionType::Ready, "True").await;
        for ordinal in (0..3).filter(|ordinal| *ordinal != victim) {
            let value = data::get(&cluster.connect(ordinal).await, b"differs").await.unwrap();
            assert_eq!(value.as_deref(), Some(VALUE), "{}", cluster.member(ordinal));
        }

        eventually("another member has taken its place", async || {
            let now = cluster.member_status(victim).await?;
            (now.id != before && now.status == MemberHealth::Ready).then_some(())
        })
        .await;
        cluster.is_whole().await;
        let value = data::get(&cluster.connect(victim).await, b"differs").await.unwrap();
        assert_eq!(value.as_deref(), Some(VALUE), "what it holds now is what the others hold");
        compare_now(&cluster, "in the end").await;
        assert!(cluster.status().await.consistency.unwrap().differing.is_empty(), "all have the same data again");
        clients.were_told_the_truth().await;
    });
}

#[test]
fn a_member_that_etcd_calls_corrupt_is_replaced_and_writes_go_on() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "corrupt", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let leader = cluster.leader().await;
        let victim = (leader + 1) % 3;
        let client = cluster.connect(leader).await;
        let before = cluster.member_status(victim).await.unwrap().id.unwrap();
        // As etcd does it when its own comparison fails: from now on nobody can write.
        let member_id = u64::from_str_radix(&before, 16).unwrap();
        let alarm = AlarmMember { member_id, alarm: AlarmType::Corrupt.into() };
        client.alarm(AlarmAction::Activate, alarm).await.unwrap();
        eventually("another member has taken its place", async || {
            let now = cluster.member_status(victim).await?;
            (now.id.as_ref() != Some(&before) && now.status == MemberHealth::Ready).then_some(())
        })
        .await;
        cluster.is_whole().await;
        assert_eq!(client.alarms().await.unwrap().alarms, [], "it has ended with the member");
        clients.have_written(50).await;
        clients.were_told_the_truth().await;
    });
}
