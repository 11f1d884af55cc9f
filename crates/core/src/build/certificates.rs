//! Which certificates a cluster with managed TLS needs.

use quorate_api::names::{self, secrets};
use serde::Serialize;

use super::addresses;
use crate::context::Context;
use crate::drift::short_digest;

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
    /// The certificate whose place it takes.
    pub replaces: Option<Replaced>,
}

/// A certificate that is there, as its Secret described it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replaced {
    pub serial: Option<String>,
}

impl CertificateRequest {
    /// A digest of what the certificate is for: if it differs, another one is needed.
    pub fn subject(&self) -> String {
        let names = self.dns_names.iter().map(|name| format!("DNS:{name}"));
        let addresses = self.ip_addresses.iter().map(|address| format!("IP:{address}"));
        let head = format!("{:?} CN:{}", self.purpose, self.common_name);
        let lines = std::iter::once(head).chain(names).chain(addresses).collect::<Vec<_>>();
        short_digest(lines.join("\n").as_bytes())
    }
}

/// What a certificate may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Purpose {
    Authority,
    /// A member towards members that dial it.
    Peer,
    /// etcd towards its clients. Also as client: etcd's own gateway connects to itself.
    Server,
    /// Whoever dials.
    Client,
}

/// All certificates, authorities first.
///
/// There are two authorities, so that no certificate of a client, of an agent or of the operator can ever join as a
/// member.
///
/// A member that is dialled proves its name; one that dials proves only that it is a member. If its certificate named any
/// host, etcd would look the caller's address up in DNS and refuse it unless that gave one of the names.
pub(crate) fn wanted(context: &Context<'_>) -> Vec<CertificateRequest> {
    let name = context.name;
    let authority = |secret: String| CertificateRequest {
        common_name: secret.clone(),
        secret,
        purpose: Purpose::Authority,
        issuer: None,
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        replaces: None,
    };
    let client = |secret: String, issuer: String, common_name: &str| CertificateRequest {
        secret,
        purpose: Purpose::Client,
        issuer: Some(issuer),
        common_name: common_name.to_owned(),
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        replaces: None,
    };
    vec![
        authority(secrets::peer_ca(name)),
        authority(secrets::client_ca(name)),
        CertificateRequest {
            secret: secrets::peer(name),
            purpose: Purpose::Peer,
            issuer: Some(secrets::peer_ca(name)),
            common_name: "member".to_owned(),
            dns_names: vec![format!("*.{}", addresses::peer_domain(context))],
            ip_addresses: Vec::new(),
            replaces: None,
        },
        client(secrets::peer_client(name), secrets::peer_ca(name), "member"),
        CertificateRequest {
            secret: secrets::server(name),
            purpose: Purpose::Server,
            issuer: Some(secrets::client_ca(name)),
            common_name: "server".to_owned(),
            dns_names: server_names(context),
            ip_addresses: vec!["127.0.0.1".to_owned(), "::1".to_owned()],
            replaces: None,
        },
        client(secrets::agent(name), secrets::client_ca(name), "agent"),
        client(secrets::operator(name), secrets::client_ca(name), "operator"),
        client(secrets::client(name), secrets::client_ca(name), "client"),
    ]
}

/// Clients may write the Service in any of its forms, and members as well. Quorate itself never uses the full ones.
fn server_names(context: &Context<'_>) -> Vec<String> {
    let service = names::client_service(context.name);
    let (client, member) = (addresses::client_domain(context), format!("*.{}", addresses::peer_domain(context)));
    let domain = &context.view.platform.cluster_domain;
    vec![
        service.clone(),
        format!("{service}.{}", context.namespace),
        client.clone(),
        format!("{client}.{domain}"),
        member.clone(),
        format!("{member}.{domain}"),
        "localhost".to_owned(),
    ]
}
