//! The storage class's controller: makes volumes for claims, grows them, removes them when released.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::{
        LocalVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference, PersistentVolume,
        PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{Controller, controller::Action, watcher},
};
use serde_json::json;

use super::{backing::Backing, quantity};
use crate::{
    bed::Bed,
    error::{Error, Result, While},
    machine::tell,
};

/// Volumes that follow their pod to any node.
const STANDARD: &str = "standard";
/// Volumes that stay on the node they were made on, as those on a machine's own disk do.
const LOCAL: &str = "local";
const PROVISIONER: &str = "testbed.quorate.dev/volumes";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const AFTER_TROUBLE: Duration = Duration::from_secs(1);

struct Context {
    bed: Bed,
    client: Client,
}

/// Serves claims and volumes for as long as the bed runs.
pub async fn provision(bed: Bed, client: Client) {
    let claims = Api::<PersistentVolumeClaim>::all(client.clone());
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let context = Arc::new(Context { bed, client });
    let everything = watcher::Config::default;
    let claims = Controller::new(claims, everything()).run(serve_claim, try_again, context.clone());
    let volumes = Controller::new(volumes, everything()).run(serve_volume, try_again, context);
    tokio::join!(claims.for_each(async |_| ()), volumes.for_each(async |_| ()));
}

#[allow(clippy::needless_pass_by_value, reason = "the signature is the controller's")]
fn try_again<K: ResourceExt>(object: Arc<K>, error: &Error, _: Arc<Context>) -> Action {
    tell(&format!("volumes: {}: {error}", object.name_any()));
    Action::requeue(AFTER_TROUBLE)
}

async fn serve_claim(claim: Arc<PersistentVolumeClaim>, context: Arc<Context>) -> Result<Action> {
    let spec = claim.spec.clone().unwrap_or_default();
    let ours = spec.storage_class_name.as_deref().is_some_and(|class| [STANDARD, LOCAL].contains(&class));
    if !ours || claim.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let requested = requests.get("storage").and_then(|quantity| quantity::bytes(&quantity.0));
    let size = Backing::size_for(requested.unwrap_or_default());
    match spec.volume_name {
        Some(volume) => context.grow(&claim, &volume, size).await?,
        None if claim.annotations().contains_key(SELECTED_NODE) => context.create(&claim, size).await?,
        // The scheduler has not chosen a node yet, so nobody uses the claim.
        None => {}
    }
    Ok(Action::await_change())
}

/// Removes what a deleted claim left behind.
async fn serve_volume(volume: Arc<PersistentVolume>, context: Arc<Context>) -> Result<Action> {
    let ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|by| by == PROVISIONER);
    let released = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    if ours && released && policy == Some("Delete") {
        let name = volume.name_any();
        let backing = Backing::of(&context.bed, &name);
        blocking(move || backing.delete()).await?;
        let volumes = Api::<PersistentVolume>::all(context.client.clone());
        let deleted = volumes.delete(&name, &DeleteParams::default()).await;
        ignore_missing(deleted.map(drop)).while_(|| format!("deleting volume {name}"))?;
    }
    Ok(Action::await_change())
}

impl Context {
    async fn create(&self, claim: &PersistentVolumeClaim, size: u64) -> Result<()> {
        let name = format!("pvc-{}", claim.uid().unwrap_or_default());
        let backing = Backing::of(&self.bed, &name);
        let mount_point = backing.mount_point();
        blocking(move || backing.ensure(size)).await?;
        let volume = volume_for(claim, &name, size, mount_point.display().to_string());
        match Api::all(self.client.clone()).create(&PostParams::default(), &volume).await {
            // Made in an earlier try, whose answer was lost.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            created => created.map(drop).while_(|| format!("creating volume {name}")),
        }
    }

    /// Grows the volume, then hands over to the kubelet, which reports the new size on the claim.
    async fn grow(&self, claim: &PersistentVolumeClaim, volume: &str, size: u64) -> Result<()> {
        let storage = |amounts: Option<BTreeMap<String, Quantity>>| {
            amounts.and_then(|amounts| quantity::bytes(&amounts.get("storage")?.0)).unwrap_or_default()
        };
        let status = claim.status.clone().unwrap_or_default();
        let reported = storage(status.capacity.clone());
        if reported == 0 || reported >= size || storage(status.allocated_resources) >= size {
            return Ok(());
        }
        let backing = Backing::of(&self.bed, volume);
        blocking(move || backing.grow(size)).await?;
        let size = in_mebibytes(size);
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let capacity = json!({"spec": {"capacity": {"storage": size}}});
        let patched = volumes.patch(volume, &PatchParams::default(), &Patch::Merge(capacity)).await;
        patched.while_(|| format!("growing volume {volume}"))?;

        let name = claim.name_any();
        let claims =
            Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        let pending = json!({"status": {
            "allocatedResources": {"storage": size},
            "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True",
                            "lastTransitionTime": jiff::Timestamp::now().to_string()}],
        }});
        let patched = claims.patch_status(&name, &PatchParams::default(), &Patch::Strategic(pending)).await;
        patched.map(drop).while_(|| format!("reporting the growth of claim {name}"))
    }
}

/// A `local` volume, because only those get the group of a non-root pod; on every node, because all see the mount, unless the
/// claim's class says that it stays where it is.
fn volume_for(claim: &PersistentVolumeClaim, name: &str, size: u64, path: String) -> PersistentVolume {
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
    let node = claim.annotations().get(SELECTED_NODE).filter(|_| class.as_deref() == Some(LOCAL));
    let nodes = NodeSelectorRequirement {
        key: "kubernetes.io/hostname".to_owned(),
        operator: if node.is_some() { "In" } else { "Exists" }.to_owned(),
        values: node.map(|node| vec![node.clone()]),
    };
    let usable = NodeSelectorTerm { match_expressions: Some(vec![nodes]), match_fields: None };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some(BTreeMap::from([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: claim.spec.as_ref().and_then(|spec| spec.access_modes.clone()),
            capacity: Some(BTreeMap::from([("storage".to_owned(), in_mebibytes(size))])),
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                name: claim.metadata.name.clone(),
                namespace: claim.metadata.namespace.clone(),
                uid: claim.metadata.uid.clone(),
                ..ObjectReference::default()
            }),
            local: Some(LocalVolumeSource { path, fs_type: None }),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![usable] }),
            }),
            persistent_volume_reclaim_policy: Some("Delete".to_owned()),
            storage_class_name: class,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// As people write it; a volume is never smaller than asked for.
fn in_mebibytes(size: u64) -> Quantity {
    Quantity(format!("{}Mi", size.div_ceil(1 << 20)))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::Io { what: "working on a volume".to_owned(), source: error.into() }),
    }
}

fn ignore_missing(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}
