//! The custom resource definitions as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{EtcdCluster, EtcdMember};

/// All definitions, ready to apply.
pub fn all() -> Vec<CustomResourceDefinition> {
    [EtcdCluster::crd(), EtcdMember::crd()].into_iter().map(finish).collect()
}

fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
        .for_each(finish_schema);
    crd
}

fn finish_schema(schema: &mut JSONSchemaProps) {
    // An explicit null then counts as absent: it is dropped and the default applies, and rules need not ask twice.
    schema.nullable = None;
    schema.title = None;
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    if let Some(text) = &mut schema.description {
        *text = join_lines(text);
    }
    if let Some(properties) = &mut schema.properties {
        properties.values_mut().for_each(finish_schema);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => finish_schema(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(finish_schema),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        finish_schema(values);
    }
    for alternatives in [&mut schema.one_of, &mut schema.any_of, &mut schema.all_of].into_iter().flatten() {
        alternatives.iter_mut().for_each(finish_schema);
    }
}

/// Source lines become one line per paragraph: `kubectl explain` wraps by itself.
fn join_lines(text: &str) -> String {
    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n")
}
