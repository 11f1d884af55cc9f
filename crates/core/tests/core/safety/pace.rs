//! How many histories of each kind there are, or for how long, and how fast that went.
//!
//! They are the same in each run, so that a change that breaks one is known by it. A campaign looks for others:
//! `QUORATE_SIM_SEED` is any number.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseResult, TestRng, TestRunner};

/// Everything that happened in all histories: faults, agents' moves and whole passes.
static STEPS: AtomicU64 = AtomicU64::new(0);
static HISTORIES: AtomicU64 = AtomicU64::new(0);
/// Kinds of history that are done, and how many there are.
static DONE: AtomicUsize = AtomicUsize::new(0);
const KINDS: usize = 16;
static BEGAN: OnceLock<Instant> = OnceLock::new();

/// Histories between two looks at the clock.
const AT_A_TIME: u32 = 64;

pub(super) fn count(steps: u64) {
    STEPS.fetch_add(steps, Relaxed);
}

fn number(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

/// How many histories of each kind; a campaign asks for more.
fn cases() -> u32 {
    number("QUORATE_SIM_CASES").unwrap_or(256)
}

/// How long each kind gets, if all of them together get so many seconds, on as many threads as the tests have.
fn time_of_a_kind() -> Option<Duration> {
    let all = number("QUORATE_SIM_SECONDS")?;
    let threads = number("RUST_TEST_THREADS").map_or_else(
        || std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1)),
        |threads| threads.max(1),
    );
    Some(Duration::from_secs(all.into()) * threads / u32::try_from(KINDS).unwrap_or(1))
}

/// Runs many histories of one kind. One that fails is shrunk and printed. Whoever is the last of all kinds tells how fast
/// it went.
#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "nothing is decided by how fast it went")]
pub(super) fn over<S: Strategy<Value: Debug>>(histories: S, test: impl Fn(S::Value) -> TestCaseResult) {
    let all_began = BEGAN.get_or_init(Instant::now);
    let (began, time) = (Instant::now(), time_of_a_kind());
    let cases = if time.is_some() { AT_A_TIME } else { cases() };
    let seed = number("QUORATE_SIM_SEED").unwrap_or_default();
    let mut batch = 0_u32;
    let failure = loop {
        let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&seed.to_le_bytes());
        bytes[4..8].copy_from_slice(&batch.to_le_bytes());
        batch += 1;
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let result = TestRunner::new_with_rng(config, random).run(&histories, &test);
        HISTORIES.fetch_add(cases.into(), Relaxed);
        if result.is_err() || time.is_none_or(|time| began.elapsed() >= time) {
            break result.err();
        }
    };
    if DONE.fetch_add(1, Relaxed) + 1 == KINDS {
        let (histories, steps, time) = (HISTORIES.load(Relaxed), STEPS.load(Relaxed), all_began.elapsed());
        let rate = steps.saturating_mul(60_000) / u64::try_from(time.as_millis()).unwrap_or_default().max(1);
        println!("{histories} histories, {steps} steps, {rate} steps per minute");
    }
    if let Some(failure) = failure {
        panic!("with QUORATE_SIM_SEED={seed}: {failure}");
    }
}
