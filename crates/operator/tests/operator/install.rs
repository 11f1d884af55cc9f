//! The manifest as shipped.

use quorate_api::names::{labels, member_account};
use serde_json::Value;

fn documents() -> Vec<Value> {
    let text = quorate_operator::manifest::install();
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
        quorate_operator::manifest::install(),
        "run: cargo run -p quorate-operator --example install config/install.yaml"
    );
}

#[test]
fn a_namespaced_binding_grants_the_same_role_to_the_same_account() {
    let namespaced =
        serde_saphyr::from_str::<Value>(include_str!("../../../../config/operator/namespaced.yaml")).unwrap();
    let documents = documents();
    let bindings = find(&documents, "ClusterRoleBinding");
    let everywhere = bindings.iter().find(|binding| binding["metadata"]["name"] == "quorate-operator").unwrap();
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
fn what_is_in_no_namespace_is_only_read_and_by_a_role_that_can_be_left_out() {
    let documents = documents();
    for role in find(&documents, "ClusterRole") {
        for rule in role["rules"].as_array().unwrap() {
            let resources = strings(&rule["resources"]);
            if resources.iter().any(|resource| ["nodes", "persistentvolumes"].contains(resource)) {
                assert_eq!(role["metadata"]["name"], "quorate-nodes");
                assert!(strings(&rule["verbs"]).iter().all(|verb| ["get", "list"].contains(verb)));
            }
        }
    }
    assert!(find(&documents, "ClusterRole").iter().any(|role| role["metadata"]["name"] == "quorate-nodes"));
}

#[test]
fn the_policy_means_the_names_that_the_operator_gives() {
    let documents = documents();
    let policies = find(&documents, "ValidatingAdmissionPolicy");
    let bindings = find(&documents, "ValidatingAdmissionPolicyBinding");
    assert_eq!((policies.len(), bindings.len()), (3, 3));
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
fn removing_the_operator_leaves_the_definitions_and_with_them_every_cluster() {
    let documents = documents();
    assert!(find(&documents, "CustomResourceDefinition").is_empty());
    assert!(!find(&documents, "Deployment").is_empty(), "and yet something is installed");
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

#[test]
fn all_that_the_operator_has_a_right_to_delete_must_carry_the_label() {
    let documents = documents();
    let policies = find(&documents, "ValidatingAdmissionPolicy");
    let policy = policies.iter().find(|policy| policy["metadata"]["name"] == "operator-deletes.quorate.dev").unwrap();
    let watched = |group: &str, resource: &str| {
        policy["spec"]["matchConstraints"]["resourceRules"].as_array().unwrap().iter().any(|rule| {
            strings(&rule["apiGroups"]).contains(&group)
                && strings(&rule["resources"]).contains(&resource)
                && strings(&rule["operations"]) == ["DELETE"]
        })
    };
    let roles = find(&documents, "ClusterRole").into_iter().chain(find(&documents, "Role"));
    let mut kinds = 0;
    for rule in roles.flat_map(|role| role["rules"].as_array().unwrap()) {
        assert!(!strings(&rule["verbs"]).contains(&"deletecollection"));
        if strings(&rule["verbs"]).contains(&"delete") {
            let [group] = strings(&rule["apiGroups"])[..] else { panic!("one group for each rule: {rule}") };
            for resource in strings(&rule["resources"]) {
                assert!(watched(group, resource), "{resource}");
                kinds += 1;
            }
        }
    }
    assert!(kinds > 0, "a role that deletes nothing needs no policy");
    let condition = policy["spec"]["validations"][0]["expression"].as_str().unwrap();
    assert!(condition.contains(&format!("'{}' in oldObject", labels::CLUSTER)), "{condition}");
}

#[test]
fn the_policies_know_the_operator_in_whatever_namespace_it_is_installed() {
    let documents = documents();
    let accounts = find(&documents, "ServiceAccount");
    let [account] = accounts[..] else { panic!("there is one account") };
    let policies = find(&documents, "ValidatingAdmissionPolicy");
    let of_the_operator =
        policies.iter().filter(|policy| policy["metadata"]["name"].as_str().unwrap().starts_with("operator"));
    let mut conditions =
        of_the_operator.map(|policy| policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap());
    let name = account["metadata"]["name"].as_str().unwrap();
    assert!(conditions.clone().count() == 2);
    assert!(conditions.all(|condition| condition.contains(&format!("^system:serviceaccount:[^:]+:{name}$"))));
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
