//! Which certificates a cluster with managed TLS needs.

use quorate_api::names::{self, secrets};
use serde::Serialize;

use super::addresses;
use crate::context::Context;

/// A certificate to be made. Names only: keys never pass through a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CertificateRequest {
    /// The Secret that will hold it.
    pub secret: String,
    pub purpose: Purpose,
    /// Secret of the authority that signs it. `None` for an authority.
    pub issuer: Option<String>,
    pub common_name: String,
    pub dns_names: Vec<String>,
    pub ip_addresses: Vec<String>,
    /// Whether it takes the place of one that is there.
    pub replace: bool,
}

/// What a certificate may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Purpose {
    Authority,
    /// Both ends of a connection between members.
    Peer,
    /// etcd towards its clients. Also as client: etcd's own gateway connects to itself.
    Server,
    Client,
}

/// All certificates, authorities first.
///
/// There are two authorities, so that no certificate of a client, of an agent or of the operator can ever join as a
/// member.
pub(crate) fn wanted(context: &Context<'_>) -> Vec<CertificateRequest> {
    let name = context.name;
    let authority = |secret: String| CertificateRequest {
        common_name: secret.clone(),
        secret,
        purpose: Purpose::Authority,
        issuer: None,
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        replace: false,
    };
    let client = |secret: String, common_name: &str| CertificateRequest {
        secret,
        purpose: Purpose::Client,
        issuer: Some(secrets::client_ca(name)),
        common_name: common_name.to_owned(),
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        replace: false,
    };
    let local = || vec!["127.0.0.1".to_owned(), "::1".to_owned()];
    vec![
        authority(secrets::peer_ca(name)),
        authority(secrets::client_ca(name)),
        CertificateRequest {
            secret: secrets::peer(name),
            purpose: Purpose::Peer,
            issuer: Some(secrets::peer_ca(name)),
            common_name: "member".to_owned(),
            dns_names: member_names(context),
            ip_addresses: local(),
            replace: false,
        },
        CertificateRequest {
            secret: secrets::server(name),
            purpose: Purpose::Server,
            issuer: Some(secrets::client_ca(name)),
            common_name: "server".to_owned(),
            dns_names: server_names(context),
            ip_addresses: local(),
            replace: false,
        },
        client(secrets::agent(name), "agent"),
        client(secrets::operator(name), "operator"),
        client(secrets::client(name), "client"),
    ]
}

/// etcd looks a peer's address up in DNS and gets the full name, so both forms are in the certificate.
fn member_names(context: &Context<'_>) -> Vec<String> {
    let domain = addresses::peer_domain(context);
    vec![format!("*.{domain}"), format!("*.{domain}.{}", context.view.platform.cluster_domain), "localhost".to_owned()]
}

fn server_names(context: &Context<'_>) -> Vec<String> {
    let service = names::client_service(context.name);
    let domain = addresses::client_domain(context);
    let mut all = vec![
        service.clone(),
        format!("{service}.{}", context.namespace),
        domain.clone(),
        format!("{domain}.{}", context.view.platform.cluster_domain),
    ];
    all.extend(member_names(context));
    all
}
