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

fn complaints(object: &Value, old: Option<&Value>) -> Vec<String> {
    static COMPILED: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(schema("EtcdCluster")));
    match Validator::new().validate_compiled(&COMPILED, object, old) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.into_vec().into_iter().map(|error| error.message).collect(),
    }
}

pub(crate) fn accepted(object: &Value) {
    assert_eq!(complaints(object, None), Vec::<String>::new(), "{object}");
}

pub(crate) fn refused(object: &Value, part: &str) {
    expect_complaint(object, &complaints(object, None), part);
}

pub(crate) fn not_refused_for(object: &Value, part: &str) {
    let complaints = complaints(object, None);
    assert!(!complaints.iter().any(|complaint| complaint.contains(part)), "{object} got {complaints:?}");
}

pub(crate) fn accepted_update(old: &Value, new: &Value) {
    assert_eq!(complaints(new, Some(old)), Vec::<String>::new(), "{old} -> {new}");
}

pub(crate) fn refused_update(old: &Value, new: &Value, part: &str) {
    expect_complaint(new, &complaints(new, Some(old)), part);
}

fn expect_complaint(object: &Value, complaints: &[String], part: &str) {
    assert!(
        complaints.iter().any(|complaint| complaint.contains(part)),
        "{object} should be refused with '{part}', got {complaints:#?}"
    );
}
