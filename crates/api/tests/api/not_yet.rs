//! What the operator cannot do yet is refused, not ignored.

use crate::common::{accepted_update, cluster, refused, refused_update};
use quorate_api::not_yet::not_supported_yet;
use serde_json::{Value, json};

/// A use of each field in the list; for changes, the object before as well.
fn uses() -> Vec<(&'static str, Option<Value>, Value)> {
    let at_creation = |spec: Value| (None, cluster(spec));
    let change = |old: Value, new: Value| (Some(cluster(old)), cluster(new));
    let size = |text: &str| json!({ "storage": { "volumeClaimTemplate": { "size": text } } });
    [
        ("spec.backup", at_creation(json!({ "backup": { "store": { "provider": "S3", "bucket": "b" } } }))),
        ("spec.restoreFrom", at_creation(json!({ "restoreFrom": { "backup": "monday" } }))),
        (
            "spec.tls.mode Secrets",
            at_creation(json!({
                "tls": { "mode": "Secrets", "secrets": { "client": "a", "server": "b", "peer": "c" } }
            })),
        ),
        (
            "spec.tls.mode CertManager",
            at_creation(json!({ "tls": { "mode": "CertManager", "certManager": { "issuerRef": { "name": "ca" } } } })),
        ),
        ("spec.storage.ephemeral", at_creation(json!({ "storage": { "ephemeral": {} } }))),
        (
            "spec.maintenance.windows",
            at_creation(json!({ "maintenance": { "windows": [{ "schedule": "0 2 * * 6", "duration": "2h" }] } })),
        ),
        ("spec.maintenance.surge", at_creation(json!({ "maintenance": { "surge": true } }))),
        (
            "spec.etcd.defragmentation",
            at_creation(json!({ "etcd": { "defragmentation": { "schedule": "0 3 * * *" } } })),
        ),
        ("spec.recovery.quorumLoss Automatic", at_creation(json!({ "recovery": { "quorumLoss": "Automatic" } }))),
        ("a change of spec.replicas", change(json!({ "replicas": 3 }), json!({ "replicas": 5 }))),
        ("a change of spec.version", change(json!({ "version": "3.6.15" }), json!({ "version": "3.6.16" }))),
        ("growing spec.storage.volumeClaimTemplate.size", change(size("20Gi"), size("40Gi"))),
    ]
    .into_iter()
    .map(|(field, (old, new))| (field, old, new))
    .collect()
}

#[test]
fn every_entry_of_the_list_is_refused_as_not_supported_yet() {
    let uses = uses();
    let listed = not_supported_yet();
    assert_eq!(
        listed.iter().map(|entry| entry.field).collect::<Vec<_>>(),
        uses.iter().map(|(field, ..)| *field).collect::<Vec<_>>(),
    );
    for ((field, old, new), entry) in uses.iter().zip(&listed) {
        let message = format!("{field} is not supported yet: {}", entry.instead);
        match old {
            Some(old) => refused_update(old, new, &message),
            None => refused(new, &message),
        }
    }
}

#[test]
fn going_to_no_members_is_refused_and_waking_up_is_not() {
    refused_update(&cluster(json!({ "replicas": 3 })), &cluster(json!({ "replicas": 0 })), "not supported yet");
    accepted_update(&cluster(json!({ "replicas": 0 })), &cluster(json!({ "replicas": 3 })));
}
