//! The claims against real servers that check signatures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod conformance;
mod servers;

use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use conformance::{Subject, name};
use quorate_store::Conditional::Honoured;
use quorate_store::{ErrorKind, Prefix, Provider, Settings, Store};
use servers::real::{ACCOUNT, ACCOUNT_KEY, Process};
use servers::{KEY_ID, SECRET, credentials, impatient, real, s3, s3_credentials};
use sha2::{Digest, Sha256};

fn azure(server: &Process, key: &str, prefix: &str) -> Settings {
    Settings {
        endpoint: Some(format!("{}/{ACCOUNT}", server.url)),
        credentials: Some(credentials(&[("storageAccount", ACCOUNT), ("storageKey", key)])),
        ..Settings::new(Provider::Azure, "backups", Prefix::new(prefix).unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_s3_conforms() {
    let server = real::s3(None);
    let open = |prefix: &str| Store::open(s3(server.url.clone(), prefix)).unwrap();
    Subject { open, credentials: Some(s3_credentials()), puts: Honoured, uploads: Honoured }.conforms().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_azure_conforms() {
    let server = real::azurite().await;
    let open = |prefix: &str| Store::open(azure(&server, ACCOUNT_KEY, prefix)).unwrap();
    let same = credentials(&[("storageAccount", ACCOUNT), ("storageKey", ACCOUNT_KEY)]);
    Subject { open, credentials: Some(same), puts: Honoured, uploads: Honoured }.conforms().await;
}

#[tokio::test]
async fn a_wrong_key_is_denied_until_the_secret_is_corrected() {
    let server = real::s3(None);
    let wrong = credentials(&[("accessKeyID", KEY_ID), ("secretAccessKey", "wrong")]);
    let store = Store::open(Settings { credentials: Some(wrong), ..s3(server.url.clone(), "p") }).unwrap();
    let error = store.create(&name("a"), Bytes::from_static(b"x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    store.replace_credentials(Some(s3_credentials())).unwrap();
    store.create(&name("a"), Bytes::from_static(b"x")).await.unwrap();

    let server = real::azurite().await;
    let store = Store::open(azure(&server, "d3Jvbmc=", "p")).unwrap();
    let error = store.create(&name("a"), Bytes::from_static(b"x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn only_the_authorities_that_were_given_are_trusted() {
    let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let server = real::s3(Some((&signed.cert.pem(), &signed.signing_key.serialize_pem())));
    let with = |ca: &str| {
        let entries = [("accessKeyID", KEY_ID), ("secretAccessKey", SECRET), ("ca.crt", ca)];
        Store::open(impatient(Settings { credentials: Some(credentials(&entries)), ..s3(server.url.clone(), "p") }))
            .unwrap()
    };
    with(&signed.cert.pem()).create(&name("a"), Bytes::from_static(b"x")).await.unwrap();
    let error = with(&other.cert.pem()).read(&name("a"), 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn an_object_under_retention_is_locked() {
    let server = real::s3(None);
    let put = http::Method::PUT;
    real::as_owner(&server, put.clone(), "/retained", &[("x-amz-bucket-object-lock-enabled", "true")], "").await;
    let rule = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
                <Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
    let digest = BASE64_STANDARD.encode(Sha256::digest(rule));
    real::as_owner(&server, put, "/retained?object-lock=", &[("x-amz-checksum-sha256", &digest)], rule).await;
    let store = Store::open(Settings { bucket: "retained".to_owned(), ..s3(server.url.clone(), "p") }).unwrap();
    store.create(&name("a"), Bytes::from_static(b"x")).await.unwrap();
    let error = store.delete(&name("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    let error = store.create(&name("a"), Bytes::from_static(b"y")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(store.read(&name("a"), 10).await.unwrap(), "x");
    // Also with objects that stay, the probe finds out what it is for.
    assert!(store.probe().await.unwrap().are_safe());
}
