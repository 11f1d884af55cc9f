//! Bad situations get one clear line and the next step.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::{
    net::TcpListener,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

use support::{TestBed, text};

#[track_caller]
fn assert_one_line(said: &str, words: &[&str]) {
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
}

fn refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{} succeeded", text(&output.stdout));
    // Progress may come before; whatever else is said must be the one line.
    let is_progress = |line: &&str| line.starts_with(['…', '✓', ' ']);
    text(&output.stderr).lines().filter(|line| !is_progress(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn without_root_it_says_what_still_works() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = dir.path().join("testbed");
    std::fs::copy(env!("CARGO_BIN_EXE_testbed"), &program).unwrap();
    let said = refusal(Command::new(&program).arg("up").uid(65534).gid(65534));
    assert_one_line(&said, &["root", "sudo", "make test-unit"]);
}

#[test]
fn a_directory_that_is_not_a_bed_is_not_removed_as_one() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("mine")).unwrap();
    std::fs::write(place.path().join("mine/precious"), "").unwrap();
    let bed = TestBed { name: "mine".to_owned() };
    for verb in ["down", "up"] {
        let said = refusal(bed.command(&[verb]).env("QUORATE_TESTBED_DIR", place.path()));
        assert_one_line(&said, &["is not a bed", "--name"]);
    }
    assert!(place.path().join("mine/precious").exists());
    for wrong in ["relative", "/tmp/with blank"] {
        let said = refusal(bed.command(&["down"]).env("QUORATE_TESTBED_DIR", wrong));
        assert_one_line(&said, &["cannot hold beds", "absolute path"]);
    }
}

#[test]
fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let bed = TestBed::own("taken");
    let said = refusal(&mut bed.command(&["up", "--port", &port]));
    assert_one_line(&said, &[&port, "in use", "--port"]);
}

#[test]
fn a_missing_go_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let bed = TestBed { name: "none".to_owned() };
    let said = refusal(bed.command(&["etcd-binaries"]).env("PATH", empty.path()).env("QUORATE_CACHE", cache.path()));
    assert_one_line(&said, &["Go is not installed", "install Go"]);
}

#[test]
fn an_unreachable_module_proxy_is_named() {
    let [cache, modules, builds] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let bed = TestBed { name: "none".to_owned() };
    let mut command = bed.command(&["etcd-binaries"]);
    // Nothing listens on port 1.
    command.env("GOPROXY", "http://127.0.0.1:1").env("QUORATE_CACHE", cache.path());
    let said = refusal(command.env("GOMODCACHE", modules.path()).env("GOCACHE", builds.path()));
    assert_one_line(&said, &["module proxy cannot be reached", "GOPROXY"]);
}

/// Unmounts when the test ends.
struct SmallDisk(tempfile::TempDir);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_noticed_before_the_work_begins() {
    let disk = SmallDisk(tempfile::tempdir().unwrap());
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(disk.0.path()).status();
    assert!(mounted.unwrap().success());
    let bed = TestBed { name: "none".to_owned() };
    let said = refusal(bed.command(&["etcd-binaries"]).env("QUORATE_CACHE", disk.0.path()));
    assert_one_line(&said, &["only 4 MiB are free", "QUORATE_CACHE"]);
}

#[test]
fn a_bad_name_an_unknown_log_and_a_bed_that_is_not_there_are_named() {
    let bed = TestBed { name: "nobody".to_owned() };
    assert_one_line(&bed.refusal(&["status"]), &["bed nobody is not running", "make up"]);
    assert_one_line(&bed.refusal(&["kubectl", "get", "pods"]), &["bed nobody is not running"]);
    assert_one_line(&bed.refusal(&["logs", "etcd"]), &["there is no bed nobody"]);
    let bad = TestBed { name: "../etc".to_owned() };
    assert!(bad.refusal(&["down"]).contains("cannot name a bed"));
    let said = TestBed::shared().refusal(&["logs", "nonsense"]);
    assert_one_line(&said, &["no log of nonsense", "kube-apiserver"]);
}
