//! Volumes: dynamic, for non-root pods, movable, growing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use support::{Namespace, TestBed, eventually, restricted_pod};

const CLAIM: &str = r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: NAMESPACE}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 400Mi}}}
";

fn pod_with_claim(name: &str, node: &str) -> String {
    let spec = format!(
        "nodeSelector: {{kubernetes.io/hostname: {node}}}\n  \
         volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]"
    );
    restricted_pod(name, "exec sleep 3600", &spec, "volumeMounts: [{name: data, mountPath: /data}]")
}

fn start(namespace: &Namespace, name: &str, node: &str) {
    namespace.apply(&pod_with_claim(name, node));
    namespace.wait_ready(&format!("pod/{name}"));
}

fn size_of_file_system(namespace: &Namespace, pod: &str) -> Option<u64> {
    let line = namespace.sh(pod, "df -k /data | tail -n 1")?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn a_restricted_pod_writes_its_volume_and_finds_its_data_on_another_node() {
    let bed = TestBed::shared();
    let namespace = bed.namespace("moving");
    namespace.apply(CLAIM);
    start(&namespace, "first", "node1");
    namespace.sh("first", "echo precious > /data/file && sync").unwrap();
    let owner = namespace.sh("first", "stat -c %g /data && id -u").unwrap();
    assert_eq!(owner, "65532\n65532", "the volume has not the pod's group, or the pod runs as another user");
    namespace.kubectl(&["delete", "pod", "first"]);
    start(&namespace, "second", "node3");
    assert_eq!(namespace.sh("second", "cat /data/file").unwrap(), "precious");
}

#[test]
fn a_volume_holds_no_more_than_was_asked_for_and_grows_while_in_use() {
    let bed = TestBed::shared();
    let namespace = bed.namespace("growing");
    namespace.apply(CLAIM);
    start(&namespace, "writer", "node2");
    let before = size_of_file_system(&namespace, "writer").unwrap();
    assert!(before <= 400 << 10, "400 MiB were asked for, the file system has {before} KiB");
    assert!(
        namespace.sh("writer", "dd if=/dev/zero of=/data/filler bs=1M count=500 2>&1").is_none(),
        "500 MiB fitted into a volume of 400 MiB"
    );
    namespace
        .sh(
            "writer",
            "rm /data/filler; echo kept > /data/file; (while true; do date > /data/busy; done) > /dev/null 2>&1 &",
        )
        .unwrap();

    let request = r#"{"spec": {"resources": {"requests": {"storage": "800Mi"}}}}"#;
    namespace.kubectl(&["patch", "pvc", "data", "--patch", request]);
    eventually("the claim reports its new size", || {
        let claim = namespace.get(&["pvc", "data"]);
        let done = claim["status"]["capacity"]["storage"] == "800Mi" && claim["status"]["conditions"].is_null();
        done.then_some(())
    });
    let after = size_of_file_system(&namespace, "writer").unwrap();
    assert!(after > before + (350 << 10), "the file system grew from {before} KiB to {after} KiB only");
    assert_eq!(namespace.sh("writer", "cat /data/file").unwrap(), "kept");
    let restarts = &namespace.get(&["pod", "writer"])["status"]["containerStatuses"][0]["restartCount"];
    assert_eq!(restarts, 0, "the pod was restarted while its volume grew");
}

#[test]
fn a_deleted_claim_gives_its_space_back() {
    let bed = TestBed::shared();
    let namespace = bed.namespace("giving-back");
    namespace.apply(CLAIM);
    start(&namespace, "user", "node1");
    let volume = namespace.get(&["pvc", "data"])["spec"]["volumeName"].as_str().unwrap().to_owned();
    let path = bed.get(&["pv", &volume])["spec"]["local"]["path"].as_str().unwrap().to_owned();
    let file = path.replace("/mounted/", "/files/");
    assert!(std::fs::exists(&file).unwrap(), "{file} is not where the volume's data is");
    namespace.kubectl(&["delete", "pod/user", "pvc/data"]);
    eventually("the volume is gone", || {
        bed.kubectl(&["get", "pv", &volume, "--ignore-not-found"]).is_empty().then_some(())
    });
    assert!(!std::fs::exists(&file).unwrap(), "{file} was left behind");
}
