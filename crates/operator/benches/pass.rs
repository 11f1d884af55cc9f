//! What a pass over one cluster costs while many others are in the caches: it must not grow with the fleet.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use quorate_api::member::{EtcdReport, ListedMember};
use quorate_api::names::{self, labels};
use quorate_api::status::{EtcdClusterStatus, Latch, LatchState};
use quorate_api::{EtcdCluster, EtcdClusterSpec, EtcdMemberStatus};
use quorate_core::view::{Platform, SecretsSeen};
use quorate_core::{Effect, Object, View, decide};
use quorate_operator::caches::Caches;
use quorate_operator::observe;

const SIZES: [usize; 3] = [10, 100, 1_000];
const PASSES: usize = 300;
const ROUNDS: usize = 7;

const MEMBERS: i32 = 3;
const CLUSTER_ID: &str = "c1";

/// A cluster that has formed and runs.
fn cluster(number: usize) -> EtcdCluster {
    let spec = EtcdClusterSpec { replicas: MEMBERS, ..EtcdClusterSpec::default() };
    let mut cluster = EtcdCluster::new(&format!("etcd-{number}"), spec);
    cluster.metadata.namespace = Some("default".to_owned());
    cluster.metadata.uid = Some(format!("uid-{number}"));
    let latch = Latch {
        cluster_id: Some(CLUSTER_ID.to_owned()),
        size: Some(MEMBERS),
        ..Latch::new(LatchState::Formed, 1, Time(Timestamp::UNIX_EPOCH))
    };
    cluster.status = Some(EtcdClusterStatus { latch: Some(latch), ..EtcdClusterStatus::default() });
    cluster
}

/// What the operator makes for it, and what agents report.
fn objects(cluster: &EtcdCluster) -> Vec<Object> {
    let mut view = View::new(cluster.clone(), Platform::default()).unwrap();
    view.secrets = SecretsSeen::Read;
    let actions = decide(&view, Timestamp::UNIX_EPOCH).actions;
    let applied = actions.into_iter().filter_map(|action| match action.effect {
        Effect::Apply { object, .. } => Some(*object),
        _ => None,
    });
    applied.map(|object| reported(cluster, object)).collect()
}

fn reported(cluster: &EtcdCluster, mut object: Object) -> Object {
    if let Object::EtcdMember(member) = &mut object {
        let listed = |ordinal| ListedMember {
            id: format!("{ordinal:x}"),
            name: names::member(&cluster.name_any(), ordinal),
            peer_urls: vec![format!("https://etcd-{ordinal}.default.svc:2380")],
            learner: false,
            started: true,
        };
        let etcd = EtcdReport {
            running: true,
            cluster_id: Some(CLUSTER_ID.to_owned()),
            members: (0..MEMBERS).map(listed).collect(),
            ..EtcdReport::default()
        };
        member.status = Some(EtcdMemberStatus { etcd: Some(etcd), ..EtcdMemberStatus::default() });
    }
    object
}

fn pod(cluster: &EtcdCluster, ordinal: i32) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(names::member(&cluster.name_any(), ordinal));
    pod.metadata.namespace.clone_from(&cluster.metadata.namespace);
    pod.metadata.uid = Some(format!("{}-{ordinal}", cluster.name_any()));
    pod.metadata.labels = Some([(labels::CLUSTER.to_owned(), cluster.name_any())].into());
    pod
}

fn fleet(size: usize) -> Caches {
    let (caches, mut writers) = Caches::unwatched();
    for cluster in (0..size).map(cluster) {
        for object in objects(&cluster) {
            writers.insert(object);
        }
        for ordinal in 0..MEMBERS {
            writers.insert_pod(pod(&cluster, ordinal));
        }
    }
    let view = observe::cached(&caches, cluster(7), Platform::default()).unwrap();
    assert_eq!((view.pods.len(), view.reports().count()), (3, 3), "the cluster's own are found in the caches");
    caches
}

/// The median of some rounds, per pass.
fn measure(caches: &Caches) -> Duration {
    let one = cluster(7);
    let mut rounds = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            for _ in 0..PASSES {
                let view = observe::cached(caches, one.clone(), Platform::default()).unwrap();
                black_box(decide(&view, Timestamp::UNIX_EPOCH));
            }
            began.elapsed() / u32::try_from(PASSES).unwrap()
        })
        .collect::<Vec<_>>();
    rounds.sort_unstable();
    rounds[ROUNDS / 2]
}

fn main() {
    let mut first = None;
    for size in SIZES {
        let pass = measure(&fleet(size));
        let first = *first.get_or_insert(pass);
        let ratio = pass.as_secs_f64() / first.as_secs_f64();
        println!(
            "{size:5} clusters in the caches: {:7.1} us a pass, {ratio:.2} times the first",
            pass.as_secs_f64() * 1e6
        );
    }
}
