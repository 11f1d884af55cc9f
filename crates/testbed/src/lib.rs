//! A real Kubernetes on one machine, whose nodes are Linux namespaces.
//!
//! A *bed* is a tree of processes. Everything it makes in the kernel (network and mount namespaces, links, routes,
//! firewall rules, volumes) hangs on those processes, so a bed whose processes are gone has left nothing behind but a
//! cgroup and a directory. That is what makes [`down`] trustworthy after any crash.

pub mod args;
pub mod bed;
pub mod build;
pub mod cgroup;
pub mod client;
pub mod command;
pub mod control;
pub mod error;
pub mod image;
pub mod ip;
pub mod lifecycle;
pub mod machine;
pub mod node;
pub mod pki;
pub mod run;
pub mod supervisor;
pub mod volumes;

pub use bed::Bed;
pub use error::{Error, Result};
