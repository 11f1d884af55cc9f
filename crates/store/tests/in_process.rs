//! The claims against a directory, a fake of Google Cloud Storage, and S3 look-alikes good and poor.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod conformance;
mod servers;

use std::os::unix::fs::symlink;

use bytes::Bytes;
use conformance::{PART, Subject, content, name, names, tomorrow};
use quorate_store::Conditional::{self, Honoured, Ignored, Unsupported};
use quorate_store::{ErrorKind, Limits, Prefix, Provider, Settings, Store};
use servers::xml_store::{Dialect, XmlStore};
use servers::{credentials, s3, s3_credentials};

fn directory(dir: &tempfile::TempDir, prefix: &str) -> Store {
    let settings = Settings::new(Provider::File, dir.path().to_str().unwrap(), Prefix::new(prefix).unwrap());
    Store::open(settings).unwrap()
}

fn gcs(server: &XmlStore, prefix: &str) -> Store {
    let account = r#"{"private_key": "x", "private_key_id": "x", "client_email": "x", "disable_oauth": true}"#;
    Store::open(Settings {
        endpoint: Some(server.url()),
        credentials: Some(credentials(&[("serviceaccount.json", account)])),
        ..Settings::new(Provider::Gcs, "backups", Prefix::new(prefix).unwrap())
    })
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let open = |prefix: &str| directory(&dir, prefix);
    Subject { open, credentials: None, puts: Honoured, uploads: Honoured }.conforms().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn google_cloud_storage_as_documented_conforms() {
    let server = XmlStore::start(Dialect::Gcs).await;
    let account = r#"{"private_key": "x", "private_key_id": "x", "client_email": "x", "disable_oauth": true}"#;
    let credentials = Some(credentials(&[("serviceaccount.json", account)]));
    let open = |prefix: &str| gcs(&server, prefix);
    Subject { open, credentials, puts: Honoured, uploads: Honoured }.conforms().await;
    assert_eq!(server.unfinished_uploads(), 0);
}

async fn an_s3_conforms(dialect: Dialect, found: Conditional) {
    let server = XmlStore::start(dialect).await;
    // What a store refuses with 501 is asked again like every failure of a server; here once is enough.
    let limits = Limits { retries: 0, ..Limits::default() };
    let open = |prefix: &str| Store::open(Settings { limits, ..s3(server.url(), prefix) }).unwrap();
    Subject { open, credentials: Some(s3_credentials()), puts: found, uploads: found }.conforms().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_s3_that_knows_conditions_conforms() {
    an_s3_conforms(Dialect::S3, Honoured).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_s3_that_ignores_conditions_is_found_out_and_still_never_overwritten_by_one_writer() {
    an_s3_conforms(Dialect::S3ThatIgnoresConditions, Ignored).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_s3_that_refuses_conditions_is_found_out_and_still_never_overwritten_by_one_writer() {
    an_s3_conforms(Dialect::S3ThatRefusesConditions, Unsupported).await;
}

#[tokio::test]
async fn a_lost_answer_to_a_creation_is_not_taken_for_somebody_elses_object() {
    for dialect in [Dialect::S3, Dialect::Gcs] {
        let server = XmlStore::start(dialect).await;
        let store =
            if dialect == Dialect::Gcs { gcs(&server, "p") } else { Store::open(s3(server.url(), "p")).unwrap() };
        server.lose_answers(1);
        store.create(&name("small"), Bytes::from_static(b"x")).await.unwrap();
        let mut upload = store.upload(&name("large")).await.unwrap();
        upload.write(content(PART + 1, 1)).await.unwrap();
        server.lose_answers(1);
        upload.finish().await.unwrap();
        assert!(store.read(&name("large"), 1 << 30).await.unwrap() == content(PART + 1, 1));
        // The mark is that of an attempt, not of a writer.
        let error = store.create(&name("small"), Bytes::from_static(b"x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{dialect:?}: {error}");
    }
}

#[tokio::test]
async fn an_upload_that_fails_at_the_end_is_cleared_away() {
    let server = XmlStore::start(Dialect::S3).await;
    let store = Store::open(s3(server.url(), "p")).unwrap();
    let mut upload = store.upload(&name("a")).await.unwrap();
    upload.write(content(PART + 1, 1)).await.unwrap();
    assert_eq!(server.unfinished_uploads(), 1);
    server.put("p/a", b"theirs");
    let error = upload.finish().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(server.unfinished_uploads(), 0);
    assert_eq!(store.read(&name("a"), 100).await.unwrap(), "theirs");
}

#[tokio::test]
async fn an_object_under_retention_is_locked_and_not_merely_denied() {
    let server = XmlStore::start(Dialect::Gcs).await;
    let store = gcs(&server, "p");
    store.create(&name("retained"), Bytes::from_static(b"x")).await.unwrap();
    let error = store.delete(&name("retained")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
}

#[tokio::test]
async fn what_others_keep_below_the_prefix_is_neither_listed_nor_cleared_away() {
    let server = XmlStore::start(Dialect::S3).await;
    let store = Store::open(s3(server.url(), "p")).unwrap();
    for key in
        ["p/.hidden", "p/with blank", "p/ok", "p/.quorate-parked-1", "p/deep/.quorate-probe-1", "q/.quorate-probe-1"]
    {
        server.put(key, b"x");
    }
    assert_eq!(names(&store).await, ["ok"]);
    assert_eq!(store.clear_leftovers(jiff::Timestamp::UNIX_EPOCH).await.unwrap(), 0);
    assert_eq!(store.clear_leftovers(tomorrow()).await.unwrap(), 1);
}

#[tokio::test]
async fn a_bucket_that_does_not_exist_is_a_matter_of_settings() {
    let server = XmlStore::start(Dialect::S3).await;
    let store = Store::open(Settings { bucket: "nowhere".to_owned(), ..s3(server.url(), "p") }).unwrap();
    let error = store.create(&name("a"), Bytes::from_static(b"x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}

#[tokio::test]
async fn no_link_is_followed_out_of_a_directory() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("secret"), "x").unwrap();
    std::fs::create_dir(dir.path().join("p")).unwrap();
    symlink(outside.path(), dir.path().join("p/link")).unwrap();
    symlink(outside.path().join("secret"), dir.path().join("p/file")).unwrap();
    let store = directory(&dir, "p");
    for object in ["link/secret", "file"] {
        let error = store.read(&name(object), 100).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert_eq!(store.delete(&name(object)).await.unwrap_err().kind(), ErrorKind::Misconfigured);
    }
    let error = store.create(&name("link/new"), Bytes::from_static(b"x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn what_a_killed_upload_left_in_a_directory_is_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    let store = directory(&dir, "p");
    store.create(&name("a"), Bytes::from_static(b"x")).await.unwrap();
    // As the client below names the file that an upload is collected in.
    std::fs::write(dir.path().join("p/.quorate-parked-0123#1"), "half").unwrap();
    assert_eq!(names(&store).await, ["a"]);
    assert_eq!(store.clear_leftovers(jiff::Timestamp::UNIX_EPOCH).await.unwrap(), 0);
    assert_eq!(store.clear_leftovers(tomorrow()).await.unwrap(), 1);
    assert_eq!(std::fs::read_dir(dir.path().join("p")).unwrap().count(), 1);
}
