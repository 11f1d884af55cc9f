//! What may keep the operator from etcd, or be in its way there: rights, closed ports, members of somebody else.

use quorate_api::conditions::ConditionType;
use quorate_e2e::{Clients, Cluster, beside_others, eventually, faults};
use quorate_etcd::{
    client::Client,
    pb::{auth::UserAddOptions, rpc::auth::UserAddRequest},
};
use serde_json::json;

use crate::scaling::{scale, settles_at};

async fn becomes(cluster: &Cluster, type_: ConditionType, reason: &str) {
    eventually(&format!("{} is {reason}", type_.as_str()), async || {
        let (state, found) = cluster.condition(type_).await?;
        (state == "True" && found == reason).then_some(())
    })
    .await;
}

async fn add_user(client: &Client, name: &str, password: &str) {
    let options = password.is_empty().then_some(UserAddOptions { no_password: true });
    let (name, password) = (name.to_owned(), password.to_owned());
    let role = "root";
    let request = UserAddRequest { name: name.clone(), password, options, ..UserAddRequest::default() };
    client.user_add(request).await.unwrap();
    client.user_grant_role(&name, role).await.unwrap();
}

#[test]
fn with_authentication_members_come_and_go_as_soon_as_the_operator_has_the_right() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "authentication", json!({ "replicas": 1, "spread": "None" })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let client = cluster.connect(0).await;
        add_user(&client, "root", "secret").await;
        // Whom the certificate of applications speaks for.
        add_user(&client, "client", "").await;
        client.auth_enable().await.unwrap();
        let root = client.authenticate("root", "secret").await.unwrap();

        scale(&cluster, 3).await;
        becomes(&cluster, ConditionType::Stalled, "EtcdRightsMissing").await;
        assert!(cluster.is(ConditionType::Ready, "True").await, "it serves all the same");
        clients.have_written(50).await;
        add_user(&root, "operator", "").await;
        settles_at(&cluster, 3).await;
        scale(&cluster, 1).await;
        settles_at(&cluster, 1).await;
        clients.were_told_the_truth().await;
    });
}

#[test]
fn a_closed_port_keeps_members_from_going_and_is_named() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "closed-port", json!({ "replicas": 3 })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        clients.have_written(50).await;
        let mut closed = Vec::new();
        for ordinal in 0..3 {
            closed.push(faults::close_to_clients(&cluster, ordinal).await);
        }
        scale(&cluster, 1).await;
        becomes(&cluster, ConditionType::Degraded, "EtcdOutOfReach").await;
        becomes(&cluster, ConditionType::Stalled, "EtcdOutOfReach").await;
        let status = cluster.status().await;
        assert_eq!((status.cluster_size, status.ready_replicas), (Some(3), 3), "their agents are heard");
        assert!(cluster.is(ConditionType::Ready, "True").await);
        closed.into_iter().for_each(faults::Isolated::mend);
        settles_at(&cluster, 1).await;
        clients.have_written(50).await;
        clients.were_told_the_truth().await;
    });
}

#[test]
fn a_member_that_somebody_has_added_is_named_and_keeps_nobody_waiting_once_it_is_gone() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "added-by-hand", json!({ "replicas": 1, "spread": "None" })).await;
        cluster.is_whole().await;
        let clients = Clients::of(&cluster).await;
        let client = cluster.connect(0).await;
        let added = client.member_add(vec!["https://elsewhere.example:2380".to_owned()], true).await.unwrap();
        let id = added.member.unwrap().id;
        becomes(&cluster, ConditionType::Degraded, "ForeignLearner").await;
        let strangers = cluster.status().await.strangers;
        assert_eq!(strangers.len(), 1, "{strangers:?}");
        assert_eq!((strangers[0].id.clone(), strangers[0].learner), (format!("{id:x}"), true));
        scale(&cluster, 3).await;
        becomes(&cluster, ConditionType::Progressing, "ForeignLearner").await;
        clients.have_written(50).await;
        client.member_remove(id).await.unwrap();
        settles_at(&cluster, 3).await;
        assert_eq!(cluster.status().await.strangers, []);
        clients.were_told_the_truth().await;
    });
}
