//! The API as its users and the API server see it.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]
#![allow(clippy::needless_pass_by_value, reason = "`json!` at the call reads better without `&`")]

mod admission;
mod common;
mod published;
mod specs;
