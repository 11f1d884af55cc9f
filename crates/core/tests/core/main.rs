//! What the core decides, row by row, and what it never does.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]
#![allow(clippy::panic, reason = "helpers of tests, outside of test functions")]

mod common;
mod crash_sweep;
mod deletion;
mod forms_exactly_once;
mod objects;
mod operator_table;
mod ownership_and_repair;
mod pending;
mod safety;
mod serving;
mod sim;
mod spec_changes;
mod start_table;
