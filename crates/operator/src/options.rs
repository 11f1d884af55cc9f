//! What the operator is told at its start.

use clap::{Parser, ValueEnum};
use quorate_api::defaults;
use quorate_core::view::{Account, Platform};

/// Runs etcd clusters on Kubernetes.
#[derive(Clone, Debug, Parser)]
#[command(name = "quorate-operator", version)]
pub struct Options {
    /// Namespaces to work in, separated by commas. Default: all.
    #[arg(long, env = "QUORATE_NAMESPACES", value_delimiter = ',')]
    pub namespaces: Vec<String>,

    /// Image of the agent that runs beside each member.
    #[arg(long, env = "QUORATE_AGENT_IMAGE", default_value = "docker.io/quorate/agent:dev")]
    pub agent_image: String,

    /// Repository of the etcd image where an EtcdCluster names none; the tag is `v` + version.
    #[arg(long, env = "QUORATE_ETCD_REPOSITORY", default_value = defaults::IMAGE_REPOSITORY)]
    pub etcd_repository: String,

    /// DNS domain of the Kubernetes cluster.
    #[arg(long, env = "QUORATE_CLUSTER_DOMAIN", default_value = "cluster.local")]
    pub cluster_domain: String,

    /// Account that the operator runs as, `NAMESPACE/NAME`. It then gets the right to read Secrets where an
    /// EtcdCluster is, by a RoleBinding beside it. Without this the operator must have that right already.
    #[arg(long, env = "QUORATE_SERVICE_ACCOUNT", value_parser = account)]
    pub service_account: Option<Account>,

    /// Work only while holding a Lease, so that several replicas can run.
    #[arg(long, env = "QUORATE_LEADER_ELECTION")]
    pub leader_election: bool,

    /// Namespace of that Lease.
    #[arg(long, env = "QUORATE_LEADER_ELECTION_NAMESPACE", default_value = "quorate-system")]
    pub leader_election_namespace: String,

    /// Name of this replica in that Lease. Default: the host's name and the process number.
    #[arg(long, env = "QUORATE_IDENTITY")]
    pub identity: Option<String>,

    /// Default: text on a terminal, json elsewhere.
    #[arg(long, env = "QUORATE_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,

    /// What to log, for example `info,quorate_operator=debug`.
    #[arg(long, env = "QUORATE_LOG", default_value = "info")]
    pub log: String,

    /// Port of /healthz, /readyz and /metrics.
    #[arg(long, env = "QUORATE_HTTP_PORT", default_value_t = 8080)]
    pub http_port: u16,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Text,
}

impl Options {
    /// The namespaces to work in; `None` stands for all.
    pub fn scopes(&self) -> Vec<Option<String>> {
        let mut named =
            self.namespaces.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect::<Vec<_>>();
        named.sort_unstable();
        named.dedup();
        if named.is_empty() { vec![None] } else { named.into_iter().map(|name| Some(name.to_owned())).collect() }
    }

    pub fn platform(&self) -> Platform {
        Platform {
            agent_image: self.agent_image.clone(),
            etcd_repository: self.etcd_repository.clone(),
            cluster_domain: self.cluster_domain.clone(),
            account: self.service_account.clone(),
        }
    }
}

fn account(text: &str) -> Result<Account, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Account { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("it must be NAMESPACE/NAME".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(arguments: &[&str]) -> Vec<Option<String>> {
        Options::parse_from(std::iter::once("quorate-operator").chain(arguments.iter().copied())).scopes()
    }

    #[test]
    fn an_account_has_a_namespace_and_a_name() {
        let operator = Account { namespace: "a".to_owned(), name: "b".to_owned() };
        assert_eq!(account("a/b"), Ok(operator));
        for wrong in ["a", "/b", "a/", "a/b/c", ""] {
            assert!(account(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_namespaces_all_are_meant_and_a_name_is_taken_once() {
        assert_eq!(scopes(&[]), [None]);
        assert_eq!(scopes(&["--namespaces="]), [None]);
        assert_eq!(scopes(&["--namespaces=b,a,b"]), [Some("a".to_owned()), Some("b".to_owned())]);
    }
}
