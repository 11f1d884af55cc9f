//! The definitions as published: stable, bounded, readable, and the same as the files in `config/crd`.

use quorate_api::{EtcdCluster, EtcdMember};
use serde_json::Value;

/// Calls `visit` with the path and schema of every node below the root.
pub(crate) fn walk(path: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    if let Some(properties) = schema["properties"].as_object() {
        for (name, property) in properties {
            walk(&format!("{path}.{name}"), property, visit);
        }
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[key].is_object() {
            walk(&format!("{path}{suffix}"), &schema[key], visit);
        }
    }
}

#[test]
fn the_files_under_config_are_current() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/crd");
    for crd in quorate_api::crds::all() {
        let path = directory.join(format!("{}.yaml", crd.metadata.name.as_deref().unwrap()));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            serde_saphyr::to_string(&crd).unwrap(),
            "run: cargo run -p quorate-api --example crds config/crd"
        );
    }
}

#[test]
fn the_shape_of_the_api_changes_only_on_purpose() {
    for kind in ["EtcdCluster", "EtcdMember"] {
        let mut lines = Vec::new();
        walk("", crate::common::schema(kind), &mut |path, schema| {
            let shape = ["type", "enum", "default", "x-kubernetes-list-type"]
                .iter()
                .filter(|key| !schema[**key].is_null())
                .map(|key| format!("{key}={}", schema[*key]))
                .collect::<Vec<_>>();
            if !path.contains("affinity.") {
                lines.push(format!("{path} {}", shape.join(" ")));
            }
        });
        insta::assert_snapshot!(format!("shape_of_{kind}"), lines.join("\n"));
    }
}

#[test]
fn every_own_field_has_a_description() {
    walk("", crate::common::schema("EtcdCluster"), &mut |path, schema| {
        let built_in = [
            "Affinity",
            "affinity",
            "tolerations[]",
            "topologySpreadConstraints[]",
            "securityContext.",
            "resources.etcd.",
            "resources.agent.",
            "imagePullSecrets[]",
            "conditions[]",
            "status.etcd.",
            "{}",
        ];
        if !built_in.iter().any(|part| path.contains(part)) && !path.ends_with("[]") && !path.is_empty() {
            assert!(schema["description"].is_string() || path == ".spec" || path == ".status", "{path}");
        }
    });
}

#[test]
fn everything_a_rule_reads_is_bounded() {
    for kind in ["EtcdCluster", "EtcdMember"] {
        walk("", crate::common::schema(kind), &mut |path, schema| {
            let Some(rules) = schema["x-kubernetes-validations"].as_array() else { return };
            if schema["type"] == "string" && schema["enum"].is_null() {
                assert!(schema["maxLength"].is_number(), "{path} has a rule and no maxLength");
            }
            if schema["type"] == "object" && schema["properties"].is_null() {
                assert!(schema["maxProperties"].is_number(), "{path} has a rule and no maxProperties");
            }
            for rule in rules {
                let message = rule["message"].as_str().unwrap_or_default();
                assert!(!message.is_empty() && !message.contains('\n'), "{path}: {rule}");
            }
        });
    }
}

#[test]
fn nothing_is_nullable_and_no_enum_has_a_null() {
    for kind in ["EtcdCluster", "EtcdMember"] {
        walk("", crate::common::schema(kind), &mut |path, schema| {
            assert!(schema["nullable"].is_null(), "{path}");
            assert!(!schema["enum"].as_array().is_some_and(|values| values.contains(&Value::Null)), "{path}");
        });
    }
}

#[test]
fn a_full_cluster_survives_the_round_trip() {
    let text = include_str!("full.yaml");
    let documents = text.split("---\n").filter(|part| !part.trim().is_empty()).collect::<Vec<_>>();
    let cluster: EtcdCluster = serde_saphyr::from_str(documents[0]).unwrap();
    let original: Value = serde_saphyr::from_str(documents[0]).unwrap();
    assert_eq!(serde_json::to_value(&cluster).unwrap(), original);
    let member: EtcdMember = serde_saphyr::from_str(documents[1]).unwrap();
    let original: Value = serde_saphyr::from_str(documents[1]).unwrap();
    assert_eq!(serde_json::to_value(&member).unwrap(), original);
}

#[test]
fn an_empty_spec_reads_as_the_defaults() {
    let object = crate::common::cluster(serde_json::json!({}));
    let cluster: EtcdCluster = serde_json::from_value(object).unwrap();
    assert_eq!(cluster.spec, quorate_api::EtcdClusterSpec::default());
}
