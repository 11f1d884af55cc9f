//! Wrong files, wrong flags: a clear refusal, the right exit code, nothing written. Needs no etcd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn quorate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quorate")).arg("data").args(arguments).output().unwrap()
}

/// Files that are no snapshots, each in its own way.
fn wrong_files(dir: &Path) -> Vec<String> {
    let noise: Vec<u8> = (0..20_000_u32).map(|n| u8::try_from(n.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect();
    let mut almost = vec![0; 16384 + 32];
    almost[16..20].copy_from_slice(&0xED0C_DAED_u32.to_le_bytes());
    let zeros = vec![0; 65536];
    let files: [(&str, &[u8]); 5] =
        [("empty", b""), ("short", b"etcd"), ("noise", &noise), ("zeros", &zeros), ("almost", &almost)];
    files
        .into_iter()
        .map(|(name, bytes)| {
            fs::write(dir.join(name), bytes).unwrap();
            dir.join(name).to_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn a_wrong_file_is_refused_by_every_verb_with_json_on_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target").to_str().unwrap().to_owned();
    let deltas = dir.path().to_str().unwrap().to_owned();
    let mut files = wrong_files(dir.path());
    files.push(dir.path().join("absent").to_str().unwrap().to_owned());
    for file in &files {
        for arguments in [
            vec!["inspect", file],
            vec!["hash", file],
            vec!["keys", file],
            vec!["reseed", file],
            vec!["restore", file, "--data-dir", &target],
            vec!["restore", file, "--data-dir", &target, "--skip-hash-check"],
            vec!["compact", file, "--deltas", &deltas, "--output", &target],
        ] {
            let output = quorate(&[arguments.as_slice(), &["--output", "json"]].concat());
            assert_eq!(output.status.code(), Some(1), "{arguments:?}");
            assert!(output.stdout.is_empty(), "{arguments:?}");
            let error: Value = serde_json::from_slice(&output.stderr).unwrap();
            assert!(error["error"].is_string() && error["causes"].is_array(), "{error}");
            assert!(!Path::new(&target).exists(), "{arguments:?}");
        }
        let code = quorate(&["verify", file]).status.code();
        let expected = if Path::new(file).exists() { 1 } else { 2 };
        assert_eq!(code, Some(expected), "verify {file}");
    }
    assert!(fs::read_dir(dir.path()).unwrap().all(|entry| !entry.unwrap().path().to_str().unwrap().contains("part")));
}

#[test]
fn flags_that_contradict_each_other_are_usage_errors() {
    for arguments in [
        &["restore", "s"][..],
        &["restore", "s", "--data-dir", "d", "--bump-revision", "5"],
        &["restore", "s", "--data-dir", "d", "--mark-compacted"],
        &["restore", "s", "--data-dir", "d", "--revision", "0"],
        &["restore", "s", "--data-dir", "d", "--time", "2026-01-01T00:00:00Z"],
        &["restore", "s", "--data-dir", "d", "--deltas", "x", "--revision", "5", "--time", "2026-01-01T00:00:00Z"],
        &["restore", "s", "--data-dir", "d", "--deltas", "x", "--time", "yesterday"],
        &["restore", "s", "--data-dir", "d", "--etcd-version", "latest"],
        &["compact", "s", "--deltas", "d"],
        &["inspect", "s", "--output", "yaml"],
    ] {
        assert_eq!(quorate(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_usage_error_is_json_to_whoever_asked_for_json() {
    for arguments in [
        &["restore", "s", "--output", "json"][..],
        &["restore", "--output=json", "s", "--data-dir", "d", "--revision", "0"],
        &["compact", "s", "-o", "json"],
        &["inspect", "s", "--no-such-flag", "-ojson"],
        &["inspect", "-o", "json"],
        &["no-such-verb", "-o", "json"],
    ] {
        let output = quorate(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let error: Value = serde_json::from_slice(&output.stderr).expect("an error as JSON");
        let text = error["error"].as_str().unwrap();
        assert!(!text.is_empty() && !text.contains("Usage") && !text.starts_with("error"), "{arguments:?}: {text}");
        assert_eq!(error["causes"], serde_json::json!([]));
    }
    let help = quorate(&["restore", "--help", "--output", "json"]);
    assert!(help.status.success() && !help.stdout.is_empty(), "help is no error");
}

#[test]
fn errors_for_people_name_the_cause() {
    let output = quorate(&["inspect", "/nonexistent/snapshot.db"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("error: /nonexistent/snapshot.db"), "{text}");
    assert!(text.contains("because"), "{text}");
}
