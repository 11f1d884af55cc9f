//! The operator, agents and etcd together, on a real Kubernetes with three nodes.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on should stop")]

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
