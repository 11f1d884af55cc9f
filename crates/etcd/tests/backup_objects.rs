//! Stored backups: what goes in comes out, and nothing else is ever taken for it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod golden;

use std::collections::BTreeMap;
use std::io::Read;

use golden::{ALL, COMPACTED, REVISION};
use jiff::Timestamp;
use proptest::prelude::*;
use quorate_etcd::backup::{
    DeltaChain, DeltaReader, DeltaWriter, Described, Description, Finished, FullReader, FullWriter, Header, Key,
    Keyring, Kind, ObjectError, ObjectName, ObjectReader, WriteOptions, describe,
};
use quorate_etcd::events::{ChangeEvent, Contiguous, Cut, EventKind, EventStream};

fn header(kind: Kind, first: i64) -> Header {
    Header {
        kind: kind.into(),
        cluster_uid: "7f1a".to_owned(),
        cluster_id: 0xcdf8_1819_4e3a_8c32,
        epoch: 1,
        fencing: 3,
        first_revision: first,
        created: 1_790_000_000_123_456_789,
        etcd_version: "3.6.16".to_owned(),
        ..Header::default()
    }
}

fn ring(byte: u8) -> Keyring {
    let keys = BTreeMap::from([("k1".to_owned(), Key::new("k1", &[byte; 32]).unwrap())]);
    Keyring::new(keys, Some("k1".to_owned())).unwrap()
}

fn options(encrypt: bool) -> WriteOptions {
    WriteOptions { level: 1, keys: if encrypt { ring(1) } else { Keyring::none() } }
}

fn full(snapshot: &[u8], options: &WriteOptions, chunk: usize) -> Result<(Vec<u8>, Finished), ObjectError> {
    let mut writer = FullWriter::begin(Vec::new(), header(Kind::Full, 5), options)?;
    for chunk in snapshot.chunks(chunk) {
        writer.push(chunk)?;
    }
    writer.finish()
}

fn put(revision: i64, key: &str, value: &[u8]) -> ChangeEvent {
    ChangeEvent {
        key: key.as_bytes().to_vec(),
        value: value.to_vec(),
        create_revision: revision,
        mod_revision: revision,
        version: 1,
        time: Timestamp::from_second(1_790_000_000 + revision).ok(),
        ..ChangeEvent::default()
    }
}

fn delta_after(parent: Vec<u8>, events: &[ChangeEvent], options: &WriteOptions) -> (Vec<u8>, Finished) {
    let first = events.first().map_or(1, |event| event.mod_revision);
    let header = Header { parent, ..header(Kind::Delta, first) };
    let mut writer = DeltaWriter::begin(Vec::new(), header, Timestamp::UNIX_EPOCH, options).unwrap();
    for event in events {
        writer.push(event).unwrap();
    }
    writer.lease(77, 60);
    let last = writer.revision();
    writer.complete(last).unwrap();
    writer.finish().unwrap()
}

fn delta(events: &[ChangeEvent], options: &WriteOptions) -> (Vec<u8>, Finished) {
    delta_after(Vec::new(), events, options)
}

fn read_delta(object: &[u8], keys: &Keyring) -> Result<Vec<ChangeEvent>, ObjectError> {
    let mut reader = DeltaReader::open(object, keys)?;
    let mut events = Vec::new();
    loop {
        match reader.advance() {
            Ok(true) => events.push(reader.event().clone()),
            Ok(false) => return Ok(events),
            Err(error) => {
                let quorate_etcd::events::EventError::Source(source) = error else { panic!("{error}") };
                return Err(*source.downcast::<ObjectError>().unwrap());
            }
        }
    }
}

fn description(object: &[u8], keys: &Keyring) -> Result<Description, ObjectError> {
    let (mut first, mut last) = (1, 1);
    loop {
        match describe(&object[..first], &object[object.len() - last..], object.len() as u64, keys)? {
            Described::Done(description) => return Ok(*description),
            Described::Wants { first: more, last: behind } => {
                let wanted = (usize::try_from(more).unwrap(), usize::try_from(behind).unwrap());
                assert!(wanted.0 > first || wanted.1 > last, "asks for what it has");
                (first, last) = (wanted.0.max(first), wanted.1.max(last));
            }
        }
    }
}

#[test]
fn a_snapshot_comes_back_as_it_was_and_its_revision_was_found_on_the_way() {
    for golden in &ALL {
        let snapshot = golden.bytes();
        for (encrypt, chunk) in [(false, 1), (false, 4096), (true, 32 << 10), (true, 10 << 20)] {
            let options = options(encrypt);
            let (object, finished) = full(&snapshot, &options, chunk).unwrap();
            assert_eq!(finished.trailer.last_revision, REVISION, "{}", golden.version);
            assert_eq!(finished.trailer.compact_revision, Some(COMPACTED));
            assert_eq!(finished.bytes, object.len() as u64);
            let mut reader = FullReader::open(object.as_slice(), &options.keys).unwrap();
            let mut back = Vec::new();
            reader.read_to_end(&mut back).unwrap();
            assert!(back == snapshot);
            assert_eq!(reader.end().unwrap().1, &finished.digest);
            let described = description(&object, &options.keys).unwrap();
            assert_eq!((described.digest, described.trailer), (finished.digest, finished.trailer));
        }
    }
}

#[test]
fn a_snapshot_that_is_cut_altered_or_behind_its_member_never_becomes_an_object() {
    let snapshot = ALL[1].bytes();
    for length in [0, 31, 32, 4096, snapshot.len() - 1] {
        assert!(
            matches!(full(&snapshot[..length], &options(false), 4096), Err(ObjectError::SnapshotDigest)),
            "{length}"
        );
    }
    let mut altered = snapshot.clone();
    altered[9000] ^= 1;
    assert!(matches!(full(&altered, &options(false), 4096), Err(ObjectError::SnapshotDigest)));
    let mut writer = FullWriter::begin(Vec::new(), header(Kind::Full, REVISION + 1), &options(false)).unwrap();
    writer.push(&snapshot).unwrap();
    assert!(matches!(writer.finish(), Err(ObjectError::SnapshotBehind { found: REVISION, .. })));
}

fn some_events() -> Vec<ChangeEvent> {
    let mut events: Vec<_> = (10..30).map(|revision| put(revision, &format!("/k/{revision}"), &[7; 40])).collect();
    events.push(ChangeEvent { version: 5, create_revision: 3, lease: -9, ..put(30, "a", b"") });
    events.push(ChangeEvent {
        key: vec![0, 255],
        mod_revision: 30,
        kind: EventKind::Delete,
        time: events[20].time,
        ..ChangeEvent::default()
    });
    events
}

#[test]
fn every_flipped_bit_and_every_cut_is_an_error() {
    let snapshot = ALL[1].bytes();
    for encrypt in [false, true] {
        let options = options(encrypt);
        let (object, _) = delta(&some_events(), &options);
        assert_eq!(read_delta(&object, &options.keys).unwrap(), some_events());
        for at in 0..object.len() {
            for bit in 0..8 {
                let mut flipped = object.clone();
                flipped[at] ^= 1 << bit;
                assert!(read_delta(&flipped, &options.keys).is_err(), "byte {at} bit {bit}");
            }
            assert!(read_delta(&object[..at], &options.keys).is_err(), "cut at {at}");
            let described = description(&object[..at.max(1)], &options.keys);
            assert!(described.is_err(), "described when cut at {at}");
        }
        assert!(read_delta(&[object.as_slice(), b"x"].concat(), &options.keys).is_err());

        let (object, _) = full(&snapshot, &options, 4096).unwrap();
        let sound = |object: &[u8]| {
            let mut back = Vec::new();
            FullReader::open(object, &options.keys).is_ok_and(|mut reader| reader.read_to_end(&mut back).is_ok())
        };
        assert!(sound(&object));
        for at in (0..object.len()).step_by(37) {
            let mut flipped = object.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(!sound(&flipped) && !sound(&object[..at]), "{at}");
        }
    }
}

/// Where the frames of an object begin, its trailer's last, and its footer.
fn frames(object: &[u8]) -> Vec<usize> {
    let number = |at: usize| usize::try_from(u32::from_le_bytes(object[at..at + 4].try_into().unwrap())).unwrap();
    let mut places = vec![12 + number(8) + 4];
    loop {
        let at = *places.last().unwrap();
        places.push(at + 9 + number(at + 5) + 4);
        if object[at] == 2 {
            return places;
        }
    }
}

#[test]
fn frames_that_are_moved_dropped_or_taken_from_another_object_are_refused() {
    for encrypt in [false, true] {
        let options = options(encrypt);
        let long = |byte: u8| -> Vec<ChangeEvent> {
            (2..6).map(|revision| put(revision, "k", &vec![byte; 700_000])).collect()
        };
        let ((one, _), (two, _)) = (delta(&long(1), &options), delta(&long(2), &options));
        let (at, of) = (frames(&one), frames(&two));
        assert!(at.len() >= 4, "{at:?}");
        let piece = |object: &[u8], places: &[usize], n: usize| object[places[n]..places[n + 1]].to_vec();
        let head = one[..at[0]].to_vec();
        let (first, second, trailer) = (piece(&one, &at, 0), piece(&one, &at, 1), piece(&one, &at, 2));
        let end = one[at[3]..].to_vec();
        assert!(
            read_delta(
                &[head.clone(), first.clone(), second.clone(), trailer.clone(), end.clone()].concat(),
                &options.keys
            )
            .is_ok()
        );
        for (threat, object) in [
            ("swapped", [head.clone(), second.clone(), first.clone(), trailer.clone(), end.clone()].concat()),
            ("dropped", [head.clone(), first.clone(), trailer.clone(), end.clone()].concat()),
            (
                "doubled",
                [head.clone(), first.clone(), first.clone(), second.clone(), trailer.clone(), end.clone()].concat(),
            ),
            ("spliced", [head.clone(), piece(&two, &of, 0), second.clone(), trailer.clone(), end.clone()].concat()),
            (
                "behind another header",
                [two[..of[0]].to_vec(), first.clone(), second.clone(), trailer.clone(), end.clone()].concat(),
            ),
            ("with another end", [head, first, second, trailer, two[of[3]..].to_vec()].concat()),
        ] {
            let refused = read_delta(&object, &options.keys);
            assert!(refused.is_err(), "{threat}");
        }
    }
}

#[test]
fn a_wrong_and_a_missing_key_say_so_and_plain_text_is_nowhere() {
    let (object, _) = delta(&[put(2, "/secret/name", b"topsecretvalue")], &options(true));
    assert!(matches!(read_delta(&object, &ring(2)), Err(ObjectError::WrongKey { id }) if id == "k1"));
    assert!(matches!(read_delta(&object, &Keyring::none()), Err(ObjectError::MissingKey { id }) if id == "k1"));
    for text in [b"topsecretvalue".as_slice(), b"/secret/name"] {
        assert!(!object.windows(text.len()).any(|window| window == text));
    }
    let (again, _) = delta(&[put(2, "/secret/name", b"topsecretvalue")], &options(true));
    assert_ne!(object, again, "each object has a key of its own");
}

#[test]
fn half_a_revision_a_gap_and_a_step_back_are_never_written() {
    let begin =
        || DeltaWriter::begin(Vec::new(), header(Kind::Delta, 10), Timestamp::UNIX_EPOCH, &options(false)).unwrap();
    let mut writer = begin();
    assert!(writer.push(&put(11, "a", b"")).is_err(), "does not begin where it says");
    writer.push(&put(10, "a", b"")).unwrap();
    writer.push(&put(10, "b", b"")).unwrap();
    assert!(matches!(writer.push(&put(12, "c", b"")), Err(ObjectError::Order { last: 10, found: 12, .. })));
    assert!(writer.push(&put(9, "c", b"")).is_err());
    assert!(writer.complete(11).is_err(), "the server says that it sent more");
    assert!(writer.finish().is_err(), "the revision may go on");
    let mut writer = begin();
    writer.push(&put(10, "a", b"")).unwrap();
    writer.complete(10).unwrap();
    assert!(writer.push(&put(10, "b", b"")).is_err());
    let (object, finished) = writer.finish().unwrap();
    assert_eq!(read_delta(&object, &Keyring::none()).unwrap().len(), 1);
    assert_eq!(finished.trailer.last_revision, 10);
    let (object, finished) = begin().finish().unwrap();
    assert_eq!((finished.trailer.last_revision, read_delta(&object, &Keyring::none()).unwrap().len()), (9, 0));
}

#[test]
fn a_reader_can_begin_at_the_block_of_a_revision_or_a_moment() {
    let events: Vec<_> =
        (2..400).map(|revision| put(revision, "k", &vec![u8::try_from(revision % 251).unwrap(); 20_000])).collect();
    for encrypt in [false, true] {
        let options = options(encrypt);
        let (object, finished) = delta(&events, &options);
        assert!(finished.trailer.blocks.len() > 5);
        let described = description(&object, &options.keys).unwrap();
        for revision in [2, 3, 57, 200, 399] {
            let time =
                i64::try_from(events[usize::try_from(revision - 2).unwrap()].time.unwrap().as_nanosecond()).unwrap();
            for start in [described.start_of_revision(revision), described.start_of_time(time)] {
                let start = start.unwrap();
                let rest = &object[usize::try_from(start.offset).unwrap()..];
                let mut reader = DeltaReader::open_at(&object[..1000], start, rest, &options.keys).unwrap();
                assert!(reader.advance().unwrap());
                assert!(reader.event().mod_revision <= revision && revision - reader.event().mod_revision < 60);
                while reader.event().mod_revision < revision {
                    assert!(reader.advance().unwrap());
                }
                assert_eq!(reader.event(), &events[usize::try_from(revision - 2).unwrap()]);
                reader.finish().unwrap();
            }
        }
        let wrong = quorate_etcd::backup::Start { block: 0, ..described.start_of_revision(399).unwrap() };
        let rest = &object[usize::try_from(wrong.offset).unwrap()..];
        assert!(DeltaReader::open_at(&object[..1000], wrong, rest, &options.keys).unwrap().advance().is_err());
    }
}

#[test]
fn a_chain_of_deltas_is_one_stream_and_a_replaced_link_is_refused() {
    let options = options(false);
    let events = some_events();
    let (one, first) = delta(&events[..5], &options);
    let (two, second) = delta_after(first.digest.to_vec(), &events[5..12], &options);
    let (three, third) = delta_after(second.digest.to_vec(), &events[12..], &options);
    let name = |finished: &Finished| {
        ObjectName::delta(&finished.header, finished.trailer.last_revision, finished.trailer.covered())
    };
    let read = |objects: Vec<(ObjectName, &[u8])>| {
        let mut stream = Contiguous::new(DeltaChain::new(objects.into_iter(), Keyring::none()), 9, Cut::End);
        let mut read = Vec::new();
        while stream.advance()? {
            read.push(stream.event().clone());
        }
        Ok::<_, quorate_etcd::events::EventError>((read, stream.leases()))
    };
    let links =
        || vec![(name(&first), one.as_slice()), (name(&second), two.as_slice()), (name(&third), three.as_slice())];
    assert_eq!(read(links()).unwrap(), (events.clone(), BTreeMap::from([(77, 60)])));
    // A writer that took over and repeats what another one had written.
    let (overlap, fourth) = delta(&events[3..12], &options);
    let overlapping = vec![links()[0], (name(&fourth), overlap.as_slice())];
    assert_eq!(read(overlapping).unwrap().0, events[..12]);
    let (forged, _) = delta_after(
        first.digest.to_vec(),
        &events[5..12].iter().cloned().map(|event| ChangeEvent { value: b"x".to_vec(), ..event }).collect::<Vec<_>>(),
        &options,
    );
    let mut replaced = links();
    replaced[1].1 = &forged;
    assert!(read(replaced).unwrap_err().to_string().contains("cannot be read"));
    let mut renamed = links();
    renamed[2].0.last += 1;
    assert!(read(renamed).is_err());
    let mut missing = links();
    missing.remove(1);
    assert!(read(missing).is_err());
}

fn random_events() -> impl Strategy<Value = Vec<ChangeEvent>> {
    let bytes = || prop_oneof![4 => prop::collection::vec(any::<u8>(), 0..40), 1 => prop::collection::vec(any::<u8>(), 0..9000)];
    let event = (
        1_usize..4,
        any::<bool>(),
        prop::collection::vec(any::<u8>(), 1..30),
        bytes(),
        any::<i64>(),
        0_i64..2_000_000_000,
        0_i64..9,
    );
    prop::collection::vec(event, 0..80).prop_map(|list| {
        let (mut revision, mut time, mut events) = (41, 1_700_000_000_000_000_000_i64, Vec::new());
        for (changes, is_delete, key, value, lease, later, age) in list {
            revision += 1;
            time += later;
            for _ in 0..changes {
                let base = ChangeEvent {
                    key: key.clone(),
                    mod_revision: revision,
                    time: Timestamp::from_nanosecond(i128::from(time)).ok(),
                    ..ChangeEvent::default()
                };
                events.push(if is_delete {
                    ChangeEvent { kind: EventKind::Delete, ..base }
                } else {
                    ChangeEvent {
                        value: value.clone(),
                        lease,
                        create_revision: revision - age,
                        version: age + 1,
                        ..base
                    }
                });
            }
        }
        events
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn events_come_back_as_they_were(events in random_events(), encrypt in any::<bool>()) {
        let options = options(encrypt);
        let (object, finished) = delta(&events, &options);
        prop_assert_eq!(finished.trailer.events, events.len() as u64);
        prop_assert_eq!(read_delta(&object, &options.keys).unwrap(), events);
    }

    #[test]
    fn whatever_is_not_an_object_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0_usize..400) {
        prop_assert!(ObjectReader::open(bytes.as_slice(), &Keyring::none()).is_err());
        let (object, _) = delta(&some_events(), &options(false));
        let mut mixed = object.clone();
        let at = at.min(mixed.len());
        mixed.splice(at..(at + bytes.len()).min(object.len()), bytes);
        if mixed != object {
            prop_assert!(read_delta(&mixed, &Keyring::none()).is_err());
        }
    }
}
