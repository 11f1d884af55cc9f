//! Access control and the ways into a pod are those of a normal cluster.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

use quorate_testbed::{Bed, supervisor::plan_of};
use support::{TestBed, restricted_pod, text};

/// What one of the bed's own components may do, asked from inside the bed with its own credentials.
fn can(bed: &TestBed, user: &str, question: &[&str]) -> bool {
    let name: Bed = bed.name.parse().unwrap();
    let kube = plan_of(&name).unwrap().kube;
    let kubeconfig = name.inner_kubeconfig(user);
    let asked = [
        &["exec", "--", kube.to_str().unwrap(), "kubectl", "--kubeconfig", kubeconfig.to_str().unwrap()],
        &["auth", "can-i"][..],
        question,
    ]
    .concat();
    text(&bed.testbed(&asked).stdout).trim() == "yes"
}

#[test]
fn dns_and_volumes_have_accounts_that_are_not_admin() {
    let bed = TestBed::shared();
    assert!(can(&bed, "admin", &["get", "secrets", "-A"]), "the question itself does not work");
    assert!(can(&bed, "coredns", &["watch", "services", "-A"]));
    assert!(can(&bed, "volumes", &["create", "persistentvolumes"]));
    for user in ["coredns", "volumes"] {
        for forbidden in [["get", "secrets", "-A"], ["create", "pods", "-A"], ["delete", "namespaces", "-A"]] {
            assert!(!can(&bed, user, &forbidden), "{user} may {forbidden:?}");
        }
    }
}

#[test]
fn a_service_account_may_do_nothing_until_somebody_allows_it() {
    let bed = TestBed::shared();
    let namespace = bed.namespace("powerless");
    let account = format!("system:serviceaccount:{}:default", namespace.name);
    let asked = bed.testbed(&["kubectl", "auth", "can-i", "get", "pods", "-A", "--as", &account]);
    assert_eq!(text(&asked.stdout).trim(), "no");
    namespace.kubectl(&["create", "role", "reader", "--verb=get", "--resource=pods"]);
    namespace.kubectl(&[
        "create",
        "rolebinding",
        "reader",
        "--role=reader",
        &format!("--serviceaccount={}:default", namespace.name),
    ]);
    let allowed = namespace.kubectl(&["auth", "can-i", "get", "pods", "--as", &account]);
    assert_eq!(allowed.trim(), "yes");
}

#[test]
fn pod_security_refuses_a_privileged_pod_and_says_why() {
    let bed = TestBed::shared();
    let namespace = bed.namespace("restricted");
    let output = bed.try_apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: bad, namespace: {}}}, spec: {{containers: \
         [{{name: main, image: x, securityContext: {{privileged: true}}}}]}}}}",
        namespace.name
    ));
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("violates PodSecurity"), "{said}");
}

#[test]
fn exec_logs_and_port_forward_reach_a_pod_from_the_host() {
    let bed = TestBed::shared();
    let namespace = bed.namespace("reach");
    let pod = restricted_pod(
        "web",
        "echo started; echo page > /www/page; exec httpd -f -p 8080 -h /www",
        "volumes: [{name: www, emptyDir: {}}]",
        "volumeMounts: [{name: www, mountPath: /www}]\n    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}",
    );
    namespace.apply(&pod);
    namespace.wait_ready("pod/web");
    assert_eq!(namespace.sh("web", "cat /www/page").as_deref(), Some("page"));
    assert_eq!(namespace.kubectl(&["logs", "web"]), "started\n");

    // With the printed KUBECONFIG and a kubectl of the host's own, not through the testbed.
    let name: Bed = bed.name.parse().unwrap();
    let mut forward = Command::new(plan_of(&name).unwrap().kube)
        .args(["kubectl", "-n", &namespace.name, "port-forward", "pod/web", ":8080"])
        .env("KUBECONFIG", bed.run(&["kubeconfig"]).trim())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    // Held until the end: kubectl dies of a closed pipe when it reports a connection.
    let mut said = BufReader::new(forward.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let mut page = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    page.write_all(b"GET /page HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    page.read_to_string(&mut answer).unwrap();
    forward.kill().unwrap();
    forward.wait().unwrap();
    assert!(answer.ends_with("page\n"), "{answer}");
}

#[test]
fn nodes_are_in_three_zones() {
    let bed = TestBed::shared();
    let nodes = bed.get(&["nodes"]);
    let zones: Vec<_> = nodes["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["metadata"]["labels"]["topology.kubernetes.io/zone"].as_str().unwrap())
        .collect();
    assert_eq!(zones, ["zone-1", "zone-2", "zone-3"]);
}
