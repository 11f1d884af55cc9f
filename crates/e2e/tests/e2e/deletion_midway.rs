//! A cluster that is deleted on its way somewhere: at any write of the operator, whether it lives on or dies there.

use std::{collections::BTreeMap, time::Duration};

use futures::{FutureExt, StreamExt, stream};
use quorate_api::{names, storage::RetentionPolicy};
use quorate_e2e::{
    Bed, Cluster, Gate, alone_for,
    cluster::Kind,
    eventually,
    operator::{OwnOperator, without_installed_operator},
};
use serde_json::Value;

use crate::journeys::Journey;

/// How many clusters are on their way at a time.
const AT_A_TIME: usize = 4;
const OWNED: [Kind; 10] = [
    Kind::Pod,
    Kind::StatefulSet,
    Kind::Service,
    Kind::ServiceAccount,
    Kind::Secret,
    Kind::Lease,
    Kind::EtcdMember,
    Kind::DisruptionBudget,
    Kind::Role,
    Kind::RoleBinding,
];

/// When the cluster is deleted, and what becomes of the operator then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// While the write waits to be let through. Calls to etcd are not counted here.
    Alive,
    /// The operator dies before it, and another goes on.
    DiesBefore,
    DiesAfter,
}

/// Where and how a journey ends early.
#[derive(Clone, Copy, Debug)]
struct Point {
    write: usize,
    moment: Moment,
    on_delete: RetentionPolicy,
}

impl Point {
    /// Six in a row are all there is of moments and policies.
    fn at(journey: Journey, write: usize) -> Self {
        let moment = [Moment::Alive, Moment::DiesBefore, Moment::DiesAfter][write % 3];
        // One that is deleted without its volumes takes no writes.
        let goes = write % 2 == 1 || journey == Journey::Delete;
        Self { write, moment, on_delete: if goes { RetentionPolicy::Delete } else { RetentionPolicy::Retain } }
    }
}

/// Volumes that are there and are not on their way out, by name.
async fn volumes(cluster: &Cluster) -> BTreeMap<String, Value> {
    let claims = cluster.kubernetes.list(&cluster.all(Kind::VolumeClaim)).await;
    let staying = claims.into_iter().filter(|claim| claim["metadata"]["deletionTimestamp"].is_null());
    let named =
        |claim: Value| (claim["metadata"]["name"].as_str().unwrap().to_owned(), claim["metadata"]["uid"].clone());
    staying.map(named).collect()
}

/// Deletes the cluster, and says which of its volumes have to outlive it if any do: those that no wish gives up.
async fn delete(cluster: &Cluster, journey: Journey) -> BTreeMap<String, Value> {
    cluster.kubernetes.delete(&cluster.own_path()).await;
    let of_members = (0..journey.members_at_last()).map(|ordinal| names::data_claim(&cluster.member(ordinal)));
    let of_members = of_members.collect::<Vec<_>>();
    volumes(cluster).await.into_iter().filter(|(name, _)| of_members.contains(name)).collect()
}

/// Sets out, deletes the cluster at that point, and waits until nothing is left but what is to be kept. Returns whether the
/// operator came to that point at all.
async fn ends_early(bed: &Bed, journey: Journey, point: Point) -> bool {
    let namespace = format!("{}-deleted-{}", journey.name(), point.write);
    bed.kubernetes.empty_namespace(&namespace).await;
    let cluster = Cluster::named(bed, &namespace, "db");
    journey.prepare(&cluster, point.on_delete).await;
    let before = cluster.status().await;
    let gate = Gate::open(&namespace).await;
    gate.stop_at(point.write);
    let die_at = match point.moment {
        Moment::Alive => None,
        Moment::DiesBefore => Some(format!("{}:before", point.write)),
        Moment::DiesAfter => Some(format!("{}:after", point.write)),
    };
    let mut operator = match &die_at {
        None => OwnOperator::start_behind(&gate, &namespace),
        Some(die_at) => OwnOperator::start(&namespace, Some(die_at)),
    };
    let there = async {
        match point.moment {
            Moment::Alive => gate.has_seen(point.write).await,
            Moment::DiesBefore | Moment::DiesAfter => operator.died_as_told().await,
        }
    };
    let way = async {
        journey.set_out(&cluster, point.on_delete).await;
        eventually(&format!("{namespace} has arrived"), async || journey.end(&cluster, &before).await).await;
    };
    let came_there = tokio::select! {
        () = there => true,
        () = way => false,
    };
    if came_there && cluster.kubernetes.find(&cluster.own_path()).await.is_some() {
        let kept = delete(&cluster, journey).await;
        gate.go_on();
        if point.moment != Moment::Alive {
            operator = OwnOperator::start(&namespace, None);
        }
        leaves_only(&cluster, point, &kept).await;
    }
    drop(operator);
    bed.kubernetes.delete(&format!("/api/v1/namespaces/{namespace}")).await;
    came_there
}

/// Nothing is stuck, and volumes are as they are to be.
async fn leaves_only(cluster: &Cluster, point: Point, kept: &BTreeMap<String, Value>) {
    let whose = format!("{} {point:?}", cluster.namespace);
    eventually(&format!("{whose}: the cluster is gone"), async || {
        cluster.kubernetes.is_absent(&cluster.own_path()).await.then_some(())
    })
    .await;
    for kind in OWNED {
        eventually(&format!("{whose}: its {kind:?}s are gone"), async || {
            let left = cluster.kubernetes.find(&cluster.all(kind)).await?;
            let own = |object: &&Value| object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("db"));
            (left["items"].as_array()?.iter().filter(own).count() == 0).then_some(())
        })
        .await;
    }
    match point.on_delete {
        RetentionPolicy::Retain => {
            let now = volumes(cluster).await;
            assert!(kept.iter().all(|(name, uid)| now.get(name) == Some(uid)), "{whose}: {kept:?} became {now:?}");
        }
        RetentionPolicy::Delete => {
            eventually(&format!("{whose}: its volumes are gone"), async || {
                let left = cluster.kubernetes.find(&cluster.all(Kind::VolumeClaim)).await?;
                left["items"].as_array()?.is_empty().then_some(())
            })
            .await;
        }
    }
}

/// The journey is cut short at one write after the other, until it ends before, whatever is counted as a write.
async fn at_every_write(bed: &Bed, journey: Journey) -> usize {
    let (mut write, mut missed) = (1, 0);
    while missed < 3 {
        missed = if ends_early(bed, journey, Point::at(journey, write)).await { 0 } else { missed + 1 };
        write += 1;
    }
    assert!(write > 4, "{journey:?} takes writes");
    write - 4
}

/// As many as `QUORATE_E2E_DEATHS` says for each journey, at writes that most of them come to; or all.
async fn on_every_way(bed: &Bed) {
    let sample = std::env::var("QUORATE_E2E_DEATHS").ok().and_then(|count| count.parse::<usize>().ok());
    let ways = Journey::ALL.into_iter().enumerate().map(|(number, journey)| async move {
        match sample {
            None => at_every_write(bed, journey).await,
            Some(count) => {
                let mut came_there = 0;
                for turn in 0..count {
                    let point = Point::at(journey, 2 + number % 7 + 5 * turn);
                    came_there += usize::from(ends_early(bed, journey, point).await);
                }
                came_there
            }
        }
    });
    let ways = stream::iter(ways.map(FutureExt::boxed_local)).buffer_unordered(AT_A_TIME).collect::<Vec<_>>().await;
    // The shortest end before the later ones of these writes.
    let cut_short = ways.iter().filter(|deleted| **deleted > 0).count();
    assert!(cut_short * 4 >= ways.len() * 3, "only {cut_short} of {} journeys were cut short", ways.len());
}

#[test]
fn a_cluster_that_is_deleted_at_any_write_goes_and_its_volumes_stay_or_go_as_they_should() {
    alone_for(Duration::from_hours(6), async |bed| {
        without_installed_operator(bed, on_every_way).await;
    });
}
