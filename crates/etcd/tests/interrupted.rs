//! Killed at any moment, or out of space: a restore leaves nothing or all, and the next attempt succeeds.
//!
//! Without the usual harness, because this program is also the process that gets killed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test program of its own")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use quorate_etcd::bbolt::{Output, TreeWriter};
use quorate_etcd::compact::Compact;
use quorate_etcd::data_dir::DataDir;
use quorate_etcd::events::Cut;
use quorate_etcd::hash::{HashKv, hash_kv};
use quorate_etcd::history::History;
use quorate_etcd::membership::InitialCluster;
use quorate_etcd::mvcc::{Revision, StoredValue};
use quorate_etcd::restore::{CompactAt, Restore, reseed};
use quorate_etcd::schema::{BUCKETS, KEY};
use quorate_etcd::snapshot::{DigestPolicy, Snapshot, digest_of};
use quorate_etcd::validate::{self, Findings, Tier};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, action, snapshot, output] = arguments.as_slice()
        && flag == "--child"
    {
        return child(action, Path::new(snapshot), Path::new(output));
    }
    let dir = tempfile::tempdir().unwrap();
    let snapshot = dir.path().join("snapshot.db");
    write_snapshot(&snapshot, 40_000);
    for action in ["restore", "rewrite", "compact"] {
        killed_at_any_moment_it_leaves_nothing_or_all(action, dir.path(), &snapshot);
        out_of_space_it_leaves_nothing(action, dir.path(), &snapshot);
        println!("test interrupted {action} ... ok");
    }
    a_killed_reseed_never_costs_the_original(dir.path(), &snapshot);
    println!("test interrupted reseed ... ok");
}

fn child(action: &str, snapshot: &Path, output: &Path) {
    if action == "compact" {
        let digest = DigestPolicy::Require;
        Compact { snapshot, output, cut: Cut::End, at: CompactAt::Head, digest }.run(None).unwrap();
        return;
    }
    if action == "reseed" {
        reseed(output).unwrap();
        return;
    }
    let url = "http://localhost:2380".to_owned();
    let cluster = InitialCluster::parse(&format!("default={url}"), "token").unwrap();
    let member = cluster.own_member("default", &[url]).unwrap();
    let mut restore = Restore::new(snapshot, output, &cluster, member);
    restore.rewrite = action == "rewrite";
    restore.run(None).unwrap();
}

fn spawn(action: &str, snapshot: &Path, output: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--child", action]).arg(snapshot).arg(output).stderr(Stdio::null()).spawn().unwrap()
}

fn run(action: &str, snapshot: &Path, output: &Path) -> (ExitStatus, Duration) {
    let started = Instant::now();
    (spawn(action, snapshot, output).wait().unwrap(), started.elapsed())
}

/// The database under `output`, which must be whole.
fn database(action: &str, output: &Path) -> PathBuf {
    if action == "compact" {
        assert_eq!(validate::snapshot(output, Tier::Full).unwrap(), Findings::default());
        return output.to_owned();
    }
    assert_eq!(validate::data_dir(output, Tier::Full).unwrap().0, Findings::default());
    DataDir::new(output).db()
}

fn hash(database: &Path) -> HashKv {
    let snapshot = Snapshot::open(database).unwrap();
    let scratch = database.parent().unwrap();
    hash_kv(&History::new(&snapshot, None, Cut::End, scratch).unwrap(), None).unwrap()
}

fn remove(output: &Path) {
    if output.is_dir() {
        std::fs::remove_dir_all(output).unwrap();
    } else {
        std::fs::remove_file(output).unwrap();
    }
}

fn killed_at_any_moment_it_leaves_nothing_or_all(action: &str, dir: &Path, snapshot: &Path) {
    let output = dir.join("output");
    let (status, duration) = run(action, snapshot, &output);
    assert!(status.success());
    let expected = hash(&database(action, &output));
    remove(&output);
    let (mut nothing, mut all) = (0, 0);
    for moment in 0..4000 {
        // Ever later, until it was late enough at least once.
        if moment >= 40 && all > 0 {
            break;
        }
        let mut child = spawn(action, snapshot, &output);
        std::thread::sleep(duration * moment / 30);
        child.kill().unwrap();
        child.wait().unwrap();
        if output.exists() {
            assert_eq!(hash(&database(action, &output)), expected, "{action} moment {moment}");
            remove(&output);
            all += 1;
        } else {
            nothing += 1;
        }
    }
    println!("{action}: {nothing} times nothing, {all} times all");
    assert!(nothing > 0 && all > 0, "{action}: {nothing} times nothing, {all} times all");
    assert!(run(action, snapshot, &output).0.success(), "{action} after being killed");
    assert_eq!(hash(&database(action, &output)), expected);
    remove(&output);
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 1, "{action}: only the snapshot is left");
}

fn a_killed_reseed_never_costs_the_original(dir: &Path, snapshot: &Path) {
    let output = dir.join("output");
    let (status, duration) = run("restore", snapshot, &output);
    assert!(status.success());
    let expected = hash(&database("restore", &output));
    // A file that no reseed carries over tells the original from its successors.
    let original = |member: &Path| member.join("original").exists();
    std::fs::write(output.join("member").join("original"), "").unwrap();
    let members =
        || -> Vec<PathBuf> { std::fs::read_dir(&output).unwrap().map(|entry| entry.unwrap().path()).collect() };
    let (mut replaced, mut untouched) = (0, 0);
    for moment in 0..4000 {
        if moment >= 25 && replaced > 0 {
            break;
        }
        let mut child = spawn("reseed", snapshot, &output);
        std::thread::sleep(duration * moment / 20);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(hash(&database("reseed", &output)), expected, "moment {moment}");
        assert_eq!(members().iter().filter(|member| original(member)).count(), 1, "moment {moment}");
        if original(&output.join("member")) {
            untouched += 1;
        } else {
            replaced += 1;
        }
        for member in members() {
            let name = member.file_name().unwrap().to_str().unwrap().to_owned();
            if name.starts_with("member.replaced") && !original(&member) {
                std::fs::remove_dir_all(&member).unwrap();
            }
        }
    }
    assert!(replaced > 0 && untouched > 0, "reseed: {untouched} times untouched, {replaced} times replaced");
    println!("reseed: {untouched} times untouched, {replaced} times replaced");
    // The moment between the two renames is too short to be hit: make what it leaves.
    assert!(run("reseed", snapshot, &output).0.success());
    let kept = members().into_iter().find(|member| original(member)).unwrap();
    std::fs::rename(&kept, output.join("member.part")).unwrap();
    assert!(run("reseed", snapshot, &output).0.success());
    assert_eq!(members().iter().filter(|member| original(member)).count(), 1, "the original is kept");
    assert!(!output.join("member.part").exists());
    remove(&output);
}

/// A limit on file sizes stands for a full disk: writes fail in the middle.
fn out_of_space_it_leaves_nothing(action: &str, dir: &Path, snapshot: &Path) {
    let output = dir.join("output");
    // A compacted file is small: only the first limits are below its size.
    let limits: &[u32] = if action == "compact" { &[1, 1000] } else { &[1, 1000, 20_000, 40_000] };
    for blocks in limits {
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg(std::env::current_exe().unwrap());
        command.args(["--child", action]).arg(snapshot).arg(&output).stderr(Stdio::null());
        assert!(!command.status().unwrap().success(), "{action} with {blocks} blocks");
        assert_eq!(std::fs::read_dir(dir).unwrap().count(), 1, "{action} with {blocks} blocks");
    }
}

/// About 50 MB, each of a thousand keys many times.
fn write_snapshot(path: &Path, revisions: i64) {
    let file = File::options().create_new(true).read(true).write(true).open(path).unwrap();
    let mut output = Output::new(file, 4096, 2).unwrap();
    let mut root = TreeWriter::new(4096);
    let mut encoded = Vec::new();
    for name in BUCKETS {
        let mut tree = TreeWriter::new(4096);
        for main in (2..revisions).filter(|_| name == KEY) {
            let key = format!("key {}", main % 1000);
            let value = [u8::try_from(main % 251).unwrap(); 1100];
            let create_revision = 2 + (main - 2) % 1000;
            let version = 1 + (main - 2) / 1000;
            let stored = StoredValue {
                key: key.as_bytes(),
                create_revision,
                mod_revision: main,
                version,
                value: &value,
                lease: 0,
            };
            stored.encode(&mut encoded);
            tree.push(&mut output, &Revision { main, sub: 0 }.encode(), &encoded).unwrap();
        }
        let tree = tree.finish(&mut output).unwrap();
        root.push_bucket(&mut output, name.as_bytes(), &tree).unwrap();
    }
    let root = root.finish_as_pages(&mut output).unwrap();
    let freelist = output.empty_freelist().unwrap();
    let (file, meta) = output.finish(root, freelist, 1).unwrap();
    let length = meta.high_water * 4096;
    file.write_all_at(&digest_of(&file, length).unwrap(), length).unwrap();
}
