//! From an `EtcdCluster` to one that serves.

use quorate_api::{conditions::ConditionType, names::secrets, status::MemberRole};
use quorate_e2e::{
    Cluster, Keys,
    bed::{self, Place},
    beside_others,
    cluster::{Kind, client},
    data::{get, put, tls_answer},
    eventually,
};
use quorate_etcd::client::Tls;
use serde_json::json;

#[test]
fn three_members_form_from_nothing_but_replicas_and_serve_over_tls() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "three-members", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 20).await;
        keys.is_held_by_all(&cluster).await;

        let status = cluster.status().await;
        assert_eq!((status.replicas, status.ready_replicas, status.cluster_size), (3, 3, Some(3)));
        assert_eq!(status.members.iter().filter(|member| member.role == Some(MemberRole::Leader)).count(), 1);
        let known = cluster.connect(0).await.member_list(true).await.unwrap();
        let mut ids: Vec<_> = known.members.iter().map(|member| format!("{:x}", member.id)).collect();
        let mut reported: Vec<_> = status.members.iter().filter_map(|member| member.id.clone()).collect();
        ids.sort();
        reported.sort();
        assert_eq!(ids, reported, "the ids etcd knows, and those in the status");

        let mut nodes = Vec::new();
        for ordinal in 0..3 {
            nodes.push(cluster.pod(ordinal).await["spec"]["nodeName"].as_str().unwrap().to_owned());
        }
        nodes.sort();
        assert_eq!(nodes, ["node1", "node2", "node3"], "members are spread over the nodes");
    });
}

#[test]
fn a_member_is_not_the_first_to_be_evicted_and_its_quota_fits_its_volume() {
    beside_others(async |bed| {
        let spec = json!({
            "replicas": 1,
            "storage": { "volumeClaimTemplate": { "size": "4Gi" } },
            "podTemplate": { "priorityClassName": "system-node-critical" },
        });
        let cluster = Cluster::create(&bed, "well-provided", spec).await;
        cluster.is_whole().await;
        let pod = cluster.pod(0).await;
        assert_eq!(pod["status"]["qosClass"], "Burstable");
        assert!(pod["spec"]["priority"].as_i64().unwrap() > 2_000_000_000, "that of the class");
        assert!(pod.to_string().contains(&format!("\\\"quotaBytes\\\":{}", 1792 << 20)), "{pod:#}");
    });
}

#[test]
fn an_application_reaches_the_cluster_through_its_service_and_its_secret() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "through-service", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let (address, tls) = (cluster.service_address().await, cluster.tls().await);
        let read = bed::inside(Place::Node(2), async move || {
            let client = client(&address, Some(tls));
            eventually("a put through the Service is acknowledged", async || put(&client, b"key", b"value").await.ok())
                .await;
            get(&client, b"key").await.unwrap()
        });
        assert_eq!(read.as_deref(), Some(b"value".as_slice()));
    });
}

#[test]
fn plain_text_a_wrong_authority_and_a_missing_certificate_are_refused() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "refused", json!({ "replicas": 1 })).await;
        let other = Cluster::named(&bed, "refused", "other");
        other.apply(json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        other.is_whole().await;
        let (good, foreign) = (cluster.tls().await, other.tls().await);
        put(&cluster.connect_with(0, Some(good.clone())).await, b"key", b"value").await.unwrap();

        let with_foreign_certificate = Tls { identity: foreign.identity.clone(), ..good.clone() };
        let without_certificate = Tls { identity: None, ..good.clone() };
        let trusting_others = Tls { ca: foreign.ca, ..good.clone() };
        let peer = cluster.tls_of(&secrets::peer_client(&cluster.name)).await;
        let as_peer = Tls { identity: peer.identity, ..good.clone() };
        for (who, tls) in [
            ("plain text", None),
            ("a certificate of another cluster", Some(with_foreign_certificate)),
            ("no certificate", Some(without_certificate)),
            ("a client that trusts another cluster", Some(trusting_others)),
            ("a member's certificate on the client port", Some(as_peer)),
        ] {
            let refused = put(&cluster.connect_with(0, tls).await, b"key", b"stolen").await;
            assert!(refused.is_err(), "{who} was let in");
        }
        assert_eq!(get(&cluster.connect(0).await, b"key").await.unwrap().as_deref(), Some(b"value".as_slice()));
    });
}

#[test]
fn a_client_certificate_cannot_speak_as_a_peer() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "not-a-peer", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let peer = cluster.tls_of(&secrets::peer_client(&cluster.name)).await;
        let address = cluster.pod(0).await["status"]["podIP"].as_str().unwrap().to_owned();
        let own = format!("{}.{}-peer.{}.svc", cluster.member(0), cluster.name, cluster.namespace);
        let answer = async |tls: Tls| tls_answer(&address, 2380, &tls, &own);
        let taken = answer(peer.clone()).await;
        assert!(taken.is_ok(), "a member's own certificate was not taken: {taken:?}");
        let client = cluster.tls().await;
        let refused = answer(Tls { identity: client.identity, ..peer }).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("alert")), "a client's certificate was taken");
    });
}

#[test]
fn five_members_form_and_serve() {
    beside_others(async |bed| {
        let spec = json!({ "replicas": 5, "spread": "None" });
        let cluster = Cluster::create(&bed, "five-members", spec).await;
        cluster.is_whole().await;
        let mut keys = Keys::default();
        keys.write(&cluster, 10).await;
        keys.is_held_by_all(&cluster).await;
        assert_eq!(cluster.connect(4).await.member_list(true).await.unwrap().members.len(), 5);
    });
}

#[test]
fn without_tls_a_cluster_serves_in_plain_text_and_makes_no_secrets() {
    beside_others(async |bed| {
        let cluster =
            Cluster::create(&bed, "plain-text", json!({ "replicas": 1, "tls": { "mode": "Disabled" } })).await;
        cluster.is_whole().await;
        let client = cluster.connect_with(0, None).await;
        put(&client, b"key", b"value").await.unwrap();
        assert_eq!(bed.kubernetes.list(&cluster.all(Kind::Secret)).await, Vec::<serde_json::Value>::new());
    });
}

#[test]
fn every_step_of_forming_is_an_event() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "events", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        for reason in ["BootstrapIssued", "BootstrapAllowed", "Formed", "Quorate", "LeaderElected"] {
            eventually(&format!("there is an event {reason}"), async || {
                let events = bed.kubernetes.list(&cluster.all(Kind::Event)).await;
                events.iter().any(|event| event["reason"] == reason).then_some(())
            })
            .await;
        }
        assert!(cluster.is(ConditionType::Ready, "True").await);
    });
}
