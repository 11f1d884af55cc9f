//! What the API server answers to good and bad objects, checked with the rules of the published schema.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::common::{Complaint, cluster, complaints, named, not_refused_for, refused, refused_update, schema};
use crate::specs::{self, Judge};

#[test]
fn the_rules_answer_to_each_spec_as_the_table_says() {
    let mut differences = Vec::new();
    for line in specs::table() {
        let old = line.from.as_ref().map(|spec| cluster(spec.clone()));
        for (name, spec) in line.cases() {
            let answer = complaints(&named(name, spec.clone()), old.as_ref());
            let sentence = |complaint: Complaint| format!("{} ({})", complaint.message, complaint.field);
            let sentences = answer.into_iter().map(sentence).collect::<Vec<_>>();
            differences.extend(line.difference(Judge::Admission, (name, spec), &sentences));
        }
    }
    assert_eq!(differences, Vec::<String>::new());
}

/// These ask for a value before, in a field that is not supported yet: there is no such value.
const OUT_OF_REACH: [&str; 1] = ["spec.restoreFrom cannot be changed after creation"];

#[test]
fn every_rule_of_the_schema_refuses_something_in_the_table() {
    let lines = specs::table();
    let mut used = BTreeSet::new();
    for line in &lines {
        let old = line.from.as_ref().map(|spec| cluster(spec.clone()));
        let objects = line.cases().map(|(name, spec)| named(name, spec.clone()));
        let complaints = objects.flat_map(|object| complaints(&object, old.as_ref()));
        used.extend(complaints.flat_map(|complaint| [complaint.rule, complaint.message]));
    }
    let mut unused = Vec::new();
    crate::published::walk("", schema("EtcdCluster"), &mut |path, node| {
        for rule in node["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let message = rule["message"].as_str().unwrap();
            let reachable = !OUT_OF_REACH.iter().any(|part| message.contains(part));
            // The message tells which of two equal rules it was, unless it is made anew each time.
            let mark = if rule["messageExpression"].is_string() { rule["rule"].as_str().unwrap() } else { message };
            if reachable && !used.contains(mark) {
                unused.push(format!("{path}: {message}"));
            }
        }
    });
    assert_eq!(unused, Vec::<String>::new());
}

#[test]
fn fields_that_are_not_supported_yet_will_not_be_changed_after_creation() {
    refused_update(
        &cluster(json!({ "restoreFrom": { "backup": "monday" } })),
        &cluster(json!({ "restoreFrom": { "backup": "tuesday" } })),
        OUT_OF_REACH[0],
    );
}

#[test]
fn an_answer_says_what_is_allowed() {
    for (spec, answer) in [
        (json!({ "replicas": 2 }), "spec.replicas must be 1, 3, 5 or 7"),
        (json!({ "version": "v3.6.16" }), "spec.version must be a release such as 3.6.16"),
        (json!({ "version": "4.0.0" }), "spec.version must be a 3.x release from 3.5 to 3.7"),
        (
            json!({ "etcd": { "quota": "8GB" } }),
            "spec.etcd.quota must be a quantity of bytes such as 8Gi, at least 16Mi",
        ),
        (
            json!({ "recovery": { "notReadyGracePeriod": "5" } }),
            "spec.recovery.notReadyGracePeriod must be a duration above zero",
        ),
        (
            json!({ "podTemplate": { "annotations": { "quorate.dev/x": "x" } } }),
            "spec.podTemplate.annotations: keys under quorate.dev/ are reserved, use another prefix",
        ),
        (json!({ "image": "etcd:v3.6.16" }), "spec.image must be a repository"),
        (
            json!({ "storage": { "ephemeral": { "medium": "Memory" } } }),
            "spec.storage.ephemeral.sizeLimit is required with medium Memory",
        ),
        (
            json!({ "replicas": 0, "storage": { "ephemeral": {} } }),
            "spec.replicas cannot be 0 with spec.storage.ephemeral: what the members hold would go with their pods",
        ),
    ] {
        refused(&cluster(spec), answer);
    }
    refused(&named(&"a".repeat(53), json!({})), "metadata.name must have at most 52 characters");
    refused(&named("my.etcd", json!({})), "metadata.name must start with a lower-case letter");
}

#[test]
fn known_bad_releases_are_refused_with_the_reason_and_a_way_out() {
    let cases = [
        ("3.5.0", "13766", "3.5.33"),
        ("3.5.3", "19557", "3.5.33"),
        ("3.5.20", "20793", "3.5.33"),
        ("3.5.27", "20418", "3.5.33"),
        ("3.5.28", "Status is refused to all but root", "3.5.33"),
        ("3.5.32", "GHSA-xg4h-6gfc-h4m8", "3.5.33"),
        ("3.6.0", "20653", "3.6.14"),
        ("3.6.8", "20418", "3.6.14"),
        ("3.6.10", "Status is refused to all but root", "3.6.14"),
        ("3.6.13", "GHSA-xg4h-6gfc-h4m8", "3.6.14"),
        ("3.7.0", "spec.version: 3.7.0 is refused because with authentication on", "3.7.1"),
    ];
    for (version, reason, way_out) in cases {
        let object = cluster(json!({ "version": version }));
        refused(&object, reason);
        refused(&object, &format!("use {way_out} or later"));
    }
}

#[test]
fn a_quota_that_does_not_fit_is_refused_with_the_figures() {
    let sized = |size: &str, quota: &str| {
        cluster(json!({ "etcd": { "quota": quota }, "storage": { "volumeClaimTemplate": { "size": size } } }))
    };
    let figures = "must leave 512Mi of 4Gi of storage to the log and to repairs";
    refused(&sized("4Gi", "8Gi"), &format!("spec.etcd.quota is 8Gi: {figures}"));
    refused(&cluster(json!({ "etcd": { "quota": "20Gi" } })), "must leave 512Mi of 20Gi of storage");
    assert_eq!(figures, quorate_api::quota::too_large("4Gi"), "the operator says the same");
}

#[test]
fn schedules_must_be_crontab_lines() {
    let window =
        |schedule: &str| cluster(json!({ "maintenance": { "windows": [{ "schedule": schedule, "duration": "2h" }] } }));
    let complaint = "spec.maintenance.windows[].schedule must be a crontab line";
    for good in ["0 2 * * 6", "*/15 0-6 1,15 jan-mar MON-FRI", "@daily", "59 23 31 12 7", "0 0,12 * * *"] {
        // Windows are not supported yet, which is the only complaint left.
        refused(&window(good), "spec.maintenance.windows is not supported yet");
        not_refused_for(&window(good), complaint);
    }
    for bad in
        ["", "daily", "* * * *", "60 * * * *", "0 24 * * *", "0 0 32 * *", "0 0 * 13 *", "0 0 * * 8", "0 0 0 0 0 0"]
    {
        refused(&window(bad), complaint);
    }
}

/// What `kubectl explain` says about a field.
fn description(path: &str) -> &'static str {
    let mut node: &'static Value = schema("EtcdCluster");
    for name in path.split('.') {
        node = &node["properties"][name];
    }
    node["description"].as_str().unwrap_or_default()
}

#[test]
fn a_field_that_does_nothing_yet_is_refused_and_says_so_itself() {
    let listed = quorate_api::not_yet::not_supported_yet();
    assert!(!listed.is_empty());
    for entry in listed {
        let field = entry.field.split(' ').find(|word| word.starts_with("spec.")).unwrap();
        assert!(description(field).contains("yet"), "{}: {}", entry.field, description(field));
    }
}
