//! What can go wrong in a pass, with a bounded kind for metrics.

use std::time::Duration;

use crate::pki::PkiError;

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
    #[error("this replica no longer leads and must not act")]
    NotLeading,
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
            Self::NotLeading => "not-leading",
            Self::PassDied => "aborted",
            Self::WatchesEnded => "watches-ended",
        }
    }

    /// Whether it is part of normal work: somebody else was faster.
    pub fn is_expected(&self) -> bool {
        matches!(self, Self::Outdated { .. } | Self::NotLeading)
    }
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        // Its own text says everything three times.
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            text.push_str(&status.message);
            break;
        }
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
