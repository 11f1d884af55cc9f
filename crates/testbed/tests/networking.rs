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
    talk_in_every_way(&bed, &web(&bed, "networking"), ["10.90.0.11", "10.90.0.12", "10.90.0.13"]);
}

#[test]
fn on_a_bed_of_ipv6_pods_talk_in_the_same_ways_and_have_no_other_address() {
    let bed = TestBed::own("ipv6");
    bed.up(&["--ip-family", "ipv6"]);
    let said = bed.refusal(&["up", "--ip-family", "dual"]);
    assert!(said.contains("addresses of IPv6") && said.contains("testbed down"), "{said}");
    let namespace = web(&bed, "networking");
    talk_in_every_way(&bed, &namespace, ["fd00:90::11", "fd00:90::12", "fd00:90::13"]);
    for pod in ["web-0", "web-1", "web-2"] {
        let addresses = namespace.sh(pod, "ip -4 -oneline address show scope global").unwrap();
        assert_eq!(addresses, "", "{pod} has an address of IPv4");
    }
}

#[test]
fn on_a_bed_of_both_families_a_service_that_asks_is_reached_by_both_its_addresses() {
    let bed = TestBed::own("dual");
    bed.up(&["--ip-family", "dual"]);
    let namespace = web(&bed, "networking");
    namespace.kubectl(&["patch", "service", "any", "--patch", r#"{"spec":{"ipFamilyPolicy":"RequireDualStack"}}"#]);
    let addresses = namespace.get(&["service", "any"])["spec"]["clusterIPs"].as_array().unwrap().clone();
    let addresses = addresses.iter().map(|address| address.as_str().unwrap()).collect::<Vec<_>>();
    assert!(addresses[0].starts_with("10.96.") && addresses[1].starts_with("fd00:96::"), "{addresses:?}");
    for address in addresses {
        let fetch = format!("timeout 2 wget -qO- http://{}/name", in_url(address));
        let answer = eventually(&format!("a pod reaches {address}"), || namespace.sh("web-0", &fetch));
        assert!(answer.starts_with("web-"), "{answer}");
    }
}

fn in_url(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

/// Pod to pod by name, through Services, to itself, by ports of nodes, and to the API server.
fn talk_in_every_way(bed: &TestBed, namespace: &Namespace, node_addresses: [&str; 3]) {
    let pods = namespace.get(&["pods", "-l", "app=web"]);
    let mut nodes: Vec<_> =
        pods["items"].as_array().unwrap().iter().map(|pod| pod["spec"]["nodeName"].to_string()).collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 3, "the pods are not on three nodes: {nodes:?}");

    let fetch = |from: &str, url: &str| namespace.sh(from, &format!("timeout 2 wget -qO- http://{url}/name"));
    for from in ["web-0", "web-1", "web-2"] {
        for to in ["web-0", "web-1", "web-2"] {
            let name = format!("{to}.web.{}.svc.quorate.test:8080", namespace.name);
            let answer = eventually(&format!("{from} reaches {to} by name"), || fetch(from, &name));
            assert_eq!(answer, to);
        }
        let answer = eventually(&format!("{from} reaches the Service"), || fetch(from, "any"));
        assert!(answer.starts_with("web-"), "{answer}");
        // From web-0 this is traffic of a pod to itself through its own Service.
        let answer = eventually(&format!("{from} reaches web-0's Service"), || fetch(from, "only-web-0"));
        assert_eq!(answer, "web-0");
        // Busybox and the API server have no cipher in common; that it wants another protocol is an answer too.
        let api = r"printf 'GET / HTTP/1.0\r\n\r\n' | timeout 5 nc kubernetes.default 443";
        let answer = eventually(&format!("{from} reaches the API server"), || namespace.sh(from, api));
        assert!(answer.contains("HTTPS server"), "{answer}");
    }

    let service = namespace.get(&["service", "only-web-0"]);
    let port = service["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    for node in node_addresses {
        let url = format!("{}:{port}", in_url(node));
        let from_pod = eventually(&format!("a pod reaches {url}"), || fetch("web-1", &url));
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
        let answer = namespace.sh("web-0", "nslookup web.headless.svc.quorate.test")?;
        let addresses: Vec<_> = answer.lines().filter(|line| line.contains("10.244.")).map(str::to_owned).collect();
        (addresses.len() == 3).then_some(addresses)
    });
    for network in ["10.244.1.", "10.244.2.", "10.244.3."] {
        assert!(listed.iter().any(|line| line.contains(network)), "{network} is missing in {listed:?}");
    }
}
