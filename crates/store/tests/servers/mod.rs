//! Servers for tests: some in this process, some real ones found by `QUORATE_STORE_SERVERS`.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub(crate) mod broken;
#[cfg(feature = "real-stores")]
pub(crate) mod real;
pub(crate) mod xml_store;

use std::time::Duration;

use quorate_store::{Credentials, Limits, Prefix, Provider, Settings};

/// Values that must appear nowhere but in requests.
pub(crate) const KEY_ID: &str = "CANARYKEYID";
pub(crate) const SECRET: &str = "canary-secret";

pub(crate) fn credentials(entries: &[(&str, &str)]) -> Credentials {
    Credentials::new(entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())))
}

pub(crate) fn s3_credentials() -> Credentials {
    credentials(&[("accessKeyID", KEY_ID), ("secretAccessKey", SECRET)])
}

pub(crate) fn s3(endpoint: String, prefix: &str) -> Settings {
    Settings {
        endpoint: Some(endpoint),
        region: Some("us-east-1".to_owned()),
        credentials: Some(s3_credentials()),
        ..Settings::new(Provider::S3, "backups", Prefix::new(prefix).unwrap())
    }
}

/// Short, because the servers of these tests answer at once or never.
pub(crate) fn impatient(settings: Settings) -> Settings {
    let limits = Limits {
        connect: Duration::from_secs(2),
        answer: Duration::from_millis(500),
        retries: 2,
        retry_for: Duration::from_secs(20),
    };
    Settings { limits, ..settings }
}
