//! The client against real servers, over mutual TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod etcd_process;

use std::fs;
use std::path::Path;
use std::time::Duration;

use etcd_process::{Running, Server, VERSIONS};
use quorate_etcd::client::{Client, ClientError, Code, Options, Tls, WHOLE_KEYSPACE, WatchMessage, prefix_end};
use quorate_etcd::pb::auth::{Permission, PermissionType, UserAddOptions};
use quorate_etcd::pb::mvcc::EventType;
use quorate_etcd::pb::rpc::auth::{RoleRevokePermissionRequest, UserAddRequest, UserChangePasswordRequest};
use quorate_etcd::pb::rpc::kv::{
    CompactionRequest, Compare, CompareOperand, CompareResult, CompareTarget, DeleteRangeRequest, PutRequest,
    RangeRequest, Request, Response, TxnRequest,
};
use quorate_etcd::pb::rpc::lease::LeaseGrantRequest;
use quorate_etcd::pb::rpc::maintenance::{AlarmAction, AlarmMember, AlarmType, DowngradeAction, DowngradeRequest};
use quorate_etcd::pb::rpc::watch::WatchCreateRequest;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use sha2::{Digest, Sha256};

struct Certificates {
    ca: String,
    server: (String, String),
    client: (String, String),
}

fn certificates() -> Certificates {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca_pem = ca.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(ca, key);
    let leaf = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut leaf = CertificateParams::new(names).unwrap();
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        (leaf.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    Certificates { server: leaf(&["localhost", "127.0.0.1"]), client: leaf(&["quorate"]), ca: ca_pem }
}

struct Secured {
    running: Running,
    certificates: Certificates,
    _dir: tempfile::TempDir,
}

impl Secured {
    fn start(version: &str) -> Self {
        let (dir, certificates) = (tempfile::tempdir().unwrap(), certificates());
        let write = |name: &str, text: &str| {
            fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name).to_str().unwrap().to_owned()
        };
        let mut server = Server::single(version, &dir.path().join("data"));
        server.client_url = server.client_url.replace("http:", "https:");
        server.extra = vec![
            "--client-cert-auth".to_owned(),
            format!("--trusted-ca-file={}", write("ca.pem", &certificates.ca)),
            format!("--cert-file={}", write("server.pem", &certificates.server.0)),
            format!("--key-file={}", write("server.key", &certificates.server.1)),
        ];
        Self { running: server.start(), certificates, _dir: dir }
    }

    fn tls(&self) -> Tls {
        let (certificate, key) = self.certificates.client.clone();
        Tls {
            ca: self.certificates.ca.clone().into_bytes(),
            identity: Some((certificate.into_bytes(), key.into_bytes())),
            server_name: None,
        }
    }

    fn client(&self) -> Client {
        Client::new(Options::new(&self.running.server.client_url).tls(self.tls())).unwrap()
    }
}

fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> PutRequest {
    PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() }
}

fn everything() -> WatchCreateRequest {
    let (key, end) = WHOLE_KEYSPACE;
    WatchCreateRequest {
        key: key.to_vec(),
        range_end: end.to_vec(),
        start_revision: 1,
        ..WatchCreateRequest::default()
    }
}

#[tokio::test]
async fn keys_leases_and_transactions_behave_as_the_protocol_says() {
    for version in VERSIONS {
        let etcd = Secured::start(version);
        let client = etcd.client();
        let header = client.put(put("a", "1")).await.unwrap().header.unwrap();
        assert_eq!(header.revision, 2);
        let lease = client.lease_grant(LeaseGrantRequest { ttl: 60, id: 77 }).await.unwrap();
        assert_eq!((lease.id, lease.ttl, lease.error.as_str()), (77, 60, ""));
        client.put(PutRequest { lease: 77, ..put("b", [0, 255]) }).await.unwrap();
        assert_eq!(client.leases().await.unwrap().leases.len(), 1);
        let alive = client.lease_time_to_live(77, true).await.unwrap();
        assert_eq!((alive.granted_ttl, alive.keys), (60, vec![b"b".to_vec()]));
        assert_eq!(client.lease_keep_alive(77).await.unwrap().ttl, 60);

        let txn = TxnRequest {
            compare: vec![Compare {
                result: CompareResult::Equal.into(),
                target: CompareTarget::Mod.into(),
                key: b"a".to_vec(),
                operand: Some(CompareOperand::ModRevision(2)),
                range_end: Vec::new(),
            }],
            success: vec![
                Request::Put(put("a", "2")).into(),
                Request::Range(RangeRequest { key: b"b".to_vec(), ..RangeRequest::default() }).into(),
            ],
            failure: Vec::new(),
        };
        let answer = client.txn(txn).await.unwrap();
        assert!(answer.succeeded);
        let Some(Response::Range(range)) = &answer.responses[1].response else { panic!("{answer:?}") };
        assert_eq!((range.kvs[0].value.as_slice(), range.kvs[0].lease), (&[0, 255][..], 77));

        client.lease_revoke(77).await.unwrap();
        assert_eq!(client.lease_keep_alive(77).await.unwrap().ttl, 0);
        let old =
            RangeRequest { key: b"a".to_vec(), range_end: prefix_end(b"a"), revision: 2, ..RangeRequest::default() };
        assert_eq!(client.range(old.clone()).await.unwrap().kvs[0].value, b"1");
        client.compact(CompactionRequest { revision: 4, physical: true }).await.unwrap();
        let error = client.range(old).await.unwrap_err();
        assert_eq!(error.code(), Some(Code::OutOfRange), "{error}");
        let all = DeleteRangeRequest { key: vec![0], range_end: vec![0], prev_kv: true };
        assert_eq!(client.delete_range(all).await.unwrap().deleted, 1);
    }
}

#[tokio::test]
async fn a_revision_larger_than_a_message_arrives_in_fragments_and_whole() {
    for version in VERSIONS {
        let etcd = Secured::start(version);
        let client = etcd.client();
        // Together with the previous values, one revision that deletes everything is far larger than a message.
        let keys = 110;
        let value = vec![b'v'; 12 << 10];
        let ops = (0..keys).map(|n| Request::Put(put(format!("k{n:04}"), value.clone())).into()).collect();
        client.txn(TxnRequest { success: ops, ..TxnRequest::default() }).await.unwrap();
        for round in 0..3 {
            let ops = (0..keys).map(|n| Request::Put(put(format!("k{n:04}-{round}"), value.clone())).into()).collect();
            client.txn(TxnRequest { success: ops, ..TxnRequest::default() }).await.unwrap();
        }
        let all = DeleteRangeRequest { key: vec![0], range_end: vec![0], prev_kv: false };
        client.delete_range(all).await.unwrap();

        let create = WatchCreateRequest { prev_kv: true, ..everything() };
        let mut watch = client.watch(create).await.unwrap();
        assert_eq!(watch.created_at(), 6);
        let (mut events, mut fragments) = (Vec::new(), 0);
        while events.len() < 8 * keys {
            match watch.next().await.unwrap().unwrap() {
                WatchMessage::Events { events: part, complete } => {
                    fragments += usize::from(!complete);
                    events.extend(part);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(fragments > 0, "etcd {version} sent no fragments");
        assert!(events.is_sorted_by_key(|event| event.kv.as_ref().unwrap().mod_revision));
        let deleted = events.iter().filter(|event| event.r#type == i32::from(EventType::Delete)).count();
        assert_eq!(deleted, 4 * keys);
        watch.request_progress().await.unwrap();
        let progress = watch.next().await.unwrap().unwrap();
        assert_eq!(progress, WatchMessage::Progress { revision: 6 });
    }
}

#[tokio::test]
async fn a_watch_from_a_compacted_revision_says_so() {
    for version in VERSIONS {
        let etcd = Secured::start(version);
        let client = etcd.client();
        for n in 0..5 {
            client.put(put("k", n.to_string())).await.unwrap();
        }
        client.compact(CompactionRequest { revision: 4, physical: false }).await.unwrap();
        let mut watch = client.watch(WatchCreateRequest { start_revision: 2, ..everything() }).await.unwrap();
        let message = watch.next().await.unwrap().unwrap();
        assert!(matches!(message, WatchMessage::Canceled { compact_revision: 4, .. }), "{message:?}");
    }
}

#[tokio::test]
async fn a_streamed_snapshot_is_whole_and_verified() {
    for version in VERSIONS {
        let etcd = Secured::start(version);
        let client = etcd.client();
        for n in 0..40 {
            client.put(put(format!("k{n}"), vec![b'x'; 100_000])).await.unwrap();
        }
        let mut stream = client.snapshot().await.unwrap();
        let mut file = Vec::new();
        while let Some(chunk) = stream.next_chunk().await.unwrap() {
            file.extend_from_slice(&chunk);
        }
        assert_eq!(stream.remaining(), Some(0));
        assert_eq!(stream.next_chunk().await.unwrap(), None);
        assert_eq!(stream.version().is_empty(), version == "3.5");
        assert_eq!(file.len() % 512, 32);
        let (content, digest) = file.split_at(file.len() - 32);
        assert!(content.len() > 4_000_000);
        assert_eq!(Sha256::digest(content).as_slice(), digest);
    }
}

#[tokio::test]
async fn members_alarms_hashes_and_maintenance_calls_answer() {
    for version in VERSIONS {
        let etcd = Secured::start(version);
        let client = etcd.client();
        client.put(put("a", "1")).await.unwrap();
        let status = client.status().await.unwrap();
        assert!(status.version.starts_with(version));
        let own = status.header.unwrap().member_id;
        assert_eq!(status.leader, own);
        let members = client.member_list(true).await.unwrap().members;
        assert_eq!((members.len(), members[0].id, members[0].name.as_str()), (1, own, "default"));

        let added = client.member_add(vec!["http://127.0.0.1:1".to_owned()], true).await.unwrap();
        let learner = added.member.unwrap();
        assert!(learner.is_learner);
        let moved = vec!["http://127.0.0.1:2".to_owned()];
        let updated = client.member_update(learner.id, moved.clone()).await.unwrap();
        assert!(updated.members.iter().any(|member| member.peer_urls == moved));
        let refused = client.member_promote(learner.id).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::FailedPrecondition), "{refused}");
        assert_eq!(client.member_remove(learner.id).await.unwrap().members.len(), 1);

        let alarm = AlarmMember { member_id: own, alarm: AlarmType::NoSpace.into() };
        client.alarm(AlarmAction::Activate, alarm).await.unwrap();
        assert_eq!(client.alarms().await.unwrap().alarms, [alarm]);
        let full = client.put(put("b", "1")).await.unwrap_err();
        assert_eq!(full.code(), Some(Code::ResourceExhausted), "{full}");
        client.alarm(AlarmAction::Deactivate, alarm).await.unwrap();
        assert!(client.alarms().await.unwrap().alarms.is_empty());

        let hash = client.hash_kv(0).await.unwrap();
        assert_eq!(hash, client.hash_kv(2).await.unwrap());
        assert_eq!(hash.compact_revision, -1);
        assert_ne!(client.hash().await.unwrap().hash, 0);
        client.defragment().await.unwrap();
        assert!(client.move_leader(own + 1).await.is_err());
        let request = DowngradeRequest { action: DowngradeAction::Validate.into(), version: "3.3.0".to_owned() };
        assert!(client.downgrade(request).await.is_err());
    }
}

#[tokio::test]
async fn users_roles_and_tokens_work_end_to_end() {
    for version in VERSIONS {
        let etcd = Secured::start(version);
        let client = etcd.client();
        let user = |name: &str, password: &str| UserAddRequest {
            name: name.to_owned(),
            password: password.to_owned(),
            options: Some(UserAddOptions { no_password: false }),
            hashed_password: String::new(),
        };
        client.user_add(user("root", "secret")).await.unwrap();
        client.user_add(user("reader", "secret")).await.unwrap();
        client.role_add("root").await.unwrap();
        client.role_add("read-a").await.unwrap();
        let permission =
            Permission { perm_type: PermissionType::Read.into(), key: b"a".to_vec(), range_end: Vec::new() };
        client.role_grant_permission("read-a", permission.clone()).await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        client.user_grant_role("reader", "read-a").await.unwrap();
        assert_eq!(client.role_get("read-a").await.unwrap().perm, [permission]);
        assert_eq!(client.user_list().await.unwrap().names.len(), 2);
        assert_eq!(client.role_list().await.unwrap().names.len(), 2);
        assert_eq!(client.user_get("reader").await.unwrap().names, ["read-a"]);
        client.auth_enable().await.unwrap();

        let root = client.authenticate("root", "secret").await.unwrap();
        let status = root.auth_status().await.unwrap();
        assert!(status.enabled && status.auth_revision > 1);
        root.put(put("a", "1")).await.unwrap();
        let reader = client.authenticate("reader", "secret").await.unwrap();
        let range = |key: &str| RangeRequest { key: key.into(), ..RangeRequest::default() };
        assert_eq!(reader.range(range("a")).await.unwrap().count, 1);
        let denied = reader.range(range("b")).await.unwrap_err();
        assert_eq!(denied.code(), Some(Code::PermissionDenied), "{denied}");
        assert!(client.authenticate("reader", "wrong").await.is_err());

        let key = b"a".to_vec();
        let revoke = RoleRevokePermissionRequest { role: "read-a".to_owned(), key, range_end: Vec::new() };
        root.role_revoke_permission(revoke).await.unwrap();
        root.user_revoke_role("reader", "read-a").await.unwrap();
        let (name, password) = ("reader".to_owned(), "new".to_owned());
        let change = UserChangePasswordRequest { name, password, hashed_password: String::new() };
        root.user_change_password(change).await.unwrap();
        client.authenticate("reader", "new").await.unwrap();
        root.role_delete("read-a").await.unwrap();
        root.user_delete("reader").await.unwrap();
        root.auth_disable().await.unwrap();
        assert!(!client.auth_status().await.unwrap().enabled);
    }
}

#[tokio::test]
async fn without_the_right_certificates_nothing_is_said() {
    let etcd = Secured::start("3.6");
    let url = &etcd.running.server.client_url;
    let stranger = certificates();
    let (certificate, key) = stranger.client;
    let foreign_identity = Tls { identity: Some((certificate.into_bytes(), key.into_bytes())), ..etcd.tls() };
    let wrong_ca = Tls { ca: stranger.ca.into_bytes(), ..etcd.tls() };
    let no_identity = Tls { identity: None, ..etcd.tls() };
    let wrong_name = Tls { server_name: Some("elsewhere.example".to_owned()), ..etcd.tls() };
    for tls in [foreign_identity, wrong_ca, no_identity, wrong_name] {
        let what = format!("{tls:?}");
        let client = Client::new(Options::new(url).tls(tls)).unwrap();
        assert!(client.status().await.is_err(), "{what}");
    }
    let named = Tls { server_name: Some("localhost".to_owned()), ..etcd.tls() };
    Client::new(Options::new(url).tls(named)).unwrap().status().await.unwrap();
}

#[tokio::test]
async fn a_silent_member_costs_no_more_than_the_deadline() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let options = Options {
        call_timeout: Duration::from_millis(200),
        ..Options::new(format!("http://{}", listener.local_addr().unwrap()))
    };
    let error = Client::new(options).unwrap().status().await.unwrap_err();
    assert!(matches!(error, ClientError::Deadline { .. }), "{error:?}");
    assert!(error.to_string().contains("unknown"), "{error}");
}

#[tokio::test]
async fn a_watch_on_a_member_that_fell_silent_ends_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::single("3.6", &dir.path().join("data"));
    let running = server.start();
    let options = Options { keep_alive: Duration::from_secs(1), ..Options::new(&server.client_url) };
    let mut watch = Client::new(options).unwrap().watch(everything()).await.unwrap();
    running.freeze();
    let error = tokio::time::timeout(Duration::from_mins(1), watch.next()).await.expect("keep-alive").unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable), "{error:?}");
}

#[tokio::test]
async fn a_member_that_comes_back_is_reached_again_by_the_same_client() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::single("3.6", &dir.path().join("data"));
    let running = server.start();
    let client = Client::new(Options::new(&server.client_url)).unwrap();
    client.put(put("a", "1")).await.unwrap();
    running.kill();
    let error = client.put(put("a", "2")).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable), "{error:?}");
    let _running = server.start();
    client.put(put("a", "3")).await.unwrap();
    let range = client.range(RangeRequest { key: b"a".to_vec(), ..RangeRequest::default() }).await.unwrap();
    assert_eq!((range.kvs[0].version, range.kvs[0].value.as_slice()), (2, &b"3"[..]));
    assert!(Path::new(&server.data_dir).is_dir());
}
