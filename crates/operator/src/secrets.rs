//! The Secrets that hold certificates: read by name, never listed, and overwritten only after a hand was in them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use quorate_api::EtcdCluster;
use quorate_api::names::{self, annotations, labels, secrets};
use quorate_core::build::certificates::CertificateRequest;
use quorate_core::validate;
use quorate_core::view::{CertificateFact, SecretsSeen};
use quorate_core::{Kind, ObjectKey, View};

use crate::act::within;
use crate::error::Error;
use crate::pki::{self, Authority, Issued};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITY: &str = "ca.crt";
const TLS_TYPE: &str = "kubernetes.io/tls";

/// How long a Secret is taken to exist without asking again. Secrets are not watched, so this is how long one that was
/// deleted by hand stays away.
const KNOWN_FOR: Duration = Duration::from_mins(1);

/// How long a refusal may be due to a right that is still on its way.
const FOR_RIGHTS: Duration = Duration::from_secs(2);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// What is known about certificates, by namespace and Secret.
#[derive(Debug, Default)]
pub struct Certificates {
    known: Mutex<HashMap<(String, String), Known>>,
    /// Clusters, by identifier, whose Secrets could not be read at the last look.
    refused: Mutex<HashSet<String>>,
}

#[derive(Clone, Debug)]
struct Known {
    cluster_uid: String,
    fact: CertificateFact,
    until: Instant,
}

impl Certificates {
    /// Adds the certificates that exist to a view, and the Secrets that are in their place.
    pub async fn add_to(&self, client: &Client, view: &mut View) -> Result<(), Error> {
        // By the spec that is followed: another one may be in effect than the one that is written.
        if !validate::accept(view).desired.is_some_and(|desired| desired.encrypted) {
            return Ok(());
        }
        let cluster = &view.cluster;
        let binding = ObjectKey::new(Kind::RoleBinding, names::operator_binding(&cluster.name_any()));
        if view.platform.account.is_some() && !view.objects.contains_key(&binding) {
            view.secrets = SecretsSeen::NotAsked;
            return Ok(());
        }
        let found = match self.find_all(client, cluster).await {
            Err(error) if is_refusal(&error) => {
                self.lock_refused().insert(cluster.uid().unwrap_or_default());
                view.secrets = SecretsSeen::Refused;
                return Ok(());
            }
            found => found?,
        };
        self.lock_refused().remove(&cluster.uid().unwrap_or_default());
        for (name, found) in found {
            match found {
                Found::Nothing => {}
                Found::Certificate(fact) => drop(view.certificates.insert(name, fact)),
                Found::Taken => drop(view.taken_secrets.insert(name)),
            }
        }
        Ok(())
    }

    /// The first with patience: a right that was just given is not known to all of the API server yet.
    async fn find_all(&self, client: &Client, cluster: &EtcdCluster) -> Result<Vec<(String, Found)>, Error> {
        let names = names_of(&cluster.name_any());
        let was_refused = self.lock_refused().contains(&cluster.uid().unwrap_or_default());
        let until = Instant::now() + if was_refused { Duration::ZERO } else { FOR_RIGHTS };
        while let [first, ..] = &names
            && let Err(error) = self.find(client, cluster, first).await
        {
            if !is_refusal(&error) || Instant::now() >= until {
                return Err(error);
            }
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
        let found = names.into_iter().map(|name| async move {
            let found = self.find(client, cluster, &name).await?;
            Ok::<_, Error>((name, found))
        });
        futures::future::try_join_all(found).await
    }

    async fn find(&self, client: &Client, cluster: &EtcdCluster, name: &str) -> Result<Found, Error> {
        let namespace = cluster.namespace().unwrap_or_default();
        let cluster_uid = cluster.uid().unwrap_or_default();
        let key = (namespace.clone(), name.to_owned());
        let now = Instant::now();
        let known =
            self.lock().get(&key).filter(|known| known.cluster_uid == cluster_uid && now < known.until).cloned();
        if let Some(known) = known {
            return Ok(Found::Certificate(known.fact));
        }
        // The metadata alone: what is in the Secret does not leave the API server.
        let api = Api::<Secret>::namespaced(client.clone(), &namespace);
        let found = within(&format!("read Secret {name}"), api.get_metadata_opt(name)).await?;
        let mut found = found.map_or(Found::Nothing, |secret| judge(&secret.metadata, &cluster_uid));
        if let Found::Certificate(fact) = &mut found
            && fact.edited
            && is_authority(&cluster.name_any(), name)
        {
            fact.edited = !is_put_back(&api, name).await?;
        }
        match &found {
            // It will not be so for long: it is issued anew, or a human puts it back.
            Found::Certificate(fact) if fact.edited => self.lock().remove(&key),
            Found::Certificate(fact) => {
                self.lock().insert(key, Known { cluster_uid, fact: fact.clone(), until: now + KNOWN_FOR })
            }
            Found::Nothing | Found::Taken => self.lock().remove(&key),
        };
        Ok(found)
    }

    /// Forgets the Secrets of a cluster that is gone.
    pub fn forget(&self, namespace: &str, cluster: &str) {
        let names = names_of(cluster);
        self.lock().retain(|(place, name), _| place != namespace || !names.contains(name));
    }

    fn lock_refused(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_authority(cluster: &str, secret: &str) -> bool {
    [secrets::peer_ca(cluster), secrets::client_ca(cluster)].iter().any(|name| name == secret)
}

/// Whether an authority that somebody else has written holds the certificate that we made.
async fn is_put_back(api: &Api<Secret>, name: &str) -> Result<bool, Error> {
    let found = within(&format!("read Secret {name}"), api.get_opt(name)).await?;
    Ok(found.is_some_and(|secret| {
        let expected = secret.metadata.annotations.as_ref().and_then(|all| all.get(annotations::CERTIFICATE_DIGEST));
        expected.is_some_and(|expected| *expected == digest(text(&secret, CERTIFICATE)))
    }))
}

fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Api { source: kube::Error::Api(status), .. } if status.code == 403)
}

fn names_of(cluster: &str) -> [String; 7] {
    [
        secrets::peer_ca(cluster),
        secrets::client_ca(cluster),
        secrets::peer(cluster),
        secrets::server(cluster),
        secrets::agent(cluster),
        secrets::operator(cluster),
        secrets::client(cluster),
    ]
}

/// What there is under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Certificate(CertificateFact),
    /// Somebody else's, or that of an earlier cluster of the same name, which is about to be collected.
    Taken,
}

/// What the annotations say, if the Secret belongs to this very cluster. It is the cluster's also if a hand has removed
/// them.
fn judge(metadata: &ObjectMeta, cluster_uid: &str) -> Found {
    if !is_owned_by(metadata, cluster_uid) || metadata.deletion_timestamp.is_some() {
        return Found::Taken;
    }
    let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
    let time = |key: &str| annotation(key)?.parse().ok();
    Found::Certificate(CertificateFact {
        serial: annotation(annotations::CERTIFICATE_SERIAL).cloned(),
        not_before: time(annotations::CERTIFICATE_NOT_BEFORE),
        not_after: time(annotations::CERTIFICATE_NOT_AFTER),
        edited: is_edited(metadata.managed_fields.as_deref().unwrap_or_default()),
    })
}

/// Whether any part of key and certificate is not as we wrote it. The API server keeps who wrote what, and whoever
/// changes something takes it from its writer, so the content itself need not be read.
fn is_edited(writers: &[ManagedFieldsEntry]) -> bool {
    let wrote = |entry: &ManagedFieldsEntry, part: &str| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0["f:data"]);
        fields.is_some_and(|data| !data[format!("f:{part}")].is_null())
    };
    let ours = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(labels::MANAGER);
    [CERTIFICATE, KEY, AUTHORITY].iter().any(|part| !writers.iter().filter(ours).any(|entry| wrote(entry, part)))
}

fn is_owned_by(metadata: &ObjectMeta, uid: &str) -> bool {
    metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid && !uid.is_empty())
}

/// Makes the certificate and its Secret. An existing Secret is overwritten only if the request says so and it is this
/// cluster's.
pub async fn issue(
    client: &Client,
    cluster: &EtcdCluster,
    request: &CertificateRequest,
    now: Timestamp,
) -> Result<(), Error> {
    let api = Api::<Secret>::namespaced(client.clone(), &cluster.namespace().unwrap_or_default());
    let failed = |source| Error::Pki { secret: request.secret.clone(), source };
    let issued = match &request.issuer {
        None => pki::issue(request, None, now).map_err(failed)?,
        Some(issuer) => {
            let secret = read_authority(&api, cluster, issuer).await?;
            let authority =
                Authority { secret: issuer, certificate_pem: text(&secret, CERTIFICATE), key_pem: text(&secret, KEY) };
            pki::issue(request, Some(&authority), now).map_err(failed)?
        }
    };
    if request.replace {
        return replace(&api, cluster, request, issued).await;
    }
    let created = api
        .create(
            &PostParams { field_manager: Some(labels::MANAGER.to_owned()), ..PostParams::default() },
            &secret(cluster, request, issued),
        )
        .await;
    match created {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            taken_unless_ours(&api, cluster, request).await
        }
        Err(source) => Err(Error::api(format!("create Secret {}", request.secret), source)),
    }
}

async fn replace(
    api: &Api<Secret>,
    cluster: &EtcdCluster,
    request: &CertificateRequest,
    issued: Issued,
) -> Result<(), Error> {
    let name = &request.secret;
    taken_unless_ours(api, cluster, request).await?;
    let params = PatchParams::apply(labels::MANAGER).force();
    let patch = Patch::Apply(secret(cluster, request, issued));
    within(&format!("replace Secret {name}"), api.patch(name, &params, &patch)).await?;
    Ok(())
}

/// Somebody was faster: this operator before it died, or a stranger.
async fn taken_unless_ours(
    api: &Api<Secret>,
    cluster: &EtcdCluster,
    request: &CertificateRequest,
) -> Result<(), Error> {
    let name = &request.secret;
    let found = api.get_metadata_opt(name).await.map_err(|source| Error::api(format!("read Secret {name}"), source))?;
    let uid = cluster.uid().unwrap_or_default();
    match found {
        Some(secret) if judge(&secret.metadata, &uid) != Found::Taken => Ok(()),
        Some(_) => Err(Error::SecretTaken { name: name.clone() }),
        None => Err(Error::Outdated { what: format!("Secret {name}") }),
    }
}

async fn read_authority(api: &Api<Secret>, cluster: &EtcdCluster, name: &str) -> Result<Secret, Error> {
    let found = api.get_opt(name).await.map_err(|source| Error::api(format!("read Secret {name}"), source))?;
    let secret = found.ok_or_else(|| Error::Outdated { what: format!("Secret {name}") })?;
    if is_owned_by(&secret.metadata, &cluster.uid().unwrap_or_default()) {
        Ok(secret)
    } else {
        Err(Error::SecretTaken { name: name.to_owned() })
    }
}

fn text<'a>(secret: &'a Secret, key: &str) -> &'a str {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.as_slice());
    std::str::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
}

fn secret(cluster: &EtcdCluster, request: &CertificateRequest, issued: Issued) -> Secret {
    let name = cluster.name_any();
    let bytes = |pem: String| ByteString(pem.into_bytes());
    Secret {
        metadata: ObjectMeta {
            name: Some(request.secret.clone()),
            namespace: cluster.namespace(),
            labels: Some(BTreeMap::from([
                (labels::CLUSTER.to_owned(), name.clone()),
                (labels::NAME.to_owned(), "etcd".to_owned()),
                (labels::INSTANCE.to_owned(), name),
                (labels::MANAGED_BY.to_owned(), labels::MANAGER.to_owned()),
            ])),
            annotations: Some(BTreeMap::from([
                (annotations::CERTIFICATE_SERIAL.to_owned(), issued.serial),
                (annotations::CERTIFICATE_NOT_BEFORE.to_owned(), issued.not_before.to_string()),
                (annotations::CERTIFICATE_NOT_AFTER.to_owned(), issued.not_after.to_string()),
                (annotations::CERTIFICATE_SUBJECT.to_owned(), subject(request)),
                (annotations::CERTIFICATE_DIGEST.to_owned(), digest(&issued.certificate_pem)),
            ])),
            owner_references: cluster.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(TLS_TYPE.to_owned()),
        data: Some(BTreeMap::from([
            (CERTIFICATE.to_owned(), bytes(issued.certificate_pem)),
            (KEY.to_owned(), bytes(issued.key_pem)),
            (AUTHORITY.to_owned(), bytes(issued.authority_pem)),
        ])),
        ..Secret::default()
    }
}

/// A digest of what the certificate is valid for, so that a later release can tell which to issue anew.
fn subject(request: &CertificateRequest) -> String {
    let names = [&[request.common_name.clone()][..], &request.dns_names, &request.ip_addresses].concat().join("\n");
    digest(&names)
}

fn digest(text: &str) -> String {
    let digest = <sha2::Sha256 as sha2::Digest>::digest(text.as_bytes());
    let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
    use quorate_api::EtcdClusterSpec;
    use quorate_core::build::certificates::Purpose;

    fn cluster(uid: &str) -> EtcdCluster {
        let mut cluster = EtcdCluster::new("etcd", EtcdClusterSpec::default());
        cluster.metadata.namespace = Some("default".to_owned());
        cluster.metadata.uid = Some(uid.to_owned());
        cluster
    }

    fn authority() -> CertificateRequest {
        CertificateRequest {
            secret: secrets::peer_ca("etcd"),
            purpose: Purpose::Authority,
            issuer: None,
            common_name: "etcd-peer-ca".to_owned(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            replace: false,
        }
    }

    #[test]
    fn what_is_written_is_what_is_read_back() {
        let issued = pki::issue(&authority(), None, Timestamp::now()).unwrap();
        let (serial, not_after) = (issued.serial.clone(), issued.not_after);
        let secret = secret(&cluster("a"), &authority(), issued);
        let Found::Certificate(fact) = judge(&secret.metadata, "a") else { panic!() };
        assert_eq!((fact.serial, fact.not_after), (Some(serial), Some(not_after)));
        assert!(text(&secret, KEY).starts_with("-----BEGIN PRIVATE KEY-----"));
    }

    #[test]
    fn a_certificate_whose_annotations_a_hand_removed_is_still_one() {
        let issued = pki::issue(&authority(), None, Timestamp::now()).unwrap();
        let secret = secret(&cluster("a"), &authority(), issued);
        let bare = ObjectMeta { annotations: None, ..secret.metadata };
        let Found::Certificate(fact) = judge(&bare, "a") else { panic!() };
        assert_eq!((fact.serial, fact.not_after), (None, None));
    }

    fn writer(manager: &str, parts: &[&str]) -> ManagedFieldsEntry {
        let data = parts.iter().map(|part| (format!("f:{part}"), serde_json::json!({})));
        let data = serde_json::Value::Object(data.collect());
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            fields_v1: Some(FieldsV1(serde_json::json!({ "f:data": data }))),
            ..ManagedFieldsEntry::default()
        }
    }

    #[test]
    fn a_hand_in_the_data_is_seen_without_reading_it() {
        let ours = writer("quorate", &["tls.crt", "tls.key", "ca.crt"]);
        assert!(!is_edited(std::slice::from_ref(&ours)));
        assert!(!is_edited(&[ours.clone(), writer("kubectl", &["notes"])]), "one more entry does no harm");
        assert!(!is_edited(&[ours, writer("kubectl", &["ca.crt"])]), "both wrote the same");
        assert!(is_edited(&[writer("quorate", &["tls.crt", "ca.crt"]), writer("kubectl", &["tls.key"])]));
        assert!(is_edited(&[writer("quorate", &["tls.crt", "ca.crt"])]), "it was removed");
        assert!(is_edited(&[]));
    }

    #[test]
    fn the_secret_of_an_earlier_cluster_is_in_the_way() {
        let issued = pki::issue(&authority(), None, Timestamp::now()).unwrap();
        let secret = secret(&cluster("old"), &authority(), issued);
        assert_eq!(judge(&secret.metadata, "new"), Found::Taken);
        assert_eq!(judge(&ObjectMeta { owner_references: None, ..secret.metadata }, ""), Found::Taken);
    }
}
