//! What can go wrong beside a member.

use std::io;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what}")]
    Io { what: String, source: io::Error },
    #[error("{variable} is not what the operator writes; look at the pod template")]
    Settings { variable: &'static str, source: serde_json::Error },
    #[error("cannot inspect the data directory")]
    Inspect(#[source] quorate_etcd::validate::DirError),
    #[error("the ticket's initial cluster cannot be used")]
    Ticket(#[from] quorate_etcd::membership::MembershipError),
    #[error("what is in the log cannot be made to count")]
    Commit(#[from] quorate_etcd::wal::CommitError),
    #[error("the log was not applied: {0}")]
    Replay(String),
    #[error("the new incarnation cannot be written")]
    Restore(#[from] quorate_etcd::restore::RestoreError),
    #[error("the database cannot be read")]
    Database(#[from] quorate_etcd::snapshot::SnapshotError),
    #[error("cannot connect to etcd")]
    Etcd(#[from] quorate_etcd::client::ClientError),
    #[error("cannot talk to the Kubernetes API")]
    Kubernetes(#[from] Box<kube::Error>),
    #[error(transparent)]
    Tls(#[from] quorate_runtime::tls::ProviderChosen),
}

/// Says what was being done when an operation failed.
pub(crate) trait While<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> While<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { what: what(), source })
    }
}
