//! What an error of the client below means, in our own words.
//!
//! The client keeps the type that knows status and answer to itself, so both are taken from its text, whose beginning is
//! fixed. The tests with faults hold this against the version that is pinned.

use std::error::Error as StdError;
use std::io;

use object_store::client::{HttpError, HttpErrorKind};

use crate::ErrorKind;

/// What was asked for, where the same answer means different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Reading,
    Creating,
    Deleting,
}

/// A kind, and the cause in words that may be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) kind: ErrorKind,
    pub(crate) text: String,
}

impl Cause {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

const STATUS: &str = "Server returned non-2xx status code: ";
const ERROR_WITH_SUCCESS: &str = "Server returned error response: ";
const REDIRECT_TO_NOWHERE: &str = "Received redirect without LOCATION";
/// How a failed deletion in a batch of Azure's ends: `... (code: 409)`.
const BATCH_CODE: &str = "(code: ";

pub(crate) fn classify(error: &object_store::Error, asked: Asked) -> Cause {
    use object_store::Error as E;
    if let Some(answer) = answer(error) {
        return answer.meaning(asked);
    }
    if let Some(cause) = chain(error).find_map(|error| error.downcast_ref::<HttpError>()) {
        return transport(cause);
    }
    if let Some(cause) = chain(error).find_map(|error| error.downcast_ref::<io::Error>()) {
        return file(cause);
    }
    match error {
        E::NotFound { .. } => Cause::new(ErrorKind::NotFound, "there is no such object"),
        E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => exists(),
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => Cause::new(ErrorKind::Denied, "access is denied"),
        E::NotImplemented { .. } | E::NotSupported { .. } => unsupported(),
        E::InvalidPath { .. } => Cause::new(ErrorKind::Misconfigured, "the prefix holds a key with an empty segment"),
        E::UnknownConfigurationKey { .. } => Cause::new(ErrorKind::Misconfigured, "a setting is not known"),
        _ => Cause::new(ErrorKind::Damaged, "the answer makes no sense"),
    }
}

fn exists() -> Cause {
    Cause::new(ErrorKind::AlreadyExists, "there is an object by this name")
}

fn unsupported() -> Cause {
    Cause::new(ErrorKind::Misconfigured, "the store does not support this request")
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (**error).source())
}

/// What a server said.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// From the provider's list of codes.
    code: Option<String>,
    /// For looking into, never for printing.
    body: String,
}

fn answer(error: &(dyn StdError + 'static)) -> Option<Answer> {
    chain(error).find_map(|error| answer_in(&error.to_string()))
}

fn answer_in(text: &str) -> Option<Answer> {
    if let Some(rest) = text.strip_prefix(STATUS) {
        let status = rest.get(..3)?.parse().ok()?;
        return Some(Answer::new(status, rest));
    }
    if let Some(body) = text.strip_prefix(ERROR_WITH_SUCCESS) {
        // S3 may find out that it failed after it has said 200.
        return Some(Answer::new(500, body));
    }
    if text.starts_with(REDIRECT_TO_NOWHERE) {
        return Some(Answer::new(301, ""));
    }
    let (_, code) = text.strip_suffix(')')?.rsplit_once(BATCH_CODE)?;
    Some(Answer::new(code.parse().ok().filter(|status| (300..600).contains(status))?, ""))
}

impl Answer {
    fn new(status: u16, body: &str) -> Self {
        Self { status, code: code_in(body), body: body.to_lowercase() }
    }

    fn meaning(&self, asked: Asked) -> Cause {
        let code = self.code.as_deref().unwrap_or_default();
        let said = match &self.code {
            Some(code) => format!("{} {code}", self.status),
            None => self.status.to_string(),
        };
        let cause = |kind, text: &str| Cause::new(kind, format!("{text} ({said})"));
        match self.status {
            _ if asked == Asked::Deleting && self.locked() => cause(ErrorKind::Locked, "the object is locked"),
            // Only what is said of an object may be taken for its absence: a bucket or a user may be missing as well.
            404 | 410 if matches!(code, "" | "NoSuchKey" | "NoSuchUpload" | "NoSuchVersion" | "BlobNotFound") => {
                Cause::new(ErrorKind::NotFound, "there is no such object")
            }
            404 | 410 => cause(ErrorKind::Misconfigured, "the store does not know the bucket, or who asks"),
            304 | 412 => exists(),
            // Somebody else writes or deletes there at this moment, and the store does not say how that ends.
            409 if matches!(code, "ConditionalRequestConflict" | "OperationAborted") => {
                cause(ErrorKind::Unreachable, "another request for this name is under way")
            }
            409 if asked == Asked::Creating => exists(),
            401 | 403 if code == "RequestTimeTooSkewed" => {
                cause(ErrorKind::Denied, "access is denied, because the clocks differ")
            }
            401 | 403 => cause(ErrorKind::Denied, "access is denied"),
            400 if matches!(
                code,
                "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" | "ExpiredTokenException"
            ) =>
            {
                cause(ErrorKind::Denied, "the token is not valid any more")
            }
            300..=399 => cause(
                ErrorKind::Misconfigured,
                "the store points elsewhere, where we do not follow: is it the right endpoint and region?",
            ),
            416 => cause(ErrorKind::Damaged, "the object is shorter than expected"),
            408 => cause(ErrorKind::Timeout, "the store gave up waiting for us"),
            429 | 503 => cause(ErrorKind::Throttled, "the store asks to slow down"),
            501 => cause(ErrorKind::Misconfigured, "the store does not support this request"),
            500..=599 => cause(ErrorKind::Unreachable, "the store failed"),
            _ => cause(ErrorKind::Misconfigured, "the store does not accept the request"),
        }
    }

    /// Every provider has its own words for it; Azure alone answers a deletion with a conflict.
    fn locked(&self) -> bool {
        const WORDS: [&str; 7] =
            ["object lock", "objectlock", "worm", "retention", "legal hold", "immutable", "active hold"];
        self.status == 409 || (self.status == 403 && WORDS.iter().any(|word| self.body.contains(word)))
    }
}

/// The text between `<Code>` and `</Code>`, if it is one word: anything else is not printed.
fn code_in(body: &str) -> Option<String> {
    let (_, rest) = body.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_word = (1..=64).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then(|| code.to_owned())
}

fn transport(error: &HttpError) -> Cause {
    // The innermost cause is the system's or the TLS library's, and knows nothing of the request.
    let detail = chain(error)
        .last()
        .filter(|last| last.downcast_ref::<io::Error>().is_some() || error.kind() == HttpErrorKind::Connect);
    let detail = detail.map(|last| format!(" ({last})")).unwrap_or_default();
    match error.kind() {
        HttpErrorKind::Timeout => Cause::new(ErrorKind::Timeout, "the store does not answer in time"),
        HttpErrorKind::Connect => Cause::new(ErrorKind::Unreachable, format!("no connection to the store{detail}")),
        HttpErrorKind::Decode => Cause::new(ErrorKind::Damaged, "the answer was cut short or makes no sense"),
        _ => Cause::new(ErrorKind::Unreachable, format!("the connection to the store broke{detail}")),
    }
}

fn file(error: &io::Error) -> Cause {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        io::ErrorKind::UnexpectedEof => ErrorKind::Damaged,
        io::ErrorKind::TimedOut => ErrorKind::Timeout,
        _ => ErrorKind::Unreachable,
    };
    match kind {
        ErrorKind::AlreadyExists => exists(),
        _ => Cause::new(kind, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, body: &str, asked: Asked) -> Cause {
        Answer::new(status, body).meaning(asked)
    }

    #[test]
    fn each_answer_has_the_kind_that_callers_act_on() {
        use Asked::{Creating, Deleting, Reading};
        use ErrorKind::*;
        let cases = [
            (404, "", Reading, NotFound),
            (404, "<Code>NoSuchKey</Code>", Reading, NotFound),
            (404, "<Code>NoSuchBucket</Code>", Reading, Misconfigured),
            (404, "<Code>ContainerNotFound</Code>", Reading, Misconfigured),
            (404, "<Code>XAdminUserNotFound</Code>", Deleting, Misconfigured),
            (412, "", Creating, AlreadyExists),
            (409, "<Code>BlobAlreadyExists</Code>", Creating, AlreadyExists),
            (409, "<Code>ConditionalRequestConflict</Code>", Creating, Unreachable),
            (409, "<Code>BlobImmutableDueToPolicy</Code>", Deleting, Locked),
            (403, "<Code>AccessDenied</Code>", Deleting, Denied),
            (403, "<Message>Access Denied because object protected by object lock.</Message>", Deleting, Locked),
            (403, "<Details>is subject to bucket's retention policy</Details>", Deleting, Locked),
            (403, "<Details>retention</Details>", Creating, Denied),
            (401, "", Reading, Denied),
            (400, "<Code>ExpiredToken</Code>", Reading, Denied),
            (400, "<Code>InvalidArgument</Code>", Reading, Misconfigured),
            (301, "<Code>PermanentRedirect</Code>", Reading, Misconfigured),
            (307, "", Creating, Misconfigured),
            (416, "", Reading, Damaged),
            (429, "", Reading, Throttled),
            (503, "<Code>SlowDown</Code>", Creating, Throttled),
            (500, "", Creating, Unreachable),
            (502, "", Reading, Unreachable),
            (501, "<Code>NotImplemented</Code>", Creating, Misconfigured),
        ];
        for (status, body, asked, kind) in cases {
            assert_eq!(answered(status, body, asked).kind, kind, "{status} {body} {asked:?}");
        }
    }

    #[test]
    fn an_answer_is_found_in_each_wording() {
        let status = |text: &str| answer_in(text).map(|answer| answer.status);
        assert_eq!(status("Server returned non-2xx status code: 403 Forbidden: <Code>X</Code>"), Some(403));
        assert_eq!(status("Server returned error response: <Code>InternalError</Code>"), Some(500));
        assert_eq!(status("Received redirect without LOCATION, this normally indicates"), Some(301));
        assert_eq!(status("Bulk delete request failed for key a: Conflict (code: 409)"), Some(409));
        // What wraps an answer repeats its text, and knows less.
        assert_eq!(
            status("Error performing PUT http://x - Server returned non-2xx status code: 403 Forbidden: "),
            None
        );
        assert_eq!(status("something else (code: E42)"), None);
    }

    #[test]
    fn of_what_the_server_says_only_a_code_is_repeated() {
        let body = "<Error><Code>SignatureDoesNotMatch</Code><StringToSign>canary</StringToSign></Error>";
        assert_eq!(answered(403, body, Asked::Reading).text, "access is denied (403 SignatureDoesNotMatch)");
        for body in ["<Code>can ary</Code>", "<Code>canary=1&sig</Code>", "<Code></Code>", "canary"] {
            assert_eq!(answered(403, body, Asked::Reading).text, "access is denied (403)");
        }
    }
}
