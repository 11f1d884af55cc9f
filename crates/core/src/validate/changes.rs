//! Changes from one spec to the next that cannot be carried out.

use quorate_api::EtcdClusterSpec;
use quorate_api::not_yet::{not_supported_yet, volume_size};
use quorate_api::storage::EphemeralMedium;

use super::SpecError;

pub(super) fn impossible(last: &EtcdClusterSpec, next: &EtcdClusterSpec) -> Vec<SpecError> {
    let not_yet = not_supported_yet()
        .into_iter()
        .filter(|entry| entry.is_needed_for(last, next))
        .map(|entry| SpecError::NotYet { field: entry.field, instead: entry.instead });
    let ephemeral = |spec: &EtcdClusterSpec| spec.storage.ephemeral.is_some();
    let volumes = !ephemeral(last) && !ephemeral(next);
    let fixed = [
        ("spec.storage", ephemeral(last) != ephemeral(next)),
        ("spec.storage.ephemeral.medium", ephemeral(last) && ephemeral(next) && medium(last) != medium(next)),
        ("spec.storage.volumeClaimTemplate.size", volumes && volume_size(next) < volume_size(last)),
        ("spec.storage.volumeClaimTemplate.storageClassName", volumes && storage_class(next) != storage_class(last)),
        ("spec.tls.mode", last.tls.mode != next.tls.mode),
        ("spec.etcd.clientPort", last.etcd.client_port != next.etcd.client_port),
        ("spec.etcd.peerPort", last.etcd.peer_port != next.etcd.peer_port),
    ]
    .into_iter()
    .filter(|(_, changed)| *changed)
    .map(|(field, _)| SpecError::Fixed { field });
    not_yet.chain(fixed).collect()
}

fn medium(spec: &EtcdClusterSpec) -> Option<EphemeralMedium> {
    spec.storage.ephemeral.as_ref().map(|ephemeral| ephemeral.medium)
}

fn storage_class(spec: &EtcdClusterSpec) -> Option<&str> {
    spec.storage.volume_claim_template.as_ref()?.storage_class_name.as_deref()
}
