//! What is being done, for how long already, and how long it took last time: on a terminal as a live line, elsewhere
//! as plain lines that a log can keep.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a log hears of a step that is still going on.
const REMINDER: Duration = Duration::from_secs(30);

/// One step under way. Dropped without [`Progress::done`], it counts as failed and says nothing more.
#[derive(Debug)]
pub struct Progress {
    what: String,
    began: Instant,
    shown: Option<Shown>,
}

#[derive(Debug)]
enum Shown {
    Live(ProgressBar),
    Lines { stop: mpsc::Sender<()>, reminder: JoinHandle<()> },
}

impl Progress {
    pub fn begin(what: impl Into<String>, last_time: Option<Duration>) -> Self {
        let what = what.into();
        let expected = last_time.map(|time| format!(" (last time {})", short(time))).unwrap_or_default();
        let shown = if stderr().is_terminal() { live(&what, &expected) } else { lines(&what, &expected) };
        Progress { what, began: Instant::now(), shown: Some(shown) }
    }

    /// What the step is busy with right now.
    pub fn note(&self, detail: &str) {
        match &self.shown {
            Some(Shown::Live(bar)) => bar.set_message(format!("{}: {detail}", self.what)),
            _ => say(&format!("  {}: {detail}", self.what)),
        }
    }

    pub fn done(mut self) -> Duration {
        let took = self.began.elapsed();
        self.stop();
        say(&format!("✓ {} in {}", self.what, short(took)));
        took
    }

    fn stop(&mut self) {
        match self.shown.take() {
            Some(Shown::Live(bar)) => bar.finish_and_clear(),
            Some(Shown::Lines { stop, reminder }) => {
                drop(stop);
                let _ = reminder.join();
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop();
    }
}

fn live(what: &str, expected: &str) -> Shown {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}{prefix}") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar.set_prefix(expected.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    Shown::Live(bar)
}

fn lines(what: &str, expected: &str) -> Shown {
    say(&format!("… {what}{expected}"));
    let (stop, stopped) = mpsc::channel::<()>();
    let (what, expected, began) = (what.to_owned(), expected.to_owned(), Instant::now());
    let reminder = thread::spawn(move || {
        while stopped.recv_timeout(REMINDER) == Err(RecvTimeoutError::Timeout) {
            say(&format!("  {what}: {} so far{expected}", short(began.elapsed())));
        }
    });
    Shown::Lines { stop, reminder }
}

/// Progress goes to standard error: standard output belongs to results.
fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

/// `6m30s`, `42s`, `3.1s`
fn short(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 60.. => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds @ 10..60 => format!("{seconds}s"),
        _ => format!("{:.1}s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_precise_as_a_reader_needs() {
        let shown = [390_000, 42_400, 3_140].map(|milliseconds| short(Duration::from_millis(milliseconds)));
        assert_eq!(shown, ["6m30s", "42s", "3.1s"]);
    }
}
