//! What the core decides, row by row, and what it never does.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]
#![allow(clippy::panic, reason = "helpers of tests, outside of test functions")]

mod access;
mod certificates;
mod common;
mod copies;
mod corruption;
mod crash_sweep;
mod deletion;
mod divergence;
mod election;
mod ephemeral;
mod evictions;
mod forms_exactly_once;
mod incarnations;
mod nodes;
mod objects;
mod operator_table;
mod ownership_and_repair;
mod pending;
mod reads;
mod records;
mod recovery;
mod safety;
mod scaling;
mod serving;
mod sim;
mod spec_changes;
mod start_table;
mod strangers;
mod volumes;
