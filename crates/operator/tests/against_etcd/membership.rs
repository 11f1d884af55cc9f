//! Who is a member, asked with the operator's own certificate.

use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use kube::Client;
use quorate_api::names::secrets;
use quorate_operator::error::Error;
use quorate_operator::etcd::{EtcdClients, MemberList};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::etcd_process::VERSIONS;
use crate::members::{CLUSTER, Certificates, Member, NAMESPACE, UID, endpoint, hosts, requests, target};
use crate::network;
use crate::script::{expect, failure, scripted};

pub(crate) const READ: &str = "GET /api/v1/namespaces/default/secrets/etcd-operator-tls";

pub(crate) fn secret(certificates: &Certificates, owner: &str) -> (u16, Value) {
    let issued = certificates.get(&secrets::operator(CLUSTER));
    let bytes = |pem: &str| json!(ByteString(pem.as_bytes().to_vec()));
    let body = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": secrets::operator(CLUSTER), "namespace": NAMESPACE,
            "ownerReferences": [{ "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster", "name": CLUSTER, "uid": owner }],
        },
        "data": {
            "tls.crt": bytes(&issued.certificate_pem),
            "tls.key": bytes(&issued.key_pem),
            "ca.crt": bytes(&issued.authority_pem),
        },
    });
    (200, body)
}

async fn ask(
    clients: &EtcdClients,
    client: &Client,
    members: &[String],
    linearizable: bool,
) -> Result<MemberList, Error> {
    let ordinal = |name: &String| name.rsplit_once('-').unwrap().1.parse().unwrap();
    let members = members.iter().map(|name| endpoint(ordinal(name))).collect::<Vec<_>>();
    clients.member_list(client, &target(&members), linearizable).await
}

/// Asks until there is an answer: a member may still be starting.
async fn wait(clients: &EtcdClients, client: &Client, members: &[String]) -> MemberList {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        match ask(clients, client, members, true).await {
            Ok(list) => return list,
            Err(error) if Instant::now() > until => panic!("{error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// An API server that gives this Secret as often as it is asked.
fn giving(secret: &(u16, Value)) -> (Client, JoinHandle<()>) {
    scripted(std::iter::repeat_with(|| expect(READ, secret.clone())).take(1000).collect())
}

#[tokio::test]
async fn the_first_member_that_answers_lists_all_members() {
    let test = "membership::the_first_member_that_answers_lists_all_members";
    if !network::is_inside(test, &hosts(2)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let member = Member::start(version, dir.path(), &certificates, 0, 1);
        let (client, server) = giving(&secret(&certificates, UID));
        let clients = EtcdClients::default();
        // The other name leads nowhere.
        let list = wait(&clients, &client, &["etcd-1".to_owned(), "etcd-0".to_owned()]).await;
        let [only] = list.members.as_slice() else { panic!("{list:?}") };
        assert_eq!((only.name.as_str(), only.learner), ("etcd-0", false), "{version}");
        assert_eq!(only.peer_urls, ["https://etcd-0.etcd-peer.default.svc:2380"], "{version}");
        assert!(list.cluster_id.len() > 8 && only.id.len() > 8, "{version}: {list:?}");
        let believed = ask(&clients, &client, &["etcd-0".to_owned()], false).await.unwrap();
        assert_eq!(believed, list, "{version}");
        drop(member);
        server.abort();
    }
}

#[tokio::test]
async fn an_answer_that_needs_a_quorum_is_not_given_without_one() {
    let test = "membership::an_answer_that_needs_a_quorum_is_not_given_without_one";
    if !network::is_inside(test, &hosts(2)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let (client, server) = giving(&secret(&certificates, UID));
        let clients = EtcdClients::default();
        let names = ["etcd-0".to_owned(), "etcd-1".to_owned()];
        let first = Member::start(version, dir.path(), &certificates, 0, 2);
        let second = Member::start(version, dir.path(), &certificates, 1, 2);
        assert_eq!(wait(&clients, &client, &names).await.members.len(), 2, "{version}");
        drop(second);
        let refused = ask(&clients, &client, &names, true).await.unwrap_err().to_string();
        assert!(refused.contains("etcd-0") && refused.contains("etcd-1"), "{version}: {refused}");
        assert_eq!(ask(&clients, &client, &names, false).await.unwrap().members.len(), 2, "{version}");
        drop(first);
        server.abort();
    }
}

#[tokio::test]
async fn the_certificate_is_read_once_and_again_after_a_failure() {
    let test = "membership::the_certificate_is_read_once_and_again_after_a_failure";
    if !network::is_inside(test, &hosts(1)) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (certificates, strangers) = (
        Certificates::issue(&dir.path().join("ours"), requests()),
        Certificates::issue(&dir.path().join("theirs"), requests()),
    );
    let _member = Member::start("3.6", dir.path(), &certificates, 0, 1);
    let (names, clients) = (["etcd-0".to_owned()], EtcdClients::default());
    let (ready, server) = giving(&secret(&certificates, UID));
    wait(&EtcdClients::default(), &ready, &names).await;
    server.abort();
    let (client, server) = scripted(vec![
        expect(READ, secret(&strangers, UID)),
        expect(READ, failure(403, "Forbidden")),
        expect(READ, secret(&certificates, "an earlier cluster of the same name")),
        expect(READ, secret(&certificates, UID)),
    ]);
    let untrusted = ask(&clients, &client, &names, true).await.unwrap_err();
    assert!(untrusted.to_string().contains("certificate"), "{untrusted}");
    let forbidden = ask(&clients, &client, &names, true).await;
    assert!(matches!(forbidden, Err(Error::Api { .. })), "{forbidden:?}");
    let taken = ask(&clients, &client, &names, true).await;
    assert!(matches!(taken, Err(Error::SecretTaken { .. })), "{taken:?}");
    for _ in 0..2 {
        ask(&clients, &client, &names, true).await.unwrap();
    }
    drop(client);
    server.await.unwrap();
}
