//! What there is of a cluster, without what differs from one run to the next: identifiers, times, numbers of revisions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{Cluster, cluster::Kind};

/// Pods and Events are made by others.
const KINDS: [Kind; 10] = [
    Kind::EtcdCluster,
    Kind::EtcdMember,
    Kind::Lease,
    Kind::Service,
    Kind::ServiceAccount,
    Kind::Secret,
    Kind::VolumeClaim,
    Kind::DisruptionBudget,
    Kind::Role,
    Kind::RoleBinding,
];

/// Two clusters that went the same way look the same. Nothing if something could not be read.
pub async fn picture(cluster: &Cluster) -> Option<Value> {
    let mut objects = BTreeMap::new();
    for kind in KINDS {
        let found = cluster.kubernetes.find(&cluster.all(kind)).await?;
        let of_cluster = |name: &&str| name.starts_with(&cluster.name);
        let names = found["items"].as_array()?.iter().filter_map(|object| object["metadata"]["name"].as_str());
        objects.insert(format!("{kind:?}"), names.filter(of_cluster).map(str::to_owned).collect::<Vec<_>>());
    }
    let members = cluster.kubernetes.find(&cluster.all(Kind::EtcdMember)).await?;
    let tickets = members["items"].as_array()?.iter().map(|member| {
        let kinds = member["spec"]["ticket"].as_object().into_iter().flat_map(|ticket| ticket.keys().cloned());
        let data = &member["status"]["data"];
        (
            member["metadata"]["name"].to_string(),
            json!([kinds.collect::<Vec<_>>(), data["state"], data["epoch"], data["bootCount"]]),
        )
    });
    let pods = cluster.find(Kind::StatefulSet, &cluster.name).await.map(|set| set["spec"]["replicas"].clone());
    let budgets = cluster.kubernetes.find(&cluster.all(Kind::DisruptionBudget)).await?;
    let budgets = budgets["items"].as_array()?.iter().map(|budget| budget["spec"]["minAvailable"].clone());
    Some(json!({
        "objects": objects,
        "members": tickets.collect::<BTreeMap<_, _>>(),
        "pods": pods,
        "budgets": budgets.collect::<Vec<_>>(),
        "status": status(&cluster.kubernetes.find(&cluster.own_path()).await.unwrap_or_default()["status"]),
    }))
}

fn status(status: &Value) -> Value {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let conditions = conditions.iter().map(|condition| (condition["type"].to_string(), condition["status"].clone()));
    let members = status["members"].as_array().cloned().unwrap_or_default();
    let members = members.iter().map(|member| (member["name"].to_string(), member["status"].clone()));
    json!({
        "conditions": conditions.collect::<BTreeMap<_, _>>(),
        "members": members.collect::<BTreeMap<_, _>>(),
        "phase": status["phase"],
        "size": status["clusterSize"],
        "epoch": status["epoch"],
        "latch": status["latch"]["state"],
        "pending": status["pending"],
    })
}
