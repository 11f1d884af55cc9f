//! Every verb of `quorate data` on files that real etcd made, and its results under real etcd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

#[path = "../../etcd/tests/etcd_process/mod.rs"]
mod etcd_process;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use etcd_process::{Running, Server, VERSIONS, binary, copy_dir, run};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn quorate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quorate")).arg("data").args(arguments).output().unwrap()
}

/// The JSON a successful run prints.
fn json(arguments: &[&str]) -> Value {
    let output = quorate(&[arguments, &["--output", "json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The exit code and the JSON error of a failing run, which must print nothing else.
fn refusal(arguments: &[&str]) -> (i32, Value) {
    let output = quorate(&[arguments, &["--output", "json"]].concat());
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    (output.status.code().unwrap(), serde_json::from_slice(&output.stderr).expect("an error as JSON"))
}

/// A running etcd with some history, its snapshot, and the events after that as delta files.
struct Fixture {
    dir: tempfile::TempDir,
    running: Option<Running>,
    snapshot: PathBuf,
    deltas: PathBuf,
    head: i64,
    hash: Value,
}

impl Fixture {
    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn snapshot(&self) -> &str {
        self.snapshot.to_str().unwrap()
    }

    fn deltas(&self) -> &str {
        self.deltas.to_str().unwrap()
    }

    fn new(version: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let running = Server::single(version, &dir.path().join("source")).start();
        for n in 0..20 {
            running.etcdctl(&["put", &format!("/a/{}", n % 7), &format!("value {n}")]);
        }
        running.etcdctl(&["del", "/a/3"]);
        running.etcdctl(&["compact", "9"]);
        let snapshot = dir.path().join("snapshot.db");
        running.etcdctl(&["snapshot", "save", snapshot.to_str().unwrap()]);
        for n in 0..10 {
            running.etcdctl(&["put", &format!("/b/{n}"), &"x".repeat(n * 300)]);
        }
        running.etcdctl(&["del", "/b/", "--prefix"]);
        running.etcdctl(&["put", "/a/3", "again"]);
        let deltas = dir.path().join("backup/v2");
        fs::create_dir_all(&deltas).unwrap();
        let head = write_deltas(&running, 20, &deltas);
        let hash = running.etcdctl(&["endpoint", "hashkv", "--rev", &head.to_string(), "-w", "json"]).stdout;
        let hash: Value = serde_json::from_slice(&hash).unwrap();
        let hash = hash[0]["HashKV"].clone();
        Self { dir, running: Some(running), snapshot, deltas, head, hash }
    }
}

/// Turns a watch from `start` on into two delta files; the first begins before the snapshot's end.
fn write_deltas(running: &Running, start: i64, dir: &Path) -> i64 {
    let mut events = Vec::new();
    let mut watch = Command::new(binary(&running.server.version, "etcdctl"))
        .args(["--endpoints", &running.server.client_url, "watch", "", "--prefix", "-w", "json"])
        .args(["--rev", &start.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut responses = serde_json::Deserializer::from_reader(watch.stdout.take().unwrap()).into_iter::<Value>();
    let mut head = 0;
    while events.len() < 24 {
        let response = responses.next().unwrap().unwrap();
        head = response["Header"]["revision"].as_i64().unwrap();
        for event in response["Events"].as_array().unwrap() {
            let second = event["kv"]["mod_revision"].as_i64().unwrap();
            events.push(serde_json::json!({"etcdEvent": event, "time": format!("2026-01-02T03:04:{second:02}Z")}));
        }
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
    let revision = |event: &Value| event["etcdEvent"]["kv"]["mod_revision"].as_i64().unwrap();
    let (early, late): (Vec<Value>, Vec<Value>) = events.into_iter().partition(|event| revision(event) <= 25);
    for part in [early, late] {
        let mut bytes = serde_json::to_vec(&part).unwrap();
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        let (first, last) = (revision(&part[0]), revision(part.last().unwrap()));
        fs::write(dir.join(format!("Incr-{first:08}-{last:08}-1700000000")), bytes).unwrap();
    }
    head
}

#[test]
fn hash_restore_compact_and_keys_agree_with_the_server() {
    for version in VERSIONS {
        let fixture = Fixture::new(version);
        let (snapshot, deltas) = (fixture.snapshot(), fixture.deltas());

        let hash = json(&["hash", snapshot, "--deltas", deltas]);
        assert_eq!(hash["revision"], fixture.head);
        assert_eq!(hash["hash"], fixture.hash["hash"], "{version}");
        assert_eq!(hash["compactRevision"], fixture.hash["compact_revision"]);

        let restored = json(&["restore", snapshot, "--deltas", deltas, "--data-dir", &fixture.path("restored")]);
        assert_eq!(restored["revision"], fixture.head);
        assert_eq!(json(&["hash", &fixture.path("restored")]), hash);
        assert_eq!(json(&["verify", &fixture.path("restored"), "--full"])["sound"], true);

        let compacted = fixture.path("compacted.db");
        let report = json(&["compact", snapshot, "--deltas", deltas, "--output", &compacted]);
        assert_eq!(report["compactRevision"], fixture.head);
        let at_head = ["--compact-revision", &fixture.head.to_string()].map(str::to_owned);
        let expected = json(&["hash", snapshot, "--deltas", deltas, &at_head[0], &at_head[1]]);
        assert_eq!(json(&["hash", &compacted]), expected);
        assert_eq!(json(&["verify", &compacted])["sound"], true);

        let keys = json(&["keys", &compacted]);
        let listed: Vec<&str> =
            keys["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap()).collect();
        assert_eq!(listed, ["/a/0", "/a/1", "/a/2", "/a/3", "/a/4", "/a/5", "/a/6"]);
        let older = json(&["keys", snapshot, "--prefix", "/a/3", "--revision", "21"]);
        assert_eq!((older["count"].as_i64(), older["keys"][0]["modRevision"].as_i64()), (Some(1), Some(19)));
        assert_eq!(json(&["keys", snapshot, "--prefix", "/a/3"])["count"], 0);
    }
}

#[test]
fn a_restored_directory_starts_and_holds_what_was_asked_for() {
    for version in VERSIONS {
        let mut fixture = Fixture::new(version);
        fixture.running = None;
        let server = Server::single(version, &PathBuf::from(fixture.path("restored")));
        let report = json(&[
            "restore",
            fixture.snapshot(),
            "--deltas",
            fixture.deltas(),
            "--revision",
            "28",
            "--data-dir",
            &fixture.path("restored"),
            "--initial-cluster",
            &server.initial_cluster,
            "--initial-advertise-peer-urls",
            &server.peer_url,
            "--initial-cluster-token",
            "fresh",
        ]);
        assert_eq!(report["revision"], 28);
        let inspected = json(&["inspect", &fixture.path("restored")]);
        assert_eq!(inspected["kind"], "dataDir");
        assert_eq!(inspected["memberId"], report["memberId"]);
        let running = server.start();
        let read = |arguments: &[&str]| String::from_utf8(running.etcdctl(arguments).stdout).unwrap();
        assert_eq!(read(&["get", "/b/", "--prefix", "--keys-only"]).split_whitespace().count(), 6);
        running.etcdctl(&["put", "new", "value"]);
        let status: Value = serde_json::from_str(&read(&["endpoint", "status", "-w", "json"])).unwrap();
        assert_eq!(status[0]["Status"]["header"]["revision"], 29);
    }
}

#[test]
fn a_moment_selects_the_last_revision_received_by_then() {
    let fixture = Fixture::new("3.6");
    for (moment, revision) in
        [("2026-01-02T03:04:28Z", 28), ("2026-01-02T05:04:28.5+02:00", 28), ("2027-01-01T00:00:00Z", 34)]
    {
        let target = fixture.path(moment);
        let arguments =
            ["restore", fixture.snapshot(), "--deltas", fixture.deltas(), "--time", moment, "--data-dir", &target];
        assert_eq!(json(&arguments)["revision"], revision, "{moment}");
    }
    // Revision 22, which the snapshot holds, came a second later than this.
    let target = fixture.path("too early");
    let early = "2026-01-02T03:04:21Z";
    let (code, error) =
        refusal(&["restore", fixture.snapshot(), "--deltas", fixture.deltas(), "--time", early, "--data-dir", &target]);
    assert_eq!(code, 1);
    assert!(error.to_string().contains("older base"), "{error}");
    assert!(!Path::new(&target).exists());
}

#[test]
fn a_full_disk_or_a_kill_leaves_nothing_or_everything() {
    let fixture = Fixture::new("3.6");
    let target = fixture.path("target");
    let restore = ["restore", fixture.snapshot(), "--deltas", fixture.deltas(), "--compact", "--data-dir", &target];
    let before = listing(fixture.dir.path());
    // A limit on the size of files fails writes just as a full disk does.
    for blocks in [0, 1, 8, 16, 31] {
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" data \"$@\"");
        let status =
            Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_quorate")]).args(restore).output().unwrap();
        assert_eq!(status.status.code(), Some(1), "{blocks} blocks: {status:?}");
        assert_eq!(listing(fixture.dir.path()), before, "{blocks} blocks");
    }
    let (mut finished, mut step) = (0, 0);
    // Later each time, until several have come to their end.
    while finished < 5 {
        assert!(step < 2000, "it never ends");
        let mut child = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .arg("data")
            .args(restore)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(step));
        step += 1 + step / 20;
        child.kill().unwrap();
        child.wait().unwrap();
        if Path::new(&target).exists() {
            assert_eq!(json(&["verify", &target, "--full"])["sound"], true);
            fs::remove_dir_all(&target).unwrap();
            finished += 1;
        }
    }
    assert_eq!(json(&restore)["revision"], fixture.head, "after {finished} finished runs");
    let mut after = before;
    after.push("target".to_owned());
    after.sort();
    assert_eq!(listing(fixture.dir.path()), after);
}

#[test]
fn inspect_says_what_a_path_is() {
    let fixture = Fixture::new("3.6");
    let snapshot = json(&["inspect", fixture.snapshot()]);
    assert_eq!((&snapshot["kind"], &snapshot["revision"]), (&"snapshot".into(), &22.into()));
    assert_eq!((&snapshot["compactRevision"], &snapshot["keys"]), (&9.into(), &6.into()));
    assert_eq!(snapshot["etcdVersion"], "3.6");
    assert_eq!(snapshot["size"], fs::metadata(&fixture.snapshot).unwrap().len());
    assert_eq!(snapshot["members"][0]["name"], "default");
    let wal = json(&["inspect", &fixture.path("source/member/wal")]);
    assert_eq!((&wal["kind"], &wal["revision"], &wal["keys"]), (&"wal".into(), &Value::Null, &Value::Null));
    assert!(wal["wal"]["lastIndex"].as_u64().unwrap() > 30);
    for verb in ["inspect", "hash", "keys"] {
        let (code, error) = refusal(&[verb, &fixture.path("source")]);
        assert!(code == 1 && error["error"].as_str().unwrap().contains("running etcd"), "{verb}: {error}");
    }
    let text = quorate(&["inspect", fixture.snapshot()]).stdout;
    assert!(String::from_utf8(text).unwrap().contains("revision"), "facts for people");
}

#[test]
fn verify_tells_sound_damaged_and_unknown_by_its_exit_code() {
    let fixture = Fixture::new("3.6");
    let code = |arguments: &[&str]| quorate(arguments).status.code().unwrap();
    assert_eq!(code(&["verify", fixture.snapshot()]), 0);
    assert_eq!(code(&["verify", fixture.snapshot(), "--full"]), 0);
    assert_eq!(code(&["verify", &fixture.path("absent")]), 2);
    assert_eq!(code(&["verify", fixture.dir.path().to_str().unwrap()]), 2);

    let sound = fs::read(&fixture.snapshot).unwrap();
    let damaged = fixture.path("damaged.db");
    for offset in (0..sound.len()).step_by(sound.len() / 20) {
        let mut bytes = sound.clone();
        bytes[offset] ^= 0x10;
        fs::write(&damaged, bytes).unwrap();
        assert_eq!(code(&["verify", &damaged]), 1, "flip at {offset}");
    }
    for length in [0, 100, 4096, sound.len() - 33, sound.len() - 1] {
        fs::write(&damaged, &sound[..length]).unwrap();
        assert_ne!(code(&["verify", &damaged]), 0, "cut at {length}");
    }
    let findings = quorate(&["verify", &damaged, "--output", "json"]);
    assert_eq!(findings.status.code(), Some(1));
    let findings: Value = serde_json::from_slice(&findings.stdout).unwrap();
    assert_eq!(findings["sound"], false);
    assert!(!findings["findings"].as_array().unwrap().is_empty());

    let bare = fixture.path("bare.db");
    fs::write(&bare, &sound[..sound.len() - 32]).unwrap();
    assert_eq!(code(&["verify", &bare]), 2);
    assert_eq!(code(&["verify", &bare, "--full"]), 0);
}

#[test]
fn a_refused_restore_leaves_nothing_behind() {
    let fixture = Fixture::new("3.5");
    let target = fixture.path("target");
    let before: Vec<_> = listing(fixture.dir.path());
    let damaged = fixture.path("source.damaged");
    let mut bytes = fs::read(&fixture.snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, &bytes).unwrap();
    let bad_deltas = fixture.dir.path().join("bad");
    copy_dir(&fixture.deltas, &bad_deltas);
    let newest = listing(&bad_deltas).pop().unwrap();
    let mut bytes = fs::read(bad_deltas.join(&newest)).unwrap();
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    fs::write(bad_deltas.join(&newest), bytes).unwrap();
    let (snapshot, deltas, bad) = (fixture.snapshot(), fixture.deltas(), bad_deltas.to_str().unwrap());
    for arguments in [
        vec!["restore", &damaged, "--data-dir", &target],
        vec!["restore", snapshot, "--deltas", bad, "--data-dir", &target],
        vec!["restore", snapshot, "--deltas", deltas, "--revision", "1000", "--data-dir", &target],
        vec!["restore", snapshot, "--revision", "5", "--data-dir", &target],
        vec!["restore", snapshot, "--deltas", deltas, "--time", "2020-01-01T00:00:00Z", "--data-dir", &target],
        vec!["restore", snapshot, "--data-dir", &target, "--name", "other"],
        vec!["restore", snapshot, "--data-dir", &target, "--etcd-version", "3.4"],
        vec!["restore", &fixture.path("absent"), "--data-dir", &target],
    ] {
        let (code, error) = refusal(&arguments);
        assert_eq!(code, 1, "{arguments:?}");
        assert!(!error["error"].as_str().unwrap().is_empty());
        assert!(!Path::new(&target).exists(), "{arguments:?}");
    }
    fs::remove_file(&damaged).unwrap();
    fs::remove_dir_all(&bad_deltas).unwrap();
    assert_eq!(listing(fixture.dir.path()), before);

    let output = fixture.path("new.db");
    let (code, _) = refusal(&["compact", snapshot, "--deltas", &fixture.path("absent"), "--output", &output]);
    assert_eq!((code, Path::new(&output).exists()), (1, false));
}

fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_existing_directory_or_file_is_never_touched() {
    let fixture = Fixture::new("3.7");
    let (occupied, file) = (fixture.path("occupied"), fixture.path("existing.db"));
    fs::create_dir(&occupied).unwrap();
    fs::write(Path::new(&occupied).join("precious"), b"data").unwrap();
    fs::write(&file, b"precious").unwrap();
    let (code, error) = refusal(&["restore", fixture.snapshot(), "--data-dir", &occupied]);
    assert_eq!(code, 1);
    assert!(error["error"].as_str().unwrap().contains("occupied"), "{error}");
    assert_eq!(listing(Path::new(&occupied)), ["precious"]);
    let (code, _) = refusal(&["compact", fixture.snapshot(), "--deltas", fixture.deltas(), "--output", &file]);
    assert_eq!((code, fs::read(&file).unwrap()), (1, b"precious".to_vec()));
}

#[test]
fn a_member_whose_log_was_lost_writes_again_after_a_reseed() {
    for version in VERSIONS {
        let mut fixture = Fixture::new(version);
        let source = fixture.path("source");
        let running = fixture.running.take().unwrap();
        let server = running.server.clone();
        let (code, error) = refusal(&["reseed", &source]);
        assert_eq!(code, 1, "a running etcd must be left alone: {error}");
        running.kill();
        let before = json(&["hash", &source]);
        let wal = fixture.dir.path().join("source/member/wal");
        let segment = wal.join("0000000000000000-0000000000000000.wal");
        let bytes = fs::read(&segment).unwrap();
        fs::write(&segment, &bytes[..bytes.len().min(1024)]).unwrap();

        let report = json(&["reseed", &source]);
        assert_eq!(report["revision"], before["revision"]);
        assert!(Path::new(report["replaced"].as_str().unwrap()).exists());
        assert_eq!(json(&["hash", &source]), before);
        let running = server.start();
        running.etcdctl(&["put", "after", "reseed"]);
    }
}

#[test]
fn a_compressed_full_backup_is_taken_as_it_is() {
    let fixture = Fixture::new("3.6");
    let plain = fixture.path("backup/v2/Full-00000000-00000022-1700000000");
    fs::copy(&fixture.snapshot, &plain).unwrap();
    run(Command::new("gzip").arg(&plain));
    let compressed = format!("{plain}.gz");
    let mut expected = json(&["inspect", fixture.snapshot()]);
    expected["size"] = fs::metadata(&compressed).unwrap().len().into();
    assert_eq!(json(&["inspect", &compressed]), expected);
    let restored =
        json(&["restore", &compressed, "--deltas", &fixture.path("backup"), "--data-dir", &fixture.path("r")]);
    assert_eq!(restored["revision"], fixture.head);
}
