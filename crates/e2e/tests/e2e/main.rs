//! The operator, agents and etcd together, on a real Kubernetes with three nodes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod forming;
mod members;
