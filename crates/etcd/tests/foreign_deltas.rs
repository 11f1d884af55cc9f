//! Directories in etcd-backup-restore's layout, sound and not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::io::Write;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
use quorate_etcd::events::{ChangeEvent, Contiguous, Cut, EventError, EventKind, EventStream};
use quorate_etcd::foreign::{Base, DeltaStream, ForeignError};
use sha2::{Digest, Sha256};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/foreign/testdata");

fn json(revision: i64, key: &str) -> String {
    let key = BASE64_STANDARD.encode(key);
    format!(
        r#"{{"etcdEvent":{{"kv":{{"key":"{key}","create_revision":{revision},"mod_revision":{revision},"version":1}}}},"time":"2024-01-01T00:00:{:02}Z"}}"#,
        revision % 60
    )
}

fn content(elements: &[String]) -> Vec<u8> {
    let mut bytes = format!("[{}]", elements.join(",")).into_bytes();
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    bytes
}

fn write(dir: &Path, start: i64, last: i64, elements: &[String]) {
    fs::write(dir.join(format!("Incr-{start:08}-{last:08}-1700000000")), content(elements)).unwrap();
}

fn simple(dir: &Path, start: i64, last: i64) {
    write(dir, start, last, &(start..=last).map(|revision| json(revision, "abc")).collect::<Vec<_>>());
}

fn read(dir: &Path, base: i64, cut: Cut) -> Result<Vec<ChangeEvent>, EventError> {
    let stream = DeltaStream::open(dir, Base::at(base), cut).map_err(EventError::source_error)?;
    let mut stream = Contiguous::new(stream, base, cut);
    let mut events = Vec::new();
    while stream.advance()? {
        events.push(stream.event().clone());
    }
    Ok(events)
}

fn revisions(dir: &Path, base: i64, cut: Cut) -> Result<Vec<i64>, EventError> {
    Ok(read(dir, base, cut)?.iter().map(|event| event.mod_revision).collect())
}

fn foreign(error: &EventError) -> &ForeignError {
    match error {
        EventError::Source(source) => source.downcast_ref().expect("an error of the foreign reader"),
        other => panic!("{other}"),
    }
}

#[test]
fn all_compressions_of_gos_encoders_give_the_same_events() {
    let mut results = Vec::new();
    for suffix in ["", ".gz", ".zlib", ".Z"] {
        let dir = tempfile::tempdir().unwrap();
        let name = format!("Incr-00000011-00000014-1704164645{suffix}");
        fs::copy(Path::new(GOLDEN).join(&name), dir.path().join(&name)).unwrap();
        results.push(read(dir.path(), 10, Cut::End).unwrap());
    }
    let events = &results[0];
    assert!(results.iter().all(|other| other == events));
    assert_eq!(events.iter().map(|event| event.mod_revision).collect::<Vec<_>>(), [11, 12, 12, 13, 14]);
    assert_eq!(events[1].key, [0, 255, b'"', b'<']);
    assert_eq!((events[1].value.len(), events[1].lease), (1200, 7587));
    assert_eq!((events[2].version, events[2].create_revision, events[2].value.len()), (2, 11, 0));
    assert_eq!(events[3].kind, EventKind::Delete);
    assert_eq!(events[0].time.unwrap().to_string(), "2024-01-02T01:04:05.123456789Z");
}

#[test]
fn a_base_ahead_of_its_name_skips_the_overlap_and_whole_files() {
    let dir = tempfile::tempdir().unwrap();
    simple(dir.path(), 2, 5);
    simple(dir.path(), 6, 9);
    simple(dir.path(), 10, 12);
    assert_eq!(revisions(dir.path(), 7, Cut::End).unwrap(), [8, 9, 10, 11, 12]);
    assert_eq!(revisions(dir.path(), 12, Cut::End).unwrap(), [0_i64; 0]);
    assert_eq!(revisions(dir.path(), 20, Cut::End).unwrap(), [0_i64; 0]);
}

#[test]
fn deltas_that_repeat_each_other_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    simple(dir.path(), 2, 5);
    simple(dir.path(), 2, 7);
    simple(dir.path(), 7, 9);
    assert_eq!(revisions(dir.path(), 1, Cut::End).unwrap(), [2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_missing_file_is_named_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    simple(dir.path(), 2, 5);
    simple(dir.path(), 8, 9);
    let error = DeltaStream::open(dir.path(), Base::at(1), Cut::End).unwrap_err();
    assert!(matches!(error, ForeignError::MissingFile { missing_from: 6, missing_to: 7, .. }), "{error}");
    assert_eq!(revisions(dir.path(), 1, Cut::Revision(4)).unwrap(), [2, 3, 4]);
    assert!(matches!(
        DeltaStream::open(dir.path(), Base::at(0), Cut::End),
        Err(ForeignError::MissingFile { missing_to: 1, .. })
    ));
}

#[test]
fn an_event_removed_from_a_rehashed_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let elements: Vec<String> = [2, 3, 5, 6].iter().map(|revision| json(*revision, "abc")).collect();
    write(dir.path(), 2, 6, &elements);
    assert!(matches!(revisions(dir.path(), 1, Cut::End), Err(EventError::Gap { previous: 3, found: 5 })));
}

#[test]
fn a_revision_split_between_two_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 2, 3, &[json(2, "abc"), json(3, "abc")]);
    write(dir.path(), 3, 4, &[json(3, "xyz"), json(4, "abc")]);
    let error = revisions(dir.path(), 1, Cut::End).unwrap_err();
    assert!(matches!(foreign(&error), ForeignError::SplitRevision { revision: 3, .. }), "{error:?}");
}

#[test]
fn half_a_revision_in_a_file_of_its_own_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 2, 3, &[json(2, "abc"), json(3, "abc")]);
    write(dir.path(), 3, 3, &[json(3, "xyz")]);
    write(dir.path(), 4, 5, &[json(4, "abc"), json(5, "abc")]);
    for cut in [Cut::End, Cut::Revision(3), Cut::Revision(4)] {
        let error = revisions(dir.path(), 1, cut).unwrap_err();
        assert!(matches!(foreign(&error), ForeignError::SplitRevision { revision: 3, .. }), "{cut:?}: {error:?}");
    }
    // A base at that revision has both halves.
    assert_eq!(revisions(dir.path(), 3, Cut::End).unwrap(), [4, 5]);
}

#[test]
fn the_last_revision_wanted_is_taken_whole_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 2, 3, &[json(2, "abc"), json(3, "abc")]);
    write(dir.path(), 3, 4, &[json(3, "xyz"), json(4, "abc")]);
    let error = revisions(dir.path(), 1, Cut::Revision(3)).unwrap_err();
    assert!(matches!(foreign(&error), ForeignError::SplitRevision { revision: 3, .. }), "{error:?}");
    assert_eq!(revisions(dir.path(), 1, Cut::Revision(2)).unwrap(), [2]);
}

#[test]
fn a_name_that_does_not_match_the_content_is_refused() {
    for (start, last) in [(1, 3), (2, 4), (2, 2), (3, 3)] {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), start, last, &[json(2, "abc"), json(3, "abc")]);
        let error = revisions(dir.path(), start - 1, Cut::End).unwrap_err();
        assert!(matches!(foreign(&error), ForeignError::NameMismatch { .. }), "{error:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 2, 2, &[]);
    let error = revisions(dir.path(), 1, Cut::End).unwrap_err();
    assert!(matches!(foreign(&error), ForeignError::NameMismatch { .. }), "{error:?}");
}

#[test]
fn a_cut_still_verifies_the_digest_of_what_was_used() {
    let dir = tempfile::tempdir().unwrap();
    simple(dir.path(), 2, 9);
    assert_eq!(revisions(dir.path(), 1, Cut::Revision(4)).unwrap(), [2, 3, 4]);
    let moment = "2024-01-01T00:00:05Z".parse().unwrap();
    assert_eq!(revisions(dir.path(), 1, Cut::Time(moment)).unwrap(), [2, 3, 4, 5]);
    let path = dir.path().join("Incr-00000002-00000009-1700000000");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    for cut in [Cut::End, Cut::Revision(4), Cut::Time(moment)] {
        let error = revisions(dir.path(), 1, cut).unwrap_err();
        assert!(matches!(foreign(&error), ForeignError::Digest { .. }), "{error:?}");
    }
}

#[test]
fn a_base_is_taken_for_a_moment_only_if_something_shows_that_it_is_as_old() {
    let dir = tempfile::tempdir().unwrap();
    simple(dir.path(), 2, 4);
    simple(dir.path(), 5, 9);
    let second = |second: i64| format!("2024-01-01T00:00:{second:02}Z").parse().unwrap();
    let open = |revision, taken: Option<i64>, moment| {
        let opened =
            DeltaStream::open(dir.path(), Base { revision, taken: taken.map(second) }, Cut::Time(second(moment)));
        assert!(matches!(opened, Ok(_) | Err(ForeignError::BaseAge { .. })));
        opened.is_ok()
    };
    assert!(open(4, None, 5), "the event after it is as old");
    assert!(open(4, None, 4), "its last event is as old");
    assert!(!open(4, None, 3));
    assert!(open(4, Some(3), 3), "it was taken then");
    assert!(!open(20, None, 59), "nothing tells its age");
    assert!(open(20, Some(30), 59));
}

#[test]
fn a_base_in_the_middle_of_a_file_is_dated_by_the_events_it_shares_with_it() {
    let dir = tempfile::tempdir().unwrap();
    simple(dir.path(), 2, 9);
    let moment = |second| Cut::Time(format!("2024-01-01T00:00:0{second}Z").parse().unwrap());
    assert_eq!(revisions(dir.path(), 4, moment(5)).unwrap(), [5]);
    let error = revisions(dir.path(), 4, moment(3)).unwrap_err();
    assert!(matches!(error, EventError::BaseTooNew { base: 4, revision: 4, .. }), "{error:?}");
}

#[test]
fn every_flip_and_every_truncation_is_refused_or_changes_nothing() {
    let mut cases = 0;
    for suffix in ["", ".gz", ".zlib", ".Z"] {
        let name = format!("Incr-00000011-00000014-1704164645{suffix}");
        let bytes = fs::read(Path::new(GOLDEN).join(&name)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(&name);
        fs::write(&path, &bytes).unwrap();
        let sound = read(dir.path(), 10, Cut::End).unwrap();
        // The uncompressed file is long and uniform; a stride that is no multiple of its period reaches every part.
        let stride = if suffix.is_empty() { 7 } else { 1 };
        for position in (0..bytes.len()).step_by(stride) {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << (position % 8);
            for damage in [damaged, bytes[..position].to_vec()] {
                fs::write(&path, damage).unwrap();
                if let Ok(events) = read(dir.path(), 10, Cut::End) {
                    assert_eq!(events, sound, "{suffix} at {position}");
                }
                cases += 1;
            }
        }
    }
    assert!(cases > 3000, "{cases}");
}

#[test]
fn events_larger_than_a_chunk_and_files_of_many_chunks_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    let value = "QUJD".repeat(400_000);
    for revision in 2..=4 {
        let event = json(revision, "abc").replace(r#""version":1"#, &format!(r#""version":1,"value":"{value}""#));
        write!(out, "{}{event}", if revision == 2 { "[" } else { ", " }).unwrap();
    }
    out.push(b']');
    let digest = Sha256::digest(&out);
    out.extend_from_slice(&digest);
    fs::write(dir.path().join("Incr-00000002-00000004-1"), out).unwrap();
    let events = read(dir.path(), 1, Cut::End).unwrap();
    assert_eq!(events.len(), 3);
    assert!(events.iter().all(|event| event.value == b"ABC".repeat(400_000)));
}

#[test]
fn a_directory_without_deltas_says_so() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("Full-00000000-00000009-1.gz"), b"x").unwrap();
    assert!(matches!(DeltaStream::open(dir.path(), Base::at(1), Cut::End), Err(ForeignError::NoDeltas { .. })));
    assert!(matches!(
        DeltaStream::open(&dir.path().join("absent"), Base::at(1), Cut::End),
        Err(ForeignError::Io { .. })
    ));
}
