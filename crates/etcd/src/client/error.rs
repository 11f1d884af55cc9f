//! What can go wrong between us and a member.

use std::time::Duration;

use thiserror::Error;
pub use tonic::Code;

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
}
