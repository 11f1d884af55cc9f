//! The launcher is the first process of its container and must behave like one.

use crate::pod::{Pod, eventually};

#[test]
fn a_container_that_is_stopped_stops_etcd_and_does_not_count_as_failed() {
    let mut pod = Pod::running("3.6");
    let etcd = pod.etcd().unwrap();
    assert_eq!(pod.terminate_launcher(), Some(0));
    assert!(!std::path::Path::new(&format!("/proc/{etcd}")).exists());
    eventually("the agent has noticed", || pod.probe("/readyz") == Some(503));
}

#[test]
fn a_launcher_that_still_waits_ends_when_it_is_told() {
    let mut pod = Pod::new("3.6");
    pod.start_launcher();
    // Before that it would end as any process does.
    eventually("it listens for signals", || pod.launcher_catches(15));
    assert_eq!(pod.terminate_launcher(), Some(0));
}

#[test]
fn an_etcd_that_cannot_start_ends_its_container_with_the_same_code() {
    let mut pod = Pod::new("3.6");
    let taken = std::net::TcpListener::bind(("0.0.0.0", u16::try_from(pod.settings.client_port).unwrap())).unwrap();
    pod.start_agent();
    pod.start_launcher();
    let mut code = None;
    eventually("etcd has given up", || {
        code = code.or(pod.restart_ended_launcher());
        code.is_some()
    });
    assert_eq!(code, Some(1));
    drop(taken);
    eventually("it starts when it can", || {
        pod.restart_ended_launcher();
        pod.probe("/readyz") == Some(200)
    });
}
