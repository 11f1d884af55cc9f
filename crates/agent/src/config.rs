//! etcd's configuration file. JSON, which etcd reads as the YAML it is.

use std::{collections::BTreeMap, net::Ipv6Addr, path::Path};

use quorate_api::{
    etcd::{CompactionMode, MetricsDetail},
    member::Peer,
    settings::MemberSettings,
    versions::{EtcdVersion, release},
};
use serde_json::{Value, json};

use crate::paths::Paths;

const LOOPBACK: &str = "127.0.0.1";

/// How etcd is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// From its own data; whatever is said about an initial cluster is ignored by etcd.
    OwnData,
    New {
        token: String,
        initial_cluster: Vec<Peer>,
    },
    /// As a member that a running cluster has added. Which cluster that is, its members say.
    Join {
        initial_cluster: Vec<Peer>,
    },
}

/// Every address of both families; where there is no IPv6, of one.
pub(crate) fn every_address() -> &'static str {
    match std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => "[::]",
        Err(_) => "0.0.0.0",
    }
}

pub(crate) fn etcd_config(
    member: &str,
    settings: &MemberSettings,
    paths: &Paths,
    beginning: &Beginning,
    every_address: &str,
) -> Value {
    let scheme = if settings.tls { "https" } else { "http" };
    let own = |port: i32| format!("{scheme}://{member}.{}:{port}", settings.peer_domain);
    let everywhere = |port: i32| format!("{scheme}://{every_address}:{port}");
    let mut config = json!({
        "name": member,
        "data-dir": paths.data(),
        "listen-client-urls": everywhere(settings.client_port),
        "listen-peer-urls": everywhere(settings.peer_port),
        "advertise-client-urls": own(settings.client_port),
        "initial-advertise-peer-urls": own(settings.peer_port),
        "quota-backend-bytes": settings.quota_bytes,
        "metrics": match settings.metrics {
            MetricsDetail::Basic => "basic",
            MetricsDetail::Extensive => "extensive",
        },
        "auto-compaction-mode": match settings.compaction_mode {
            CompactionMode::Periodic => "periodic",
            CompactionMode::Revision => "revision",
        },
        "auto-compaction-retention": settings.compaction_retention,
        "snapshot-count": settings.snapshot_count,
        "heartbeat-interval": settings.heartbeat_milliseconds,
        "election-timeout": settings.election_milliseconds,
        "initial-cluster-state": "existing",
    });
    match beginning {
        Beginning::OwnData => {}
        Beginning::New { token, initial_cluster } => {
            config["initial-cluster-state"] = "new".into();
            config["initial-cluster-token"] = token.as_str().into();
            config["initial-cluster"] = listed(initial_cluster).into();
        }
        Beginning::Join { initial_cluster } => config["initial-cluster"] = listed(initial_cluster).into(),
    }
    for (name, value) in of_minor(&settings.version) {
        config[name] = value;
    }
    if settings.tls {
        config["client-transport-security"] = mutual_tls(&paths.tls("server"));
        config["peer-transport-security"] = mutual_tls(&paths.tls("peer"));
        // etcd looks the address of a peer up in DNS if the certificate that it shows names any host. This one names none.
        let dialling = paths.tls("peer-client");
        config["peer-transport-security"]["client-cert-file"] = dialling.join("tls.crt").display().to_string().into();
        config["peer-transport-security"]["client-key-file"] = dialling.join("tls.key").display().to_string().into();
    }
    config
}

/// For an etcd that applies its log alone and is ended then. Nobody but this agent reaches it, and it asks nobody: it is told
/// that the other members are none any more. What it tells others of itself stays as it was.
pub(crate) fn replay_config(
    member: &str,
    settings: &MemberSettings,
    paths: &Paths,
    client_port: u16,
    peer_port: u16,
) -> Value {
    let mut config = etcd_config(member, settings, paths, &Beginning::OwnData, LOOPBACK);
    let scheme = if settings.tls { "https" } else { "http" };
    let here = |port: u16| format!("{scheme}://{LOOPBACK}:{port}");
    config["listen-client-urls"] = here(client_port).into();
    config["listen-peer-urls"] = here(peer_port).into();
    config["force-new-cluster"] = true.into();
    // It elects itself, and nobody is far away.
    config["heartbeat-interval"] = 100.into();
    config["election-timeout"] = 1000.into();
    // Nothing is removed from what is to be looked at.
    config["auto-compaction-retention"] = "0".into();
    if let Some(config) = config.as_object_mut() {
        // Whether others have the same is not to be asked.
        config.retain(|name, _| !of_minor(&settings.version).contains_key(name.as_str()));
    }
    config
}

/// Settings whose names depend on the minor version. etcd looks for differences between members by itself, but only if told
/// to: when a member starts, and in what was compacted.
fn of_minor(version: &str) -> BTreeMap<&'static str, Value> {
    match release(version) {
        Some(EtcdVersion { minor: ..=5, .. }) => BTreeMap::from([
            ("experimental-initial-corrupt-check", true.into()),
            ("experimental-compact-hash-check-enabled", true.into()),
        ]),
        _ => BTreeMap::from([("feature-gates", "CompactHashCheck=true,InitialCorruptCheck=true".into())]),
    }
}

/// `name=url,name=url`, as etcd and the format library want it.
pub(crate) fn listed(peers: &[Peer]) -> String {
    peers.iter().map(|peer| format!("{}={}", peer.name, peer.url)).collect::<Vec<_>>().join(",")
}

/// Both ends show a certificate of the same authority.
fn mutual_tls(dir: &Path) -> Value {
    json!({
        "cert-file": dir.join("tls.crt"),
        "key-file": dir.join("tls.key"),
        "trusted-ca-file": dir.join("ca.crt"),
        "client-cert-auth": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(tls: bool) -> MemberSettings {
        MemberSettings {
            cluster: "db".to_owned(),
            namespace: "default".to_owned(),
            version: "3.6.16".to_owned(),
            peer_domain: "db-peer.default.svc".to_owned(),
            client_domain: "db-client.default.svc".to_owned(),
            client_port: 2379,
            peer_port: 2380,
            agent_port: 2381,
            tls,
            quota_bytes: 8 << 30,
            metrics: MetricsDetail::Basic,
            compaction_mode: CompactionMode::Periodic,
            compaction_retention: "30m".to_owned(),
            snapshot_count: 10_000,
            heartbeat_milliseconds: 100,
            election_milliseconds: 1_000,
        }
    }

    fn config(tls: bool, beginning: &Beginning) -> Value {
        etcd_config("db-0", &settings(tls), &Paths::in_a_pod(), beginning, "[::]")
    }

    #[test]
    fn only_a_new_member_is_told_that_the_cluster_is_new() {
        let peers = vec![Peer { name: "db-0".to_owned(), url: "https://db-0:2380".to_owned() }];
        let new = Beginning::New { token: "t".to_owned(), initial_cluster: peers.clone() };
        let state = |beginning| config(true, &beginning)["initial-cluster-state"].clone();
        assert_eq!(state(new), "new");
        assert_eq!(state(Beginning::OwnData), "existing");
        let join = config(true, &Beginning::Join { initial_cluster: peers });
        assert_eq!(
            (&join["initial-cluster-state"], &join["initial-cluster"]),
            (&json!("existing"), &json!("db-0=https://db-0:2380"))
        );
        assert!(join["initial-cluster-token"].is_null(), "a token would make it a cluster of its own");
    }

    #[test]
    fn an_etcd_that_only_applies_its_log_is_reached_from_here_alone_and_encrypted_where_others_are() {
        for tls in [true, false] {
            let config = replay_config("db-0", &settings(tls), &Paths::in_a_pod(), 30001, 30002);
            let scheme = if tls { "https" } else { "http" };
            assert_eq!(config["listen-client-urls"], format!("{scheme}://127.0.0.1:30001"));
            assert_eq!(config["listen-peer-urls"], format!("{scheme}://127.0.0.1:30002"));
            assert_eq!((&config["force-new-cluster"], &config["feature-gates"]), (&json!(true), &Value::Null));
            assert_eq!(config["client-transport-security"]["client-cert-auth"].as_bool(), tls.then_some(true));
            let ordinary = self::config(tls, &Beginning::OwnData);
            assert!(ordinary["force-new-cluster"].is_null());
            assert_eq!(config["advertise-client-urls"], ordinary["advertise-client-urls"]);
        }
    }

    #[test]
    fn with_tls_nothing_is_said_in_plain_text_and_every_caller_shows_a_certificate() {
        let encrypted = config(true, &Beginning::OwnData);
        assert!(!encrypted.to_string().contains("http://"), "{encrypted}");
        for side in ["client-transport-security", "peer-transport-security"] {
            assert_eq!(encrypted[side]["client-cert-auth"], true, "{side}");
        }
        let peer = &encrypted["peer-transport-security"];
        assert_ne!(peer["client-cert-file"], peer["cert-file"], "what dials a peer names no host");
        let plain = config(false, &Beginning::OwnData);
        assert!(plain["client-transport-security"].is_null());
    }
}
