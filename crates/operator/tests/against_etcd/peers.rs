//! Members that let each other in, whatever DNS says about the addresses that they call from.

use std::path::Path;
use std::time::{Duration, Instant};

use quorate_api::names::secrets;
use quorate_core::build::certificates::CertificateRequest;
use quorate_etcd::client::Tls;
use quorate_operator::error::Error;
use quorate_operator::etcd::{MemberList, list_members};

use crate::etcd_process::VERSIONS;
use crate::members::{CLUSTER, Certificates, Member, endpoint, hosts, requests, target};
use crate::network;

pub(crate) fn start(version: &str, dir: &Path, certificates: &Certificates, count: usize) -> Vec<Member> {
    (0..count).map(|ordinal| Member::start(version, dir, certificates, ordinal, count)).collect()
}

pub(crate) fn operator(certificates: &Certificates) -> Tls {
    let issued = certificates.get(&secrets::operator(CLUSTER));
    let bytes = |pem: &String| pem.clone().into_bytes();
    let identity = Some((bytes(&issued.certificate_pem), bytes(&issued.key_pem)));
    Tls { ca: bytes(&issued.authority_pem), identity, server_name: None }
}

async fn ask(member: usize, tls: &Tls, linearizable: bool) -> Result<MemberList, Error> {
    let members = [endpoint(member)];
    list_members(&target(&members), Some(tls), linearizable).await
}

/// Until this member can answer for a quorum.
pub(crate) async fn quorum(version: &str, members: &[Member], member: usize, tls: &Tls) -> MemberList {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        match ask(member, tls, true).await {
            Ok(list) => return list,
            Err(error) if Instant::now() > until => panic!("{version}: {error}: {}", members[member].log()),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn all_find_each_other() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let members = start(version, dir.path(), &certificates, 3);
        for member in 0..3 {
            let list = quorum(version, &members, member, &operator(&certificates)).await;
            assert_eq!(list.members.len(), 3, "{version}");
        }
    }
}

#[tokio::test]
async fn members_find_each_other_though_their_addresses_have_no_names() {
    let test = "peers::members_find_each_other_though_their_addresses_have_no_names";
    if network::is_inside(test, &hosts(3)) {
        all_find_each_other().await;
    }
}

#[tokio::test]
async fn members_find_each_other_though_their_addresses_have_the_names_of_others() {
    let test = "peers::members_find_each_other_though_their_addresses_have_the_names_of_others";
    let stranger = (network::CALLER.to_owned(), "somebody.else.example".to_owned());
    if network::is_inside(test, &[hosts(3), vec![stranger]].concat()) {
        all_find_each_other().await;
    }
}

fn request(secret: &str) -> CertificateRequest {
    requests().into_iter().find(|request| request.secret == secret).unwrap()
}

/// Until each member complains in its log.
async fn complaint(version: &str, members: &[Member], text: &str) {
    let until = Instant::now() + Duration::from_mins(1);
    while !members.iter().all(|member| member.log().contains(text)) {
        assert!(Instant::now() < until, "{version}: {}", members[0].log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Two members that do not let each other in because of one certificate, until it is replaced in their files.
async fn apart_until_issued_anew(wrong: CertificateRequest, text: &str) {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let mut certificates = Certificates::issue(dir.path(), requests());
        certificates.issue_one(wrong.clone());
        let members = start(version, dir.path(), &certificates, 2);
        complaint(version, &members, text).await;
        certificates.issue_one(request(&wrong.secret));
        assert_eq!(quorum(version, &members, 0, &operator(&certificates)).await.members.len(), 2, "{version}");
    }
}

#[tokio::test]
async fn a_member_that_dials_with_a_name_is_refused_and_let_in_without_one_and_without_a_restart() {
    let test = "peers::a_member_that_dials_with_a_name_is_refused_and_let_in_without_one_and_without_a_restart";
    if network::is_inside(test, &hosts(2)) {
        // As every certificate of a member was once.
        let dns_names = vec!["*.etcd-peer.default.svc".to_owned()];
        let named = CertificateRequest { dns_names, ..request(&secrets::peer_client(CLUSTER)) };
        apart_until_issued_anew(named, "does not match any of DNSNames").await;
    }
}

#[tokio::test]
async fn a_member_that_is_dialled_by_another_name_than_its_own_is_not_believed_until_its_next_certificate() {
    let test =
        "peers::a_member_that_is_dialled_by_another_name_than_its_own_is_not_believed_until_its_next_certificate";
    if network::is_inside(test, &hosts(2)) {
        let dns_names = vec!["*.other-peer.default.svc".to_owned()];
        let other = CertificateRequest { dns_names, ..request(&secrets::peer(CLUSTER)) };
        apart_until_issued_anew(other, "x509: certificate is valid for *.other-peer.default.svc").await;
    }
}

#[tokio::test]
async fn clients_are_shown_a_new_certificate_without_a_restart() {
    let test = "peers::clients_are_shown_a_new_certificate_without_a_restart";
    if !network::is_inside(test, &hosts(1)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let mut certificates = Certificates::issue(dir.path(), requests());
        let members = start(version, dir.path(), &certificates, 1);
        let tls = operator(&certificates);
        quorum(version, &members, 0, &tls).await;
        // As if the cluster's domain were another one by now.
        let name = "etcd-client.default.svc.k8s.example.com";
        let renamed = Tls { server_name: Some(name.to_owned()), ..tls };
        let refused = ask(0, &renamed, true).await.unwrap_err().to_string();
        assert!(refused.contains("certificate"), "{version}: {refused}");
        let mut server = request(&secrets::server(CLUSTER));
        server.dns_names.push(name.to_owned());
        certificates.issue_one(server);
        ask(0, &renamed, true).await.unwrap();
    }
}
