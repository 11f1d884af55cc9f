//! What the operator is told at its start.

use clap::Parser;
use quorate_api::defaults;
use quorate_core::view::{Account, Platform};
use quorate_runtime::telemetry;

use crate::cluster_domain;

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

    /// DNS domain of the Kubernetes cluster. Default: as in the search path of the operator's pod.
    #[arg(long, env = "QUORATE_CLUSTER_DOMAIN", value_parser = cluster_domain::parse)]
    pub cluster_domain: Option<String>,

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

    #[command(flatten)]
    pub telemetry: telemetry::Options,

    /// Port of /healthz, /readyz and /metrics.
    #[arg(long, env = "QUORATE_HTTP_PORT", default_value_t = 8080)]
    pub http_port: u16,
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

    /// With the pod's own resolv.conf, if it could be read.
    pub fn platform(&self, resolv_conf: &str) -> Platform {
        let domain = self.cluster_domain.clone().or_else(|| cluster_domain::discover(resolv_conf));
        Platform {
            agent_image: self.agent_image.clone(),
            etcd_repository: self.etcd_repository.clone(),
            is_domain_assumed: domain.is_none(),
            cluster_domain: domain.unwrap_or_else(|| defaults::CLUSTER_DOMAIN.to_owned()),
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

    fn options(arguments: &[&str]) -> Options {
        Options::parse_from(std::iter::once("quorate-operator").chain(arguments.iter().copied()))
    }

    fn scopes(arguments: &[&str]) -> Vec<Option<String>> {
        options(arguments).scopes()
    }

    #[test]
    fn a_domain_that_is_said_outranks_the_one_that_is_found_and_only_a_guess_is_called_one() {
        let found = "search a.svc.found svc.found found";
        let domain = |arguments: &[&str], resolv_conf| {
            let platform = options(arguments).platform(resolv_conf);
            (platform.cluster_domain, platform.is_domain_assumed)
        };
        assert_eq!(domain(&["--cluster-domain=said."], found), ("said".to_owned(), false));
        assert_eq!(domain(&[], found), ("found".to_owned(), false));
        assert_eq!(domain(&[], ""), ("cluster.local".to_owned(), true));
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
