//! An operator that dies at any write it makes, in Kubernetes or in etcd, on whatever way a cluster goes.

use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use quorate_api::{
    conditions::ConditionType,
    status::{ClusterPhase, EtcdClusterStatus},
};
use quorate_e2e::{
    Bed, Cluster, Keys, alone, alone_for,
    cluster::Kind,
    eventually, faults,
    operator::{OwnOperator, without_installed_operator},
    picture::picture,
};
use serde_json::{Value, json};

use crate::scaling::scale;

/// How many clusters are on their way at a time.
const AT_A_TIME: usize = 4;

/// Where a cluster goes while its operators die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Journey {
    Form,
    Scale { from: i32, to: i32 },
    Replace,
    Recover,
    Hibernate,
    Delete,
}

impl Journey {
    fn name(self) -> String {
        match self {
            Journey::Scale { from, to } => format!("scale-{from}-{to}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    fn members_at_first(self) -> i32 {
        match self {
            Journey::Scale { from, .. } => from,
            Journey::Replace | Journey::Recover | Journey::Hibernate => 3,
            Journey::Form | Journey::Delete => 1,
        }
    }

    fn members_at_last(self) -> i32 {
        match self {
            Journey::Scale { to, .. } => to,
            other => other.members_at_first(),
        }
    }

    fn spec(self) -> Value {
        // With its volumes, or there would be nothing left for the operator to do.
        let retention = if self == Journey::Delete { "Delete" } else { "Retain" };
        let storage = json!({ "retention": { "onDelete": retention } });
        json!({ "replicas": self.members_at_first(), "spread": "None", "storage": storage })
    }

    /// Sets out. The rest of the way is for operators to go.
    async fn set_out(self, cluster: &Cluster) {
        match self {
            Journey::Form => cluster.apply(self.spec()).await,
            Journey::Scale { to, .. } => scale(cluster, to).await,
            Journey::Replace => faults::wipe(cluster, 1).await,
            Journey::Recover => drop(tokio::join!(faults::wipe(cluster, 0), faults::wipe(cluster, 2))),
            Journey::Hibernate => {
                scale(cluster, 0).await;
                eventually("it sleeps", async || {
                    let pods = cluster.kubernetes.find(&cluster.all(Kind::Pod)).await?["items"].as_array()?.len();
                    (pods == 0 && cluster.status().await.phase == Some(ClusterPhase::Hibernated)).then_some(())
                })
                .await;
                scale(cluster, 3).await;
            }
            Journey::Delete => cluster.kubernetes.delete(&cluster.own_path()).await,
        }
    }

    /// What there is when nothing is on its way any more. `before` is the status from before it set out.
    async fn end(self, cluster: &Cluster, before: &EtcdClusterStatus) -> Option<Value> {
        let seen = picture(cluster).await?;
        if self == Journey::Delete {
            let left = seen["objects"].as_object()?.values().filter_map(Value::as_array);
            return left.into_iter().all(Vec::is_empty).then_some(seen);
        }
        let status = cluster.status().await;
        let size = self.members_at_last();
        let is_whole = status.cluster_size == Some(size) && status.ready_replicas == size;
        let id = |status: &EtcdClusterStatus| status.members.get(1).and_then(|member| member.id.clone());
        let is_there = match self {
            Journey::Recover => status.data_loss.is_some(),
            Journey::Replace => id(&status) != id(before),
            _ => true,
        };
        let is_settled = cluster.is(ConditionType::Progressing, "False").await;
        let pods = cluster.kubernetes.find(&cluster.all(Kind::Pod)).await?["items"].as_array()?.len();
        let has_arrived = is_whole && is_there && is_settled && i32::try_from(pods) == Ok(size);
        // What was seen before all that may be older.
        (has_arrived && picture(cluster).await? == seen).then_some(seen)
    }
}

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
    let mut keys = Keys::default();
    if journey != Journey::Form {
        cluster.apply(journey.spec()).await;
        let _first = OwnOperator::start(&namespace, None);
        cluster.is_whole().await;
        cluster.becomes(ConditionType::Progressing, "False").await;
        keys.write(&cluster, 3).await;
    }
    let before = cluster.status().await;

    let mut operator = OwnOperator::start(&namespace, point);
    let way = async {
        journey.set_out(&cluster).await;
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
    let journeys = [
        Journey::Form,
        Journey::Scale { from: 1, to: 3 },
        Journey::Scale { from: 3, to: 5 },
        Journey::Scale { from: 5, to: 3 },
        Journey::Scale { from: 3, to: 1 },
        Journey::Replace,
        Journey::Recover,
        Journey::Hibernate,
        Journey::Delete,
    ];
    // Boxed: nine of them beside each other would not fit on the stack.
    let undisturbed =
        journeys.into_iter().map(|journey| async move { (journey, travel(bed, journey, None, None).await) });
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
