//! Keys and certificates. Nothing here is ever logged: the types that hold keys have no `Debug` that shows them.

use std::net::IpAddr;
use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use quorate_core::build::certificates::{CertificateRequest, Purpose};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};

const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Clocks differ: a certificate must be good for a node whose clock is behind.
const BACKDATED: SignedDuration = SignedDuration::from_mins(5);
/// Shortest serial that nobody can guess, as public authorities use it.
const SERIAL_BYTES: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("there is no source of randomness")]
    NoRandomness,
    #[error("{0:?} is not an address")]
    BadAddress(String),
    #[error("the end of validity is out of range")]
    BadLifetime,
    #[error("the authority in Secret {0} is unusable; if it was damaged by hand, remove the Secrets of the cluster")]
    BadAuthority(String),
    #[error("the certificate cannot be made")]
    Make(#[from] rcgen::Error),
}

/// A key with its certificate, and the certificate of the authority behind it.
pub struct Issued {
    pub certificate_pem: String,
    pub key_pem: String,
    pub authority_pem: String,
    /// In hexadecimal.
    pub serial: String,
    pub issued: Timestamp,
    pub not_after: Timestamp,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued")
            .field("serial", &self.serial)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// The authority that signs: certificate and key.
pub struct Authority<'a> {
    pub secret: &'a str,
    pub certificate_pem: &'a str,
    pub key_pem: &'a str,
    /// When it was issued itself, if that is known.
    pub issued: Option<Timestamp>,
}

impl std::fmt::Debug for Authority<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("secret", &self.secret).finish_non_exhaustive()
    }
}

/// Makes a key and a certificate. Without authority it signs itself.
///
/// A leaf is valid from the beginning of its authority: if the operator's clock is ahead, even by months, what it issues
/// is good at once for those whose clocks are right.
pub fn issue(
    request: &CertificateRequest,
    authority: Option<&Authority<'_>>,
    now: Timestamp,
) -> Result<Issued, PkiError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    // Certificates know no fractions of a second.
    let now = Timestamp::from_second(now.as_second()).map_err(|_| PkiError::BadLifetime)?;
    let backdated = now.checked_sub(BACKDATED).map_err(|_| PkiError::BadLifetime)?;
    let not_before = authority.and_then(|authority| authority.issued).map_or(backdated, |start| start.min(backdated));
    let life = if request.purpose == Purpose::Authority { AUTHORITY_LIFE } else { LEAF_LIFE };
    let not_after = now.checked_add(life).map_err(|_| PkiError::BadLifetime)?;
    let serial = serial()?;
    let mut params = params(request)?;
    params.not_before = SystemTime::from(not_before).into();
    params.not_after = SystemTime::from(not_after).into();
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    let certificate_pem = match authority {
        None => params.self_signed(&key)?.pem(),
        Some(authority) => {
            let bad = |_| PkiError::BadAuthority(authority.secret.to_owned());
            let signing_key = KeyPair::from_pem(authority.key_pem).map_err(bad)?;
            let issuer = Issuer::from_ca_cert_pem(authority.certificate_pem, signing_key).map_err(bad)?;
            params.signed_by(&key, &issuer)?.pem()
        }
    };
    let authority_pem =
        authority.map_or_else(|| certificate_pem.clone(), |authority| authority.certificate_pem.to_owned());
    let serial = format!("{:032x}", u128::from_be_bytes(serial));
    Ok(Issued { certificate_pem, key_pem: key.serialize_pem(), authority_pem, serial, issued: now, not_after })
}

fn params(request: &CertificateRequest) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::new(request.dns_names.clone())?;
    for text in &request.ip_addresses {
        let address = text.parse::<IpAddr>().map_err(|_| PkiError::BadAddress(text.clone()))?;
        params.subject_alt_names.push(SanType::IpAddress(address));
    }
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, request.common_name.clone());
    params.use_authority_key_identifier_extension = true;
    let (server, client) = (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
    match request.purpose {
        Purpose::Authority => {
            // It signs leaves, never another authority.
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            return Ok(params);
        }
        Purpose::Peer => params.extended_key_usages = vec![server],
        Purpose::Server => params.extended_key_usages = vec![server, client],
        Purpose::Client => params.extended_key_usages = vec![client],
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

/// Random, positive, and of full length: the first bit is 0 and the second is 1.
fn serial() -> Result<[u8; SERIAL_BYTES], PkiError> {
    let mut bytes = [0; SERIAL_BYTES];
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.secure_random.fill(&mut bytes).map_err(|_| PkiError::NoRandomness)?;
    if let Some(first) = bytes.first_mut() {
        *first = *first & 0x3f | 0x40;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(purpose: Purpose, issuer: Option<&str>) -> CertificateRequest {
        CertificateRequest {
            secret: "etcd-server-tls".to_owned(),
            purpose,
            issuer: issuer.map(str::to_owned),
            common_name: "server".to_owned(),
            dns_names: vec!["*.etcd-peer.default.svc".to_owned()],
            ip_addresses: vec!["127.0.0.1".to_owned(), "::1".to_owned()],
            replaces: None,
        }
    }

    fn authority() -> Issued {
        issue(&request(Purpose::Authority, None), None, Timestamp::now()).unwrap()
    }

    fn leaf(by: &Issued, purpose: Purpose) -> Issued {
        leaf_at(by, purpose, Timestamp::now())
    }

    fn leaf_at(by: &Issued, purpose: Purpose, now: Timestamp) -> Issued {
        let authority = Authority {
            secret: "ca",
            certificate_pem: &by.certificate_pem,
            key_pem: &by.key_pem,
            issued: Some(by.issued),
        };
        issue(&request(purpose, Some("ca")), Some(&authority), now).unwrap()
    }

    /// Whether TLS as etcd's clients do it accepts the certificate as a server of this name.
    fn is_trusted(leaf: &Issued, authority_pem: &str, name: &str) -> bool {
        use rustls::client::WebPkiServerVerifier;
        use rustls::client::danger::ServerCertVerifier;
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority_pem.as_bytes()).unwrap()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider().into();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(std::sync::Arc::new(roots), provider).build().unwrap();
        let certificate = CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now()).is_ok()
    }

    #[test]
    fn a_server_is_trusted_under_its_names_only_and_by_its_own_authority_only() {
        let (own, other) = (authority(), authority());
        let server = leaf(&own, Purpose::Server);
        for name in ["etcd-0.etcd-peer.default.svc", "127.0.0.1", "::1"] {
            assert!(is_trusted(&server, &own.certificate_pem, name), "{name}");
        }
        for name in ["etcd-0.etcd-peer.other.svc", "a.etcd-0.etcd-peer.default.svc", "10.0.0.1"] {
            assert!(!is_trusted(&server, &own.certificate_pem, name), "{name}");
        }
        assert!(!is_trusted(&server, &other.certificate_pem, "127.0.0.1"));
    }

    #[test]
    fn a_client_cannot_pose_as_server_and_a_leaf_cannot_sign() {
        let own = authority();
        let client = leaf(&own, Purpose::Client);
        assert!(!is_trusted(&client, &own.certificate_pem, "127.0.0.1"));
        let signed_by_leaf = leaf(&client, Purpose::Server);
        assert!(!is_trusted(&signed_by_leaf, &own.certificate_pem, "127.0.0.1"));
    }

    #[test]
    fn a_leaf_that_was_issued_by_a_clock_far_ahead_is_good_at_once() {
        let own = authority();
        let ahead = Timestamp::now() + SignedDuration::from_hours(300 * 24);
        assert!(is_trusted(&leaf_at(&own, Purpose::Server, ahead), &own.certificate_pem, "127.0.0.1"));
    }

    #[test]
    fn no_key_shows_in_debug_output() {
        let issued = authority();
        let shown = format!("{issued:?}");
        assert!(shown.contains(&issued.serial) && !shown.contains("PRIVATE") && !shown.contains("BEGIN"), "{shown}");
    }

    #[test]
    fn serials_are_long_and_differ() {
        let (one, two) = (authority(), authority());
        assert_eq!(one.serial.len(), 2 * SERIAL_BYTES);
        assert_ne!(one.serial, two.serial);
    }

    #[test]
    fn a_damaged_authority_is_an_error_that_names_its_secret() {
        let authority = Authority { secret: "etcd-client-ca", certificate_pem: "x", key_pem: "y", issued: None };
        let error = issue(&request(Purpose::Client, Some("etcd-client-ca")), Some(&authority), Timestamp::now());
        assert!(error.unwrap_err().to_string().contains("etcd-client-ca"));
    }
}
