//! What a failed test leaves to read, before its namespaces go.
#![expect(clippy::print_stdout, reason = "the test harness shows what a failed test has printed")]

use serde_json::Value;

use crate::Kubernetes;

const LINES_OF_LOG: usize = 12;
const EVENTS: usize = 10;
const OPERATOR: &str = "quorate-system";

/// Prints the clusters, members, pods and events of each namespace, and what agents and operator said about them.
pub(crate) async fn print(kubernetes: &Kubernetes, namespaces: &[String]) {
    for namespace in namespaces {
        println!("-- left in {namespace}");
        for (kind, part) in [("etcdclusters", "status"), ("etcdmembers", "spec"), ("etcdmembers", "status")] {
            for object in items(kubernetes, &format!("/apis/quorate.dev/v1alpha1/namespaces/{namespace}/{kind}")).await
            {
                println!("{kind}/{} {part}: {}", name(&object), object[part]);
            }
        }
        let pods = items(kubernetes, &format!("/api/v1/namespaces/{namespace}/pods")).await;
        for pod in &pods {
            print_pod(kubernetes, namespace, pod).await;
        }
        let mut events = items(kubernetes, &format!("/api/v1/namespaces/{namespace}/events")).await;
        events.sort_by_key(|event| event["metadata"]["creationTimestamp"].to_string());
        for event in events.iter().rev().take(EVENTS).rev() {
            println!("event {}: {} {}", event["involvedObject"]["name"], event["reason"], event["message"]);
        }
    }
    for pod in items(kubernetes, &format!("/api/v1/namespaces/{OPERATOR}/pods")).await {
        let log = log(kubernetes, OPERATOR, name(&pod), "operator", 500).await;
        let about = log.lines().filter(|line| namespaces.iter().any(|namespace| line.contains(namespace.as_str())));
        let about = about.collect::<Vec<_>>();
        for line in about.iter().rev().take(LINES_OF_LOG).rev() {
            println!("operator {}: {line}", name(&pod));
        }
    }
}

async fn print_pod(kubernetes: &Kubernetes, namespace: &str, pod: &Value) {
    let states = ["initContainerStatuses", "containerStatuses"].map(|list| pod["status"][list].as_array());
    for container in states.into_iter().flatten().flatten() {
        let (of, state) = (&container["name"], &container["state"]);
        println!("{}/{of}: ready {}, restarts {}, {state}", name(pod), container["ready"], container["restartCount"]);
    }
    println!("{} conditions: {}", name(pod), pod["status"]["conditions"]);
    for container in ["agent", "etcd"] {
        for line in log(kubernetes, namespace, name(pod), container, LINES_OF_LOG).await.lines() {
            println!("{}/{container}: {line}", name(pod));
        }
    }
}

async fn items(kubernetes: &Kubernetes, path: &str) -> Vec<Value> {
    let found = kubernetes.find(path).await.unwrap_or_default();
    found["items"].as_array().cloned().unwrap_or_default()
}

async fn log(kubernetes: &Kubernetes, namespace: &str, pod: &str, container: &str, lines: usize) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&tailLines={lines}");
    kubernetes.text(&path).await.unwrap_or_else(|refusal| format!("no log: {}", refusal.message))
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
