//! What every store must do, run against each of them.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::TryStreamExt;
use jiff::{SignedDuration, Timestamp};
use quorate_store::{Capabilities, Conditional, Credentials, ErrorKind, ObjectName, Store};

/// As large as a part of an upload, which is what separates one request from several.
pub(crate) const PART: usize = 8 << 20;

pub(crate) fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

/// Bytes in which nothing can be swapped, lost or repeated without showing.
pub(crate) fn content(size: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state >> 16).to_le_bytes()[..6]);
    }
    bytes.truncate(size);
    bytes.into()
}

pub(crate) async fn listed(store: &Store) -> BTreeMap<String, u64> {
    let entries: Vec<_> = store.list(None).try_collect().await.unwrap();
    entries.into_iter().map(|entry| (entry.name.to_string(), entry.size)).collect()
}

pub(crate) async fn names(store: &Store) -> Vec<String> {
    listed(store).await.into_keys().collect()
}

async fn whole(store: &Store, object: &str) -> Bytes {
    store.read(&name(object), 1 << 30).await.unwrap()
}

async fn uploaded(store: &Store, object: &str, content: &Bytes, piece: usize) -> quorate_store::Result<u64> {
    let mut upload = store.upload(&name(object)).await?;
    let mut rest = content.clone();
    while !rest.is_empty() {
        upload.write(rest.split_to(piece.min(rest.len()))).await?;
    }
    upload.finish().await
}

/// A store to be held against the claims below.
pub(crate) struct Subject<Open> {
    /// Opens the store with this prefix.
    pub(crate) open: Open,
    /// The credentials it has, given once more.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) puts: Conditional,
    pub(crate) uploads: Conditional,
}

impl<Open: Fn(&str) -> Store> Subject<Open> {
    pub(crate) async fn conforms(&self) {
        self.the_probe_tells_the_truth_and_leaves_nothing().await;
        self.what_was_created_is_listed_and_read_as_it_was().await;
        self.a_name_is_created_once().await;
        self.a_listing_is_whole_and_stops_at_the_prefix().await;
        self.what_is_deleted_is_gone_and_may_be_deleted_again().await;
        self.more_than_is_there_cannot_be_read().await;
        self.an_upload_of_any_size_arrives_whole_and_only_at_its_end().await;
        self.an_upload_never_replaces_what_is_there().await;
        self.an_upload_that_is_given_up_was_never_there().await;
        self.credentials_change_while_an_upload_is_under_way().await;
        if self.puts == Conditional::Honoured {
            self.of_many_creators_of_one_name_exactly_one_wins().await;
        }
        if self.uploads == Conditional::Honoured {
            self.of_many_uploads_to_one_name_exactly_one_wins().await;
        }
    }

    /// As a writer opens it: what cannot be relied on is known.
    async fn opened(&self, prefix: &str) -> Store {
        let store = (self.open)(prefix);
        store.probe().await.unwrap();
        store
    }

    async fn the_probe_tells_the_truth_and_leaves_nothing(&self) {
        let store = (self.open)("probe");
        let expected = Capabilities { puts: self.puts, uploads: self.uploads };
        assert_eq!(store.probe().await.unwrap(), expected);
        // What it learned must not change what it learns.
        assert_eq!(store.probe().await.unwrap(), expected);
        assert_eq!(store.clear_leftovers(tomorrow()).await.unwrap(), 0);
    }

    async fn what_was_created_is_listed_and_read_as_it_was(&self) {
        let store = self.opened("read").await;
        assert_eq!(names(&store).await, Vec::<String>::new());
        let bytes = content(100_000, 1);
        store.create(&name("full/0001-a.b_c"), bytes.clone()).await.unwrap();
        store.create(&name("empty"), Bytes::new()).await.unwrap();
        let entries: Vec<_> = store.list(None).try_collect().await.unwrap();
        let entry = entries.iter().find(|entry| entry.name == name("full/0001-a.b_c")).unwrap();
        assert_eq!((entries.len(), entry.size), (2, 100_000));
        assert!(entry.modified.duration_since(Timestamp::now()).abs() < SignedDuration::from_hours(1));
        assert_eq!(whole(&store, "full/0001-a.b_c").await, bytes);
        assert_eq!(whole(&store, "empty").await, Bytes::new());
        assert_eq!(store.read_range(&name("full/0001-a.b_c"), 10..99_999).await.unwrap(), bytes.slice(10..99_999));
        assert_eq!(store.read_range(&name("full/0001-a.b_c"), 7..7).await.unwrap(), Bytes::new());
        for from in [0, 1, 65_536, 99_999] {
            let mut body = store.stream(&name("full/0001-a.b_c"), from).await.unwrap();
            assert_eq!(body.size(), 100_000);
            let mut read = Vec::new();
            while let Some(piece) = body.next().await.unwrap() {
                read.extend_from_slice(&piece);
            }
            assert_eq!(read, bytes.slice(usize::try_from(from).unwrap()..), "from {from}");
        }
    }

    async fn a_name_is_created_once(&self) {
        let store = self.opened("once").await;
        store.create(&name("a"), Bytes::from_static(b"first")).await.unwrap();
        for again in [&b"second"[..], b"first"] {
            let error = store.create(&name("a"), Bytes::from_static(again)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        }
        assert_eq!(whole(&store, "a").await, "first");
    }

    async fn a_listing_is_whole_and_stops_at_the_prefix(&self) {
        let (store, beside) = (self.opened("list/a").await, self.opened("list/ab").await);
        let expected: Vec<String> = (0..7).map(|number| format!("d/{number}")).collect();
        for object in &expected {
            store.create(&name(object), Bytes::from_static(b"x")).await.unwrap();
        }
        store.create(&name("da"), Bytes::from_static(b"x")).await.unwrap();
        beside.create(&name("other"), Bytes::from_static(b"x")).await.unwrap();
        let below: Vec<_> = store.list(Some(&name("d"))).try_collect().await.unwrap();
        let mut below: Vec<String> = below.into_iter().map(|entry| entry.name.to_string()).collect();
        below.sort();
        assert_eq!(below, expected);
        assert_eq!(names(&store).await.len(), 8);
        assert_eq!(names(&beside).await, ["other"]);
        assert_eq!(names(&(self.open)("list")).await.len(), 9);
    }

    async fn what_is_deleted_is_gone_and_may_be_deleted_again(&self) {
        let store = self.opened("delete").await;
        store.create(&name("a/b"), Bytes::from_static(b"x")).await.unwrap();
        store.delete(&name("a/b")).await.unwrap();
        store.delete(&name("a/b")).await.unwrap();
        store.delete(&name("never")).await.unwrap();
        assert_eq!(names(&store).await, Vec::<String>::new());
        let error = store.read(&name("a/b"), 10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("a/b"), "{error}");
        store.create(&name("a/b"), Bytes::from_static(b"again")).await.unwrap();
    }

    async fn more_than_is_there_cannot_be_read(&self) {
        let store = self.opened("more").await;
        store.create(&name("a"), Bytes::from_static(b"0123456789")).await.unwrap();
        for range in [5..11, 10..11, 100..200] {
            let error = store.read_range(&name("a"), range.clone()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{range:?}: {error}");
        }
        let error = store.read(&name("a"), 9).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    }

    async fn an_upload_of_any_size_arrives_whole_and_only_at_its_end(&self) {
        let store = self.opened("upload").await;
        for (object, size, piece) in [
            ("empty", 0, 1),
            ("small", 1000, 7),
            ("one-part", PART, PART),
            ("parts", 2 * PART, 1 << 20),
            ("parts-and-a-byte", 3 * PART + 1, 1_234_567),
        ] {
            let bytes = content(size, 2);
            let mut upload = store.upload(&name(object)).await.unwrap();
            let mut rest = bytes.clone();
            while !rest.is_empty() {
                upload.write(rest.split_to(piece.min(rest.len()))).await.unwrap();
            }
            let error = store.read(&name(object), 1 << 30).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{object}: {error}");
            assert!(!listed(&store).await.contains_key(object));
            assert_eq!(upload.finish().await.unwrap(), size as u64);
            assert!(whole(&store, object).await == bytes, "{object} is not what was uploaded");
            assert_eq!(listed(&store).await.get(object), Some(&(size as u64)));
        }
        assert_eq!(store.clear_leftovers(tomorrow()).await.unwrap(), 0);
    }

    async fn an_upload_never_replaces_what_is_there(&self) {
        let store = self.opened("replace").await;
        store.create(&name("a"), Bytes::from_static(b"first")).await.unwrap();
        for size in [10, PART + 1] {
            let error = uploaded(&store, "a", &content(size, 3), 1 << 20).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        }
        assert_eq!(whole(&store, "a").await, "first");
        assert_eq!(names(&store).await, ["a"]);
        assert_eq!(store.clear_leftovers(tomorrow()).await.unwrap(), 0);
    }

    async fn an_upload_that_is_given_up_was_never_there(&self) {
        let store = self.opened("give-up").await;
        for dropped in [true, false] {
            let mut upload = store.upload(&name("a")).await.unwrap();
            upload.write(content(2 * PART + 1, 4)).await.unwrap();
            if dropped {
                drop(upload);
            } else {
                upload.abort().await;
            }
            assert_eq!(names(&store).await, Vec::<String>::new());
        }
        uploaded(&store, "a", &content(PART + 1, 5), 1 << 20).await.unwrap();
    }

    async fn credentials_change_while_an_upload_is_under_way(&self) {
        let store = self.opened("credentials").await;
        let bytes = content(2 * PART + 1, 6);
        let mut upload = store.upload(&name("a")).await.unwrap();
        upload.write(bytes.slice(..=PART)).await.unwrap();
        store.replace_credentials(self.credentials.clone()).unwrap();
        store.create(&name("b"), Bytes::from_static(b"x")).await.unwrap();
        upload.write(bytes.slice(PART + 1..)).await.unwrap();
        upload.finish().await.unwrap();
        assert!(whole(&store, "a").await == bytes);
    }

    async fn of_many_creators_of_one_name_exactly_one_wins(&self) {
        let store = self.opened("race").await;
        for round in 0..5 {
            let object = name(&format!("a{round}"));
            let attempts: Vec<_> = (0..16_u64)
                .map(|writer| {
                    let (store, object) = (store.clone(), object.clone());
                    tokio::spawn(async move { store.create(&object, content(1000, writer)).await })
                })
                .collect();
            self.one_won(&store, &object, attempts, 1000).await;
        }
    }

    async fn of_many_uploads_to_one_name_exactly_one_wins(&self) {
        let store = self.opened("upload-race").await;
        for round in 0..2 {
            let object = name(&format!("a{round}"));
            let attempts: Vec<_> = (0..4_u64)
                .map(|writer| {
                    let (store, object) = (store.clone(), object.clone());
                    tokio::spawn(async move {
                        uploaded(&store, object.as_str(), &content(PART + 1, writer), 1 << 20).await.map(drop)
                    })
                })
                .collect();
            self.one_won(&store, &object, attempts, PART + 1).await;
        }
    }

    async fn one_won(
        &self,
        store: &Store,
        object: &ObjectName,
        attempts: Vec<tokio::task::JoinHandle<quorate_store::Result<()>>>,
        size: usize,
    ) {
        let mut winners = Vec::new();
        for (writer, attempt) in attempts.into_iter().enumerate() {
            match attempt.await.unwrap() {
                Ok(()) => winners.push(writer as u64),
                // S3 may also say that there is a conflict, as long as it does not know how the other one ends.
                Err(error) => {
                    assert!(error.kind() == ErrorKind::AlreadyExists || error.cause().contains("409"), "{error}");
                }
            }
        }
        assert_eq!(winners.len(), 1, "{winners:?} believe to have created {object}");
        assert!(whole(store, object.as_str()).await == content(size, winners[0]), "{object} is not the winner's");
    }
}

/// So late that everything is older.
pub(crate) fn tomorrow() -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(24)
}
