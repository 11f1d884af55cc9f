//! What can go wrong between us and a member.

use std::io::{self, ErrorKind};
use std::time::Duration;

use thiserror::Error;
pub use tonic::Code;

/// What etcd says to a caller without a name, with a name that it does not know, or without the right, where the code does
/// not tell. Some calls of 3.5 pass on what etcd says to itself.
const FORBIDDEN: [&str; 5] = [
    "etcdserver: user name not found",
    "etcdserver: user name is empty",
    "auth: user not found",
    "auth: user name is empty",
    "auth: permission denied",
];

#[derive(Debug, Error)]
pub enum ClientError {
    #[error("`{endpoint}` cannot be used as an endpoint")]
    Endpoint { endpoint: String, source: tonic::transport::Error },
    #[error("the token is not valid in a header")]
    Token,
    #[error("{endpoint} did not answer {call} within {} s; if it was a write, its outcome is unknown", after.as_secs_f64())]
    Deadline { endpoint: String, call: &'static str, after: Duration },
    #[error("the connection to {endpoint} failed during {call}; if it was a write, its outcome is unknown")]
    Unreachable { endpoint: String, call: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{endpoint} refused {call}: {}", status.message())]
    Refused { endpoint: String, call: &'static str, status: Box<tonic::Status> },
    #[error("{endpoint} sent nothing for {} s during {call}", after.as_secs_f64())]
    Stalled { endpoint: String, call: &'static str, after: Duration },
    #[error("{endpoint} ended {call} early: {reason}")]
    Truncated { endpoint: String, call: &'static str, reason: &'static str },
    #[error("the snapshot that {endpoint} sent does not match the SHA-256 at its end")]
    SnapshotDigest { endpoint: String },
}

impl ClientError {
    /// The gRPC status, where there is one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { status, .. } => Some(status.code()),
            Self::Deadline { .. } => Some(Code::DeadlineExceeded),
            Self::Unreachable { .. } => Some(Code::Unavailable),
            _ => None,
        }
    }

    /// Whether the member has refused because of who asks: authentication is enabled, and the caller has no name, one that
    /// nobody knows, or not the right.
    pub fn is_forbidden(&self) -> bool {
        let Self::Refused { status, .. } = self else { return false };
        matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated) || FORBIDDEN.contains(&status.message())
    }

    /// Whether no connection came about: nobody listens there, or nothing gets through.
    pub fn is_out_of_reach(&self) -> bool {
        let Self::Unreachable { source, .. } = self else { return false };
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(source.as_ref());
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                use ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, PermissionDenied, TimedOut};
                let kinds = [ConnectionRefused, HostUnreachable, NetworkUnreachable, PermissionDenied, TimedOut];
                return kinds.contains(&error.kind());
            }
            cause = error.source();
        }
        false
    }

    /// What the member said, if it has refused.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Refused { status, .. } => Some(status.message()),
            _ => None,
        }
    }
}
