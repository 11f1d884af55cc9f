//! The StatefulSet that runs the members.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PodTemplateSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quorate_api::names::{self, DATA_VOLUME, annotations};

use super::{cluster_label, common_labels, metadata, pod, selector, selector_labels, serving_label};
use crate::context::Context;
use crate::rules::Plan;
use crate::validate::Storage;

/// Pods start together (`Parallel`): a quorum needs most of them. They are replaced only when we delete them
/// (`OnDelete`): Kubernetes knows nothing of leaders.
pub(super) fn stateful_set(context: &Context<'_>, plan: &Plan) -> StatefulSet {
    let template = context.desired.pod_template();
    let mut labels = template.labels.clone();
    labels.extend(common_labels(context));
    labels.extend(selector_labels(context));
    labels.extend(serving_label());
    let annotations = (!template.annotations.is_empty()).then(|| template.annotations.clone());
    StatefulSet {
        metadata: with_last_good_spec(context, metadata(context, names::stateful_set(context.name))),
        spec: Some(StatefulSetSpec {
            replicas: Some(plan.pods),
            service_name: Some(names::peer_service(context.name)),
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                rolling_update: None,
            }),
            // Volumes are removed by explicit decision only.
            persistent_volume_claim_retention_policy: Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
                when_deleted: Some("Retain".to_owned()),
                when_scaled: Some("Retain".to_owned()),
            }),
            selector: selector(context),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), annotations, ..ObjectMeta::default() }),
                spec: Some(pod::spec(context)),
            },
            volume_claim_templates: claim_templates(context),
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    }
}

/// So that an operator which starts anew, and finds a spec it cannot follow, knows what to follow instead.
fn with_last_good_spec(context: &Context<'_>, mut metadata: ObjectMeta) -> ObjectMeta {
    if let Ok(text) = serde_json::to_string(&context.desired.spec) {
        metadata.annotations = Some(BTreeMap::from([(annotations::LAST_GOOD_SPEC.to_owned(), text)]));
    }
    metadata
}

/// No owner: a volume outlives the cluster unless its retention says otherwise.
fn claim_templates(context: &Context<'_>) -> Option<Vec<PersistentVolumeClaim>> {
    let Storage::Volume { class, size } = &context.desired.storage else { return None };
    Some(vec![PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(DATA_VOLUME.to_owned()),
            labels: Some(cluster_label(context)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: class.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), Quantity(size.clone()))])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }])
}
