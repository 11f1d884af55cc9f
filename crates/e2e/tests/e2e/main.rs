//! The operator, agents and etcd together, on a real Kubernetes with three nodes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod access;
mod admission;
mod deletion;
mod forming;
mod machines;
mod members;
mod operator_crashes;
mod quorum_loss;
mod repair;
mod settled;
