//! The supervisor as a client of its own cluster.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use tokio::net::TcpStream;

use crate::{
    bed::Bed,
    error::{Error, Result, While},
    ip::IpFamilies,
};

const POLL: Duration = Duration::from_millis(100);
const MANIFESTS: &str = include_str!("manifests/cluster.yaml");

pub(super) async fn connect(bed: &Bed, user: &str) -> Result<Client> {
    let broken = |error: &dyn std::error::Error| {
        Error::refused(
            format!("the kubeconfig of {user} cannot be used: {error}"),
            "run `testbed down` and `testbed up`",
        )
    };
    let kubeconfig = Kubeconfig::read_from(bed.inner_kubeconfig(user)).map_err(|error| broken(&error))?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| broken(&error))?;
    Client::try_from(config).while_(|| format!("connecting as {user}"))
}

pub(super) async fn ready(client: &Client) {
    let healthy = async || {
        let request = http::Request::get("/readyz").body(Vec::new()).ok()?;
        client.request_text(request).await.ok()
    };
    while healthy().await.is_none() {
        tokio::time::sleep(POLL).await;
    }
}

/// Which nodes the API server calls ready.
pub(super) async fn readiness(client: &Client) -> Result<BTreeMap<String, bool>> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await;
    let nodes = nodes.while_(|| "listing nodes".to_owned())?;
    Ok(nodes.iter().map(|node| (node.name_any(), ready_condition(node).is_some())).collect())
}

/// When the node last said that it is ready, unless it said otherwise since.
fn ready_condition(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(ready.last_heartbeat_time.as_ref()?.0)
}

/// Ready by a report of this boot: what was said before a crash does not count.
pub(super) async fn nodes_ready(client: &Client, count: u8, since: Timestamp) {
    let fresh = |node: &Node| ready_condition(node).is_some_and(|at| at.as_second() >= since.as_second());
    let all_ready = async || {
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await;
        nodes.is_ok_and(|nodes| nodes.iter().filter(|node| fresh(node)).count() >= usize::from(count))
    };
    while !all_ready().await {
        tokio::time::sleep(POLL).await;
    }
}

/// A pod made before this account exists would be refused.
pub(super) async fn default_account(client: &Client) {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    while accounts.get("default").await.is_err() {
        tokio::time::sleep(POLL).await;
    }
}

pub(super) async fn dns_answers(families: IpFamilies) {
    for family in families.all() {
        while TcpStream::connect(family.at_control_plane(53)).await.is_err() {
            tokio::time::sleep(POLL).await;
        }
    }
}

pub(super) async fn apply_manifests(client: &Client) -> Result<()> {
    let documents: Vec<DynamicObject> = serde_saphyr::from_multiple(MANIFESTS).map_err(|error| {
        Error::refused(format!("the bed's own manifests are broken: {error}"), "rebuild the testbed")
    })?;
    for object in documents {
        let name = object.name_any();
        let kind = object.types.clone().unwrap_or_default();
        let what = || format!("applying {} {name}", kind.kind);
        let Ok(kind) = GroupVersionKind::try_from(&kind) else { continue };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        let manager = PatchParams::apply("testbed").force();
        api.patch(&name, &manager, &Patch::Apply(&object)).await.while_(what)?;
    }
    Ok(())
}
