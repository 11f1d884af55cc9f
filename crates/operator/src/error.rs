//! What can go wrong in a pass, with a bounded kind for metrics.

use std::time::Duration;

use quorate_core::identity::IncompleteIdentity;
use quorate_runtime::election::NotLeading;

use crate::pki::PkiError;
use crate::unanswered::{self, Unanswered};

/// Why a pass ended early. The next one starts from what is then true.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what}")]
    Api {
        what: String,
        #[source]
        source: kube::Error,
    },
    #[error("cannot {what} within {} seconds", limit.as_secs())]
    Deadline { what: String, limit: Duration },
    #[error("{what} has changed since it was viewed; looking again")]
    Outdated { what: String },
    #[error("Secret {name} is not a certificate of this EtcdCluster; remove it or choose another name for the cluster")]
    SecretTaken { name: String },
    #[error("cannot issue the certificate for Secret {secret}")]
    Pki {
        secret: String,
        #[source]
        source: PkiError,
    },
    #[error("no member of the cluster has listed its members: {}", unanswered::listed(failures))]
    NoMemberAnswered { failures: Vec<Unanswered> },
    #[error("etcd does not yet {what}: {cause}")]
    NotYet { what: String, cause: String },
    #[error(
        "etcd does not let the operator {what}: {cause}; authentication is enabled, and the operator's certificate speaks for \
         the user operator: `etcdctl user add operator --no-password` and `etcdctl user grant-role operator root` let it"
    )]
    NotAllowed { what: String, cause: String },
    #[error("etcd refuses to {what}: {cause}; it is tried again, and `etcdctl member list` shows what is in the way")]
    ChangeRefused { what: String, cause: String },
    #[error(transparent)]
    Identity(#[from] IncompleteIdentity),
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    #[error("the pass was aborted")]
    PassDied,
    #[error("the watches have ended")]
    WatchesEnded,
}

impl Error {
    /// From a failed request, where a conflict means that the view was old.
    pub fn api(what: impl Into<String>, source: kube::Error) -> Self {
        let what = what.into();
        match &source {
            kube::Error::Api(status) if status.code == 409 && status.reason != "AlreadyExists" => {
                Self::Outdated { what }
            }
            _ => Self::Api { what, source },
        }
    }

    /// One of a few words.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Api { source: kube::Error::Api(status), .. } => match status.code {
                400..=402 | 404..=499 if status.code != 429 => "refused",
                403 => "forbidden",
                _ => "unavailable",
            },
            Self::Api { .. } => "unreachable",
            Self::Deadline { .. } => "deadline",
            Self::Outdated { .. } => "outdated",
            Self::SecretTaken { .. } => "secret-taken",
            Self::Pki { .. } => "pki",
            Self::NoMemberAnswered { .. } | Self::ChangeRefused { .. } => "etcd",
            Self::NotYet { .. } => "not-yet",
            Self::NotAllowed { .. } => "etcd-forbidden",
            Self::Identity(_) => "identity",
            Self::NotLeading(_) => "not-leading",
            Self::PassDied => "aborted",
            Self::WatchesEnded => "watches-ended",
        }
    }

    /// Whether it is part of normal work: somebody else was faster.
    pub fn is_expected(&self) -> bool {
        matches!(self, Self::Outdated { .. } | Self::NotLeading(_))
    }
}
