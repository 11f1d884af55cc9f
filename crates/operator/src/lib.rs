//! The operator: a thin shell around `quorate_core`.
//!
//! It watches EtcdClusters and what belongs to them ([`caches`]), puts what it sees into a view ([`observe`]), asks the
//! core what to do, and does it ([`act`]). It decides nothing itself.

pub mod act;
pub mod caches;
pub mod changes;
pub mod cluster_domain;
pub mod controller;
pub mod error;
pub mod etcd;
pub mod events;
pub mod hashing;
pub mod malformed;
pub mod manifest;
pub mod metrics;
pub mod nodes;
pub mod observe;
pub mod options;
pub mod pki;
pub mod probes;
pub mod refusals;
pub mod renewals;
pub mod rest;
pub mod run;
pub mod secrets;
pub mod unanswered;
pub mod wake;
pub mod writes;
