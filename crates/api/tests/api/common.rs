//! Asks the published schema, as the API server would, with defaults applied first.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::{Value, json};

static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let schema_of = |crd: CustomResourceDefinition| {
        let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        (crd.spec.names.kind.clone(), serde_json::to_value(schema).unwrap())
    };
    quorate_api::crds::all().into_iter().map(schema_of).collect()
});

pub(crate) fn schema(kind: &str) -> &'static Value {
    &SCHEMAS[kind]
}

pub(crate) fn named(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "EtcdCluster",
        "metadata": { "name": name, "namespace": "default" },
        "spec": spec,
    })
}

pub(crate) fn cluster(spec: Value) -> Value {
    named("etcd", spec)
}

/// A sentence, the rule that said it, and the field that the rule is about.
pub(crate) struct Complaint {
    pub(crate) rule: String,
    pub(crate) message: String,
    pub(crate) field: String,
}

pub(crate) fn complaints(object: &Value, old: Option<&Value>) -> Vec<Complaint> {
    static COMPILED: LazyLock<CompiledSchema> = LazyLock::new(|| {
        let mut schema = schema("EtcdCluster").clone();
        bounds_as_rules("", &mut schema);
        compile_schema(&schema)
    });
    let errors = Validator::new().validate_compiled(&COMPILED, object, old).err();
    let errors = errors.into_iter().flat_map(kube_cel::ValidationErrors::into_vec);
    errors.map(|error| Complaint { rule: error.rule, message: error.message, field: error.field_path }).collect()
}

/// The API server also looks at bounds and patterns; what asks here knows rules only, so each bound becomes one.
fn bounds_as_rules(path: &str, schema: &mut Value) {
    let number = |key: &str| schema[key].as_f64();
    let mut bounds = Vec::new();
    bounds.extend(number("minimum").map(|bound| format!("double(self) >= {bound:.1}")));
    bounds.extend(number("maximum").map(|bound| format!("double(self) <= {bound:.1}")));
    bounds.extend(number("minLength").map(|bound| format!("size(self) >= {bound}")));
    bounds.extend(number("maxLength").map(|bound| format!("size(self) <= {bound}")));
    let pattern = schema["pattern"].as_str().map(|pattern| pattern.replace('\\', "\\\\"));
    bounds.extend(pattern.map(|pattern| format!("string(self).matches('{pattern}')")));
    if !bounds.is_empty() {
        let message = format!("{path} in body should be within its bounds");
        let rules = bounds.into_iter().map(|rule| json!({ "rule": rule, "message": message }));
        let known = schema["x-kubernetes-validations"].as_array().cloned().unwrap_or_default();
        schema["x-kubernetes-validations"] = known.into_iter().chain(rules).collect();
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        for (name, property) in properties {
            bounds_as_rules(format!("{path}.{name}").trim_start_matches('.'), property);
        }
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            bounds_as_rules(path, &mut schema[key]);
        }
    }
}

pub(crate) fn refused(object: &Value, part: &str) {
    expect_complaint(object, &complaints(object, None), part);
}

pub(crate) fn not_refused_for(object: &Value, part: &str) {
    let complaints = complaints(object, None);
    assert!(!complaints.iter().any(|complaint| complaint.message.contains(part)), "{object} got {part}");
}

pub(crate) fn refused_update(old: &Value, new: &Value, part: &str) {
    expect_complaint(new, &complaints(new, Some(old)), part);
}

fn expect_complaint(object: &Value, complaints: &[Complaint], part: &str) {
    let messages = complaints.iter().map(|complaint| &complaint.message).collect::<Vec<_>>();
    assert!(
        messages.iter().any(|message| message.contains(part)),
        "{object} should be refused with '{part}', got {messages:#?}"
    );
}
