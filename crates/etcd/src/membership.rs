//! Who a cluster's members are: `--initial-cluster`, the ids etcd derives from it, and the JSON etcd keeps.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};
use thiserror::Error;

use crate::pb::raft::ConfState;

/// A member as buckets `members` and raft's configuration changes spell it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// A JSON number of the full 64 bits: it must never pass through a float.
    pub id: u64,
    #[serde(rename = "peerURLs", default, deserialize_with = "null_is_empty")]
    pub peer_urls: Vec<String>,
    #[serde(rename = "isLearner", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_learner: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(rename = "clientURLs", default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub client_urls: Vec<String>,
}

/// Go writes an absent slice as `null`.
fn null_is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Debug, Error)]
pub enum MembershipError {
    #[error("the initial cluster is empty: name at least one member as name=http://host:2380")]
    Empty,
    #[error("`{part}` of the initial cluster is not of the form name=url")]
    NotAPair { part: String },
    #[error("`{url}` is not a peer URL: {reason}")]
    Url { url: String, reason: &'static str },
    #[error("peer URL {url} belongs to more than one member of the initial cluster")]
    DuplicateUrl { url: String },
    #[error("members {first} and {second} derive the same id {id:x}: change the token or a peer URL")]
    DuplicateId { first: String, second: String, id: u64 },
    #[error("member {name} derives the id 0, which etcd reserves: change the token or a peer URL")]
    ZeroId { name: String },
    #[error("member {name} is not part of the initial cluster, which has {known}")]
    UnknownMember { name: String, known: String },
    #[error(
        "member {name} has {listed} in the initial cluster but advertises {advertised}: \
         both must be the same set of peer URLs, spelled the same way"
    )]
    AdvertiseMismatch { name: String, listed: String, advertised: String },
    #[error("`{text}` is not a member id in hex")]
    Id { text: String },
    #[error("the member record is not valid JSON")]
    Json(#[from] serde_json::Error),
}

impl Member {
    pub fn hex_id(&self) -> String {
        hex_id(self.id)
    }

    /// The bytes that Go's encoder produces for this member.
    pub fn to_json(&self) -> Result<Vec<u8>, MembershipError> {
        Ok(escape_like_go(&serde_json::to_string(self)?).into_bytes())
    }

    pub fn from_json(bytes: &[u8]) -> Result<Self, MembershipError> {
        Ok(serde_json::from_slice(bytes)?)
    }

    /// What the v2 store keeps under `raftAttributes`.
    pub(crate) fn raft_attributes_json(&self) -> Result<String, MembershipError> {
        let attributes = RaftAttributes { peer_urls: self.peer_urls.clone(), is_learner: self.is_learner };
        Ok(escape_like_go(&serde_json::to_string(&attributes)?))
    }

    /// What the v2 store keeps under `attributes` once the member has served clients.
    pub(crate) fn attributes_json(&self) -> Result<String, MembershipError> {
        let attributes = Attributes { name: self.name.clone(), client_urls: self.client_urls.clone() };
        Ok(escape_like_go(&serde_json::to_string(&attributes)?))
    }

    pub(crate) fn from_attributes(
        hex: &str,
        raft_attributes: Option<&str>,
        attributes: Option<&str>,
    ) -> Result<Self, MembershipError> {
        let id = u64::from_str_radix(hex, 16).map_err(|_| MembershipError::Id { text: hex.to_owned() })?;
        let raft: RaftAttributes = raft_attributes.map_or(Ok(RaftAttributes::default()), serde_json::from_str)?;
        let own: Attributes = attributes.map_or(Ok(Attributes::default()), serde_json::from_str)?;
        let (RaftAttributes { peer_urls, is_learner }, Attributes { name, client_urls }) = (raft, own);
        Ok(Self { id, peer_urls, is_learner, name, client_urls })
    }
}

#[derive(Default, Serialize, Deserialize)]
struct RaftAttributes {
    #[serde(rename = "peerURLs", default, deserialize_with = "null_is_empty")]
    peer_urls: Vec<String>,
    #[serde(rename = "isLearner", default, skip_serializing_if = "std::ops::Not::not")]
    is_learner: bool,
}

#[derive(Default, Serialize, Deserialize)]
struct Attributes {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(rename = "clientURLs", default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    client_urls: Vec<String>,
}

/// etcd spells ids in lower-case hex without leading zeros.
pub fn hex_id(id: u64) -> String {
    format!("{id:x}")
}

/// Go's encoder also escapes what could end a script element; nothing outside strings contains these characters.
fn escape_like_go(json: &str) -> String {
    [("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")]
        .into_iter()
        .fold(json.to_owned(), |json, (raw, escaped)| json.replace(raw, escaped))
}

/// The members a restored or bootstrapped cluster starts with, sorted by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialCluster {
    members: Vec<Member>,
    cluster_id: u64,
}

impl InitialCluster {
    /// Reads `name=url,name=url,...`; a name may repeat to give a member several URLs.
    pub fn parse(initial_cluster: &str, token: &str) -> Result<Self, MembershipError> {
        let mut urls_by_name: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let mut all_urls = BTreeSet::new();
        for part in initial_cluster.split(',').filter(|part| !part.is_empty()) {
            let pair = part.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, url) = pair.ok_or_else(|| MembershipError::NotAPair { part: part.to_owned() })?;
            let url = peer_url(url)?;
            if !all_urls.insert(url.clone()) {
                return Err(MembershipError::DuplicateUrl { url });
            }
            urls_by_name.entry(name).or_default().insert(url);
        }
        let members = urls_by_name
            .into_iter()
            .map(|(name, urls)| {
                let peer_urls: Vec<String> = urls.into_iter().collect();
                Member { id: member_id(&peer_urls, token), name: name.to_owned(), peer_urls, ..Member::default() }
            })
            .collect();
        Self::from_members(members)
    }

    fn from_members(mut members: Vec<Member>) -> Result<Self, MembershipError> {
        members.sort_by_key(|member| member.id);
        let first = members.first().ok_or(MembershipError::Empty)?;
        if first.id == 0 {
            return Err(MembershipError::ZeroId { name: first.name.clone() });
        }
        for pair in members.windows(2) {
            if let [first, second] = pair
                && first.id == second.id
            {
                let (first, second) = (first.name.clone(), second.name.clone());
                return Err(MembershipError::DuplicateId { first, second, id: pair.first().map_or(0, |m| m.id) });
            }
        }
        let cluster_id = cluster_id(members.iter().map(|member| member.id));
        Ok(Self { members, cluster_id })
    }

    /// Sorted by id.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    pub fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// The member called `name`, provided that it advertises exactly the URLs listed for it.
    ///
    /// etcd also accepts different spellings that resolve to equal addresses. A restore must not depend on a name
    /// server, so that case is refused.
    pub fn own_member(&self, name: &str, advertised: &[String]) -> Result<&Member, MembershipError> {
        let member = self.members.iter().find(|member| member.name == name).ok_or_else(|| {
            let known = self.members.iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join(", ");
            MembershipError::UnknownMember { name: name.to_owned(), known }
        })?;
        let advertised = advertised.iter().map(|url| peer_url(url)).collect::<Result<BTreeSet<_>, _>>()?;
        if !advertised.iter().eq(member.peer_urls.iter()) {
            return Err(MembershipError::AdvertiseMismatch {
                name: name.to_owned(),
                listed: member.peer_urls.join(","),
                advertised: advertised.into_iter().collect::<Vec<_>>().join(","),
            });
        }
        Ok(member)
    }
}

/// First eight bytes of the SHA-1 of the sorted peer URLs followed by the cluster's token.
pub fn member_id(sorted_peer_urls: &[String], token: &str) -> u64 {
    let mut hash = Sha1::new();
    for url in sorted_peer_urls {
        hash.update(url.as_bytes());
    }
    hash.update(token.as_bytes());
    leading_u64(&hash.finalize())
}

/// First eight bytes of the SHA-1 of the member ids, sorted, big-endian.
pub fn cluster_id(member_ids: impl IntoIterator<Item = u64>) -> u64 {
    let sorted: BTreeSet<u64> = member_ids.into_iter().collect();
    let mut hash = Sha1::new();
    for id in sorted {
        hash.update(id.to_be_bytes());
    }
    leading_u64(&hash.finalize())
}

fn leading_u64(digest: &[u8]) -> u64 {
    digest.iter().take(8).fold(0, |id, byte| (id << 8) | u64::from(*byte))
}

/// raft's view of these members.
pub fn conf_state(members: &[Member]) -> ConfState {
    let (learners, voters): (Vec<&Member>, Vec<&Member>) = members.iter().partition(|member| member.is_learner);
    let ids = |members: Vec<&Member>| {
        let mut ids: Vec<u64> = members.into_iter().map(|member| member.id).collect();
        ids.sort_unstable();
        ids
    };
    ConfState { voters: ids(voters), learners: ids(learners), auto_leave: Some(false), ..ConfState::default() }
}

/// The JSON of `meta/confState`.
pub fn conf_state_json(state: &ConfState) -> Result<Vec<u8>, MembershipError> {
    #[derive(Serialize)]
    struct Stored<'a> {
        voters: &'a [u64],
        #[serde(skip_serializing_if = "<[u64]>::is_empty")]
        learners: &'a [u64],
        auto_leave: bool,
    }
    let auto_leave = state.auto_leave.unwrap_or_default();
    Ok(serde_json::to_vec(&Stored { voters: &state.voters, learners: &state.learners, auto_leave })?)
}

/// Accepts only spellings that etcd keeps exactly as given: the member id is a hash of the text.
fn peer_url(text: &str) -> Result<String, MembershipError> {
    let url = text.trim();
    let refuse = |reason| Err(MembershipError::Url { url: url.to_owned(), reason });
    let Some((scheme, authority)) = url.split_once("://") else {
        return refuse("it must look like http://host:2380 or https://host:2380");
    };
    if scheme != "http" && scheme != "https" {
        return refuse("its scheme must be http or https, in lower case");
    }
    if authority.contains(['/', '?', '#']) {
        return refuse("it must end after the port, without a path, query or fragment");
    }
    if authority.contains('@') {
        return refuse("it must not carry credentials");
    }
    let Some((host, port)) = authority.rsplit_once(':') else {
        return refuse("it has no port");
    };
    if !port.bytes().all(|byte| byte.is_ascii_digit()) || !port.parse::<u16>().is_ok_and(|port| port != 0) {
        return refuse("its port must be a number from 1 to 65535");
    }
    let valid_host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']').is_some_and(|address| {
            address.contains(':') && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':' || b == b'.')
        }),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')),
    };
    if !valid_host {
        return refuse("its host must be a DNS name, an IPv4 address or an IPv6 address in brackets");
    }
    Ok(url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_an_etcd_started_with_its_defaults() {
        let cluster = InitialCluster::parse("default=http://localhost:2380", "etcd-cluster").unwrap();
        assert_eq!(hex_id(cluster.members()[0].id), "8e9e05c52164694d");
        assert_eq!(hex_id(cluster.cluster_id()), "cdf818194e3a8c32");
    }

    #[test]
    fn order_and_grouping_of_the_initial_cluster_do_not_matter() {
        let one = InitialCluster::parse("a=http://1.1.1.1:1,b=http://[::1]:2,a=http://1.1.1.1:3", "t").unwrap();
        let two = InitialCluster::parse("b=http://[::1]:2,,a=http://1.1.1.1:3,a= http://1.1.1.1:1", "t").unwrap();
        assert_eq!(one, two);
        assert_eq!(one.members().len(), 2);
        let urls = vec!["http://1.1.1.1:3".to_owned(), "http://1.1.1.1:1".to_owned()];
        assert_eq!(one.own_member("a", &urls).unwrap().peer_urls, ["http://1.1.1.1:1", "http://1.1.1.1:3"]);
    }

    #[test]
    fn an_initial_cluster_that_etcd_would_read_differently_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "empty"),
            (",,", "empty"),
            ("http://a:1", "name=url"),
            ("=http://a:1", "name=url"),
            ("a=a:1", "must look like"),
            ("a=HTTP://a:1", "lower case"),
            ("a=ftp://a:1", "http or https"),
            ("a=http://a", "no port"),
            ("a=http://a:", "port"),
            ("a=http://a:0", "port"),
            ("a=http://a:+1", "port"),
            ("a=http://a:65536", "port"),
            ("a=http://a:1/", "path"),
            ("a=http://a:1?x", "path"),
            ("a=http://u@a:1", "credentials"),
            ("a=http://:1", "host"),
            ("a=http://a b:1", "host"),
            ("a=http://[zz]:1", "host"),
            ("a=http://::1:1", "host"),
            ("a=http://a:1,b=http://a:1", "more than one"),
        ] {
            let error = InitialCluster::parse(text, "t").unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_member_must_be_known_and_advertise_what_is_listed() {
        let cluster = InitialCluster::parse("a=http://a:1,b=http://b:1", "t").unwrap();
        let unknown = cluster.own_member("c", &["http://c:1".to_owned()]).unwrap_err().to_string();
        assert!(unknown.contains("a, b") || unknown.contains("b, a"), "{unknown}");
        assert!(matches!(
            cluster.own_member("a", &["http://b:1".to_owned()]),
            Err(MembershipError::AdvertiseMismatch { .. })
        ));
    }

    #[test]
    fn member_json_keeps_64_bit_ids_and_the_spelling_of_go() {
        let member = Member {
            id: u64::MAX,
            name: "<a&b>".to_owned(),
            peer_urls: vec!["http://a:1".to_owned()],
            ..Member::default()
        };
        let json = String::from_utf8(member.to_json().unwrap()).unwrap();
        assert_eq!(json, r#"{"id":18446744073709551615,"peerURLs":["http://a:1"],"name":"\u003ca\u0026b\u003e"}"#);
        assert_eq!(Member::from_json(json.as_bytes()).unwrap(), member);
        assert_eq!(Member::from_json(br#"{"id":1,"peerURLs":null}"#).unwrap().peer_urls, Vec::<String>::new());
    }

    #[test]
    fn learners_are_no_voters() {
        let members =
            [(3, false), (2, true), (1, false)].map(|(id, is_learner)| Member { id, is_learner, ..Member::default() });
        let state = conf_state(&members);
        assert_eq!((state.voters.as_slice(), state.learners.as_slice()), (&[1, 3][..], &[2][..]));
        assert_eq!(conf_state_json(&state).unwrap(), br#"{"voters":[1,3],"learners":[2],"auto_leave":false}"#);
    }
}
