//! What an answer or its absence says about a write.

use std::error::Error;
use std::io;

use quorate_etcd::client::{ClientError, Code};
use quorate_etcd::pb::rpc::ResponseHeader;

use crate::history::{Outcome, Position};

pub(crate) fn position(header: Option<ResponseHeader>) -> Option<Position> {
    header.map(|header| Position { cluster: header.cluster_id, revision: header.revision })
}

pub(crate) fn acknowledged(header: Option<ResponseHeader>) -> Outcome {
    position(header).map_or(Outcome::Unknown, Outcome::Acknowledged)
}

/// A write has failed for certain only if nobody took it, or if a member says so in words that it uses before anything is
/// done. etcd says `Unavailable` also about writes that it is still trying to get through.
pub(crate) fn of_error(error: &ClientError) -> Outcome {
    let certain = match error {
        ClientError::Endpoint { .. } | ClientError::Token => true,
        ClientError::Unreachable { source, .. } => nobody_listened(source.as_ref()),
        // Said before anything is looked at, and by the code of things that may still come to pass.
        ClientError::Refused { status, .. } if status.message().contains("not supported for learner") => true,
        ClientError::Refused { .. } => matches!(
            error.code(),
            Some(
                Code::InvalidArgument
                    | Code::NotFound
                    | Code::AlreadyExists
                    | Code::PermissionDenied
                    | Code::Unauthenticated
                    | Code::FailedPrecondition
                    | Code::OutOfRange
                    | Code::ResourceExhausted
                    | Code::Unimplemented
            )
        ),
        _ => false,
    };
    if certain { Outcome::Failed } else { Outcome::Unknown }
}

/// Only the making of a connection is ever refused, so nothing was sent.
fn nobody_listened(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quorate_etcd::client::{Client, Options};
    use quorate_etcd::pb::rpc::kv::PutRequest;
    use tokio::net::TcpListener;

    use super::*;

    async fn outcome_of_a_put_to(listener: &TcpListener) -> Outcome {
        let mut options = Options::new(format!("http://{}", listener.local_addr().unwrap()));
        options.call_timeout = Duration::from_millis(300);
        of_error(&Client::new(options).unwrap().put(PutRequest::default()).await.unwrap_err())
    }

    #[tokio::test]
    async fn a_write_that_somebody_may_have_taken_is_of_unknown_fate() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // The kernel takes the connection, and nobody ever answers.
        assert_eq!(outcome_of_a_put_to(&listener).await, Outcome::Unknown);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let outcome = outcome_of_a_put_to(&listener);
        let hang_up = async { drop(listener.accept().await.unwrap()) };
        assert_eq!(tokio::join!(outcome, hang_up).0, Outcome::Unknown);
    }

    #[tokio::test]
    async fn a_write_has_failed_where_nobody_listens() {
        // Bound and not listening: nobody else gets this port meanwhile.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let options = Options::new(format!("http://{}", socket.local_addr().unwrap()));
        let error = Client::new(options).unwrap().put(PutRequest::default()).await.unwrap_err();
        assert_eq!(of_error(&error), Outcome::Failed);
    }
}
