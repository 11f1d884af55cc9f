//! docs/data.md names every field and every finding that can be printed. Needs no etcd.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::process::Command;

use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../docs/data.md");

fn is_documented(name: &str) -> bool {
    DOCUMENT.contains(&format!("`{name}`"))
}

/// Every name of a field in a value, at any depth.
fn fields(value: &Value, names: &mut Vec<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        names.push(name.clone());
        fields(value, names);
    }
    for value in value.as_array().into_iter().flatten() {
        fields(value, names);
    }
}

#[test]
fn every_field_of_every_verb_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("s.db"), include_bytes!("../../../fuzz/seeds/snapshot/etcd-3.6.db")).unwrap();
    let bare = fs::read(dir.path().join("s.db")).unwrap();
    fs::write(dir.path().join("bare.db"), &bare[..bare.len() - 32]).unwrap();
    for arguments in [
        &["inspect", "s.db"][..],
        &["verify", "bare.db", "--full"],
        &["hash", "s.db"],
        &["keys", "s.db"],
        &["restore", "s.db", "--data-dir", "d"],
        &["inspect", "d"],
        &["reseed", "d"],
        &["inspect", "absent"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        let output = command.current_dir(dir.path()).arg("data").args(arguments).args(["-o", "json"]).output().unwrap();
        let text = if output.status.success() { output.stdout } else { output.stderr };
        let (mut names, value) = (Vec::new(), serde_json::from_slice(&text).unwrap());
        fields(&value, &mut names);
        assert_eq!(names.contains(&"error".to_owned()), arguments.contains(&"absent"), "{arguments:?}: {value}");
        let missing: Vec<_> =
            names.iter().filter(|name| !is_documented(name) && !["error", "causes"].contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "{arguments:?} prints {missing:?}");
    }
}

#[test]
fn every_finding_is_documented() {
    let source = include_str!("../../etcd/src/validate/mod.rs");
    let names: Vec<&str> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => \"")?.1.strip_suffix("\","))
        .collect();
    assert!(names.len() > 15, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !is_documented(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
