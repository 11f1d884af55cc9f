//! What was written and acknowledged, and must never be missing.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    sync::Arc,
    time::Duration,
};

use quorate_etcd::{
    client::{Client, ClientError, Tls, prefix_end},
    pb::rpc::kv::{PutRequest, RangeRequest},
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, Stream,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::{Cluster, eventually};

const PREFIX: &[u8] = b"keys/";

/// Every acknowledged write, with the revision at which it was acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    acknowledged: BTreeMap<Vec<u8>, (Vec<u8>, i64)>,
}

pub async fn put(client: &Client, key: &[u8], value: &[u8]) -> Result<i64, ClientError> {
    let request = PutRequest { key: key.to_vec(), value: value.to_vec(), ..PutRequest::default() };
    Ok(client.put(request).await?.header.unwrap_or_default().revision)
}

pub async fn get(client: &Client, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
    let request = RangeRequest { key: key.to_vec(), ..RangeRequest::default() };
    Ok(client.range(request).await?.kvs.into_iter().next().map(|pair| pair.value))
}

impl Keys {
    /// Writes so many new keys, each through a member that is called ready, until each is acknowledged.
    pub async fn write(&mut self, cluster: &Cluster, count: usize) {
        for _ in 0..count {
            let number = self.acknowledged.len();
            let (key, value) = (format!("keys/{number:08}").into_bytes(), format!("value {number}").into_bytes());
            let revision = eventually("a write is acknowledged", async || {
                let client = serving_member(cluster).await.ok_or("no member is called ready")?;
                put(&client, &key, &value).await.map_err(|error| error.to_string())
            });
            let revision = revision.await;
            self.acknowledged.insert(key, (value, revision));
        }
    }

    /// Asks every member of its own knowledge, with a linearizable read: all there, nothing else, at the same revision.
    pub async fn is_held_by_all(&self, cluster: &Cluster) {
        for ordinal in 0..cluster.size().await {
            let pairs = eventually("a member answers", async || {
                let client = cluster.try_connect(ordinal).await.ok_or("its pod has no address")?;
                client.range(everything()).await.map_err(|error| error.to_string())
            });
            let pairs = pairs.await.kvs;
            let held = pairs.iter().map(|pair| (text(&pair.key), text(&pair.value))).collect::<BTreeMap<_, _>>();
            let written = self.acknowledged.iter().map(|(key, (value, _))| (text(key), text(value)));
            assert_eq!(held, written.collect(), "what {} holds", cluster.member(ordinal));
            for pair in pairs {
                // Later is possible: an attempt whose outcome was unknown may have arrived after its repetition.
                let (_, acknowledged) = self.acknowledged[&pair.key];
                assert!(pair.mod_revision >= acknowledged, "{} was rolled back", text(&pair.key));
            }
        }
    }
}

/// Asks for all that may have been written here.
fn everything() -> RangeRequest {
    RangeRequest { key: PREFIX.to_vec(), range_end: prefix_end(PREFIX), ..RangeRequest::default() }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A connection to a member that the status calls ready.
async fn serving_member(cluster: &Cluster) -> Option<Client> {
    let ready = cluster
        .status()
        .await
        .members
        .into_iter()
        .find(|member| member.status == quorate_api::status::MemberHealth::Ready)?;
    cluster.try_connect(quorate_api::names::ordinal_of(&cluster.name, &ready.name)?).await
}

/// Shakes hands with whatever listens there and asks it something. The answer, or why there is none: an alert says that
/// our certificate was not taken.
pub fn tls_answer(address: &str, port: u16, tls: &Tls, name: &str) -> io::Result<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&tls.ca) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let (chain, key) = tls.identity.as_ref().expect("a certificate to show");
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(chain, key);
    let config = Arc::new(config.map_err(io::Error::other)?);
    let name = name.to_owned().try_into().map_err(io::Error::other)?;
    let mut session = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = std::net::TcpStream::connect((address, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut encrypted = Stream::new(&mut session, &mut stream);
    // In TLS 1.3 a refusal arrives where the answer to the first request would be.
    encrypted.write_all(b"GET /version HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    encrypted.read_to_end(&mut answer)?;
    Ok(answer)
}
