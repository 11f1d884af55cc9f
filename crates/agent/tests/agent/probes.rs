//! The agent answers its probes whatever its disk does.

use std::{fs, process::Command};

use crate::pod::{Pod, eventually};

#[test]
fn a_disk_that_never_answers_delays_neither_probes_nor_the_end_of_the_agent() {
    let mut pod = Pod::running("3.6");
    pod.stop();
    let database = pod.path("volume/data/member/snap/db");
    fs::remove_file(&database).unwrap();
    // Whoever opens a pipe waits for the other end, here for ever.
    assert!(Command::new("mkfifo").arg(&database).status().unwrap().success());
    pod.start_agent();
    eventually("the agent listens for its launcher", || pod.path("run/agent.sock").exists());
    eventually("the agent is alive", || pod.probe("/healthz") == Some(200));
    for _ in 0..20 {
        assert_eq!((pod.probe("/healthz"), pod.probe("/readyz")), (Some(200), Some(503)));
    }
    assert_eq!(pod.terminate_agent(), Some(0));
}
