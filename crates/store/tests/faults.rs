//! What callers are told when a store misbehaves: a kind to act on, in bounded time, and never a secret.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod conformance;
mod servers;

use bytes::Bytes;
use conformance::{content, name};
use futures::TryStreamExt;
use quorate_store::{Entry, Error, ErrorKind, Provider, Settings, Store};
use servers::broken::{Behaviour, Broken, answer};
use servers::{KEY_ID, SECRET, credentials, impatient, s3};

async fn broken(answers: &[String]) -> (Broken, Store) {
    let server = Broken::start(Behaviour::Answers(answers.to_vec())).await;
    let store = Store::open(impatient(s3(server.url(), "p"))).unwrap();
    (server, store)
}

/// The same fault met by each thing that a store does.
async fn every_failure(store: &Store) -> Vec<Error> {
    let a = name("a");
    vec![
        store.create(&a, Bytes::from_static(b"x")).await.unwrap_err(),
        store.read(&a, 100).await.unwrap_err(),
        store.list(None).try_collect::<Vec<Entry>>().await.unwrap_err(),
        store.delete(&a).await.unwrap_err(),
    ]
}

#[tokio::test]
async fn nobody_listens() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let store = Store::open(impatient(s3(url, "p"))).unwrap();
    for error in every_failure(&store).await {
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        let said = error.to_string();
        assert!(said.contains("s3://backups/p/") && said.contains("onnection refused"), "{said}");
    }
}

#[tokio::test]
async fn access_is_denied() {
    let (_server, store) = broken(&[answer(403, "", "<Error><Code>AccessDenied</Code></Error>")]).await;
    for error in every_failure(&store).await {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("403 AccessDenied"), "{error}");
    }
}

#[tokio::test]
async fn a_store_that_asks_to_slow_down_is_asked_a_bounded_number_of_times() {
    let (server, store) = broken(&[answer(503, "retry-after: 1\r\n", "<Error><Code>SlowDown</Code></Error>")]).await;
    let error = store.read(&name("a"), 100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Throttled, "{error}");
    assert_eq!(server.requests().len(), 3, "the first attempt and two more");
}

#[tokio::test]
async fn a_store_that_fails_once_is_asked_again() {
    let good = answer(200, "etag: \"1\"\r\nlast-modified: Tue, 17 Nov 2026 10:00:00 GMT\r\n", "good");
    let (server, store) = broken(&[answer(500, "", ""), good]).await;
    assert_eq!(store.read(&name("a"), 100).await.unwrap(), "good");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn silence_ends_in_a_timeout() {
    let server = Broken::start(Behaviour::Silence).await;
    let store = Store::open(impatient(s3(server.url(), "p"))).unwrap();
    for error in every_failure(&store).await {
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }
}

#[tokio::test]
async fn a_body_that_is_cut_short_is_never_taken_for_the_whole() {
    let headers =
        "HTTP/1.1 200 X\r\nconnection: close\r\netag: \"1\"\r\nlast-modified: Tue, 17 Nov 2026 10:00:00 GMT\r\n";
    let (_server, store) = broken(&[format!("{headers}content-length: 100\r\n\r\nonly this")]).await;
    let error = store.read(&name("a"), 100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let mut body = store.stream(&name("a"), 0).await.unwrap();
    while let Ok(piece) = body.next().await {
        assert!(piece.is_some(), "the end of a body that was cut short");
    }
    assert!(body.next().await.is_err(), "after an error there is no good end");
}

#[tokio::test]
async fn garbage_is_called_garbage() {
    for garbage in ["<ListBucketResult><Contents><Key>p/a</Key>", "{}", "<html>It works!</html", "\u{0}\u{1}"] {
        let (_server, store) = broken(&[answer(200, "", garbage)]).await;
        let error = store.list(None).try_collect::<Vec<Entry>>().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{garbage}: {error}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_takes_no_credentials_along() {
    let elsewhere = Broken::start(Behaviour::Answers(vec![answer(200, "", "caught")])).await;
    for status in [301, 302, 307, 308] {
        let (_server, store) = broken(&[answer(status, &format!("location: {}/\r\n", elsewhere.url()), "")]).await;
        for error in every_failure(&store).await {
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        }
    }
    assert_eq!(elsewhere.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_store_that_takes_nothing_makes_the_writer_wait_with_little_in_memory() {
    let server = Broken::start(Behaviour::TakesNoParts).await;
    let store = Store::open(impatient(s3(server.url(), "p"))).unwrap();
    let mut upload = store.upload(&name("a")).await.unwrap();
    let piece = content(1 << 20, 1);
    let mut taken = 0;
    let error = loop {
        match upload.write(piece.clone()).await {
            Ok(()) => taken += piece.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(taken <= 24 << 20, "{taken} bytes were taken from the writer and by nobody from us");
}

#[tokio::test]
async fn no_secret_is_ever_printed() {
    // A server that sends back all it knows, as some do when a signature does not match.
    let echo =
        format!("<Error><Code>Canary {SECRET}</Code><StringToSign>{KEY_ID} {SECRET} sig=canary</StringToSign></Error>");
    let mut printed = Vec::new();
    for status in [400, 401, 403, 409, 412, 500, 503] {
        let (server, store) = broken(&[answer(status, "", &echo)]).await;
        printed.extend(every_failure(&store).await.iter().map(|error| format!("{error} {error:?}")));
        printed.push(format!("{store} {store:?} {:?}", s3(server.url(), "p")));
        assert!(server.requests()[0].contains(KEY_ID), "the canary is not in the request, so this test shows nothing");

        let azure = Settings {
            provider: Provider::Azure,
            credentials: Some(credentials(&[("storageAccount", "x"), ("sasToken", "sv=1&sig=canary-secret")])),
            ..s3(server.url(), "p")
        };
        let store = Store::open(impatient(azure)).unwrap();
        printed.extend(every_failure(&store).await.iter().map(|error| format!("{error} {error:?}")));
    }
    for text in printed {
        assert!(!text.to_lowercase().contains("canary"), "{text}");
        assert!(!text.contains("sig=") && !text.contains("X-Amz-Signature"), "{text}");
    }
}
