//! The bed's programs, built from pinned Go modules and kept in a cache that all clones on a machine share.

mod azurite;
mod busybox;
mod cache;
mod component;
mod images;
mod progress;

pub use azurite::azurite;
pub use busybox::busybox;
pub use cache::Cache;
pub use component::{ALL, COREDNS, Component, DEFAULT_ETCD, ETCD, KUBE, S3, build};
pub use images::{BUSYBOX_IMAGE, PAUSE_IMAGE, etcd_image, standard_images};
pub use progress::Progress;
