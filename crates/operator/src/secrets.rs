//! The Secrets that hold certificates: read by name, never listed, and overwritten only by what takes
//! the place of the certificate that was seen there.

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
use quorate_api::names::{annotations, labels, secrets};
use quorate_core::build::certificates::{CertificateRequest, Replaced};
use quorate_core::view::{CertificateFact, SecretsSeen};
use quorate_core::{ClusterIdentity, View, short_digest};
use quorate_etcd::client::Tls;

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
    /// Adds what is known without asking, if that is everything.
    pub fn add_remembered(&self, view: &mut View) {
        let now = Instant::now();
        let (namespace, uid) = (view.identity.namespace(), view.identity.uid());
        let known = self.lock();
        let fact = |name: String| {
            let known = known.get(&(namespace.to_owned(), name.clone()))?;
            (known.cluster_uid == uid && now < known.until).then(|| (name, known.fact.clone()))
        };
        let facts = secrets::all(view.identity.name()).into_iter().map(fact).collect::<Option<Vec<_>>>();
        if let Some(facts) = facts {
            view.certificates.extend(facts);
            view.secrets = SecretsSeen::Read;
        }
    }

    /// Adds the certificates that exist to a view, and the Secrets that are in their place.
    pub async fn add_to(&self, client: &Client, view: &mut View) -> Result<(), Error> {
        let uid = view.identity.uid().to_owned();
        let found = match self.find_all(client, &view.identity).await {
            Err(error) if is_refusal(&error) => {
                self.lock_refused().insert(uid);
                view.secrets = SecretsSeen::Refused;
                return Ok(());
            }
            found => found?,
        };
        self.lock_refused().remove(&uid);
        view.secrets = SecretsSeen::Read;
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
    async fn find_all(&self, client: &Client, cluster: &ClusterIdentity) -> Result<Vec<(String, Found)>, Error> {
        let names = secrets::all(cluster.name());
        let was_refused = self.lock_refused().contains(cluster.uid());
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

    async fn find(&self, client: &Client, cluster: &ClusterIdentity, name: &str) -> Result<Found, Error> {
        let cluster_uid = cluster.uid().to_owned();
        let key = (cluster.namespace().to_owned(), name.to_owned());
        let now = Instant::now();
        let known =
            self.lock().get(&key).filter(|known| known.cluster_uid == cluster_uid && now < known.until).cloned();
        if let Some(known) = known {
            return Ok(Found::Certificate(known.fact));
        }
        // The metadata alone: what is in the Secret does not leave the API server.
        let api = Api::<Secret>::namespaced(client.clone(), cluster.namespace());
        let found = within(&format!("read Secret {name}"), api.get_metadata_opt(name)).await?;
        let mut found = found.map_or(Found::Nothing, |secret| judge(&secret.metadata, &cluster_uid));
        if let Found::Certificate(fact) = &mut found
            && fact.edited
            && is_authority(cluster.name(), name)
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
        let names = secrets::all(cluster);
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
        expected.is_some_and(|expected| *expected == short_digest(text(&secret, CERTIFICATE).as_bytes()))
    }))
}

fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Api { source: kube::Error::Api(status), .. } if status.code == 403)
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
/// them; what a hand has written into them counts for nothing.
fn judge(metadata: &ObjectMeta, cluster_uid: &str) -> Found {
    if !is_owned_by(metadata, cluster_uid) || metadata.deletion_timestamp.is_some() {
        return Found::Taken;
    }
    let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
    let writers = metadata.managed_fields.as_deref().unwrap_or_default();
    let ours = |key: &str| wrote(writers, &["f:metadata", "f:annotations", &format!("f:{key}")]);
    let time = |key: &str| annotation(key).filter(|_| ours(key))?.parse().ok();
    Found::Certificate(CertificateFact {
        serial: annotation(annotations::CERTIFICATE_SERIAL).cloned(),
        issued: time(annotations::CERTIFICATE_ISSUED),
        not_after: time(annotations::CERTIFICATE_NOT_AFTER),
        subject: annotation(annotations::CERTIFICATE_SUBJECT)
            .filter(|_| ours(annotations::CERTIFICATE_SUBJECT))
            .cloned(),
        edited: is_edited(writers),
    })
}

/// Whether any part of key and certificate is not as we wrote it. The API server keeps who wrote what, and whoever
/// changes something takes it from its writer, so the content itself need not be read.
fn is_edited(writers: &[ManagedFieldsEntry]) -> bool {
    [CERTIFICATE, KEY, AUTHORITY].iter().any(|part| !wrote(writers, &["f:data", &format!("f:{part}")]))
}

/// Whether the operator was the last to write a field.
fn wrote(writers: &[ManagedFieldsEntry], path: &[&str]) -> bool {
    let ours = writers.iter().filter(|entry| entry.manager.as_deref() == Some(labels::MANAGER));
    let mut fields = ours.filter_map(|entry| entry.fields_v1.as_ref());
    fields.any(|fields| !path.iter().fold(&fields.0, |field, step| &field[*step]).is_null())
}

fn is_owned_by(metadata: &ObjectMeta, uid: &str) -> bool {
    metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid && !uid.is_empty())
}

/// Makes the certificate and its Secret. An existing Secret is overwritten only if the request says so and it is this
/// cluster's.
pub async fn issue(
    client: &Client,
    identity: &ClusterIdentity,
    cluster: &EtcdCluster,
    request: &CertificateRequest,
    now: Timestamp,
) -> Result<(), Error> {
    let api = Api::<Secret>::namespaced(client.clone(), identity.namespace());
    let failed = |source| Error::Pki { secret: request.secret.clone(), source };
    let issued = match &request.issuer {
        None => pki::issue(request, None, now).map_err(failed)?,
        Some(issuer) => {
            let secret = read_owned(&api, identity.uid(), issuer).await?;
            let start = match judge(&secret.metadata, identity.uid()) {
                Found::Certificate(fact) => fact.issued,
                Found::Nothing | Found::Taken => None,
            };
            let authority = Authority {
                secret: issuer,
                certificate_pem: text(&secret, CERTIFICATE),
                key_pem: text(&secret, KEY),
                issued: start,
            };
            pki::issue(request, Some(&authority), now).map_err(failed)?
        }
    };
    if let Some(replaced) = &request.replaces {
        return replace(&api, identity, cluster, request, replaced, issued).await;
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
            taken_unless_ours(&api, identity, request).await
        }
        Err(source) => Err(Error::api(format!("create Secret {}", request.secret), source)),
    }
}

async fn replace(
    api: &Api<Secret>,
    identity: &ClusterIdentity,
    cluster: &EtcdCluster,
    request: &CertificateRequest,
    replaced: &Replaced,
    issued: Issued,
) -> Result<(), Error> {
    let name = &request.secret;
    let found = within(&format!("read Secret {name}"), api.get_metadata_opt(name)).await?;
    let found = found.ok_or_else(|| Error::Outdated { what: format!("Secret {name}") })?.metadata;
    match judge(&found, identity.uid()) {
        Found::Certificate(fact) if fact.serial == replaced.serial => {}
        Found::Certificate(_) | Found::Nothing => return Err(Error::Outdated { what: format!("Secret {name}") }),
        Found::Taken => return Err(Error::SecretTaken { name: name.clone() }),
    }
    let params = PatchParams::apply(labels::MANAGER).force();
    let mut secret = secret(cluster, request, issued);
    secret.metadata.resource_version = found.resource_version;
    let patch = Patch::Apply(secret);
    within(&format!("replace Secret {name}"), api.patch(name, &params, &patch)).await?;
    Ok(())
}

/// Somebody was faster: this operator before it died, or a stranger.
async fn taken_unless_ours(
    api: &Api<Secret>,
    identity: &ClusterIdentity,
    request: &CertificateRequest,
) -> Result<(), Error> {
    let name = &request.secret;
    let found = api.get_metadata_opt(name).await.map_err(|source| Error::api(format!("read Secret {name}"), source))?;
    match found {
        Some(secret) if judge(&secret.metadata, identity.uid()) != Found::Taken => Ok(()),
        Some(_) => Err(Error::SecretTaken { name: name.clone() }),
        None => Err(Error::Outdated { what: format!("Secret {name}") }),
    }
}

/// The operator's own certificate for a cluster's etcd, and the authority that the members' certificates are of.
pub async fn operator_identity(client: &Client, namespace: &str, cluster: &str, uid: &str) -> Result<Tls, Error> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = read_owned(&api, uid, &secrets::operator(cluster)).await?;
    let part = |key: &str| text(&secret, key).as_bytes().to_vec();
    Ok(Tls { ca: part(AUTHORITY), identity: Some((part(CERTIFICATE), part(KEY))), server_name: None })
}

async fn read_owned(api: &Api<Secret>, cluster_uid: &str, name: &str) -> Result<Secret, Error> {
    let found = within(&format!("read Secret {name}"), api.get_opt(name)).await?;
    let secret = found.ok_or_else(|| Error::Outdated { what: format!("Secret {name}") })?;
    if is_owned_by(&secret.metadata, cluster_uid) {
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
                (annotations::CERTIFICATE_ISSUED.to_owned(), issued.issued.to_string()),
                (annotations::CERTIFICATE_NOT_AFTER.to_owned(), issued.not_after.to_string()),
                (annotations::CERTIFICATE_SUBJECT.to_owned(), request.subject()),
                (annotations::CERTIFICATE_DIGEST.to_owned(), short_digest(issued.certificate_pem.as_bytes())),
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
            replaces: None,
        }
    }

    #[test]
    fn what_is_written_is_what_is_read_back() {
        let issued = pki::issue(&authority(), None, Timestamp::now()).unwrap();
        let (serial, not_after) = (issued.serial.clone(), issued.not_after);
        let mut secret = secret(&cluster("a"), &authority(), issued);
        secret.metadata.managed_fields = Some(vec![annotator("quorate", &secret)]);
        let Found::Certificate(fact) = judge(&secret.metadata, "a") else { panic!() };
        assert_eq!((fact.serial, fact.not_after), (Some(serial), Some(not_after)));
        assert_eq!(fact.subject, Some(authority().subject()));
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

    #[test]
    fn an_end_that_a_hand_wrote_is_not_believed() {
        let issued = pki::issue(&authority(), None, Timestamp::now()).unwrap();
        let mut secret = secret(&cluster("a"), &authority(), issued);
        secret.metadata.managed_fields = Some(vec![annotator("kubectl", &secret)]);
        let Found::Certificate(fact) = judge(&secret.metadata, "a") else { panic!() };
        assert_eq!((fact.issued, fact.not_after, fact.subject), (None, None, None));
    }

    fn annotator(manager: &str, secret: &Secret) -> ManagedFieldsEntry {
        let keys = secret.metadata.annotations.iter().flatten();
        let annotations = keys.map(|(key, _)| (format!("f:{key}"), serde_json::json!({}))).collect();
        let fields = serde_json::json!({ "f:metadata": { "f:annotations": serde_json::Value::Object(annotations) } });
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            fields_v1: Some(FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        }
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
