//! Whether an object is still as it was applied.
//!
//! The API server fills in defaults and writes quantities its own way, and others may add labels, so equality is the
//! wrong question. The right one is: does the object still say everything that we say? What we no longer say shows in
//! the digest, which is part of every applied object.

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
    let bytes = serde_json::to_vec(content).unwrap_or_default();
    let number = Sha256::digest(&bytes).iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{number:016x}")
}

/// Whether `actual` says everything that `wanted` says.
pub(crate) fn is_current(wanted: &Object, actual: &Object) -> bool {
    match (serde_json::to_value(wanted), serde_json::to_value(actual)) {
        (Ok(wanted), Ok(actual)) => says(&actual, &wanted),
        _ => false,
    }
}

fn says(actual: &Value, wanted: &Value) -> bool {
    match (wanted, actual) {
        (Value::Null, _) => true,
        (Value::Object(wanted), Value::Object(actual)) => wanted.iter().all(|(key, value)| match actual.get(key) {
            Some(actual) => says(actual, value),
            None => is_empty(value),
        }),
        (Value::Array(wanted), Value::Array(actual)) if wanted.iter().any(is_named) => {
            wanted.iter().all(|value| actual.iter().any(|other| other["name"] == value["name"] && says(other, value)))
        }
        (Value::Array(wanted), Value::Array(actual)) => {
            wanted.len() == actual.len() && wanted.iter().zip(actual).all(|(wanted, actual)| says(actual, wanted))
        }
        (Value::String(wanted), Value::String(actual)) => wanted == actual || same_quantity(wanted, actual),
        (wanted, actual) => wanted == actual,
    }
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
            "list": [{ "name": "injected" }, { "name": "a", "default": true }],
        });
        assert!(says(&actual, &wanted));
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
