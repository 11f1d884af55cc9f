//! The operator: a thin shell around `quorate_core`.
//!
//! It watches EtcdClusters and what belongs to them ([`caches`]), puts what it sees into a view ([`observe`]), asks the
//! core what to do, and does it ([`act`]). It decides nothing itself.

pub mod act;
pub mod caches;
pub mod controller;
pub mod election;
pub mod error;
pub mod events;
pub mod guard;
pub mod malformed;
pub mod manifest;
pub mod metrics;
pub mod observe;
pub mod options;
pub mod pki;
pub mod probes;
pub mod renewals;
pub mod rest;
pub mod run;
pub mod secrets;
pub mod telemetry;
pub mod wake;
pub mod writes;
