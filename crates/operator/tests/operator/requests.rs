//! Guards, preconditions and order.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::member::{EtcdMemberSpec, Ticket};
use quorate_api::status::{EtcdClusterStatus, Latch, LatchState};
use quorate_api::{EtcdCluster, EtcdClusterSpec, EtcdMember};
use quorate_core::build::certificates::{CertificateRequest, Purpose, Replaced};
use quorate_core::view::Platform;
use quorate_core::{Action, ApplyMode, ClusterIdentity, Decision, Effect, Guard, Kind, ObjectKey, Read, Reason, View};
use quorate_operator::act::Actor;
use quorate_operator::error::Error;
use quorate_operator::etcd::EtcdClients;
use quorate_operator::hashing::Hashing;
use quorate_operator::nodes::Nodes;
use quorate_operator::observe::{self, Sources, Whereabouts};
use quorate_operator::renewals::Renewals;
use quorate_operator::secrets::Certificates;
use quorate_operator::writes::Writes;
use quorate_runtime::election::Claim;
use serde_json::{Value, json};

use crate::script::{expect, failure, scripted};

const GET_CLUSTER: &str = "GET /apis/quorate.dev/v1alpha1/namespaces/default/etcdclusters/etcd";
const GET_CLAIM: &str = "GET /api/v1/namespaces/default/persistentvolumeclaims/data-etcd-0";
const DELETE_CLAIM: &str = "DELETE /api/v1/namespaces/default/persistentvolumeclaims/data-etcd-0";
const GET_MEMBER: &str = "GET /apis/quorate.dev/v1alpha1/namespaces/default/etcdmembers/etcd-0";
const APPLY_MEMBER: &str = "PATCH /apis/quorate.dev/v1alpha1/namespaces/default/etcdmembers/etcd-0";

fn cluster(latch: LatchState) -> EtcdCluster {
    let mut cluster = EtcdCluster::new("etcd", EtcdClusterSpec::default());
    cluster.metadata.namespace = Some("default".to_owned());
    cluster.metadata.uid = Some("cluster-uid".to_owned());
    cluster.metadata.resource_version = Some("7".to_owned());
    let latch = Latch::new(latch, 1, Time(Timestamp::UNIX_EPOCH));
    cluster.status = Some(EtcdClusterStatus { latch: Some(latch), ..EtcdClusterStatus::default() });
    cluster
}

fn deleting() -> EtcdCluster {
    let mut cluster = cluster(LatchState::Formed);
    cluster.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    cluster
}

fn found(cluster: &EtcdCluster) -> (u16, Value) {
    (200, serde_json::to_value(cluster).unwrap())
}

fn metadata(kind: &str, uid: &str) -> (u16, Value) {
    let body = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": { "name": kind, "uid": uid, "resourceVersion": "42" },
    });
    (200, body)
}

fn success() -> (u16, Value) {
    let body =
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Success", "code": 200, "message": "", "reason": "" });
    (200, body)
}

fn ticket() -> Action {
    let ticket = Ticket::Bootstrap { epoch: 1, token: "t".to_owned(), initial_cluster: Vec::new() };
    let mut member = EtcdMember::new("etcd-0", EtcdMemberSpec { cluster: "etcd".to_owned(), ordinal: 0, ticket });
    member.metadata.namespace = Some("default".to_owned());
    let guard = Guard::BootstrapOpen { cluster_uid: "cluster-uid".to_owned(), epoch: 1 };
    let effect = Effect::Apply { object: Box::new(member.into()), how: ApplyMode::Update, guard };
    Action { reason: Reason::BootstrapAllowed, effect }
}

fn delete_claim() -> Action {
    let guard = Guard::ClusterDeleting { cluster_uid: "cluster-uid".to_owned(), object_uid: "claim-uid".to_owned() };
    let effect = Effect::DeleteClaim { name: "data-etcd-0".to_owned(), guard };
    Action { reason: Reason::VolumesGoWithCluster, effect }
}

async fn take(
    script: Vec<crate::script::Exchange>,
    viewed: &EtcdCluster,
    actions: &[Action],
) -> (usize, Result<(), Error>) {
    let (client, server) = scripted(script);
    let claim = Claim::always();
    let identity = ClusterIdentity::of(&viewed.metadata).unwrap();
    let etcd = EtcdClients::default();
    let actor = Actor {
        client: &client,
        claim: &claim,
        etcd: &etcd,
        writes: &Writes::default(),
        identity: &identity,
        cluster: viewed,
    };
    let (done, result) = actor.take(actions).await;
    drop(client);
    server.await.unwrap();
    (done.len(), result)
}

#[tokio::test]
async fn a_ticket_is_applied_only_after_the_latch_was_read_again() {
    let viewed = cluster(LatchState::Issued);
    let script = vec![
        expect(GET_CLUSTER, found(&viewed)),
        expect(
            APPLY_MEMBER,
            (200, json!({ "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdMember", "metadata": {} })),
        )
        .checked(|query, body| {
            assert!(query.contains("fieldManager=quorate") && query.contains("force=true"), "{query}");
            assert!(body.get("status").is_none(), "the status is the agent's");
        }),
    ];
    let (done, result) = take(script, &viewed, &[ticket()]).await;
    result.unwrap();
    assert_eq!(done, 1);
}

#[tokio::test]
async fn a_latch_that_closed_meanwhile_stops_the_pass_before_the_ticket() {
    for member in [failure(404, "NotFound"), (200, recorded("beef"))] {
        let script = vec![expect(GET_CLUSTER, found(&cluster(LatchState::Formed))), expect(GET_MEMBER, member)];
        let (done, result) = take(script, &cluster(LatchState::Issued), &[ticket(), ticket()]).await;
        assert!(matches!(result, Err(Error::Outdated { .. })), "{result:?}");
        assert_eq!(done, 0);
    }
}

/// A member of which it is on record that it has begun.
fn recorded(id: &str) -> Value {
    json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdMember", "metadata": { "name": "etcd-0" },
        "spec": { "cluster": "etcd", "ordinal": 0, "ticket": { "resume": { "epoch": 1 } } },
        "status": { "data": { "state": "Empty", "memberID": id } },
    })
}

fn join() -> Action {
    let (cluster_id, member_id) = ("c1".to_owned(), "beef".to_owned());
    let ticket = Ticket::Join { epoch: 1, cluster_id, member_id: member_id.clone(), initial_cluster: Vec::new() };
    let mut member = EtcdMember::new("etcd-0", EtcdMemberSpec { cluster: "etcd".to_owned(), ordinal: 0, ticket });
    member.metadata.namespace = Some("default".to_owned());
    let guard = Guard::JoinOpen { cluster_uid: "cluster-uid".to_owned(), epoch: 1, member_id };
    let effect = Effect::Apply { object: Box::new(member.into()), how: ApplyMode::Update, guard };
    Action { reason: Reason::JoinAllowed, effect }
}

#[tokio::test]
async fn a_ticket_to_join_is_given_only_if_the_member_was_read_again_and_has_not_made_use_of_one() {
    let formed = cluster(LatchState::Formed);
    let earlier = vec![
        expect(GET_CLUSTER, found(&formed)),
        expect(GET_MEMBER, (200, recorded("dead"))),
        expect(APPLY_MEMBER, (200, recorded("dead")))
            .checked(|_, body| assert_eq!(body["spec"]["ticket"]["join"]["memberID"], "beef")),
    ];
    let (done, result) = take(earlier, &formed, &[join()]).await;
    result.unwrap();
    assert_eq!(done, 1, "what is on record is the member that was in its place before");
    for member in [failure(404, "NotFound"), (200, recorded("beef"))] {
        let script = vec![expect(GET_CLUSTER, found(&formed)), expect(GET_MEMBER, member)];
        let (done, result) = take(script, &formed, &[join()]).await;
        assert!(matches!(result, Err(Error::Outdated { .. })), "{result:?}");
        assert_eq!(done, 0);
    }
}

#[tokio::test]
async fn a_ticket_that_a_hand_put_beside_ours_is_removed() {
    let member = json!({ "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdMember", "metadata": {} });
    let viewed = cluster(LatchState::Issued);
    let script = vec![
        expect(GET_CLUSTER, found(&viewed)),
        expect(APPLY_MEMBER, failure(422, "Invalid")),
        expect(APPLY_MEMBER, (200, member.clone())).checked(|query, body| {
            let ticket = &body["spec"]["ticket"];
            assert!(!query.contains("force"), "{query}");
            assert_eq!((&ticket["hold"], &ticket["bootstrap"]["epoch"]), (&Value::Null, &json!(1)));
            assert!(ticket.as_object().unwrap().contains_key("hold"), "removed by name");
        }),
        expect(APPLY_MEMBER, (200, member)).checked(|query, _| assert!(query.contains("force=true"), "{query}")),
    ];
    let (done, result) = take(script, &viewed, &[ticket()]).await;
    result.unwrap();
    assert_eq!(done, 1);
}

#[tokio::test]
async fn a_volume_is_deleted_by_identity_and_version() {
    let script = vec![
        expect(GET_CLAIM, metadata("data-etcd-0", "claim-uid")),
        expect(GET_CLUSTER, found(&deleting())),
        expect(DELETE_CLAIM, success()).checked(|_, body| {
            assert_eq!(body["preconditions"], json!({ "uid": "claim-uid", "resourceVersion": "42" }));
        }),
    ];
    let (done, result) = take(script, &deleting(), &[delete_claim()]).await;
    result.unwrap();
    assert_eq!(done, 1);
}

#[tokio::test]
async fn a_volume_of_the_same_name_that_is_another_one_stays() {
    let script = vec![expect(GET_CLAIM, metadata("data-etcd-0", "new-uid")), expect(GET_CLUSTER, found(&deleting()))];
    let (done, result) = take(script, &deleting(), &[delete_claim()]).await;
    assert!(matches!(result, Err(Error::Outdated { .. })), "{result:?}");
    assert_eq!(done, 0);
}

#[tokio::test]
async fn the_volumes_of_a_cluster_that_is_no_longer_deleted_stay() {
    let script = vec![
        expect(
            "GET /api/v1/namespaces/default/persistentvolumeclaims/data-etcd-0",
            metadata("data-etcd-0", "claim-uid"),
        ),
        expect(GET_CLUSTER, failure(404, "NotFound")),
    ];
    let (_, result) = take(script, &deleting(), &[delete_claim()]).await;
    assert!(matches!(result, Err(Error::Outdated { .. })), "{result:?}");
}

#[tokio::test]
async fn the_volume_of_a_member_that_was_removed_stays_if_somebody_wishes_for_more_members_meanwhile() {
    let guard = Guard::SameIncarnation {
        cluster_uid: "cluster-uid".to_owned(),
        generation: Some(3),
        epoch: Some(1),
        object_uid: Some("claim-uid".to_owned()),
    };
    let effect = Effect::DeleteClaim { name: "data-etcd-0".to_owned(), guard };
    let action = [Action { reason: Reason::VolumeNotNeeded, effect }];
    let mut formed = cluster(LatchState::Formed);
    formed.metadata.generation = Some(3);
    let look = |seen: &EtcdCluster| {
        vec![expect(GET_CLAIM, metadata("data-etcd-0", "claim-uid")), expect(GET_CLUSTER, found(seen))]
    };
    let mut wished = formed.clone();
    wished.metadata.generation = Some(4);
    let (_, result) = take(look(&wished), &formed, &action).await;
    assert!(matches!(result, Err(Error::Outdated { .. })), "{result:?}");
    let mut script = look(&formed);
    script.push(expect(DELETE_CLAIM, success()).checked(|_, body| {
        assert_eq!(body["preconditions"], json!({ "uid": "claim-uid", "resourceVersion": "42" }));
    }));
    take(script, &formed, &action).await.1.unwrap();
}

#[tokio::test]
async fn what_is_gone_already_counts_as_deleted() {
    let script =
        vec![expect("GET /apis/coordination.k8s.io/v1/namespaces/default/leases/etcd-4", failure(404, "NotFound"))];
    let effect = Effect::Delete { key: ObjectKey::new(Kind::Lease, "etcd-4"), guard: Guard::Uid("x".to_owned()) };
    let action = Action { reason: Reason::ObjectSuperfluous, effect };
    let (done, result) = take(script, &cluster(LatchState::Formed), &[action]).await;
    result.unwrap();
    assert_eq!(done, 1);
}

fn only_status(status: EtcdClusterStatus) -> Decision {
    let soon = SignedDuration::from_secs(1);
    let (actions, events, reads) = (Vec::new(), Vec::new(), Vec::new());
    Decision { reads, actions, events, status, status_changed: true, requeue: soon, rest: soon }
}

async fn write_status(client: &kube::Client, viewed: &EtcdCluster, decision: &Decision) -> Result<bool, Error> {
    let identity = ClusterIdentity::of(&viewed.metadata).unwrap();
    let (claim, etcd) = (Claim::always(), EtcdClients::default());
    Actor { client, claim: &claim, etcd: &etcd, writes: &Writes::default(), identity: &identity, cluster: viewed }
        .write_status(decision)
        .await
}

#[tokio::test]
async fn the_status_carries_the_version_that_was_viewed_and_a_conflict_ends_the_pass() {
    let viewed = cluster(LatchState::Issued);
    let (client, server) = scripted(vec![
        expect("PUT /apis/quorate.dev/v1alpha1/namespaces/default/etcdclusters/etcd/status", failure(409, "Conflict"))
            .checked(|_, body| assert_eq!(body["metadata"]["resourceVersion"], "7")),
    ]);
    let status = EtcdClusterStatus { replicas: 3, ..viewed.status.clone().unwrap() };
    let decision = only_status(status);
    let result = write_status(&client, &viewed, &decision).await;
    assert!(matches!(result, Err(Error::Outdated { .. })), "{result:?}");
    server.await.unwrap();
}

#[tokio::test]
async fn an_equal_status_is_not_written() {
    let viewed = cluster(LatchState::Issued);
    let (client, server) = scripted(Vec::new());
    let status = viewed.status.clone().unwrap();
    let decision = Decision { status_changed: false, ..only_status(status) };
    assert!(!write_status(&client, &viewed, &decision).await.unwrap());
    server.await.unwrap();
}

fn authority() -> Action {
    let request = CertificateRequest {
        secret: "etcd-peer-ca".to_owned(),
        purpose: Purpose::Authority,
        issuer: None,
        common_name: "etcd-peer-ca".to_owned(),
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        replaces: None,
    };
    Action { reason: Reason::CertificateMissing, effect: Effect::IssueCertificate(request) }
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_not_overwritten() {
    let script = vec![
        expect("POST /api/v1/namespaces/default/secrets", failure(409, "AlreadyExists")),
        expect("GET /api/v1/namespaces/default/secrets/etcd-peer-ca", metadata("etcd-peer-ca", "x")),
    ];
    let (done, result) = take(script, &cluster(LatchState::Issued), &[authority()]).await;
    assert!(matches!(result, Err(Error::SecretTaken { .. })), "{result:?}");
    assert_eq!(done, 0);
}

const GET_POD: &str = "GET /api/v1/namespaces/default/pods/etcd-1";
const GET_LEASE: &str = "GET /apis/coordination.k8s.io/v1/namespaces/default/leases/etcd-1";

fn pod(uid: &str, ready: &str) -> (u16, Value) {
    let body = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "etcd-1", "namespace": "default", "uid": uid, "resourceVersion": "42" },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    });
    (200, body)
}

fn restart(guard: Guard) -> Action {
    Action { reason: Reason::MemberStuck, effect: Effect::RestartPod { name: "etcd-1".to_owned(), guard } }
}

#[tokio::test]
async fn a_pod_that_became_ready_meanwhile_is_not_restarted() {
    let guard = Guard::PodStillUnready("pod-uid".to_owned());
    let script = vec![expect(GET_POD, pod("pod-uid", "True"))];
    let (done, result) = take(script, &cluster(LatchState::Formed), &[restart(guard.clone())]).await;
    assert!(matches!(result, Err(Error::Outdated { .. })), "{result:?}");
    assert_eq!(done, 0);
    let script = vec![
        expect(GET_POD, pod("pod-uid", "False")),
        expect("DELETE /api/v1/namespaces/default/pods/etcd-1", pod("pod-uid", "False")).checked(|_, body| {
            assert_eq!(body["preconditions"], json!({ "uid": "pod-uid", "resourceVersion": "42" }));
        }),
    ];
    take(script, &cluster(LatchState::Formed), &[restart(guard)]).await.1.unwrap();
}

fn hide() -> Action {
    let effect = Effect::SetServing { pod: "etcd-1".to_owned(), uid: "pod-uid".to_owned(), serving: false };
    Action { reason: Reason::MemberHidden, effect }
}

#[tokio::test]
async fn clients_are_led_away_from_exactly_the_pod_that_was_seen() {
    const PATCH_POD: &str = "PATCH /api/v1/namespaces/default/pods/etcd-1";
    let formed = cluster(LatchState::Formed);
    let script = vec![expect(PATCH_POD, metadata("etcd-1", "pod-uid")).checked(|_, body| {
        let wanted = json!({ "uid": "pod-uid", "labels": { "quorate.dev/serving": "false" } });
        assert_eq!(body["metadata"], wanted);
    })];
    take(script, &formed, &[hide()]).await.1.unwrap();
    let gone = vec![expect(PATCH_POD, failure(404, "NotFound"))];
    assert_eq!(take(gone, &formed, &[hide()]).await.0, 1, "nobody is led there any more");
    let another = vec![expect(PATCH_POD, failure(422, "Invalid"))];
    let (_, result) = take(another, &formed, &[hide()]).await;
    assert!(matches!(result, Err(Error::Outdated { .. })), "{result:?}");
}

#[tokio::test]
async fn an_edited_secret_is_replaced_only_if_it_is_this_clusters() {
    const GET_SECRET: &str = "GET /api/v1/namespaces/default/secrets/etcd-peer-ca";
    const PATCH_SECRET: &str = "PATCH /api/v1/namespaces/default/secrets/etcd-peer-ca";
    let mut action = authority();
    let Effect::IssueCertificate(request) = &mut action.effect else { panic!() };
    request.replaces = Some(Replaced { serial: Some("1".to_owned()) });
    let stranger = vec![expect(GET_SECRET, metadata("etcd-peer-ca", "x"))];
    let (_, result) = take(stranger, &cluster(LatchState::Formed), std::slice::from_ref(&action)).await;
    assert!(matches!(result, Err(Error::SecretTaken { .. })), "{result:?}");
    let (code, mut ours) = metadata("etcd-peer-ca", "x");
    ours["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster", "name": "etcd", "uid": "cluster-uid" }]);
    let renewed = vec![expect(GET_SECRET, (code, ours.clone()))];
    let (_, result) = take(renewed, &cluster(LatchState::Formed), std::slice::from_ref(&action)).await;
    assert!(matches!(result, Err(Error::Outdated { .. })), "another certificate is there by now: {result:?}");
    ours["metadata"]["annotations"] = json!({ "quorate.dev/certificate-serial": "1" });
    let script = vec![
        expect(GET_SECRET, (code, ours.clone())),
        expect(PATCH_SECRET, (200, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": {} }))).checked(
            |query, body| {
                assert!(query.contains("fieldManager=quorate") && query.contains("force=true"), "{query}");
                assert_eq!(body["data"].as_object().unwrap().len(), 3);
                assert_eq!(body["metadata"]["resourceVersion"], "42", "nothing that came meanwhile is overwritten");
            },
        ),
    ];
    take(script, &cluster(LatchState::Formed), &[action]).await.1.unwrap();
}

#[tokio::test]
async fn what_a_hand_added_to_a_keyed_list_is_removed_although_apply_leaves_it() {
    const SERVICE: &str = "PATCH /api/v1/namespaces/default/services/etcd-client";
    let wanted = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "etcd-client", "namespace": "default" },
        "spec": { "ports": [{ "name": "client", "port": 2379 }] },
    });
    let mut left = wanted.clone();
    left["metadata"]["resourceVersion"] = json!("42");
    left["spec"]["ports"] = json!([{ "name": "client", "port": 2379 }, { "name": "added", "port": 1 }]);
    let object = serde_json::from_value::<k8s_openapi::api::core::v1::Service>(wanted.clone()).unwrap();
    let effect = Effect::Apply { object: Box::new(object.into()), how: ApplyMode::PutRight, guard: Guard::None };
    let action = Action { reason: Reason::ObjectChanged, effect };
    let script = vec![
        expect(SERVICE, (200, left)).checked(|query, _| assert!(query.contains("force=true"), "{query}")),
        expect(SERVICE, (200, wanted.clone())).checked(|query, body| {
            assert!(!query.contains("force"), "{query}");
            assert_eq!(body["spec"]["ports"].as_array().map(Vec::len), Some(1));
            assert_eq!(body["metadata"], json!({ "resourceVersion": "42" }), "labels of others stay");
        }),
    ];
    take(script, &cluster(LatchState::Formed), std::slice::from_ref(&action)).await.1.unwrap();
    // Nothing is left to remove.
    take(vec![expect(SERVICE, (200, wanted))], &cluster(LatchState::Formed), &[action]).await.1.unwrap();
}

/// Reads for a view of which only the EtcdCluster is known.
async fn read(
    script: Vec<crate::script::Exchange>,
    viewed: EtcdCluster,
    reads: &[Read],
) -> (View, Result<Whereabouts, Error>) {
    read_into(View::new(viewed, Platform::default()).unwrap(), script, reads).await
}

async fn read_into(
    mut view: View,
    script: Vec<crate::script::Exchange>,
    reads: &[Read],
) -> (View, Result<Whereabouts, Error>) {
    let (client, server) = scripted(script);
    let (renewals, certificates, hashing) = (Renewals::default(), Certificates::default(), Hashing::default());
    let nodes = Nodes::default();
    let etcd = Arc::<EtcdClients>::default();
    let sources = Sources {
        client: &client,
        renewals: &renewals,
        certificates: &certificates,
        etcd: &etcd,
        hashing: &hashing,
        nodes: &nodes,
    };
    let result = observe::read(&sources, &mut view, reads).await;
    drop(client);
    server.await.unwrap();
    (view, result)
}

#[tokio::test]
async fn what_a_decision_asks_for_is_read_live_and_not_asked_for_again() {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "etcd-1", "namespace": "default" },
        "spec": { "leaseDurationSeconds": 10, "renewTime": now },
    });
    let reads = [Read::Cluster, Read::Member("etcd-1".to_owned())];
    let mut live = cluster(LatchState::Formed);
    live.metadata.resource_version = Some("8".to_owned());
    let script = vec![
        expect(GET_CLUSTER, found(&live)),
        expect(GET_POD, pod("pod-uid", "True")),
        expect(GET_LEASE, (200, lease)),
    ];
    let (view, result) = read(script, cluster(LatchState::Formed), &reads).await;
    assert_eq!(result.unwrap(), Whereabouts::Here);
    assert_eq!(view.cluster.metadata.resource_version.as_deref(), Some("8"));
    assert!(view.pods["etcd-1"].ready);
    assert!(view.lease("etcd-1").is_some() && view.heard.contains_key("etcd-1"));
    assert!(reads.iter().all(|read| view.reads.contains(read)));
}

#[tokio::test]
async fn a_cluster_that_is_gone_or_was_made_anew_ends_the_pass() {
    let script = vec![expect(GET_CLUSTER, failure(404, "NotFound"))];
    let (_, result) = read(script, cluster(LatchState::Formed), &[Read::Cluster]).await;
    assert_eq!(result.unwrap(), Whereabouts::Gone);
    let mut other = cluster(LatchState::Formed);
    other.metadata.uid = Some("another".to_owned());
    let (_, result) =
        read(vec![expect(GET_CLUSTER, found(&other))], cluster(LatchState::Formed), &[Read::Cluster]).await;
    assert!(matches!(result, Err(Error::Outdated { .. })), "{result:?}");
}

#[tokio::test]
async fn what_the_caches_have_of_an_object_does_not_outlive_a_live_read_of_it() {
    let mut known = View::new(cluster(LatchState::Formed), Platform::default()).unwrap();
    known.insert(serde_json::from_value::<EtcdMember>(recorded("beef")).unwrap());
    let reads = [Read::Object(ObjectKey::new(Kind::EtcdMember, "etcd-0"))];
    let unreadable = json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdMember", "metadata": { "name": "etcd-0" },
        "spec": { "cluster": "etcd", "ordinal": 0, "ticket": { "fly": {} } },
    });
    let id = |view: &View| view.member("etcd-0")?.status.clone()?.data?.member_id;

    let (view, result) = read_into(known.clone(), vec![expect(GET_MEMBER, (200, recorded("dead")))], &reads).await;
    result.unwrap();
    assert_eq!(id(&view).as_deref(), Some("dead"));

    let (view, result) = read_into(known.clone(), vec![expect(GET_MEMBER, (200, unreadable))], &reads).await;
    result.unwrap();
    assert!(view.member("etcd-0").is_none() && view.unreadable_members.contains_key("etcd-0"));

    let gone = vec![expect(GET_MEMBER, failure(404, "NotFound"))];
    let (view, result) = read_into(view, gone, &reads).await;
    result.unwrap();
    assert!(view.member("etcd-0").is_none() && view.unreadable_members.is_empty());

    let gone = vec![expect(GET_MEMBER, failure(404, "NotFound"))];
    let (view, result) = read_into(known, gone, &reads).await;
    result.unwrap();
    assert!(view.member("etcd-0").is_none(), "it was deleted, and the caches have not heard of it");
}
