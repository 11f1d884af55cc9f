//! etcd's configuration file. JSON, which etcd reads as the YAML it is.

use quorate_api::{
    etcd::{CompactionMode, MetricsDetail},
    member::Peer,
    settings::{MemberSettings, paths},
};
use serde_json::{Value, json};

/// How etcd is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// From its own data; whatever is said about an initial cluster is ignored by etcd.
    OwnData,
    New {
        token: String,
        initial_cluster: Vec<Peer>,
    },
}

pub(crate) fn etcd_config(member: &str, settings: &MemberSettings, beginning: &Beginning) -> Value {
    let scheme = if settings.tls { "https" } else { "http" };
    let own = |port: i32| format!("{scheme}://{member}.{}:{port}", settings.peer_domain);
    let everywhere = |port: i32| format!("{scheme}://0.0.0.0:{port}");
    let mut config = json!({
        "name": member,
        "data-dir": paths::DATA,
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
    }
    if settings.tls {
        config["client-transport-security"] = mutual_tls(paths::TLS_SERVER);
        config["peer-transport-security"] = mutual_tls(paths::TLS_PEER);
    }
    config
}

/// `name=url,name=url`, as etcd and the format library want it.
pub(crate) fn listed(peers: &[Peer]) -> String {
    peers.iter().map(|peer| format!("{}={}", peer.name, peer.url)).collect::<Vec<_>>().join(",")
}

/// Both ends show a certificate of the same authority.
fn mutual_tls(dir: &str) -> Value {
    json!({
        "cert-file": format!("{dir}/tls.crt"),
        "key-file": format!("{dir}/tls.key"),
        "trusted-ca-file": format!("{dir}/ca.crt"),
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

    #[test]
    fn only_a_new_member_is_told_that_the_cluster_is_new() {
        let peers = vec![Peer { name: "db-0".to_owned(), url: "https://db-0:2380".to_owned() }];
        let new = Beginning::New { token: "t".to_owned(), initial_cluster: peers };
        let state = |beginning| etcd_config("db-0", &settings(true), &beginning)["initial-cluster-state"].clone();
        assert_eq!(state(new), "new");
        assert_eq!(state(Beginning::OwnData), "existing");
    }

    #[test]
    fn with_tls_nothing_is_said_in_plain_text_and_every_caller_shows_a_certificate() {
        let config = etcd_config("db-0", &settings(true), &Beginning::OwnData);
        assert!(!config.to_string().contains("http://"), "{config}");
        for side in ["client-transport-security", "peer-transport-security"] {
            assert_eq!(config[side]["client-cert-auth"], true, "{side}");
        }
        let plain = etcd_config("db-0", &settings(false), &Beginning::OwnData);
        assert!(plain["client-transport-security"].is_null());
    }
}
