//! Errors for people.

use std::error::Error;

/// An error with its causes, on one line. What an error says of its cause is not said again by the cause, and of an answer
/// of the API server it is enough what the server says: the client's own text says it three times.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        let refusal = refusal(cause);
        let own = refusal.map_or_else(|| cause.to_string(), str::to_owned);
        if !text.ends_with(&own) {
            let separator = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{separator}{own}");
        }
        next = if refusal.is_some() { None } else { cause.source() };
    }
    text
}

fn refusal<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a str> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref);
    match error.downcast_ref::<kube::Error>().or_else(boxed)? {
        kube::Error::Api(status) if !status.message.is_empty() => Some(&status.message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot renew the Lease")]
    struct Renewal<E: Error + 'static>(#[source] E);

    fn refused(message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure(message, "Forbidden").with_code(403)))
    }

    #[test]
    fn what_the_api_server_says_is_said_once() {
        let expected = "cannot renew the Lease: leases is forbidden";
        assert_eq!(chain(&Renewal(refused("leases is forbidden"))), expected);
        assert_eq!(chain(&Renewal(Box::new(refused("leases is forbidden")))), expected);
        assert_eq!(chain(&refused("leases is forbidden")), "leases is forbidden");
    }

    #[test]
    fn an_answer_without_words_is_still_shown() {
        assert!(chain(&Renewal(refused(""))).contains("403"));
    }

    #[test]
    fn an_error_that_quotes_its_cause_is_not_followed_by_it() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let text = chain(&Renewal(kube::Error::Service(refused.into())));
        assert_eq!(text, "cannot renew the Lease: ServiceError: connection refused");
    }
}
