//! The operator, agents and etcd together, on a real Kubernetes with three nodes.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod access;
mod admission;
mod deletion;
mod deletion_midway;
mod disks;
mod divergence;
mod forming;
mod hindrances;
mod ipv6;
mod journeys;
mod kubernetes_storage;
mod leaders;
mod machines;
mod members;
mod nodes;
mod old_views;
mod operator_crashes;
mod operators;
mod partitions;
mod quorum_loss;
mod repair;
mod scaling;
mod settled;
#[path = "../../../api/tests/api/specs.rs"]
mod specs;
mod volumes;
