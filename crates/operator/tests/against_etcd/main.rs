//! What the operator makes and asks, held against real etcd servers.

#![cfg(test)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod alarms;
mod authentication;
mod changes;
#[path = "../../../etcd/tests/etcd_process/mod.rs"]
mod etcd_process;
mod hashes;
mod members;
mod membership;
mod network;
mod peers;
mod reach;
#[allow(dead_code, reason = "the other tests use more of it")]
#[path = "../operator/script.rs"]
mod script;
