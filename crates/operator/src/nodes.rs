//! Nodes, and where volumes can be used. Both belong to no namespace, so the operator may not be allowed to read them: then
//! nothing that needs them is done, and everything else goes on.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::api::ListParams;
use kube::{Api, Client};
use quorate_core::node::{self, NodeFact, Reach};
use tokio::time::Instant;

use crate::act::within;
use crate::error::Error;

/// A right that was missing is looked for again after this time.
const UNTIL_ASKED_AGAIN: Duration = Duration::from_mins(10);

/// Asks, and remembers that it may not.
#[derive(Debug, Default)]
pub struct Nodes {
    refused: Mutex<Option<Instant>>,
}

impl Nodes {
    /// How a node is. Nothing if the operator may not know.
    pub async fn fact(&self, client: &Client, name: &str) -> Result<Option<NodeFact>, Error> {
        self.unless_refused(fact(client, name)).await
    }

    /// Where the volume of a claim can be used. Nothing if the operator may not know.
    pub async fn reach(&self, client: &Client, namespace: &str, claim: &str) -> Result<Option<Reach>, Error> {
        self.unless_refused(reach(client, namespace, claim)).await
    }

    async fn unless_refused<T>(&self, question: impl Future<Output = Result<T, Error>>) -> Result<Option<T>, Error> {
        if self.lock().is_some_and(|refused| refused.elapsed() < UNTIL_ASKED_AGAIN) {
            return Ok(None);
        }
        let answer = question.await;
        let refusal = answer.as_ref().err().filter(|error| is_refusal(error));
        let known = std::mem::replace(&mut *self.lock(), refusal.map(|_| Instant::now()));
        match (&refusal, known) {
            (Some(error), None) => tracing::warn!(
                error = quorate_runtime::error::chain(*error),
                "nodes cannot be read, so members of nodes that are gone stay where they are; the ClusterRole quorate-nodes has the right"
            ),
            (None, Some(_)) => tracing::info!("nodes can be read again"),
            _ => {}
        }
        if refusal.is_some() { Ok(None) } else { answer.map(Some) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Api { source: kube::Error::Api(status), .. } if status.code == 403)
}

/// A live read, whoever asks.
pub(crate) async fn fact(client: &Client, name: &str) -> Result<NodeFact, Error> {
    let nodes = Api::<Node>::all(client.clone());
    let node = within(&format!("read Node {name}"), nodes.get_opt(name)).await?;
    Ok(NodeFact::of(node.as_ref()))
}

/// By live reads: of the claim, of its volume, and of the nodes that this names.
pub(crate) async fn reach(client: &Client, namespace: &str, claim: &str) -> Result<Reach, Error> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let found = within(&format!("read PersistentVolumeClaim {claim}"), claims.get_opt(claim)).await?;
    let bound = found.and_then(|found| found.spec?.volume_name).filter(|name| !name.is_empty());
    let Some(name) = bound else { return Ok(Reach::Open) };
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let volume = within(&format!("read PersistentVolume {name}"), volumes.get_opt(&name)).await?;
    let Some(pins) = volume.as_ref().and_then(node::pins) else { return Ok(Reach::Open) };
    let api = Api::<Node>::all(client.clone());
    let mut nodes = Vec::new();
    if let Some(selector) = selector(&pins) {
        let labelled = ListParams::default().labels(&selector);
        nodes = within("list the nodes of a volume", api.list(&labelled)).await?.items;
    }
    for pin in &pins {
        nodes.extend(within(&format!("read Node {pin}"), api.get_opt(pin)).await?);
    }
    Ok(Reach::of(&pins, &nodes))
}

/// Nodes by their label. The API server refuses a question with a value that no label can have.
fn selector(pins: &BTreeSet<String>) -> Option<String> {
    let is_value = |pin: &&str| {
        let mut bytes = pin.bytes();
        pin.len() <= 63 && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let values = pins.iter().map(String::as_str).filter(is_value).collect::<Vec<_>>();
    (!values.is_empty()).then(|| format!("{} in ({})", node::HOSTNAME, values.join(",")))
}
