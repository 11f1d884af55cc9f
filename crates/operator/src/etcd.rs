//! The members of a cluster, asked by the operator itself: who is a member, and do all have the same data?
//!
//! Connections are not kept: such a question is asked only before a step that depends on the answer, and a thousand
//! clusters must not cost three thousand open connections.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use quorate_api::member::ListedMember;
use quorate_core::ClusterIdentity;
use quorate_core::build::addresses;
use quorate_core::hashes::DataHash;
use quorate_core::membership::ListAnswer;
use quorate_core::read::{Endpoint, Endpoints};
use quorate_etcd::client::{Client as EtcdClient, ClientError, Options, Tls};
use quorate_etcd::membership::hex_id;

use crate::changes::Confirmed;
use crate::error::Error;
use crate::secrets;
use crate::unanswered::Unanswered;
pub use crate::unanswered::{Hashes, Why};

/// A healthy member answers within milliseconds, also when the answer takes a round to a quorum.
const PATIENCE: Duration = Duration::from_secs(3);
/// Less, so that it shows whether nobody was reached or nobody answered.
const TO_CONNECT: Duration = Duration::from_secs(2);
/// How long a member is asked alone before the next one is asked as well.
const HEAD_START: Duration = Duration::from_millis(300);
/// For the hashes of all members together.
pub(crate) const FOR_HASHES: Duration = Duration::from_mins(2);
/// How long a certificate is used before its Secret is read again.
const KNOWN_FOR: Duration = Duration::from_mins(1);

/// Whom to ask.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub namespace: &'a str,
    pub cluster: &'a str,
    pub cluster_uid: &'a str,
    /// The most promising first.
    pub members: &'a [Endpoint],
    pub client_port: i32,
    pub encrypted: bool,
}

impl<'a> Target<'a> {
    pub fn new(identity: &'a ClusterIdentity, endpoints: &'a Endpoints) -> Self {
        Self {
            namespace: identity.namespace(),
            cluster: identity.name(),
            cluster_uid: identity.uid(),
            members: &endpoints.members,
            client_port: endpoints.client_port,
            encrypted: endpoints.encrypted,
        }
    }
}

/// The members as etcd lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberList {
    /// Identifier of the cluster that answered, in hexadecimal. The caller must see whether it is the right one.
    pub cluster_id: String,
    /// In the order of their identifiers.
    pub members: Vec<ListedMember>,
}

impl From<MemberList> for ListAnswer {
    fn from(MemberList { cluster_id, members }: MemberList) -> Self {
        Self::Answered { cluster_id, members }
    }
}

/// Asks members, with the operator's own certificates.
#[derive(Debug, Default)]
pub struct EtcdClients {
    /// By namespace and cluster.
    identities: Mutex<HashMap<(String, String), Identity>>,
}

#[derive(Clone, Debug)]
struct Identity {
    cluster_uid: String,
    tls: Tls,
    until: Instant,
}

impl EtcdClients {
    /// What the first member that answers says. A linearizable answer is the truth of a quorum at this moment; the other
    /// is what one member believes.
    pub async fn member_list(
        &self,
        client: &kube::Client,
        target: &Target<'_>,
        linearizable: bool,
    ) -> Result<MemberList, Error> {
        let (list, _) = self.first_answer(client, target, linearizable).await?;
        Ok(list)
    }

    /// Who the members are at this moment, from a member that can be asked to change it.
    pub async fn confirm(&self, client: &kube::Client, target: &Target<'_>) -> Result<Confirmed, Error> {
        let (list, member) = self.first_answer(client, target, true).await?;
        Ok(Confirmed { list: list.into(), member })
    }

    async fn first_answer(
        &self,
        client: &kube::Client,
        target: &Target<'_>,
        linearizable: bool,
    ) -> Result<(MemberList, EtcdClient), Error> {
        let tls = if target.encrypted { Some(self.identity(client, target).await?) } else { None };
        let answer = first_answer(target, tls.as_ref(), linearizable).await;
        if answer.is_err() {
            // It may be due to a certificate that was issued anew meanwhile.
            self.lock().remove(&key(target));
        }
        answer
    }

    /// A hash over the data of each member, all at one revision, or why there is none.
    pub async fn hashes(&self, client: &kube::Client, target: &Target<'_>) -> Result<Hashes, Error> {
        let tls = if target.encrypted { Some(self.identity(client, target).await?) } else { None };
        let hashes = hash_members(target, tls.as_ref()).await;
        if hashes.values().all(Result::is_err) {
            self.lock().remove(&key(target));
        }
        Ok(hashes)
    }

    async fn identity(&self, client: &kube::Client, target: &Target<'_>) -> Result<Tls, Error> {
        let key = key(target);
        let now = Instant::now();
        let is_current = |known: &&Identity| known.cluster_uid == target.cluster_uid && now < known.until;
        let known = self.lock().get(&key).filter(is_current).map(|known| known.tls.clone());
        if let Some(tls) = known {
            return Ok(tls);
        }
        let tls = secrets::operator_identity(client, target.namespace, target.cluster, target.cluster_uid).await?;
        let cluster_uid = target.cluster_uid.to_owned();
        let mut identities = self.lock();
        // Keys stay in memory no longer than they are of use.
        identities.retain(|_, known| now < known.until);
        identities.insert(key, Identity { cluster_uid, tls: tls.clone(), until: now + KNOWN_FOR });
        Ok(tls)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), Identity>> {
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(target: &Target<'_>) -> (String, String) {
    (target.namespace.to_owned(), target.cluster.to_owned())
}

/// What the first member that answers says.
pub async fn list_members(target: &Target<'_>, tls: Option<&Tls>, linearizable: bool) -> Result<MemberList, Error> {
    let (list, _) = first_answer(target, tls, linearizable).await?;
    Ok(list)
}

/// Asks the members, one after the other and then together, until one answers.
async fn first_answer(
    target: &Target<'_>,
    tls: Option<&Tls>,
    linearizable: bool,
) -> Result<(MemberList, EtcdClient), Error> {
    let ask = async |endpoint: &Endpoint, head_start: Duration| {
        tokio::time::sleep(head_start).await;
        let answer = list(target, endpoint, tls, linearizable).await;
        answer.map_err(|error| Unanswered::new(&endpoint.member, &error))
    };
    let head_starts = (0..).map(|turn| HEAD_START.saturating_mul(turn));
    let turns = target.members.iter().zip(head_starts);
    let mut answers = turns.map(|(endpoint, wait)| ask(endpoint, wait)).collect::<FuturesUnordered<_>>();
    let mut failures = Vec::new();
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(answer) => return Ok(answer),
            Err(failure) => failures.push(failure),
        }
    }
    Err(Error::NoMemberAnswered { failures })
}

/// Whatever is newest. etcd then looks at its data in any case: for the revision of a compaction it would say again what it
/// found at that time.
const NEWEST: i64 = 0;

/// Asks all members how far they are, and then each for a hash at the revision that all have.
pub async fn hash_members(target: &Target<'_>, tls: Option<&Tls>) -> Hashes {
    let deadline = Instant::now() + FOR_HASHES;
    let reach = target.members.iter().map(async |endpoint| {
        let unanswered = |error: ClientError| Unanswered::new(&endpoint.member, &error);
        let client = connect(target, endpoint, tls).map_err(unanswered)?;
        let status = client.status().await.map_err(unanswered)?;
        Ok((client, status.header.unwrap_or_default().revision))
    });
    let reach = futures::future::join_all(reach).await;
    let members = target.members.iter().map(|endpoint| endpoint.member.clone());
    let members = members.zip(reach).collect::<BTreeMap<String, Result<(EtcdClient, i64), Unanswered>>>();
    let revisions = members.values().flatten().map(|(_, revision)| *revision).collect::<BTreeSet<_>>();
    let Some(&common) = revisions.first() else { return hash_each(&members, NEWEST, deadline).await };
    if revisions.len() == 1 {
        let newest = hash_each(&members, NEWEST, deadline).await;
        let found = newest.values().flatten().map(|found| found.revision).collect::<BTreeSet<_>>();
        if found.len() <= 1 {
            return newest;
        }
    }
    hash_each(&members, common, deadline).await
}

/// One after the other, because a member can hold up writes while it works a hash out.
async fn hash_each(
    members: &BTreeMap<String, Result<(EtcdClient, i64), Unanswered>>,
    revision: i64,
    deadline: Instant,
) -> Hashes {
    let mut hashes = Hashes::new();
    for (member, reach) in members {
        let answer = match reach {
            Ok((client, _)) => {
                let answer = tokio::time::timeout_at(deadline.into(), hash(client, revision)).await;
                let late = format!("not done after {} s for all members together", FOR_HASHES.as_secs());
                answer.map_or_else(
                    |_| Err(Unanswered::other(member, late)),
                    |answer| answer.map_err(|error| Unanswered::new(member, &error)),
                )
            }
            Err(cause) => Err(cause.clone()),
        };
        hashes.insert(member.clone(), answer);
    }
    hashes
}

async fn hash(client: &EtcdClient, revision: i64) -> Result<DataHash, ClientError> {
    let answer = client.hash_kv(revision).await?;
    let header = answer.header.unwrap_or_default();
    // Before 3.6 it is not said over what the hash is; the newest revision at that moment is.
    let said = if answer.hash_revision == 0 { revision } else { answer.hash_revision };
    Ok(DataHash {
        cluster_id: hex_id(header.cluster_id),
        member_id: hex_id(header.member_id),
        revision: if said == NEWEST { header.revision } else { said },
        compact_revision: answer.compact_revision,
        hash: answer.hash,
    })
}

/// Whoever answers at the address must show a certificate for the member's name, unless another one is asked for.
fn connect(target: &Target<'_>, endpoint: &Endpoint, tls: Option<&Tls>) -> Result<EtcdClient, ClientError> {
    let Target { namespace, cluster, client_port, encrypted, .. } = *target;
    let own_name = addresses::member_name(cluster, namespace, &endpoint.member);
    let tls = tls.cloned().map(|tls| Tls { server_name: tls.server_name.or(Some(own_name)), ..tls });
    let url = addresses::client_url(&endpoint.address, client_port, encrypted);
    let options = Options {
        tls,
        connect_timeout: TO_CONNECT,
        call_timeout: PATIENCE,
        long_call_timeout: FOR_HASHES,
        ..Options::new(url)
    };
    EtcdClient::new(options)
}

async fn list(
    target: &Target<'_>,
    endpoint: &Endpoint,
    tls: Option<&Tls>,
    linearizable: bool,
) -> Result<(MemberList, EtcdClient), ClientError> {
    let client = connect(target, endpoint, tls)?;
    let answer = client.member_list(linearizable).await?;
    let mut members = answer.members;
    members.sort_by_key(|member| member.id);
    let members = members.into_iter().map(|member| {
        ListedMember::new(member.id, member.name, member.peer_urls, member.is_learner, &member.client_urls)
    });
    let cluster_id = hex_id(answer.header.unwrap_or_default().cluster_id);
    Ok((MemberList { cluster_id, members: members.collect() }, client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn that_there_is_nobody_to_ask_is_a_cause_too() {
        let target = Target {
            namespace: "default",
            cluster: "etcd",
            cluster_uid: "uid",
            members: &[],
            client_port: 2379,
            encrypted: false,
        };
        let error = list_members(&target, None, true).await.unwrap_err().to_string();
        assert!(error.ends_with("no member has an address yet"), "{error}");
    }
}
