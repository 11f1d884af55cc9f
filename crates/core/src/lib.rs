//! The decision core of Quorate.
//!
//! [`decide`] turns a [`View`], all that one pass may know about a cluster, into a [`Decision`]: actions, the status to
//! write, and when to look again. It is total and deterministic: no input or output, no clock, no randomness. The agent's
//! question "may etcd start on this volume?" is answered here too, by [`record::judge`] and the table in [`start::start`].

pub mod action;
mod alarms;
pub mod build;
mod context;
mod decide;
mod drift;
mod duration;
pub mod election;
mod events;
mod gate;
pub mod guard;
pub mod hashes;
mod health;
pub mod identity;
pub mod lease;
mod loss;
mod malformed;
pub mod membership;
pub mod node;
pub mod object;
pub mod quarantine;
pub mod quorum;
pub mod read;
pub mod reason;
pub mod record;
mod rules;
mod scaling;
pub mod shared;
pub mod start;
mod status;
mod strangers;
pub mod validate;
pub mod verification;
pub mod view;
pub mod volume;
mod waiting;
mod waking;

pub use action::{Action, ApplyMode, Decision, Effect, Event};
pub use decide::decide;
pub use drift::{is_as_wanted, short_digest};
pub use guard::Guard;
pub use identity::ClusterIdentity;
pub use malformed::{MalformedStatus, malformed};
pub use object::{Kind, Object, ObjectKey};
pub use read::Read;
pub use reason::{Reason, Severity};
pub use view::View;
