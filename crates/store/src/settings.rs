//! Where a store is and how it is spoken to, as plain data; and the rules that hold before anything is sent.

use std::time::Duration;

use url::Url;

use crate::{Credentials, Error, ErrorKind, Prefix, Result};

/// Kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    S3,
    Gcs,
    Azure,
    /// A directory: a disk, or whatever is mounted there.
    File,
}

impl Provider {
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
            Self::File => "file",
        }
    }
}

/// A place in a store.
#[derive(Clone, Debug)]
pub struct Settings {
    pub provider: Provider,
    /// Bucket or container; an absolute path with `File`.
    pub bucket: String,
    pub prefix: Prefix,
    /// URL of the server, if it is not the provider's own.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// Whether the bucket is part of the path rather than of the host's name. Default: with an endpoint of one's own.
    pub path_style: Option<bool>,
    /// The only authorities that are trusted, in PEM. Default: `ca.crt` of the credentials, else those of the system.
    pub ca: Option<Vec<u8>>,
    /// The entries of the Secret; without it, the identity of the environment.
    pub credentials: Option<Credentials>,
    pub limits: Limits,
}

/// How long is waited, and how often is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub connect: Duration,
    /// The longest silence of the server, and the longest time that a part of an upload may take.
    pub answer: Duration,
    /// Attempts after the first.
    pub retries: usize,
    /// No further attempt after this long.
    pub retry_for: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_mins(1),
            retries: 5,
            retry_for: Duration::from_mins(2),
        }
    }
}

impl Settings {
    pub fn new(provider: Provider, bucket: impl Into<String>, prefix: Prefix) -> Self {
        Self {
            provider,
            bucket: bucket.into(),
            prefix,
            endpoint: None,
            region: None,
            path_style: None,
            ca: None,
            credentials: None,
            limits: Limits::default(),
        }
    }

    pub(crate) fn authorities(&self) -> Option<&[u8]> {
        self.ca.as_deref().or_else(|| self.credentials.as_ref()?.bytes("ca.crt"))
    }

    /// Whoever may name the endpoint would be sent the tokens of an identity that is not theirs, so an endpoint comes with
    /// credentials of its own.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |cause: String| Err(Error::new(ErrorKind::Misconfigured, &self.location(), "opening it", cause));
        if self.provider == Provider::File {
            if !self.bucket.starts_with('/') || self.bucket.split('/').any(|segment| segment == "..") {
                return refuse(format!("{:?} is not an absolute path", self.bucket));
            }
            return Ok(());
        }
        if !is_bucket(&self.bucket) {
            return refuse(format!("{:?} is not the name of a bucket", self.bucket));
        }
        let Some(endpoint) = &self.endpoint else { return Ok(()) };
        let Ok(url) = Url::parse(endpoint) else { return refuse("the endpoint is not a URL".to_owned()) };
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return refuse("the endpoint is not a URL that begins with https:// or http://".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return refuse("the endpoint has more than a scheme, a host, a port and a path".to_owned());
        }
        if !self.credentials.as_ref().is_some_and(Credentials::identify) {
            return refuse("an endpoint is given and no credentials for it".to_owned());
        }
        Ok(())
    }

    /// Whether the server is spoken to without TLS, because its URL says so.
    pub(crate) fn plain_text(&self) -> bool {
        self.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"))
    }
}

/// What all providers agree on, and what cannot be anything else in a URL.
fn is_bucket(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    (3..=222).contains(&text.len())
        && text.bytes().all(inner)
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && !text.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(Provider::S3, "backups", Prefix::default())
    }

    fn refusal(settings: &Settings) -> String {
        let error = settings.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        error.to_string()
    }

    #[test]
    fn the_identity_of_the_pod_is_never_sent_to_an_endpoint_that_somebody_named() {
        let endpoint = Some("https://evil.example".to_owned());
        assert!(refusal(&Settings { endpoint: endpoint.clone(), ..settings() }).contains("no credentials"));
        let authorities_alone = Some(Credentials::new([("ca.crt".to_owned(), vec![])]));
        assert!(
            refusal(&Settings { endpoint: endpoint.clone(), credentials: authorities_alone, ..settings() })
                .contains("no credentials")
        );
        let credentials = Some(Credentials::new([("accessKeyID".to_owned(), b"x".to_vec())]));
        Settings { endpoint, credentials, ..settings() }.check().unwrap();
    }

    #[test]
    fn an_endpoint_is_a_scheme_a_host_and_a_port() {
        let credentials = Some(Credentials::new([("accessKeyID".to_owned(), b"x".to_vec())]));
        let with = |endpoint: &str| Settings {
            endpoint: Some(endpoint.to_owned()),
            credentials: credentials.clone(),
            ..settings()
        };
        for endpoint in ["https://s3.example", "http://127.0.0.1:8333", "https://[::1]:9000/path"] {
            with(endpoint).check().unwrap();
        }
        for endpoint in
            ["s3.example", "ftp://s3.example", "https://user:canary@s3.example", "https://s3.example?x=canary", ""]
        {
            let said = refusal(&with(endpoint));
            assert!(!said.contains("canary"), "{said}");
        }
    }

    #[test]
    fn a_bucket_is_not_a_path_and_a_directory_is_absolute() {
        for bucket in ["", "a", "a/b", "..", "a..b", "A", "a b", "x?y", "-ab"] {
            refusal(&Settings { bucket: bucket.to_owned(), ..settings() });
        }
        for directory in ["", "relative", "/a/../etc"] {
            refusal(&Settings::new(Provider::File, directory, Prefix::default()));
        }
        Settings::new(Provider::File, "/backups", Prefix::default()).check().unwrap();
    }
}
