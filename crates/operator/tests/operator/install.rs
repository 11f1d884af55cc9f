//! The manifest as shipped.

use quorate_api::names::{labels, member_account};
use serde_json::Value;

fn documents() -> Vec<Value> {
    let text = quorate_operator::manifest::install().unwrap();
    text.split("---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

fn find<'a>(documents: &'a [Value], kind: &str) -> Vec<&'a Value> {
    documents.iter().filter(|document| document["kind"] == kind).collect()
}

#[test]
fn the_file_under_config_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/install.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(
        text,
        quorate_operator::manifest::install().unwrap(),
        "run: cargo run -p quorate-operator --example install config/install.yaml"
    );
}

#[test]
fn a_namespaced_binding_grants_the_same_role_to_the_same_account() {
    let namespaced =
        serde_saphyr::from_str::<Value>(include_str!("../../../../config/operator/namespaced.yaml")).unwrap();
    let documents = documents();
    let [everywhere] = find(&documents, "ClusterRoleBinding")[..] else { panic!("there is one") };
    for field in ["roleRef", "subjects"] {
        assert_eq!(namespaced[field], everywhere[field]);
    }
    assert_eq!(namespaced["kind"], "RoleBinding");
}

#[test]
fn the_operator_reaches_secrets_by_name_and_only_through_a_role_that_it_binds_beside_clusters() {
    let documents = documents();
    for role in find(&documents, "ClusterRole").into_iter().chain(find(&documents, "Role")) {
        for rule in role["rules"].as_array().unwrap() {
            let resources = rule["resources"].as_array().unwrap();
            assert!(!resources.contains(&"*".into()) && !rule["verbs"].as_array().unwrap().contains(&"*".into()));
            if resources.contains(&"secrets".into()) {
                assert_eq!(role["metadata"]["name"], quorate_api::names::SECRETS_ROLE);
                assert_eq!(rule["verbs"], serde_json::json!(["get", "create", "patch"]));
            }
        }
    }
}

#[test]
fn the_policy_means_the_names_that_the_operator_gives() {
    let documents = documents();
    let policies = find(&documents, "ValidatingAdmissionPolicy");
    let bindings = find(&documents, "ValidatingAdmissionPolicyBinding");
    assert_eq!((policies.len(), bindings.len()), (2, 2));
    for (policy, binding) in policies.iter().zip(bindings) {
        assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
        assert_eq!(binding["spec"]["validationActions"], serde_json::json!(["Deny"]));
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    }
    let policy = policies[0];
    let constraints = &policy["spec"]["matchConstraints"];
    assert_eq!(constraints["objectSelector"]["matchExpressions"][0]["key"], labels::CLUSTER);
    let condition = policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
    let suffix = member_account("").trim_start_matches('-').to_owned();
    assert!(condition.contains(&format!("-{suffix}$")), "{condition}");
}

#[test]
fn the_operator_runs_with_restricted_rights() {
    let documents = documents();
    let [deployment] = find(&documents, "Deployment")[..] else { panic!("there is one deployment") };
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["capabilities"]["drop"], serde_json::json!(["ALL"]));
}
