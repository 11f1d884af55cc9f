//! A small world to try decisions in: an API store, a kubelet, agents, volumes, etcd reduced to what membership needs, and
//! an operator that sees all that through caches. No time passes and nothing happens unless told.
//!
//! The model is kept simpler than the truth in one direction only: whatever it allows, the real parts allow too.

mod etcd;
mod judge;
mod members;
mod nodes;
mod operator;
mod questions;
mod raft;
mod recovery;
mod world;

pub(crate) use etcd::Volume;
pub(crate) use members::Listed;
pub(crate) use operator::{Answer, Crash, STREAMS};
pub(crate) use world::World;
