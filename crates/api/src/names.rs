//! Names of everything that is derived from a cluster's name, and the limits that follow.

/// Longest label value and longest DNS label in Kubernetes.
pub const MAX_LABEL: usize = 63;
/// A StatefulSet labels its pods with its own name, a dash and a hash of up to ten characters.
pub const REVISION_SUFFIX: usize = 11;
/// Longest cluster name for which every derived name and label is valid.
pub const MAX_CLUSTER_NAME: usize = MAX_LABEL - REVISION_SUFFIX;
/// A cluster's name becomes the name of Services, so it must be a DNS label that starts with a letter.
pub const CLUSTER_NAME_PATTERN: &str = "^[a-z]([-a-z0-9]*[a-z0-9])?$";

/// Name of the volume, and first part of the name of each claim: `data-<member>`.
pub const DATA_VOLUME: &str = "data";

/// Ordinals of members are below this: it is the largest number of members, and the highest ordinal goes first.
pub const MOST_MEMBERS: i32 = 7;

/// Member (and pod, Lease, EtcdMember) number `ordinal`.
pub fn member(cluster: &str, ordinal: i32) -> String {
    format!("{cluster}-{ordinal}")
}

/// The ordinal in a member's name, if it is a member of this cluster.
pub fn ordinal_of(cluster: &str, member: &str) -> Option<i32> {
    let digits = member.strip_prefix(cluster)?.strip_prefix('-')?;
    let canonical = digits == "0" || !digits.starts_with('0');
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && numeric).then(|| digits.parse().ok()).flatten()
}

/// The ordinal of the member that a volume claim belongs to, if it belongs to a member of this cluster.
pub fn claim_ordinal(cluster: &str, claim: &str) -> Option<i32> {
    ordinal_of(cluster, claim.strip_prefix(DATA_VOLUME)?.strip_prefix('-')?)
}

/// The StatefulSet, which has the cluster's own name so that pods are called like members.
pub fn stateful_set(cluster: &str) -> String {
    cluster.to_owned()
}

/// Headless Service through which members find each other.
pub fn peer_service(cluster: &str) -> String {
    format!("{cluster}-peer")
}

/// Service that applications connect to.
pub fn client_service(cluster: &str) -> String {
    format!("{cluster}-client")
}

/// ServiceAccount, Role and RoleBinding of the member pods.
pub fn member_account(cluster: &str) -> String {
    format!("{cluster}-member")
}

/// RoleBinding that lets the operator read Secrets in this namespace.
pub fn operator_binding(cluster: &str) -> String {
    format!("{cluster}-quorate-secrets")
}

/// ClusterRole that this RoleBinding names.
pub const SECRETS_ROLE: &str = "quorate-secrets";

/// PodDisruptionBudget over the members.
pub fn disruption_budget(cluster: &str) -> String {
    cluster.to_owned()
}

/// The claim of a member's volume, as the StatefulSet names it.
pub fn data_claim(member: &str) -> String {
    format!("{DATA_VOLUME}-{member}")
}

/// Secrets of a cluster with managed TLS.
pub mod secrets {
    /// Certificate authority that signs members towards each other, and nothing else.
    pub fn peer_ca(cluster: &str) -> String {
        format!("{cluster}-peer-ca")
    }

    /// Certificate authority that signs servers, clients and agents.
    pub fn client_ca(cluster: &str) -> String {
        format!("{cluster}-client-ca")
    }

    /// What a member shows to members that dial it.
    pub fn peer(cluster: &str) -> String {
        format!("{cluster}-peer-tls")
    }

    /// What a member shows to members that it dials.
    pub fn peer_client(cluster: &str) -> String {
        format!("{cluster}-peerclient-tls")
    }

    /// What members show their clients.
    pub fn server(cluster: &str) -> String {
        format!("{cluster}-server-tls")
    }

    /// With which agents talk to etcd.
    pub fn agent(cluster: &str) -> String {
        format!("{cluster}-agent-tls")
    }

    /// With which the operator talks to etcd and to agents.
    pub fn operator(cluster: &str) -> String {
        format!("{cluster}-operator-tls")
    }

    /// With which applications talk to etcd.
    pub fn client(cluster: &str) -> String {
        format!("{cluster}-client-tls")
    }

    /// All of them, authorities first.
    pub fn all(cluster: &str) -> [String; 8] {
        [peer_ca, client_ca, peer, peer_client, server, agent, operator, client].map(|name| name(cluster))
    }
}

/// On an EtcdCluster whose volumes go with it.
pub const VOLUMES_FINALIZER: &str = "quorate.dev/volumes";

/// Labels on everything that belongs to a cluster.
pub mod labels {
    /// Value: the cluster's name. On everything, volumes included: `kubectl get pvc -l quorate.dev/cluster=NAME`.
    pub const CLUSTER: &str = "quorate.dev/cluster";
    pub const NAME: &str = "app.kubernetes.io/name";
    pub const INSTANCE: &str = "app.kubernetes.io/instance";
    /// Tells member pods from other pods of the cluster.
    pub const COMPONENT: &str = "app.kubernetes.io/component";
    /// Value of [`COMPONENT`] on member pods.
    pub const MEMBER: &str = "member";
    /// On member pods: `"true"` if clients are led to it, which the operator takes back from one that it no longer hears.
    pub const SERVING: &str = "quorate.dev/serving";
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Value of [`MANAGED_BY`], and the field manager of everything the operator writes.
    pub const MANAGER: &str = "quorate";
}

/// Annotations.
pub mod annotations {
    /// On a member's Lease: last index in the member's log that the agent has seen on disk.
    pub const LAST_INDEX: &str = "quorate.dev/last-index";
    /// On a member's Lease: how often etcd has been started on this volume.
    pub const BOOT_COUNT: &str = "quorate.dev/boot-count";
    /// On a member's Lease: newest revision of the key space.
    pub const REVISION: &str = "quorate.dev/revision";
    /// On a member's Lease: raft term, which tells an old leader from a new one.
    pub const TERM: &str = "quorate.dev/term";
    /// On a member's Lease: bytes of the database file.
    pub const DB_SIZE: &str = "quorate.dev/db-size";
    /// On a member's Lease: bytes of the database file that are in use.
    pub const DB_IN_USE: &str = "quorate.dev/db-in-use";
    /// On an EtcdCluster, by its user: with each new value the members' data is compared once, as soon as all are ready.
    pub const COMPARE_NOW: &str = "quorate.dev/compare-now";
    /// On an EtcdCluster, by its user: identifier of a member that is not fenced, though its data differs.
    pub const TRUSTED_MEMBER: &str = "quorate.dev/trusted-member";
    /// On an EtcdCluster, by its user: the epoch whose quorum is lost and is to be recovered, and after a colon, if wanted,
    /// the member whose copy is to be used. For example `1` or `1:db-2`.
    pub const RECOVER_QUORUM: &str = "quorate.dev/recover-quorum";
    /// On an EtcdCluster, by its user: the epoch that began with a loss of data which somebody has taken note of.
    pub const ACKNOWLEDGE_DATA_LOSS: &str = "quorate.dev/acknowledge-data-loss";
    /// On an EtcdMember, by its user: names of directories on its volume that were put aside and are to be removed, with
    /// commas between. Its status tells which there are.
    pub const DISCARD_QUARANTINE: &str = "quorate.dev/discard-quarantine";
    /// On an owned object: digest of what was last applied, so that an edit by hand is seen.
    pub const APPLIED: &str = "quorate.dev/applied";
    /// On the StatefulSet: the last spec that could be followed, which stays in effect while the present one cannot.
    pub const LAST_GOOD_SPEC: &str = "quorate.dev/last-good-spec";
    /// On a Secret with a certificate: serial number.
    pub const CERTIFICATE_SERIAL: &str = "quorate.dev/certificate-serial";
    /// On a Secret with a certificate: when it was issued. It is valid from earlier on, for nodes whose clocks are behind.
    pub const CERTIFICATE_ISSUED: &str = "quorate.dev/certificate-issued";
    /// On a Secret with a certificate: end of validity.
    pub const CERTIFICATE_NOT_AFTER: &str = "quorate.dev/certificate-not-after";
    /// On a Secret with a certificate: digest of the certificate, which tells whether it is still the one that was made.
    pub const CERTIFICATE_DIGEST: &str = "quorate.dev/certificate-digest";
    /// On a Secret with a certificate: digest of what it is for and of the names it is valid for.
    pub const CERTIFICATE_SUBJECT: &str = "quorate.dev/certificate-subject";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_derived_name_of_the_longest_cluster_name_fits() {
        let cluster = "c".repeat(MAX_CLUSTER_NAME);
        let highest = member(&cluster, 99);
        for label in [peer_service(&cluster), client_service(&cluster), member_account(&cluster), highest.clone()] {
            assert!(label.len() <= MAX_LABEL, "{label}");
        }
        assert!(stateful_set(&cluster).len() + REVISION_SUFFIX <= MAX_LABEL);
        assert!(data_claim(&highest).len() <= crate::schema::MAX_OBJECT_NAME as usize);
    }

    #[test]
    fn derived_names_of_two_clusters_never_meet() {
        let clusters = ["a", "a-peer", "a-client", "a-0", "a-member"];
        let services = clusters.iter().flat_map(|name| [peer_service(name), client_service(name)]).collect::<Vec<_>>();
        let distinct = services.iter().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(services.len(), distinct.len());
        let secrets = clusters.iter().flat_map(|name| secrets::all(name)).collect::<Vec<_>>();
        let distinct = secrets.iter().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(secrets.len(), distinct.len());
        assert_eq!(ordinal_of("a", &member("a-0", 0)), None, "a-0-0 belongs to a-0, not to a");
    }

    #[test]
    fn only_claims_of_members_have_an_ordinal() {
        assert_eq!(claim_ordinal("etcd", &data_claim(&member("etcd", 2))), Some(2));
        for other in ["etcd-2", "data-etcd", "data-etcd-x", "data-other-2", "scratch-etcd-2", "dataetcd-2"] {
            assert_eq!(claim_ordinal("etcd", other), None, "{other}");
        }
    }

    #[test]
    fn ordinals_are_numbers_and_not_text() {
        assert_eq!(ordinal_of("etcd", "etcd-10"), Some(10));
        for other in ["etcd", "etcd-", "etcd-01", "etcd-x", "other-1", "etcd--1", "etcd-99999999999"] {
            assert_eq!(ordinal_of("etcd", other), None, "{other}");
        }
    }
}
