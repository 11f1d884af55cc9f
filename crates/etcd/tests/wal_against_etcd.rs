//! The write-ahead log, compared with what etcd and etcdutl write, repair and refuse.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod etcd_process;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use etcd_process::{Server, VERSIONS, binary, copy_dir, run};
use quorate_etcd::membership::InitialCluster;
use quorate_etcd::snap::{Snap, SnapName};
use quorate_etcd::wal::{Tail, WalError, WalScan, bootstrap_segment, list_segments, read_metadata, scan_dir};

const SEGMENT: &str = "member/wal/0000000000000000-0000000000000000.wal";

fn snapshot(version: &str, dir: &Path) -> PathBuf {
    let running = Server::single(version, &dir.join("source")).start();
    running.etcdctl(&["put", "key", "value"]);
    let path = dir.join("snapshot.db");
    running.etcdctl(&["snapshot", "save", path.to_str().unwrap()]);
    path
}

fn initial_cluster(members: usize) -> String {
    (1..=members).map(|n| format!("m{n}=http://127.0.0.1:{}", 2000 + n)).collect::<Vec<_>>().join(",")
}

#[test]
fn log_and_ids_are_those_of_etcdutl_for_one_three_and_five_members() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = snapshot(version, dir.path());
        for members in [1, 3, 5] {
            let initial_cluster = initial_cluster(members);
            let cluster = InitialCluster::parse(&initial_cluster, "token").unwrap();
            for n in 1..=members {
                let (name, url) = (format!("m{n}"), format!("http://127.0.0.1:{}", 2000 + n));
                let out = dir.path().join(format!("{members}-{n}"));
                run(Command::new(binary(version, "etcdutl"))
                    .args(["snapshot", "restore"])
                    .arg(&snapshot)
                    .arg("--data-dir")
                    .arg(&out)
                    .args(["--name", &name, "--initial-cluster", &initial_cluster])
                    .args(["--initial-cluster-token", "token", "--initial-advertise-peer-urls", &url]));
                let own = cluster.own_member(&name, &[url]).unwrap();
                let theirs = scan_dir(&out.join("member/wal")).unwrap();
                assert_eq!((theirs.node_id, theirs.cluster_id), (own.id, cluster.cluster_id()), "{version} {name}");
                assert_eq!((theirs.last_index, theirs.tail), (members as u64, Tail::Clean));

                let ours = bootstrap_segment(own.id, cluster.cluster_id(), cluster.members()).unwrap();
                let bytes = fs::read(out.join(SEGMENT)).unwrap();
                if version == "3.7" {
                    // 3.7 leaves two zero fields out; the records must mean the same.
                    fs::write(out.join(SEGMENT), &ours).unwrap();
                    let ours = scan_dir(&out.join("member/wal")).unwrap();
                    assert_eq!(normal(ours), normal(theirs));
                } else {
                    assert_eq!(bytes[..ours.len()], ours, "{version}, {members} members");
                    assert!(bytes[ours.len()..].iter().all(|byte| *byte == 0));
                }
                snap_means_the_same(&out, &cluster);
            }
        }
    }
}

fn normal(mut scan: WalScan) -> WalScan {
    scan.bytes = 0;
    for snapshot in &mut scan.snapshots {
        if let Some(state) = &mut snapshot.conf_state {
            state.auto_leave.get_or_insert(false);
        }
    }
    scan
}

fn snap_means_the_same(data_dir: &Path, cluster: &InitialCluster) {
    let members = cluster.members();
    let ours = Snap::bootstrap(members, 1, members.len() as u64);
    let path = data_dir.join("member/snap").join(ours.name().to_string());
    let mut theirs = Snap::decode(&fs::read(path).unwrap()).unwrap();
    theirs.conf_state.auto_leave.get_or_insert(false);
    assert_eq!(theirs, Snap::decode(&ours.encode().unwrap()).unwrap());
}

/// A data directory whose last record is several sectors long.
fn crashed(version: &str, dir: &Path) -> Server {
    let server = Server::single(version, &dir.join("sound"));
    let running = server.start();
    let value = "v".repeat(3000);
    for n in 0..10 {
        running.etcdctl(&["put", &format!("key{n}"), &value]);
    }
    running.kill();
    server
}

fn segment_end(data_dir: &Path) -> u64 {
    let bytes = fs::read(data_dir.join(SEGMENT)).unwrap();
    (bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1) as u64
}

#[test]
fn a_torn_tail_is_cut_where_etcd_cuts_it() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let server = crashed(version, dir.path());
        let sound = scan_dir(&server.data_dir.join("member/wal")).unwrap();
        assert_eq!(sound.tail, Tail::Clean);
        assert_eq!(read_metadata(&server.data_dir.join("member/wal")).unwrap().node_id, Some(sound.node_id));
        let end = segment_end(&server.data_dir);
        // The file ends inside the record; a whole sector of the record never reached the disk.
        let blank = (end - 1500).next_multiple_of(512);
        for (case, damage) in [("cut", None), ("blank", Some(blank))] {
            let data_dir = dir.path().join(case);
            copy_dir(&server.data_dir, &data_dir);
            let file = OpenOptions::new().write(true).open(data_dir.join(SEGMENT)).unwrap();
            match damage {
                None => file.set_len(end - 700).unwrap(),
                Some(offset) => file.write_all_at(&[0; 512], offset).unwrap(),
            }
            let torn = scan_dir(&data_dir.join("member/wal")).unwrap();
            let Tail::Torn { offset, .. } = torn.tail else { panic!("{version} {case}: {:?}", torn.tail) };
            assert!(torn.last_index < sound.last_index && offset < end - 700);

            let running = Server { data_dir: data_dir.clone(), ..server.clone() }.start();
            assert!(running.log().contains("repaired"), "{version} {case}: {}", running.log());
            drop(running);
            let broken = data_dir.join(format!("{SEGMENT}.broken"));
            assert!(broken.is_file());
            let after = fs::read(data_dir.join(SEGMENT)).unwrap();
            let before = fs::read(&broken).unwrap();
            let kept = usize::try_from(offset).unwrap();
            assert_eq!(after[..kept], before[..kept]);
            assert_ne!(after.get(kept..kept + 64), before.get(kept..kept + 64), "etcd kept more than we do");
        }
    }
}

#[test]
fn damage_is_refused_where_etcd_refuses_it() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let server = crashed(version, dir.path());
        let end = segment_end(&server.data_dir);
        for offset in [end / 2, end - 200] {
            let data_dir = dir.path().join(offset.to_string());
            copy_dir(&server.data_dir, &data_dir);
            let file = OpenOptions::new().read(true).write(true).open(data_dir.join(SEGMENT)).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset).unwrap();
            file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
            let error = scan_dir(&data_dir.join("member/wal")).unwrap_err();
            assert!(matches!(error, WalError::Corrupt { .. }), "{version}: {error:?}");
            let log = Server { data_dir, ..server.clone() }.try_start().err();
            assert!(log.is_some_and(|log| log.contains("crc mismatch")), "etcd {version} accepted what we refuse");
        }
    }
}

#[test]
fn a_log_of_many_segments_and_snapshots_is_read_to_its_end() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server::single(version, &dir.path().join("data"));
        server.extra = ["--snapshot-count", "20"].map(str::to_owned).to_vec();
        let running = server.start();
        let value = dir.path().join("value");
        fs::write(&value, vec![b'x'; 1_500_000]).unwrap();
        for n in 0..92 {
            let mut command = Command::new(binary(version, "etcdctl"));
            command.args(["--endpoints", &server.client_url, "put", &format!("k{n}")]);
            let output = command.stdin(fs::File::open(&value).unwrap()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        running.kill();
        let wal = server.data_dir.join("member/wal");
        let scan = scan_dir(&wal).unwrap();
        assert!(list_segments(&wal).unwrap().len() >= 3, "{:?}", scan.segments);
        assert!(scan.last_index >= 92);
        let newest = scan.usable_snapshots().next_back().unwrap();
        let (term, index) = (newest.term.unwrap(), newest.index.unwrap());
        assert!(index >= 20);
        let path = server.data_dir.join("member/snap").join(SnapName { term, index }.to_string());
        let snap = Snap::decode(&fs::read(path).unwrap()).unwrap();
        assert_eq!((snap.term, snap.index, snap.members.len()), (term, index, 1));
        assert_eq!(snap.members[0].id, scan.node_id);

        // A segment in the middle cannot be torn, and none may be missing.
        let first = wal.join(scan.segments[0].to_string());
        let size = fs::metadata(&first).unwrap().len();
        OpenOptions::new().write(true).open(&first).unwrap().set_len(size - 100_000).unwrap();
        assert!(matches!(scan_dir(&wal), Err(WalError::Corrupt { .. })));
        fs::remove_file(wal.join(scan.segments[1].to_string())).unwrap();
        assert!(matches!(scan_dir(&wal), Err(WalError::MissingSegment { .. })));
    }
}
