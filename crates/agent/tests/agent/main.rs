//! The agent and the launcher as they ship, with a real etcd, on a directory in place of a volume. In place of a Kubernetes
//! API that can be had in every mood stands a small one of our own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod api;
mod authentication;
mod certificates;
mod damage;
#[path = "../../../etcd/tests/damages/mod.rs"]
mod damages;
mod discarding;
mod fences;
mod full_disk;
mod interruptions;
mod joining;
mod launcher;
mod mount;
mod neighbour;
mod pod;
mod probes;
mod recovering;
mod replacing;
mod settings;
mod survivor;
mod verification;
