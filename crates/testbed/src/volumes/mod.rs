//! Dynamic volumes: each claim gets a file system of its own size that follows its pod to any node and grows in use.

mod backing;
mod provisioner;
mod quantity;

pub use backing::mount_existing;
pub use provisioner::provision;
