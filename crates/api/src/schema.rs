//! Shared pieces of the schema: bounded strings and the rules that give a bad value a readable answer.
//!
//! The API server estimates the cost of every rule from the longest possible input, so each string and list that a rule
//! reads has a bound.

use kube::core::Rule;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// Longest accepted quantity, duration or version.
pub const MAX_SHORT_TEXT: u32 = 32;
/// Longest accepted crontab line.
pub const MAX_CRON: u32 = 100;
/// Longest name of a Kubernetes object.
pub const MAX_OBJECT_NAME: u32 = 253;
/// Longest accepted path, prefix or URL.
pub const MAX_PATH: u32 = 512;

/// Go-style durations without sign and without fractions, large units first: what etcd, Kubernetes and jiff all read. As
/// many digits as [`LONGEST_DURATION`] needs, so that none overflows.
pub const DURATION_PATTERN: &str = "^(0*[0-9]{1,5}h)?(0*[0-9]{1,7}m)?(0*[0-9]{1,9}s)?(0*[0-9]{1,12}ms)?$";
/// Ten years.
pub const LONGEST_DURATION: jiff::SignedDuration = jiff::SignedDuration::from_hours(87_600);

/// Kubernetes quantities where no rule can say it in words: inside maps of mixed numbers and strings.
pub const QUANTITY_PATTERN: &str =
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$";

/// Five crontab fields, each a list of `*`, values or ranges with an optional step, or one of the `@` names.
pub fn cron_pattern() -> String {
    let fields = [
        "[0-5]?[0-9]",
        "([01]?[0-9]|2[0-3])",
        "(0?[1-9]|[12][0-9]|3[01])",
        "(0?[1-9]|1[0-2]|[a-z]{3})",
        "([0-7]|[a-z]{3})",
    ];
    let list_of = |value: &str| {
        let element = format!("(\\*|{value}(-{value})?)(/[0-9]{{1,2}})?");
        format!("{element}(,{element})*")
    };
    let lines = fields.map(list_of).join(" ");
    format!("^(?i)(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|{lines})$")
}

/// Quotes a text for use inside a CEL expression.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

pub(crate) fn short_text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_SHORT_TEXT })
}

pub(crate) fn cron_text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_CRON })
}

pub(crate) fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_OBJECT_NAME })
}

pub(crate) fn path_text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_PATH })
}

/// Labels or annotations: bounded in number, so that a rule may look at each key.
pub(crate) fn string_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 16_384 },
    })
}

/// A built-in Kubernetes type, without the upstream field descriptions: they would be nine tenths of the CRD.
pub(crate) fn embedded<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator);
    if let Some(object) = schema.as_object_mut() {
        object.values_mut().for_each(strip_descriptions);
        object.remove("description");
    }
    schema
}

/// Requests and limits. The pattern is that of Kubernetes quantities; claims of devices make no sense for etcd.
pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    let quantities = json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "pattern": QUANTITY_PATTERN,
        },
    });
    json_schema!({ "type": "object", "properties": { "requests": quantities, "limits": quantities } })
}

/// A list of a built-in Kubernetes type.
pub(crate) fn embedded_list<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let items = embedded::<T>(generator);
    json_schema!({ "type": "array", "maxItems": 64, "items": items })
}

fn strip_descriptions(value: &mut Value) {
    match value {
        Value::Object(object) => {
            // A property may itself be called `description`; only the text of that name goes.
            if object.get("description").is_some_and(Value::is_string) {
                object.remove("description");
            }
            object.values_mut().for_each(strip_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_descriptions),
        _ => {}
    }
}

/// `field` is a quantity of at least `minimum`.
pub(crate) fn quantity_at_least(field: &str, minimum: &str) -> Rule {
    let minimum = quoted(minimum);
    Rule::new(format!("isQuantity(self) && quantity(self).compareTo(quantity({minimum})) >= 0")).message(
        format!("{field} must be a quantity of bytes such as 8Gi, at least {}", minimum.trim_matches('\'')).as_str(),
    )
}

/// CEL: whether a text is a duration above zero.
pub(crate) fn is_duration(text: &str) -> String {
    format!(
        "({text} != '' && {text}.matches({}) && duration({text}) > duration('0s') && duration({text}) <= duration('{}h'))",
        quoted(DURATION_PATTERN),
        LONGEST_DURATION.as_hours()
    )
}

/// `field` is a duration above zero.
pub(crate) fn duration(field: &str) -> Rule {
    Rule::new(is_duration("self"))
        .message(format!("{field} must be a duration above zero such as 90s, 30m or 12h").as_str())
}

/// `field` is a crontab line.
pub(crate) fn cron(field: &str) -> Rule {
    Rule::new(format!("self.matches({})", quoted(&cron_pattern()))).message(
        format!(
            "{field} must be a crontab line of five fields (minute hour day-of-month month day-of-week) such as \
             '0 3 * * *', or one of @hourly, @daily, @weekly, @monthly, @yearly"
        )
        .as_str(),
    )
}

/// `field` may be given at creation only.
pub(crate) fn immutable(field: &str) -> Rule {
    Rule::new("self == oldSelf").message(format!("{field} cannot be changed after creation").as_str())
}

/// `field` is the name of `what`, never `namespace/name`.
pub(crate) fn name_of(field: &str, what: &str) -> Rule {
    Rule::new(format!("self.matches({})", quoted("^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")))
        .message(format!("{field} must be the name of {what}: lower-case letters, digits, dashes and dots").as_str())
}

/// `field` is the name of a Secret beside the cluster.
pub(crate) fn secret_name(field: &str) -> Rule {
    name_of(field, "a Secret in the same namespace")
}

/// Appends rules to a schema from within a `schemars` transform, where the derive's own attribute cannot loop.
pub(crate) fn push_rules<T: serde::Serialize>(schema: &mut Schema, rules: Vec<T>) {
    let rules = rules.into_iter().filter_map(|rule| serde_json::to_value(rule).ok());
    let entry = schema.ensure_object().entry("x-kubernetes-validations").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = entry {
        list.extend(rules);
    }
}
