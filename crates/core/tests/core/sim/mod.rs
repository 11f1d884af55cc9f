//! A small world to try decisions in: an API store, a kubelet, agents, volumes, and etcd reduced to what membership
//! needs. No time passes and nothing happens unless told.
//!
//! The model is kept simpler than the truth in one direction only: whatever it allows, the real parts allow too.

mod etcd;
mod world;

pub(crate) use etcd::Volume;
pub(crate) use world::{Crash, World};
