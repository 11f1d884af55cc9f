//! Volumes that are old, somebody else's, or damaged.

use std::{fs, fs::File, os::unix::fs::FileExt, path::Path, time::Duration};

use quorate_api::{
    conditions::ConditionType,
    names::annotations,
    status::{LatchState, MemberHealth},
};
use quorate_e2e::{
    Clients, Cluster, beside_others,
    cluster::Kind,
    eventually,
    faults::{self, Program},
    stays,
};
use rustix::process::Signal;
use serde_json::json;

async fn data_becomes(cluster: &Cluster, ordinal: i32, state: &str) -> String {
    eventually(&format!("the data of {} is {state}", cluster.member(ordinal)), async || {
        let member = cluster.find(Kind::EtcdMember, &cluster.member(ordinal)).await?;
        let data = &member["status"]["data"];
        (data["state"] == state).then(|| data["reason"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

async fn id(cluster: &Cluster, ordinal: i32) -> Option<String> {
    cluster.member_status(ordinal).await?.id
}

async fn another_takes_its_place(cluster: &Cluster, ordinal: i32, before: Option<&str>) {
    eventually("another member has taken its place", async || {
        let now = cluster.member_status(ordinal).await?;
        (now.id.as_deref() != before && now.status == MemberHealth::Ready).then_some(())
    })
    .await;
    cluster.is_whole().await;
}

/// Without a copy: nothing runs, nothing begins, and the status asks for a human.
async fn stays_down(cluster: &Cluster) {
    eventually("the status says that no copy is left", async || {
        let (state, reason) = cluster.condition(ConditionType::Stalled).await?;
        (state == "True" && reason == "NoCopyLeft").then_some(())
    })
    .await;
    let size = cluster.size().await;
    stays("nothing begins anew", Duration::from_secs(10), async || {
        for ordinal in 0..size {
            if faults::process(cluster, ordinal, Program::Etcd).await.is_some() {
                return false;
            }
        }
        true
    })
    .await;
    assert!(cluster.is(ConditionType::Ready, "False").await);
    assert!(cluster.status().await.data_loss.is_none(), "nothing was recovered");
}

#[test]
fn if_all_three_volumes_are_wiped_nothing_begins_anew() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "all-wiped", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        tokio::join!(faults::wipe(&cluster, 0), faults::wipe(&cluster, 1), faults::wipe(&cluster, 2));
        for ordinal in 0..3 {
            data_becomes(&cluster, ordinal, "Empty").await;
        }
        stays_down(&cluster).await;
        // Whether a recovery was begun depends on who said first that it is empty; it must not have come to anything.
        let latch = cluster.status().await.latch.unwrap();
        assert!(latch.epoch == 1 || latch.state != LatchState::Formed, "{latch:?}");
    });
}

#[test]
fn a_volume_that_goes_back_while_another_member_lags_is_fenced_and_no_write_is_forgotten() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "rolled-back", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let leader = cluster.leader().await;
        let (victim, late) = ((leader + 1) % 3, (leader + 2) % 3);
        let before = id(&cluster, victim).await;
        let still = faults::freeze(faults::process(&cluster, victim, Program::Etcd).await.unwrap());
        let kept = faults::keep(&faults::volume(&cluster, victim).await);
        still.thaw();
        clients.have_written(50).await;
        cluster.is_whole().await;

        // From here on, what is acknowledged is known to the leader and the victim alone.
        let lags = faults::freeze(faults::process(&cluster, late, Program::Etcd).await.unwrap());
        clients.have_written(50).await;
        let client = cluster.connect(victim).await;
        let applied = eventually("the victim answers", async || client.status().await).await.raft_applied_index;
        eventually("how far it has got is on record", async || {
            let lease = cluster.find(Kind::Lease, &cluster.member(victim)).await?;
            let recorded = lease["metadata"]["annotations"][annotations::LAST_INDEX].as_str()?.parse::<u64>().ok()?;
            (recorded >= applied).then_some(())
        })
        .await;
        let halted = faults::halt(&cluster, victim).await;
        faults::signal(&cluster, leader, Program::Etcd, Signal::KILL).await;
        faults::put_back(&halted.volume, &kept);
        // With the victim as it was, this one would be a majority that has forgotten.
        lags.thaw();
        halted.resume();

        data_becomes(&cluster, victim, "Fenced").await;
        clients.have_written(50).await;
        another_takes_its_place(&cluster, victim, before.as_deref()).await;
        clients.were_told_the_truth().await;
    });
}

/// What was on the volume and is somebody else's lies beside the data, as it was.
fn is_put_aside(volume: &Path, owner: &str) -> bool {
    let entries = fs::read_dir(volume).unwrap().flatten();
    let aside = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("quarantine-"));
    let mut records = aside.filter_map(|entry| {
        entry.path().join("data/member").is_dir().then(|| fs::read_to_string(entry.path().join("quorate.json")).ok())?
    });
    records.any(|record| record.contains(&format!("\"{owner}\"")))
}

#[test]
#[ignore = "takes minutes: make campaign"]
fn members_that_get_each_others_volumes_are_replaced_and_what_they_got_is_kept() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "exchanged", json!({ "replicas": 3 })).await;
        let other = Cluster::named(&bed, "exchanged", "other");
        other.apply(json!({ "replicas": 3 })).await;
        let both = [&cluster, &other];
        let (mut clients, mut victims) = (Vec::new(), Vec::new());
        for one in both {
            one.is_whole().await;
            clients.push(Clients::of(one).await);
            let ordinal = (one.leader().await + 1) % 3;
            victims.push((ordinal, id(one, ordinal).await));
        }
        let halted = (faults::halt(&cluster, victims[0].0).await, faults::halt(&other, victims[1].0).await);
        faults::exchange(&halted.0.volume, &halted.1.volume);
        for of_one in &clients {
            of_one.have_written(50).await;
        }
        halted.0.resume();
        halted.1.resume();
        let owners = [other.member(victims[1].0), cluster.member(victims[0].0)];
        for (one, ((victim, _), owner)) in both.iter().zip(victims.iter().zip(&owners)) {
            let said = data_becomes(one, *victim, "Foreign").await;
            assert!(said.contains(&format!("belongs to member {owner}")), "{said}");
        }
        for (one, ((victim, before), owner)) in both.iter().zip(victims.iter().zip(&owners)) {
            another_takes_its_place(one, *victim, before.as_deref()).await;
            assert!(is_put_aside(&faults::volume(one, *victim).await, owner), "what {owner} had is gone");
        }
        for of_one in clients {
            of_one.were_told_the_truth().await;
        }
    });
}

#[test]
fn a_damaged_database_that_is_the_only_one_is_left_as_it_is_until_somebody_mends_it() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "damaged-alone", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let halted = faults::halt(&cluster, 0).await;
        let place = "data/member/snap/db";
        let sound = fs::read(halted.volume.join(place)).unwrap();
        // Both copies of the page that all others are found from.
        let file = File::options().write(true).open(halted.volume.join(place)).unwrap();
        file.write_all_at(&[0xff; 8192], 0).unwrap();
        let damaged = fs::read(halted.volume.join(place)).unwrap();
        halted.resume();

        data_becomes(&cluster, 0, "Damaged").await;
        stays_down(&cluster).await;
        let volume = faults::volume(&cluster, 0).await;
        assert!(fs::read(volume.join(place)).unwrap() == damaged, "what is left of the data was touched");

        let halted = faults::halt(&cluster, 0).await;
        File::options().write(true).open(halted.volume.join(place)).unwrap().write_all_at(&sound, 0).unwrap();
        halted.resume();
        cluster.is_whole().await;
        clients.have_written(50).await;
        clients.were_told_the_truth().await;
    });
}
