//! An operator that dies at any write it makes, in Kubernetes or in etcd, on whatever way a cluster goes.

use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use quorate_api::storage::RetentionPolicy;
use quorate_e2e::{
    Bed, Cluster, Keys, alone, alone_for,
    cluster::Kind,
    eventually,
    operator::{OwnOperator, without_installed_operator},
};
use serde_json::{Value, json};

use crate::journeys::Journey;

/// How many clusters are on their way at a time.
const AT_A_TIME: usize = 4;

/// How it went.
struct Arrival {
    died: bool,
    end: Value,
    writes: usize,
}

/// A cluster goes its way under an operator that dies at a write and is then started again, or under one that does not die.
/// Where it arrives must look as where the other came to.
async fn travel(bed: &Bed, journey: Journey, point: Option<&str>, expected: Option<&Value>) -> Arrival {
    let namespace = format!("{}-{}", journey.name(), point.unwrap_or("undisturbed").replace(':', "-"));
    bed.kubernetes.empty_namespace(&namespace).await;
    let cluster = Cluster::named(bed, &namespace, "db");
    // Deleted with its volumes, or there would be nothing left for the operator to do.
    let on_delete = if journey == Journey::Delete { RetentionPolicy::Delete } else { RetentionPolicy::Retain };
    let mut keys = journey.prepare(&cluster, on_delete).await;
    let before = cluster.status().await;

    let mut operator = OwnOperator::start(&namespace, point);
    let way = async {
        journey.set_out(&cluster, on_delete).await;
        eventually(&format!("{namespace} has arrived"), async || {
            let end = journey.end(&cluster, &before).await.ok_or_else(String::new)?;
            match expected {
                Some(expected) if *expected != end => Err(format!("{end:#} is not {expected:#}")),
                _ => Ok(end),
            }
        })
        .await
    };
    tokio::pin!(way);
    let (died, end) = tokio::select! {
        end = &mut way => (false, end),
        () = operator.died_as_told() => {
            operator = OwnOperator::start(&namespace, None);
            (true, way.await)
        }
    };
    let writes = operator.writes().await;
    if journey != Journey::Delete {
        let after = cluster.status().await;
        if ![Journey::Form, Journey::Recover].contains(&journey) {
            assert_eq!(after.cluster_id, before.cluster_id, "{namespace}");
        }
        keys.write(&cluster, 2).await;
        keys.is_held_by_all(&cluster).await;
    }
    drop(operator);
    bed.kubernetes.delete(&format!("/api/v1/namespaces/{namespace}")).await;
    Arrival { died, end, writes }
}

/// At which writes the operators of this run die: before and after each, or at as many as `QUORATE_E2E_DEATHS` says, evenly.
fn points(writes: usize) -> Vec<String> {
    let sides = |write: usize| ["before", "after"].map(|side| format!("{write}:{side}"));
    let all = (1..=writes).flat_map(sides).collect::<Vec<_>>();
    let wanted = std::env::var("QUORATE_E2E_DEATHS").ok().and_then(|count| count.parse().ok()).unwrap_or(all.len());
    let wanted = wanted.clamp(1, all.len());
    (0..wanted).map(|number| all[(2 * number + 1) * all.len() / (2 * wanted)].clone()).collect()
}

async fn every_way(bed: &Bed) {
    // Boxed: nine of them beside each other would not fit on the stack.
    let undisturbed =
        Journey::ALL.into_iter().map(|journey| async move { (journey, travel(bed, journey, None, None).await) });
    let undisturbed =
        stream::iter(undisturbed.map(FutureExt::boxed_local)).buffered(AT_A_TIME).collect::<Vec<_>>().await;
    let deaths = undisturbed.iter().flat_map(|(journey, reference)| {
        assert!(reference.writes > 0, "{journey:?} takes writes");
        points(reference.writes).into_iter().map(move |point| (*journey, reference, point))
    });
    let deaths = deaths.map(|(journey, reference, point)| async move {
        travel(bed, journey, Some(&point), Some(&reference.end)).await.died
    });
    let died = stream::iter(deaths.map(FutureExt::boxed_local)).buffer_unordered(AT_A_TIME).collect::<Vec<_>>().await;
    // Passes that are merged by chance take fewer writes: the last points may never be reached.
    let deaths = died.iter().filter(|died| **died).count();
    assert!(deaths * 4 >= died.len() * 3, "only {deaths} deaths at {} points", died.len());
}

#[test]
fn wherever_a_cluster_goes_it_arrives_at_the_same_end_whichever_write_the_operator_dies_at() {
    alone_for(Duration::from_hours(3), async |bed| {
        without_installed_operator(bed, every_way).await;
    });
}

#[test]
fn three_members_form_exactly_once_under_operators_that_live_for_one_write() {
    alone(async |bed| {
        without_installed_operator(bed, lives_of_one_write).await;
    });
}

async fn lives_of_one_write(bed: &Bed) {
    let cluster = Cluster::create(bed, "one-write-lives", json!({ "replicas": 3 })).await;
    let mut lives = 0;
    loop {
        let mut mortal = OwnOperator::start(&cluster.namespace, Some("1:after"));
        tokio::select! {
            () = mortal.died_as_told() => lives += 1,
            () = cluster.is_whole() => break,
        }
        assert!(lives < 500, "the operator never gets to rest");
    }
    assert!(lives >= 20, "only {lives} lives: forming three members takes more writes than that");
    let cluster_id = cluster.status().await.cluster_id;
    for ordinal in 0..3 {
        let member = cluster.get(Kind::EtcdMember, &cluster.member(ordinal)).await;
        let data = &member["status"]["data"];
        let expected = (Some(1), cluster_id.as_deref());
        assert_eq!((data["bootCount"].as_i64(), data["clusterID"].as_str()), expected, "{member:#}");
    }
    let mut keys = Keys::default();
    keys.write(&cluster, 5).await;
    keys.is_held_by_all(&cluster).await;
}
