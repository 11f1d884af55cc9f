//! What end-to-end tests and benches are written in: a bed with the operator on it, clusters, their data, and faults.
//!
//! A test runs on a thread of its own that lives in the bed's network, so it reaches the API server, pods and members as
//! anything inside the cluster does.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::missing_panics_doc, reason = "every function here panics if what a test needs is not there")]

pub mod audit;
pub mod bed;
pub mod clients;
pub mod cluster;
pub mod data;
pub mod disk;
pub mod faults;
pub mod figures;
pub mod gate;
pub mod kubernetes;
pub mod operator;
pub mod picture;
mod report;
pub mod waiting;

pub use bed::{Bed, alone, alone_for, beside_others, measure, on_ipv6};
pub use clients::Clients;
pub use cluster::Cluster;
pub use data::Keys;
pub use gate::Gate;
pub use kubernetes::Kubernetes;
pub use waiting::{eventually, stays};
