//! Whether an object is still as it was applied.
//!
//! The API server fills in defaults and writes quantities its own way, and others may add labels, so equality is the
//! wrong question. The right one is: does the object still say everything that we say, and nothing more where more would
//! change the meaning: in lists and in selectors? What we no longer say shows in the digest, which is part of every
//! applied object.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quorate_api::names::annotations;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::object::Object;
use quorate_api::quantity::Quantity;

/// Adds the digest of the object to its annotations.
pub(crate) fn sealed(mut object: Object) -> Object {
    let digest = digest(&object);
    object.metadata_mut().annotations.get_or_insert_default().insert(annotations::APPLIED.to_owned(), digest);
    object
}

/// A short digest that two different contents will not share by accident.
pub(crate) fn digest(content: &impl Serialize) -> String {
    short_digest(&serde_json::to_vec(content).unwrap_or_default())
}

/// The same, of bytes.
pub fn short_digest(bytes: &[u8]) -> String {
    format!("{:016x}", short_number(bytes))
}

/// The same, as a number.
pub(crate) fn short_number(bytes: &[u8]) -> u64 {
    Sha256::digest(bytes).iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
}

/// Maps in which one key more means something else.
const SELECTORS: [&str; 3] = ["selector", "matchLabels", "nodeSelector"];
/// Kubernetes does not keep these when they are false.
const FALSE_WHEN_ABSENT: [&str; 4] = ["publishNotReadyAddresses", "hostNetwork", "hostPID", "hostIPC"];
/// Others may own our objects too, though not control them.
const MAY_BE_LONGER: &str = "ownerReferences";

/// Whether `actual` still is as `wanted` says.
pub(crate) fn is_current(wanted: &Object, actual: &Object) -> bool {
    // Writing both out costs more than all the rest of a pass. Mostly we say what we said, and nobody has added anything.
    applied(wanted) == applied(actual)
        && (is_copy(wanted, actual) || serde_json::to_value(actual).is_ok_and(|actual| is_as_wanted(wanted, &actual)))
}

/// The digest of an object as it was applied.
fn applied(object: &Object) -> Option<&String> {
    object.metadata().annotations.as_ref()?.get(annotations::APPLIED)
}

/// Whether `actual` says to the letter what `wanted` says, apart from metadata and status.
fn is_copy(wanted: &Object, actual: &Object) -> bool {
    let is_same = match (wanted, actual) {
        (Object::ServiceAccount(wanted), Object::ServiceAccount(actual)) => {
            wanted.automount_service_account_token == actual.automount_service_account_token
                && wanted.image_pull_secrets == actual.image_pull_secrets
                && wanted.secrets == actual.secrets
        }
        (Object::Role(wanted), Object::Role(actual)) => wanted.rules == actual.rules,
        (Object::RoleBinding(wanted), Object::RoleBinding(actual)) => {
            wanted.role_ref == actual.role_ref && wanted.subjects == actual.subjects
        }
        (Object::Service(wanted), Object::Service(actual)) => wanted.spec == actual.spec,
        // The content is the agent's, and nothing is said of it.
        (Object::Lease(wanted), Object::Lease(actual)) => {
            wanted.spec == Some(LeaseSpec::default()) && actual.spec.is_some()
        }
        (Object::EtcdMember(wanted), Object::EtcdMember(actual)) => wanted.spec == actual.spec,
        (Object::StatefulSet(wanted), Object::StatefulSet(actual)) => wanted.spec == actual.spec,
        (Object::PodDisruptionBudget(wanted), Object::PodDisruptionBudget(actual)) => wanted.spec == actual.spec,
        _ => false,
    };
    is_same && has_metadata(wanted.metadata(), actual.metadata())
}

/// Whether all is there that is said of any object of ours.
fn has_metadata(wanted: &ObjectMeta, actual: &ObjectMeta) -> bool {
    let has = |wanted: &Option<BTreeMap<String, String>>, actual: &Option<BTreeMap<String, String>>| {
        let has = |(key, value): (&String, _)| actual.as_ref().and_then(|actual| actual.get(key)) == Some(value);
        wanted.iter().flatten().all(has)
    };
    wanted.name == actual.name
        && wanted.namespace == actual.namespace
        && wanted.owner_references == actual.owner_references
        && has(&wanted.labels, &actual.labels)
        && has(&wanted.annotations, &actual.annotations)
}

/// The same, of an object as the API server answers with it.
pub fn is_as_wanted(wanted: &Object, actual: &Value) -> bool {
    serde_json::to_value(wanted).is_ok_and(|wanted| says(actual, &wanted))
}

fn says(actual: &Value, wanted: &Value) -> bool {
    match (wanted, actual) {
        (Value::Null, _) => true,
        (Value::Object(wanted), Value::Object(actual)) => wanted.iter().all(|(key, value)| match actual.get(key) {
            Some(actual) if key == MAY_BE_LONGER => says_by_name(actual, value),
            Some(actual) if SELECTORS.contains(&key.as_str()) => says(actual, value) && says_no_more(actual, value),
            Some(actual) => says(actual, value),
            None => is_empty(value) || (*value == Value::Bool(false) && FALSE_WHEN_ABSENT.contains(&key.as_str())),
        }),
        (Value::Array(named), Value::Array(all)) if named.iter().any(is_named) => {
            named.len() == all.len() && says_by_name(actual, wanted)
        }
        (Value::Array(wanted), Value::Array(actual)) => {
            wanted.len() == actual.len() && wanted.iter().zip(actual).all(|(wanted, actual)| says(actual, wanted))
        }
        (Value::String(wanted), Value::String(actual)) => wanted == actual || same_quantity(wanted, actual),
        (wanted, actual) => wanted == actual,
    }
}

fn says_by_name(actual: &Value, wanted: &Value) -> bool {
    let (Value::Array(wanted), Value::Array(actual)) = (wanted, actual) else { return false };
    wanted.iter().all(|value| actual.iter().any(|other| other["name"] == value["name"] && says(other, value)))
}

fn says_no_more(actual: &Value, wanted: &Value) -> bool {
    let (Value::Object(wanted), Value::Object(actual)) = (wanted, actual) else { return true };
    actual.iter().all(|(key, value)| wanted.contains_key(key) || is_empty(value))
}

/// Kubernetes drops empty maps and lists.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn is_named(value: &Value) -> bool {
    value["name"].is_string()
}

fn same_quantity(left: &str, right: &str) -> bool {
    let starts_with_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    starts_with_digit(left)
        && starts_with_digit(right)
        && Quantity::parse(left).is_some_and(|left| Some(left) == Quantity::parse(right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_api_server_adds_is_not_drift() {
        let wanted = json!({ "replicas": 3, "labels": {}, "limits": { "cpu": "1000m" }, "list": [{ "name": "a" }] });
        let actual = json!({
            "replicas": 3, "limits": { "cpu": "1" }, "policy": "Default",
            "list": [{ "name": "a", "default": true }],
        });
        assert!(says(&actual, &wanted));
        let wanted = json!({ "hostNetwork": false, "ownerReferences": [{ "name": "a" }] });
        assert!(says(&json!({ "ownerReferences": [{ "name": "b" }, { "name": "a" }] }), &wanted));
        assert!(!says(&json!({ "hostNetwork": true, "ownerReferences": [{ "name": "a" }] }), &wanted));
        let token = json!({ "automountServiceAccountToken": false });
        assert!(!says(&json!({}), &token), "absent means true there");
    }

    #[test]
    fn what_a_hand_added_where_it_changes_the_meaning_is_drift() {
        let wanted = json!({ "selector": { "a": "b" }, "list": [{ "name": "a" }], "rules": [{ "verbs": ["get"] }] });
        assert!(says(&wanted, &wanted));
        for (path, value) in [
            ("selector", json!({ "a": "b", "x": "y" })),
            ("list", json!([{ "name": "a" }, { "name": "injected" }])),
            ("rules", json!([{ "verbs": ["get"] }, { "verbs": ["*"] }])),
        ] {
            let mut actual = wanted.clone();
            actual[path] = value.clone();
            assert!(!says(&actual, &wanted), "{path} = {value}");
        }
        let labels = json!({ "selector": { "matchLabels": { "a": "b" } } });
        assert!(!says(&json!({ "selector": { "matchLabels": { "a": "b", "x": "y" } } }), &labels));
    }

    #[test]
    fn what_a_hand_changed_is_drift() {
        let wanted =
            json!({ "replicas": 3, "labels": { "a": "b" }, "args": ["x", "y"], "list": [{ "name": "a", "n": 1 }] });
        for (path, value) in [
            ("replicas", json!(2)),
            ("labels", json!({ "a": "c" })),
            ("labels", json!({})),
            ("args", json!(["x"])),
            ("args", json!(["y", "x"])),
            ("list", json!([{ "name": "a", "n": 2 }])),
            ("list", json!([])),
        ] {
            let mut actual = wanted.clone();
            actual[path] = value.clone();
            assert!(!says(&actual, &wanted), "{path} = {value}");
        }
        let mut without = wanted.clone();
        without.as_object_mut().unwrap().remove("replicas");
        assert!(!says(&without, &wanted));
    }
}
