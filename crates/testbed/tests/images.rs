//! Images from files run without a registry.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use quorate_testbed::{
    build::{Cache, busybox},
    image::{Image, Layer},
};
use support::{TestBed, eventually, restricted_pod};

#[test]
fn an_image_made_from_files_is_loaded_into_every_node_under_the_id_that_was_predicted() {
    let bed = TestBed::shared();
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("greeting.tar");
    let busybox = busybox(&Cache::open().unwrap()).unwrap();
    let written = Image::new("example.test/greeting:v1")
        .layer(Layer::new().file("/bin/busybox", busybox, 0o755).link("/bin/sh", "busybox").link("/bin/cat", "busybox"))
        .layer(Layer::new().bytes("/greeting", "hello from a file\n", 0o644))
        .user("65532")
        .write(&archive)
        .unwrap();
    let said = bed.testbed(&["load-image", archive.to_str().unwrap()]);
    assert!(support::text(&said.stderr).contains("node1, node2, node3"), "{said:?}");

    let namespace = bed.namespace("images");
    for node in ["node1", "node2", "node3"] {
        let name = format!("greeting-{node}");
        let spec = format!("restartPolicy: Never\n  nodeSelector: {{kubernetes.io/hostname: {node}}}");
        let pod = restricted_pod(&name, "cat /greeting", &spec, "");
        namespace.apply(&pod.replace(support::BUSYBOX, "example.test/greeting:v1"));
        eventually("the pod has run", || {
            (namespace.get(&["pod", &name])["status"]["phase"] == "Succeeded").then_some(())
        });
        assert_eq!(namespace.kubectl(&["logs", &name]), "hello from a file\n");
        let image = namespace.get(&["pod", &name])["status"]["containerStatuses"][0]["imageID"].to_string();
        assert!(image.contains(&written.id), "{node} runs {image}, written was {written:?}");
    }
}

#[test]
fn a_file_that_is_no_image_is_refused_and_not_kept() {
    let bed = TestBed::shared();
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("no-image.tar");
    std::fs::write(&archive, "this is not an archive").unwrap();
    let said = bed.refusal(&["load-image", archive.to_str().unwrap()]);
    assert!(said.contains("images import"), "{said}");
    let name: quorate_testbed::Bed = bed.name.parse().unwrap();
    assert!(!name.images_dir().join("no-image.tar").exists());
    assert!(!name.incoming_dir().join("no-image.tar").exists());
}
