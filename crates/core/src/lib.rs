//! The decision core of Quorate.
//!
//! [`decide`] turns a [`View`], all that one pass may know about a cluster, into a [`Decision`]: actions, the status to
//! write, and when to look again. It is total and deterministic: no input or output, no clock, no randomness. The agent's
//! question "may etcd start on this volume?" is answered here too, by [`start::start`].

pub mod action;
pub mod build;
mod context;
mod decide;
mod drift;
mod duration;
mod events;
pub mod lease;
mod malformed;
pub mod object;
pub mod quorum;
pub mod reason;
mod rules;
pub mod start;
mod status;
pub mod validate;
pub mod view;

pub use action::{Action, Decision, Effect, Event, Guard};
pub use decide::decide;
pub use drift::is_as_wanted;
pub use malformed::{MalformedStatus, malformed};
pub use object::{Kind, Object, ObjectKey};
pub use reason::{Reason, Severity};
pub use view::View;
