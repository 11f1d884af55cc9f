//! What every process of ours needs at run time, whatever it is for: to know whether it is the one that acts
//! ([`election`]), to say what happens and why something failed ([`telemetry`], [`error`]), and to be reached ([`listen`])
//! and to reach others ([`kubernetes`], [`tls`]).
//!
//! It decides nothing: who leads is decided by [`quorate_core::election`].

pub mod election;
pub mod error;
pub mod kubernetes;
pub mod listen;
pub mod telemetry;
pub mod tls;
