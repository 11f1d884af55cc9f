//! What benches print.
#![expect(clippy::print_stdout, reason = "benches print")]

use std::time::Duration;

/// The median and the worst of several runs.
pub fn runs(what: &str, mut taken: Vec<Duration>) {
    taken.sort();
    let (Some(median), Some(worst)) = (taken.get(taken.len() / 2), taken.last()) else { return };
    let (median, worst) = (median.as_secs_f64(), worst.as_secs_f64());
    println!("{what:<66} median {median:6.2} s, worst {worst:6.2} s ({} runs)", taken.len());
}
