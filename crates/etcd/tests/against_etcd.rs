//! The same numbers and the same keys as real etcd, for random histories and every way to restore them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod etcd_process;
mod gateway;
mod workload;

use std::path::{Path, PathBuf};

use etcd_process::{Running, Server, VERSIONS, binary, run};
use gateway::{Gateway, base64, number, watch};
use quorate_etcd::backup::{
    DeltaChain, DeltaWriter, Finished, FullReader, FullWriter, Header, Keyring, Kind, ObjectName, WriteOptions,
};
use quorate_etcd::bbolt::{self, Db};
use quorate_etcd::compact::Compact;
use quorate_etcd::data_dir::DataDir;
use quorate_etcd::events::{ChangeEvent, Cut, EventStream, Events};
use quorate_etcd::hash::{HashKv, hash_kv, status_hash};
use quorate_etcd::history::History;
use quorate_etcd::membership::InitialCluster;
use quorate_etcd::restore::{CompactAt, Mode, Restore, Restored};
use quorate_etcd::snapshot::{DigestPolicy, Snapshot};
use serde_json::{Value, json};
use workload::Workload;

/// A server with a random past, a snapshot from the middle of it, and the events since.
struct Scene {
    dir: tempfile::TempDir,
    version: &'static str,
    server: Running,
    gateway: Gateway,
    workload: Workload,
    snapshot: PathBuf,
    base: i64,
    events: Vec<ChangeEvent>,
}

impl Scene {
    fn new(version: &'static str, seed: u64, before: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server::single(version, &dir.path().join("source"));
        server.extra.push("--unsafe-no-fsync".to_owned());
        let server = server.start();
        let mut gateway = Gateway::to(&server);
        let mut workload = Workload::new(seed);
        workload.run(&mut gateway, before / 2);
        Workload::expire(&mut gateway);
        let revision = gateway.revision();
        gateway.compact(revision * 2 / 3);
        workload.run(&mut gateway, before / 2);
        let snapshot = dir.path().join("snapshot.db");
        server.etcdctl(&["snapshot", "save", snapshot.to_str().unwrap()]);
        let base = gateway.revision();
        Self { dir, version, server, gateway, workload, snapshot, base, events: Vec::new() }
    }

    /// Lets the server live on, and keeps the events as a backup agent would.
    fn go_on(&mut self, steps: usize) -> i64 {
        self.workload.run(&mut self.gateway, steps);
        Workload::expire(&mut self.gateway);
        let revision = self.gateway.revision();
        let seen = self.events.last().map_or(self.base, |event| event.mod_revision);
        self.events.extend(watch(&self.server, seen + 1, revision));
        revision
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn native_hash(&self, cut: Cut, compact: Option<i64>) -> HashKv {
        native_hash(&self.snapshot, &self.events, cut, compact, self.dir.path())
    }

    fn restore(&self, name: &str, change: impl FnOnce(&mut Restore<'_>)) -> (Restored, Server) {
        let data_dir = self.path(name);
        let server = Server::single(self.version, &data_dir);
        let cluster = InitialCluster::parse(&server.initial_cluster, "token").unwrap();
        let member = cluster.own_member("default", std::slice::from_ref(&server.peer_url)).unwrap();
        let mut restore = Restore::new(&self.snapshot, &data_dir, &cluster, member);
        change(&mut restore);
        let mut events = Events::new(self.events.clone());
        let restored = restore.run(Some(&mut events)).unwrap();
        let checked = bbolt::check(&Db::open(&DataDir::new(&data_dir).db()).unwrap(), |_, _, _| {}).unwrap();
        assert!(checked.findings.is_empty(), "{:?}", checked.findings);
        (restored, server)
    }
}

fn native_hash(snapshot: &Path, events: &[ChangeEvent], cut: Cut, compact: Option<i64>, scratch: &Path) -> HashKv {
    let snapshot = Snapshot::open(snapshot).unwrap();
    let mut events = Events::new(events.to_vec());
    let events: Option<&mut dyn EventStream> = Some(&mut events);
    hash_kv(&History::new(&snapshot, events, cut, scratch).unwrap(), compact).unwrap()
}

fn server_hash(gateway: &mut Gateway, revision: i64) -> HashKv {
    let (hash, compacted) = gateway.hash_kv(revision);
    let revision = if revision == 0 { gateway.revision() } else { revision };
    HashKv { hash, revision, compact_revision: if compacted == 0 { -1 } else { compacted } }
}

/// As `etcdutl snapshot status` sees a file.
fn official_status(version: &str, snapshot: &Path) -> Value {
    let command = &mut std::process::Command::new(binary(version, "etcdutl"));
    let output = run(command.args(["snapshot", "status", "-w", "json"]).arg(snapshot));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn status_hash_equals_etcdutls() {
    for version in VERSIONS {
        let scene = Scene::new(version, 1, 200);
        let snapshot = Snapshot::open(&scene.snapshot).unwrap();
        snapshot.verify_digest(DigestPolicy::Require).unwrap();
        let history = History::new(&snapshot, None, Cut::End, scene.dir.path()).unwrap();
        let status = official_status(version, &scene.snapshot);
        assert_eq!(u64::from(status_hash(&history).unwrap()), status["hash"].as_u64().unwrap(), "{version}");
        assert_eq!(history.revision(), number(&status["revision"]), "{version}");
        assert_eq!(history.revision(), scene.base, "{version}");
    }
}

#[test]
fn hash_over_snapshot_and_events_equals_the_living_servers() {
    for (version, seed) in VERSIONS.into_iter().zip(10..) {
        let mut scene = Scene::new(version, seed, 300);
        for round in 0..4 {
            let head = scene.go_on(120);
            let server = server_hash(&mut scene.gateway, 0);
            let compact = Some(server.compact_revision).filter(|revision| *revision >= 0);
            assert_eq!(scene.native_hash(Cut::End, compact), server, "{version} round {round}");
            let wanted = [server.compact_revision + 1, scene.base, scene.base + 7, head - 1];
            for revision in wanted.into_iter().filter(|wanted| *wanted > server.compact_revision) {
                let server = server_hash(&mut scene.gateway, revision);
                let native = scene.native_hash(Cut::Revision(revision), Some(server.compact_revision));
                assert_eq!(native, server, "{version} round {round} revision {revision}");
            }
            // The server forgets, and the history of the backup keeps more than the server does.
            let compact = if round % 2 == 0 { head } else { i64::midpoint(scene.base, head) };
            if compact > server.compact_revision {
                scene.gateway.compact(compact);
            }
        }
        // With nothing alive etcd takes the set of kept revisions for absent.
        scene.gateway.post("kv/deleterange", &json!({ "key": base64(b"\0"), "range_end": base64(b"\0") }));
        let head = scene.go_on(0);
        for compact in [head - 1, head] {
            scene.gateway.compact(compact);
            let server = server_hash(&mut scene.gateway, 0);
            assert_eq!(server.compact_revision, compact, "{version}");
            assert_eq!(scene.native_hash(Cut::End, Some(compact)), server, "{version} emptied, compacted at {compact}");
        }
    }
}

#[test]
fn every_way_to_restore_yields_the_predicted_store() {
    for (version, seed) in VERSIONS.into_iter().zip(20..) {
        let mut scene = Scene::new(version, seed, 300);
        let head = scene.go_on(150);
        let middle = i64::midpoint(scene.base, head);
        let inside = scene.base - 20;
        let everything = scene.gateway.everything();
        let source = server_hash(&mut scene.gateway, 0);
        let base_compact = source.compact_revision;

        let ways: [(&str, Mode, Cut, Option<CompactAt>); 6] = [
            ("append", Mode::Append, Cut::End, None),
            ("rewrite", Mode::Rewrite, Cut::End, None),
            ("append to the middle", Mode::Append, Cut::Revision(middle), None),
            ("cut inside the snapshot", Mode::Rewrite, Cut::Revision(inside), None),
            ("compact at the head", Mode::Rewrite, Cut::End, Some(CompactAt::Head)),
            ("compact in the middle", Mode::Rewrite, Cut::End, Some(CompactAt::Revision(middle))),
        ];
        for (name, mode, cut, compact) in ways {
            let (restored, server) = scene.restore(name, |restore| {
                restore.cut = cut;
                restore.compact = compact;
                restore.rewrite = name == "rewrite";
            });
            let revision = match cut {
                Cut::Revision(revision) => revision,
                _ => head,
            };
            let compacted = match compact {
                None => base_compact,
                Some(CompactAt::Head) => head,
                Some(CompactAt::Revision(revision)) => revision,
            };
            assert_eq!((restored.revision, restored.mode), (revision, mode), "{version} {name}");
            assert_eq!(restored.compact_revision, Some(compacted), "{version} {name}");
            let running = server.start();
            let mut gateway = Gateway::to(&running);
            assert_eq!(gateway.revision(), revision, "{version} {name}");
            let expected = scene.native_hash(cut, Some(compacted));
            assert_eq!(server_hash(&mut gateway, revision), expected, "{version} {name}");
            if revision == head {
                assert_eq!(gateway.everything(), everything, "{version} {name}");
            }
            gateway.post("kv/put", &json!({ "key": base64(b"after"), "value": base64(b"restore") }));
            assert_eq!(gateway.revision(), revision + 1, "{version} {name}");
        }
        // And the source, compacted to the same revision, agrees with what was compacted from its backup.
        scene.gateway.compact(head);
        assert_eq!(scene.native_hash(Cut::End, Some(head)), server_hash(&mut scene.gateway, 0), "{version}");
    }
}

#[test]
fn a_bumped_restore_makes_old_revisions_compacted_as_etcdutls_does() {
    for (version, seed) in VERSIONS.into_iter().zip(30..) {
        let mut scene = Scene::new(version, seed, 200);
        let everything = scene.gateway.everything();
        let bump = 1_000_000_000;
        for (name, rewrite) in [("bump by append", false), ("bump by rewrite", true)] {
            let (restored, server) = scene.restore(name, |restore| {
                restore.bump_revision = Some(bump);
                restore.rewrite = rewrite;
            });
            assert_eq!(restored.revision, scene.base + bump);
            let running = server.start();
            let mut gateway = Gateway::to(&running);
            assert_eq!(gateway.revision(), scene.base + bump, "{version} {name}");
            let refused = gateway.try_post("kv/range", &json!({ "key": base64(b"large"), "revision": scene.base }));
            assert!(refused.unwrap_err().contains("compacted"), "{version} {name}");
            let mut here = gateway.everything();
            // etcd lists the marker itself as a key without a name.
            here.as_array_mut().unwrap().retain(|kv| kv["key"].is_string());
            assert_eq!(here, everything, "{version} {name}");

            let official = scene.path(&format!("official {name}"));
            let twin = Server::single(version, &official);
            let mut etcdutl = std::process::Command::new(binary(version, "etcdutl"));
            run(etcdutl
                .args(["snapshot", "restore", "--bump-revision", &bump.to_string(), "--mark-compacted"])
                .args(["--name", "default", "--initial-cluster", &twin.initial_cluster])
                .args(["--initial-advertise-peer-urls", &twin.peer_url, "--data-dir"])
                .arg(&official)
                .arg(&scene.snapshot));
            let twin = twin.start();
            let mut twin = Gateway::to(&twin);
            assert_eq!(server_hash(&mut gateway, 0), server_hash(&mut twin, 0), "{version} {name}");
            let bumped = scene.path(&format!("{name}.db"));
            running.etcdctl(&["snapshot", "save", bumped.to_str().unwrap()]);
            let native = native_hash(&bumped, &[], Cut::End, None, scene.dir.path());
            assert_eq!(native, server_hash(&mut gateway, 0), "{version} {name}");
        }
    }
}

#[test]
fn restored_directories_survive_a_hard_life() {
    for (version, seed) in VERSIONS.into_iter().zip(40..) {
        let mut scene = Scene::new(version, seed, 200);
        scene.go_on(60);
        for (name, compact) in [("append", None), ("compact", Some(CompactAt::Head))] {
            let (_, mut server) = scene.restore(name, |restore| restore.compact = compact);
            server.extra.push("--unsafe-no-fsync".to_owned());
            let mut running = server.start();
            for round in 0..4_u32 {
                let mut gateway = Gateway::to(&running);
                for batch in 0..50 {
                    let puts: Vec<Value> = (0..100)
                        .map(|n| format!("/churn/{}", (batch * 37 + n * 11 + round) % 3000))
                        .map(|key| json!({ "request_put": { "key": base64(key.as_bytes()), "value": base64(&[7; 300]) } }))
                        .collect();
                    gateway.post("kv/txn", &json!({ "success": puts }));
                    if batch % 10 == 9 {
                        let range = json!({ "key": base64(b"/churn/1"), "range_end": base64(b"/churn/2") });
                        gateway.post("kv/deleterange", &range);
                    }
                }
                let revision = gateway.revision();
                gateway.compact(revision - 5);
                if round == 2 {
                    gateway.post("kv/deleterange", &json!({ "key": base64(b"\0"), "range_end": base64(b"\0") }));
                    let revision = gateway.revision();
                    gateway.compact(revision);
                    running.etcdctl(&["defrag"]);
                }
                let before = (gateway.revision(), server_hash(&mut gateway, 0));
                running.kill();
                running = server.start();
                let mut gateway = Gateway::to(&running);
                assert_eq!((gateway.revision(), server_hash(&mut gateway, 0)), before, "{version} {name} {round}");
            }
            running.kill();
            let db = Db::open(&DataDir::new(&server.data_dir).db()).unwrap();
            let checked = bbolt::check(&db, |_, _, _| {}).unwrap();
            assert!(checked.findings.is_empty(), "{version} {name}: {:?}", checked.findings);
        }
    }
}

#[test]
fn a_compacted_backup_is_a_snapshot_like_any_other() {
    for (version, seed) in VERSIONS.into_iter().zip(50..) {
        let mut scene = Scene::new(version, seed, 300);
        let head = scene.go_on(100);
        let output = scene.path("compacted.db");
        let compact = Compact {
            snapshot: &scene.snapshot,
            output: &output,
            cut: Cut::End,
            at: CompactAt::Head,
            digest: DigestPolicy::Require,
        };
        let mut events = Events::new(scene.events.clone());
        let compacted = compact.run(Some(&mut events)).unwrap();
        assert_eq!((compacted.revision, compacted.compact_revision), (head, head));
        let status = official_status(version, &output);
        assert_eq!(number(&status["revision"]), head, "{version}");
        // The official tool verifies the digest, restores it, and etcd has what the source has.
        let restored = scene.path("official");
        let twin = Server::single(version, &restored);
        run(std::process::Command::new(binary(version, "etcdutl"))
            .args(["snapshot", "restore", "--name", "default", "--initial-cluster", &twin.initial_cluster])
            .args(["--initial-advertise-peer-urls", &twin.peer_url, "--data-dir"])
            .arg(&restored)
            .arg(&output));
        let twin = twin.start();
        let mut twin = Gateway::to(&twin);
        assert_eq!(twin.everything(), scene.gateway.everything(), "{version}");
        scene.gateway.compact(head);
        assert_eq!(server_hash(&mut twin, 0), server_hash(&mut scene.gateway, 0), "{version}");
    }
}

type Deltas = Vec<(ObjectName, Vec<u8>)>;

/// The snapshot and the events of a scene as stored backups, some revisions in each delta.
fn stored(scene: &Scene) -> (Vec<u8>, Finished, Deltas) {
    let options = WriteOptions::default();
    let header = Header { kind: Kind::Full.into(), first_revision: scene.base - 1, ..Header::default() };
    let mut full = FullWriter::begin(Vec::new(), header, &options).unwrap();
    full.push(&std::fs::read(&scene.snapshot).unwrap()).unwrap();
    let (object, full) = full.finish().unwrap();
    let (mut deltas, mut parent) = (Vec::new(), full.digest);
    for events in scene.events.chunk_by(|one, other| one.mod_revision / 16 == other.mod_revision / 16) {
        let (first, last) = (events[0].mod_revision, events[events.len() - 1].mod_revision);
        let kind = Kind::Delta.into();
        let header = Header { kind, first_revision: first, parent: parent.to_vec(), ..Header::default() };
        let mut delta = DeltaWriter::begin(Vec::new(), header, jiff::Timestamp::UNIX_EPOCH, &options).unwrap();
        for event in events {
            delta.push(event).unwrap();
            if event.lease != 0 {
                delta.lease(event.lease, 4000);
            }
        }
        delta.complete(last).unwrap();
        let (object, finished) = delta.finish().unwrap();
        deltas.push((ObjectName::delta(&finished.header, last, finished.trailer.covered()), object));
        parent = finished.digest;
    }
    (object, full, deltas)
}

#[test]
fn stored_backups_restore_to_any_revision_with_the_hash_the_server_had_then() {
    for (version, seed) in VERSIONS.into_iter().zip(60..) {
        let mut scene = Scene::new(version, seed, 300);
        let head = scene.go_on(150);
        let (full, finished, deltas) = stored(&scene);
        assert_eq!(finished.trailer.last_revision, scene.base, "{version}: found in the stream");
        let schema = Snapshot::open(&scene.snapshot).unwrap().schema;
        assert_eq!(finished.trailer.compact_revision, schema.compact_revision(), "{version}");
        let mut random = workload::Random::new(seed);
        let lowest = finished.trailer.compact_revision.unwrap_or(1) + 1;
        let mut wanted: Vec<i64> =
            (0..6).map(|_| lowest + i64::try_from(random.below(1000)).unwrap() % (head - lowest)).collect();
        wanted.extend([head, scene.base]);
        for revision in wanted {
            let expected = server_hash(&mut scene.gateway, revision);
            let data_dir = scene.path(&format!("received {revision}"));
            std::fs::remove_dir_all(&data_dir).ok();
            let server = Server::single(version, &data_dir);
            let cluster = InitialCluster::parse(&server.initial_cluster, "token").unwrap();
            let member = cluster.own_member("default", std::slice::from_ref(&server.peer_url)).unwrap();
            let mut restore = Restore::new(Path::new("stored"), &data_dir, &cluster, member);
            restore.cut = Cut::Revision(revision);
            let needed = deltas.iter().filter(|(name, _)| name.first <= revision);
            let mut chain = DeltaChain::new(needed.map(|(name, object)| (*name, object.as_slice())), Keyring::none());
            let mut base = FullReader::open(full.as_slice(), &Keyring::none()).unwrap();
            restore.run_received(&mut base, Some(&mut chain)).unwrap();
            let running = server.start();
            let mut gateway = Gateway::to(&running);
            assert_eq!(server_hash(&mut gateway, revision), expected, "{version} at {revision}");
            // Inside the base, keys may hang on leases that were revoked before it was taken.
            let lost_leases = revision >= scene.base && running.log().contains("failed to attach a lease");
            assert!(!lost_leases, "{version} at {revision}");
        }
    }
}
