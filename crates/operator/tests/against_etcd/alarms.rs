//! Alarms outlive the members that they are about, until the operator disarms them.

use quorate_core::action::MemberChange;
use quorate_etcd::client::{Client, Code};
use quorate_etcd::pb::rpc::kv::PutRequest;
use quorate_etcd::pb::rpc::maintenance::{AlarmAction, AlarmMember, AlarmType};

use crate::changes::{id, in_the_end, list, remove, take};
use crate::etcd_process::VERSIONS;
use crate::hashes::{all, ask, others, put, with_keys};
use crate::members::{Certificates, hosts, requests};
use crate::network;
use crate::peers::{operator, quorum};

async fn writes_are_refused(client: &Client, what: &str) {
    let request = PutRequest { key: b"k".to_vec(), value: b"v".to_vec(), ..PutRequest::default() };
    let refused = client.put(request).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::DataLoss), "{what}: {refused}");
}

#[tokio::test]
async fn a_corrupt_member_can_be_compared_with_and_removed_and_only_then_its_alarm_is_disarmed() {
    let test = "alarms::a_corrupt_member_can_be_compared_with_and_removed_and_only_then_its_alarm_is_disarmed";
    if !network::is_inside(test, &hosts(3)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let (members, client) = with_keys(version, dir.path(), &certificates).await;
        let three = list(&certificates, 0).await;
        let corrupt = id(&three, 1);
        let number = u64::from_str_radix(&corrupt, 16).unwrap();
        // As etcd does it when its own comparison fails.
        let alarm = AlarmMember { member_id: number, alarm: AlarmType::Corrupt.into() };
        client.alarm(AlarmAction::Activate, alarm).await.unwrap();
        writes_are_refused(&client, version).await;
        let told = client.status().await.unwrap().errors;
        let told = told.iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
        assert_eq!(told, [format!("memberID:{number} alarm:CORRUPT")], "{version}: this is what the core reads");

        let hashes = all(&ask(&operator(&certificates)).await, version);
        assert_eq!(others(&hashes), [0; 0], "{version}: hashes are given all the same");
        in_the_end(&certificates, &remove(&three, 1), &[0], &three).await.unwrap();
        // It may have led.
        let two = quorum(version, &members, 0, &operator(&certificates)).await;
        assert_eq!(two.members.len(), 2, "{version}");
        assert_eq!(client.alarms().await.unwrap().alarms.len(), 1, "{version}: it outlives the member");
        writes_are_refused(&client, version).await;

        let disarm = MemberChange::DisarmCorrupt { id: corrupt };
        in_the_end(&certificates, &disarm, &[0], &two).await.unwrap();
        assert_eq!(client.alarms().await.unwrap().alarms.len(), 0, "{version}");
        put(&client, 9, b"and it goes on").await;
        take(&certificates, disarm, &[0], &two).await.unwrap();
    }
}
