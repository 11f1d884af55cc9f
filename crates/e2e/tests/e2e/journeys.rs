//! The ways that a cluster can go, from one state in which it rests to the next.

use quorate_api::{
    conditions::ConditionType,
    status::{ClusterPhase, EtcdClusterStatus},
    storage::RetentionPolicy,
};
use quorate_e2e::{Cluster, Keys, cluster::Kind, eventually, faults, operator::OwnOperator, picture::picture};
use serde_json::{Value, json};

use crate::scaling::scale;

/// Where a cluster goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journey {
    Form,
    Scale { from: i32, to: i32 },
    Replace,
    Recover,
    Hibernate,
    Delete,
}

impl Journey {
    pub(crate) const ALL: [Self; 9] = [
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

    pub(crate) fn name(self) -> String {
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

    pub(crate) fn members_at_last(self) -> i32 {
        match self {
            Journey::Scale { to, .. } => to,
            other => other.members_at_first(),
        }
    }

    fn spec(self, on_delete: RetentionPolicy) -> Value {
        let storage = json!({ "retention": { "onDelete": on_delete } });
        json!({ "replicas": self.members_at_first(), "spread": "None", "storage": storage })
    }

    /// A cluster that is where the journey begins, under an operator that is gone then, and what was written to it.
    pub(crate) async fn prepare(self, cluster: &Cluster, on_delete: RetentionPolicy) -> Keys {
        let mut keys = Keys::default();
        if self != Journey::Form {
            cluster.apply(self.spec(on_delete)).await;
            let _first = OwnOperator::start(&cluster.namespace, None);
            cluster.is_whole().await;
            cluster.becomes(ConditionType::Progressing, "False").await;
            keys.write(cluster, 3).await;
        }
        keys
    }

    /// Sets out. The rest of the way is for operators to go.
    pub(crate) async fn set_out(self, cluster: &Cluster, on_delete: RetentionPolicy) {
        match self {
            Journey::Form => cluster.apply(self.spec(on_delete)).await,
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
    pub(crate) async fn end(self, cluster: &Cluster, before: &EtcdClusterStatus) -> Option<Value> {
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
