//! Container images from files, without a registry and without a daemon.
//!
//! The same inputs give the same bytes and so the same digests. An archive is an OCI image layout that also carries the
//! `manifest.json` of `docker save`, so `ctr images import` and `docker load` both take it.

mod archive;
mod layer;

use std::fmt::Write;

pub use archive::{Image, Written};
pub use layer::Layer;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
