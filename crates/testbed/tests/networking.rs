//! Pods on three nodes find and reach each other in every way a cluster offers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use support::{BUSYBOX, Namespace, TestBed, eventually};

/// Three web servers, one on each node, that answer with their own name.
fn web(bed: &TestBed, namespace: &str) -> Namespace {
    let namespace = bed.namespace(namespace);
    namespace.apply(&format!(
        r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: web, namespace: NAMESPACE}}
spec:
  serviceName: web
  replicas: 3
  podManagementPolicy: Parallel
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 0
      securityContext: {{runAsNonRoot: true, runAsUser: 65532, seccompProfile: {{type: RuntimeDefault}}}}
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {{matchLabels: {{app: web}}}}
      volumes: [{{name: www, emptyDir: {{}}}}]
      containers:
      - name: main
        image: {BUSYBOX}
        command: [sh, -c, "hostname > /www/name; exec httpd -f -p 8080 -h /www"]
        ports: [{{containerPort: 8080}}]
        readinessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
        volumeMounts: [{{name: www, mountPath: /www}}]
        securityContext: {{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: NAMESPACE}}
spec: {{clusterIP: None, selector: {{app: web}}, ports: [{{port: 8080}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: any, namespace: NAMESPACE}}
spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: only-web-0, namespace: NAMESPACE}}
spec:
  type: NodePort
  selector: {{statefulset.kubernetes.io/pod-name: web-0}}
  ports: [{{port: 80, targetPort: 8080}}]
"#
    ));
    namespace.kubectl(&["rollout", "status", "statefulset/web", "--timeout=120s"]);
    namespace
}

#[test]
fn pods_on_three_nodes_talk_by_name_by_cluster_ip_and_by_node_port() {
    let bed = TestBed::shared();
    let namespace = web(&bed, "networking");
    let pods = namespace.get(&["pods", "-l", "app=web"]);
    let mut nodes: Vec<_> =
        pods["items"].as_array().unwrap().iter().map(|pod| pod["spec"]["nodeName"].to_string()).collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 3, "the pods are not on three nodes: {nodes:?}");

    let fetch = |from: &str, url: &str| namespace.sh(from, &format!("timeout 2 wget -qO- http://{url}/name"));
    for from in ["web-0", "web-1", "web-2"] {
        for to in ["web-0", "web-1", "web-2"] {
            let name = format!("{to}.web.{}.svc.cluster.local:8080", namespace.name);
            let answer = eventually(&format!("{from} reaches {to} by name"), || fetch(from, &name));
            assert_eq!(answer, to);
        }
        let answer = eventually(&format!("{from} reaches the Service"), || fetch(from, "any"));
        assert!(answer.starts_with("web-"), "{answer}");
        // From web-0 this is traffic of a pod to itself through its own Service.
        let answer = eventually(&format!("{from} reaches web-0's Service"), || fetch(from, "only-web-0"));
        assert_eq!(answer, "web-0");
    }

    let service = namespace.get(&["service", "only-web-0"]);
    let port = service["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    for node in ["10.90.0.11", "10.90.0.12", "10.90.0.13"] {
        let from_pod =
            eventually(&format!("a pod reaches {node}:{port}"), || fetch("web-1", &format!("{node}:{port}")));
        assert_eq!(from_pod, "web-0");
        let request = format!("exec 3<>/dev/tcp/{node}/{port}; printf 'GET /name HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3");
        let from_bed = bed.run(&["exec", "--", "bash", "-c", &request]);
        assert_eq!(from_bed.lines().last(), Some("web-0"), "{from_bed}");
    }
}

#[test]
fn a_headless_service_lists_each_ready_pod() {
    let bed = TestBed::shared();
    let namespace = web(&bed, "headless");
    let listed = eventually("three addresses are listed", || {
        let answer = namespace.sh("web-0", "nslookup web.headless.svc.cluster.local")?;
        let addresses: Vec<_> = answer.lines().filter(|line| line.contains("10.244.")).map(str::to_owned).collect();
        (addresses.len() == 3).then_some(addresses)
    });
    for network in ["10.244.1.", "10.244.2.", "10.244.3."] {
        assert!(listed.iter().any(|line| line.contains(network)), "{network} is missing in {listed:?}");
    }
}
