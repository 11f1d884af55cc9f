//! Files that lose bits or parts while nobody looks: whatever stock etcd would make of them, nobody is told what is not true,
//! and nothing of it is thrown away.

use std::{fs, net::TcpStream};

use quorate_api::member::DataState;
use quorate_etcd::{
    client::{Client, Options},
    pb::rpc::kv::PutRequest,
};
use serde_json::Value;

use crate::{
    damages::{Damage, Needle, is_stored},
    neighbour::{Neighbour, is_learning},
    pod::{Pod, eventually},
    replacing::{put_aside, volume_identity},
};

const KEYS: usize = 100;

/// What became of a start from damaged files.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The agent does not let etcd start, and says why.
    Refused(String),
    /// etcd has compared itself with the other member, as the agent has told it to, and has ended.
    Ended,
    /// What was damaged does not matter to anybody: all answers are right.
    TellsTheTruth,
}

fn keys(neighbour: &Neighbour) -> Vec<Needle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::new(Options::new(neighbour.client_url())).unwrap();
        let mut keys = Vec::new();
        for n in 0..KEYS {
            let (key, value) = (format!("key/{n:03}").into_bytes(), format!("the value of {n:03}").into_bytes());
            let request = PutRequest { key: key.clone(), value: value.clone(), ..PutRequest::default() };
            let revision = client.put(request).await.unwrap().header.unwrap().revision;
            keys.push(Needle { key, value, revision });
        }
        keys
    })
}

/// All keys, with everything that is told about them, or nothing if nobody answers.
fn answers(pod: &Pod, url: &str, consistency: &str) -> Option<Value> {
    let question = ["get", "", "--prefix", consistency, "--write-out=json", "--command-timeout=2s"];
    let output = pod.try_etcdctl_at(url, &question);
    let answer = serde_json::from_slice::<Value>(&output.stdout).ok()?;
    output.status.success().then(|| answer["kvs"].clone())
}

/// Starts from what is there. Whatever is answered meanwhile has to be true.
fn start(pod: &mut Pod, truth: &Value, what: &str) -> Outcome {
    let (boots, begun) = (pod.api.lease().boot_count, volume_identity(&pod.path("volume"))["bootCount"].clone());
    let port = u16::try_from(pod.settings.client_port).unwrap();
    pod.api.forget_findings();
    pod.start_agent();
    pod.start_launcher();
    let mut outcome = None;
    eventually(&format!("{what}: it is known what becomes of it"), || {
        let listens = TcpStream::connect(("127.0.0.1", port)).is_ok();
        let told = listens.then(|| answers(pod, &pod.client_url(), "--consistency=s")).flatten();
        assert!(told.as_ref().is_none_or(|told| told == truth), "{what}: {told:?}");
        let data = pod.api.report().data.unwrap();
        if pod.ended_launcher().is_some() {
            outcome = Some(Outcome::Ended);
        } else if told.is_some() && pod.api.lease().boot_count > boots {
            outcome = Some(Outcome::TellsTheTruth);
        } else if data.state != DataState::Valid {
            assert_eq!(volume_identity(&pod.path("volume"))["bootCount"], begun, "{what}: it was let start");
            outcome = Some(Outcome::Refused(format!("{:?}: {}", data.state, data.reason.unwrap_or_default())));
        }
        outcome.is_some()
    });
    outcome.unwrap()
}

fn end(pod: &mut Pod) {
    pod.kill_container();
    pod.kill_agent();
}

fn is_refused_or_without_effect(minor: &'static str) {
    let mut pod = Pod::new(minor);
    // Before its first snapshot, a member of 3.5 does not know whom to compare itself with.
    pod.settings.snapshot_count = 50;
    let neighbour = Neighbour::of(&pod, &[]);
    let keys = keys(&neighbour);
    let id = neighbour.invite(&pod);
    pod.start_agent();
    pod.start_launcher();
    is_learning(&mut pod, &id);
    eventually("all of it is in the file", || is_stored(&pod.path("volume/data"), &keys[KEYS - 1]));
    eventually("how far it has got is on record", || pod.api.lease().last_index > i64::try_from(KEYS).ok());
    let truth = answers(&pod, neighbour.client_url(), "--consistency=l").unwrap();
    let needle = &keys[KEYS / 2];
    end(&mut pod);
    pod.copy_volume("sound");

    for damage in Damage::all() {
        let what = format!("{minor}, {damage:?}");
        damage.inflict(&pod.path("volume/data"), needle);
        let outcome = start(&mut pod, &truth, &what);
        println!("{what}: {outcome:?}");
        let is_harmless = matches!(damage, Damage::OneMeta | Damage::Somewhere(_));
        assert!(outcome != Outcome::TellsTheTruth || is_harmless, "{what}: nobody has noticed");
        end(&mut pod);
        if outcome == Outcome::TellsTheTruth {
            fs::remove_dir_all(pod.path("sound")).unwrap();
            pod.copy_volume("sound");
        } else {
            assert_eq!(put_aside(&pod).len(), 0, "{what}: it stays where it is");
            pod.put_back("sound", "data");
        }
    }
    assert_eq!(start(&mut pod, &truth, minor), Outcome::TellsTheTruth, "what was mended goes on");
}

#[test]
fn damaged_files_are_refused_or_without_effect_and_nobody_is_told_what_is_not_true() {
    std::thread::scope(|scope| {
        for minor in ["3.5", "3.6", "3.7"] {
            scope.spawn(move || is_refused_or_without_effect(minor));
        }
    });
}
