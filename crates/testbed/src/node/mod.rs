//! A node: a machine made of namespaces, with its own init, container runtime and kubelet.

mod config;
mod init;

pub use init::boot;
