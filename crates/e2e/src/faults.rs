//! What can happen to a member, a node or the control plane.

use std::{fs, panic::catch_unwind, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Cluster, bed};

/// A program of a member's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Etcd,
    Agent,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Etcd => "etcd",
            Program::Agent => "agent",
        }
    }
}

/// Sends a signal to a program of a member and returns its process number on this machine.
pub async fn signal(cluster: &Cluster, ordinal: i32, program: Program, signal: Signal) -> Pid {
    let pid = process(cluster, ordinal, program).await.expect("the program runs");
    kill_process(pid, signal).unwrap();
    pid
}

/// The bed's processes are this machine's; a pod's are known by their cgroup.
pub async fn process(cluster: &Cluster, ordinal: i32, program: Program) -> Option<Pid> {
    let pod = cluster.pod(ordinal).await;
    process_of(pod["metadata"]["uid"].as_str().unwrap(), program.name())
}

/// By the identifier of its pod and its own name.
pub fn process_of(pod: &str, program: &str) -> Option<Pid> {
    let numbers = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number: &i32| {
            let read = |file: &str| fs::read_to_string(format!("/proc/{number}/{file}")).unwrap_or_default();
            read("comm").trim() == program && read("cgroup").contains(pod)
        })
        .find_map(Pid::from_raw)
}

/// What is broken for everybody on the bed. It is mended at the end, also of a test that fails.
#[derive(Debug)]
#[must_use]
pub struct Broken {
    mend: Vec<String>,
}

impl Broken {
    fn by(fault: &[&str], mend: &[&str]) -> Self {
        let mend = mend.iter().map(|&word| word.to_owned()).collect();
        let broken = Broken { mend };
        bed::command(fault);
        broken
    }

    pub fn mend(self) {
        drop(self);
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        let words = self.mend.iter().map(String::as_str).collect::<Vec<_>>();
        if thread::panicking() {
            // A second panic would end all tests.
            let _ = catch_unwind(|| bed::command(&words));
        } else {
            bed::command(&words);
        }
    }
}

/// A power cut.
pub fn kill_node(number: u8) -> Broken {
    Broken::by(&["node", "kill", &number.to_string()], &["node", "start", &number.to_string()])
}

/// A pulled cable.
pub fn cut_node(number: u8) -> Broken {
    Broken::by(&["node", "cut", &number.to_string()], &["node", "heal", &number.to_string()])
}

pub fn stop_api_server() -> Broken {
    Broken::by(&["component", "stop", "kube-apiserver"], &["component", "start", "kube-apiserver"])
}
