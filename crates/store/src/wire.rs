//! The connection to a server: what is trusted, how long is waited, that no redirect is followed, and that the request which
//! completes an upload carries a condition.
//!
//! The client below can complete a multipart upload only unconditionally. Every upload of ours is create-only, so the
//! condition is added here, on the way out, to each request that completes one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use http::header::{AUTHORIZATION, HeaderValue, IF_NONE_MATCH};
use http::{Method, Uri};
use object_store::azure::{AzureAuthorizer, AzureCredential};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::redirect::Policy;
use reqwest::tls::Certificate;

use crate::{Limits, Settings};

/// Which requests are sent with a condition. What the probe found out is kept here, across changes of credentials.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) puts: AtomicBool,
    pub(crate) uploads: AtomicBool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self { puts: AtomicBool::new(true), uploads: AtomicBool::new(true) }
    }
}

/// How the completion of an upload is told that the object must not exist.
pub(crate) enum Completion {
    /// `If-None-Match: *`, outside of the signature, which covers what was there when it was made.
    Header,
    /// The same, signed again: Azure's signature with a shared key covers this header, there or not.
    Signed { account: String, credential: AzureCredential },
    /// Nothing: the store refuses conditions there.
    Bare,
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The credential must not end up in a log.
        f.write_str(match self {
            Self::Header => "Header",
            Self::Signed { .. } => "Signed",
            Self::Bare => "Bare",
        })
    }
}

/// Makes connections for one store.
#[derive(Debug)]
pub(crate) struct Wire {
    authorities: Authorities,
    limits: Limits,
    completion: Arc<Completion>,
    conditions: Arc<Conditions>,
}

#[derive(Clone, Debug)]
enum Authorities {
    System,
    Only(Vec<Certificate>),
}

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoTls(pub(crate) &'static str);

impl Wire {
    pub(crate) fn new(settings: &Settings, completion: Completion, conditions: Arc<Conditions>) -> Result<Self, NoTls> {
        let authorities = match settings.authorities() {
            Some(pem) => match Certificate::from_pem_bundle(pem) {
                Ok(certificates) if !certificates.is_empty() => Authorities::Only(certificates),
                _ => return Err(NoTls("the bundle of authorities holds no certificate in PEM")),
            },
            // Without TLS there is nothing to trust, and an image without the system's authorities is good enough.
            None if settings.plain_text() => Authorities::Only(Vec::new()),
            None => Authorities::System,
        };
        Ok(Self { authorities, limits: settings.limits, completion: Arc::new(completion), conditions })
    }

    fn client(&self, plain_text: bool) -> reqwest::Result<reqwest::Client> {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("quorate/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .https_only(!plain_text)
            .http1_only()
            .connect_timeout(self.limits.connect)
            // No limit for a whole answer: a backup may be large. The next bytes are what has to come in time.
            .read_timeout(self.limits.answer);
        match &self.authorities {
            Authorities::System => builder.build(),
            Authorities::Only(certificates) => builder.tls_certs_only(certificates.clone()).build(),
        }
    }
}

impl HttpConnector for Wire {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain_text = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let client = self.client(plain_text).map_err(|_| object_store::Error::Generic {
            store: "TLS",
            source: Box::new(NoTls("this machine has no bundle of authorities (/etc/ssl/certs, or SSL_CERT_FILE)")),
        })?;
        let (completion, conditions) = (Arc::clone(&self.completion), Arc::clone(&self.conditions));
        Ok(HttpClient::new(Line { client, completion, conditions }))
    }
}

#[derive(Debug)]
struct Line {
    client: reqwest::Client,
    completion: Arc<Completion>,
    conditions: Arc<Conditions>,
}

#[async_trait]
impl HttpService for Line {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if completes_an_upload(request.method(), request.uri()) && self.conditions.uploads.load(Ordering::Acquire) {
            self.completion.apply(&mut request).map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        }
        self.client.call(request).await
    }
}

impl Completion {
    fn apply(&self, request: &mut HttpRequest) -> object_store::Result<()> {
        if matches!(self, Self::Bare) {
            return Ok(());
        }
        request.headers_mut().insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        if let Self::Signed { account, credential } = self {
            request.headers_mut().remove(AUTHORIZATION);
            AzureAuthorizer::new(credential, account).try_authorize(request)?;
        }
        Ok(())
    }
}

/// S3's and Azure's ways to say it; no other request of ours looks like these.
fn completes_an_upload(method: &Method, uri: &Uri) -> bool {
    let has = |wanted: &str| uri.query().unwrap_or_default().split('&').any(|pair| pair.starts_with(wanted));
    (method == Method::POST && has("uploadId=")) || (method == Method::PUT && has("comp=blocklist"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_request_that_completes_an_upload_is_conditional() {
        let is = |method: Method, uri: &'static str| completes_an_upload(&method, &Uri::from_static(uri));
        assert!(is(Method::POST, "http://s3/bucket/key?uploadId=x"));
        assert!(is(Method::PUT, "http://azure/container/blob?comp=blocklist"));
        assert!(!is(Method::POST, "http://s3/bucket/key?uploads"));
        assert!(!is(Method::POST, "http://s3/bucket/key?uploads="));
        assert!(!is(Method::PUT, "http://s3/bucket/key?partNumber=1&uploadId=x"));
        assert!(!is(Method::DELETE, "http://s3/bucket/key?uploadId=x"));
        assert!(!is(Method::PUT, "http://azure/container/blob?comp=block&blockid=x"));
        assert!(!is(Method::PUT, "http://s3/bucket/key"));
    }
}
