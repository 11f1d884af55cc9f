//! With authentication enabled: what the certificates of operator and agents may do, by the names in them alone.

use std::time::{Duration, Instant};

use quorate_api::names::secrets;
use quorate_core::action::MemberChange;
use quorate_etcd::client::{Client, Options, Tls};
use quorate_etcd::pb::auth::UserAddOptions;
use quorate_etcd::pb::rpc::auth::UserAddRequest;
use quorate_operator::error::Error;
use quorate_operator::etcd::{Why, hash_members};

use crate::changes::{add, connect, id, in_the_end, leader, list, move_leader, promote, remove, take};
use crate::etcd_process::VERSIONS;
use crate::hashes::{all, ask, others, with_keys};
use crate::members::{CLUSTER, Certificates, Member, client_url, endpoint, hosts, requests, target};
use crate::network;
use crate::peers::{operator, quorum, start};

/// With a password, or one that only a certificate can speak for.
fn user(name: &str, password: &str) -> UserAddRequest {
    let options = password.is_empty().then_some(UserAddOptions { no_password: true });
    let (name, password) = (name.to_owned(), password.to_owned());
    UserAddRequest { name, password, options, ..UserAddRequest::default() }
}

/// As a user does it who has never heard of an operator. Returns a connection with all rights.
pub(crate) async fn enable(client: &Client) -> Client {
    client.user_add(user("root", "secret")).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.auth_enable().await.unwrap();
    client.authenticate("root", "secret").await.unwrap()
}

/// What the status advises.
pub(crate) async fn let_in(root: &Client, name: &str) {
    root.user_add(user(name, "")).await.unwrap();
    root.user_grant_role(name, "root").await.unwrap();
}

fn agent(certificates: &Certificates) -> Tls {
    let issued = certificates.get(&secrets::agent(CLUSTER));
    let bytes = |pem: &String| pem.clone().into_bytes();
    let identity = Some((bytes(&issued.certificate_pem), bytes(&issued.key_pem)));
    Tls { ca: bytes(&issued.authority_pem), identity, server_name: None }
}

#[tokio::test]
async fn the_operators_certificate_is_all_it_needs_to_add_promote_move_compare_and_remove() {
    let test = "authentication::the_operators_certificate_is_all_it_needs_to_add_promote_move_compare_and_remove";
    if !network::is_inside(test, &hosts(2)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let mut members = start(version, dir.path(), &certificates, 1);
        quorum(version, &members, 0, &operator(&certificates)).await;
        let root = enable(&connect(&certificates, 0)).await;
        let_in(&root, "operator").await;

        let alone = list(&certificates, 0).await;
        take(&certificates, add(1), &[0], &alone).await.unwrap();
        let with_learner = list(&certificates, 0).await;
        members.push(Member::join(version, dir.path(), &certificates, 1));
        in_the_end(&certificates, &promote(&with_learner, 1), &[0], &with_learner).await.unwrap();
        let both = quorum(version, &members, 1, &operator(&certificates)).await;
        assert!(both.members.len() == 2 && both.members.iter().all(|member| !member.learner), "{version}: {both:?}");

        let (from, to) = if leader(&certificates, 0).await == id(&both, 0) { (0, 1) } else { (1, 0) };
        in_the_end(&certificates, &move_leader(&both, from, to), &[from], &both).await.unwrap();
        let endpoints = [0, 1].map(endpoint);
        let hashes = all(&hash_members(&target(&endpoints), Some(&operator(&certificates))).await, version);
        assert_eq!(others(&hashes), [0; 0], "{version}: {hashes:?}");
        in_the_end(&certificates, &remove(&both, from), &[to], &both).await.unwrap();
        assert_eq!(list(&certificates, to).await.members.len(), 1, "{version}");
    }
}

#[tokio::test]
async fn every_change_without_the_right_is_known_as_a_refusal_that_names_how_to_give_it() {
    let test = "authentication::every_change_without_the_right_is_known_as_a_refusal_that_names_how_to_give_it";
    if !network::is_inside(test, &hosts(2)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let members = start(version, dir.path(), &certificates, 1);
        let alone = quorum(version, &members, 0, &operator(&certificates)).await;
        let root = enable(&connect(&certificates, 0)).await;
        let disarm = MemberChange::DisarmCorrupt { id: "beef".to_owned() };
        let changes = [add(1), promote(&alone, 0), remove(&alone, 0), move_leader(&alone, 0, 0), disarm];
        let all_refused = async |said: &str| {
            for change in &changes {
                let result = take(&certificates, change.clone(), &[0], &alone).await;
                let Err(error @ Error::NotAllowed { cause, .. }) = &result else { panic!("{version}: {result:?}") };
                assert_eq!(cause, said, "{version}, {change:?}");
                let advice = "etcdctl user grant-role operator root";
                assert!(error.to_string().contains(advice), "{version}: {error}");
            }
        };
        all_refused("etcdserver: user name not found").await;
        root.user_add(user("operator", "")).await.unwrap();
        all_refused("etcdserver: permission denied").await;
        assert_eq!(list(&certificates, 0).await, alone, "{version}: to list the members takes any name");
        root.user_grant_role("operator", "root").await.unwrap();
        take(&certificates, add(1), &[0], &alone).await.unwrap();
        assert_eq!(list(&certificates, 0).await.members.len(), 2, "{version}");
    }
}

#[tokio::test]
async fn hashes_are_refused_unless_the_operator_is_a_user_with_all_rights() {
    let test = "authentication::hashes_are_refused_unless_the_operator_is_a_user_with_all_rights";
    if !network::is_inside(test, &hosts(3)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let (_members, client) = with_keys(version, dir.path(), &certificates).await;
        let tls = operator(&certificates);
        let root = enable(&client).await;
        let is_refused = |answers: &quorate_operator::etcd::Hashes| {
            let mut failures = answers.values().map(|answer| answer.as_ref().err());
            failures.all(|failure| failure.is_some_and(|failure| matches!(failure.why, Why::Forbidden(_))))
        };
        // Each member hears of it in its own time.
        let until = Instant::now() + Duration::from_mins(1);
        let becomes = async |what: &str, done: &dyn Fn(&quorate_operator::etcd::Hashes) -> bool| loop {
            let answers = ask(&tls).await;
            if done(&answers) {
                break answers;
            }
            assert!(Instant::now() < until, "{version}: {what}: {answers:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        becomes("refused without a user", &is_refused).await;
        root.user_add(user("operator", "")).await.unwrap();
        becomes("refused without the role", &is_refused).await;
        root.user_grant_role("operator", "root").await.unwrap();
        let allowed = becomes("allowed", &|answers| answers.values().all(Result::is_ok)).await;
        assert_eq!(others(&all(&allowed, version)), [0; 0], "{version}: {allowed:?}");
    }
}

#[tokio::test]
async fn an_agent_needs_no_user_to_report_and_one_with_all_rights_to_take_a_snapshot() {
    let test = "authentication::an_agent_needs_no_user_to_report_and_one_with_all_rights_to_take_a_snapshot";
    if !network::is_inside(test, &hosts(1)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let members = start(version, dir.path(), &certificates, 1);
        quorum(version, &members, 0, &operator(&certificates)).await;
        let root = enable(&connect(&certificates, 0)).await;
        let agent = Client::new(Options::new(client_url(0)).tls(agent(&certificates))).unwrap();
        agent.status().await.unwrap();
        assert_eq!(agent.member_list(false).await.unwrap().members.len(), 1, "{version}");
        agent.alarms().await.unwrap();
        let first_chunk = async || match agent.snapshot().await {
            Ok(mut stream) => stream.next_chunk().await.map(drop),
            Err(error) => Err(error),
        };
        let refused = first_chunk().await.unwrap_err();
        assert!(refused.is_forbidden(), "{version}: {refused}");
        let_in(&root, "agent").await;
        first_chunk().await.unwrap();
    }
}
