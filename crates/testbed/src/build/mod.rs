//! The bed's programs, built from pinned Go modules and kept in a cache that all clones on a machine share.

mod busybox;
mod cache;
mod component;
mod images;
mod progress;

pub use busybox::busybox;
pub use cache::Cache;
pub use component::{ALL, COREDNS, Component, DEFAULT_ETCD, ETCD, KUBE, build};
pub use images::{BUSYBOX_IMAGE, PAUSE_IMAGE, etcd_image, standard_images};
pub use progress::Progress;
