//! Progress on a terminal; silence everywhere else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use quorate_etcd::events::{ChangeEvent, EventError, EventStream};

use crate::printer::Printer;

/// A spinner for work whose length is unknown. It disappears when dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn start(printer: Printer, doing: &'static str) -> Self {
        let bar = if printer.shows_progress() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.set_message(doing);
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A stream of events that shows how far it has come.
#[derive(Debug)]
pub(crate) struct WithProgress<S> {
    stream: S,
    bar: ProgressBar,
    base: i64,
    unseen: u64,
}

impl<S: EventStream> WithProgress<S> {
    /// `last` is the revision the stream is expected to end at.
    pub(crate) fn new(printer: Printer, stream: S, base: i64, last: i64) -> Self {
        let bar = if printer.shows_progress() { ProgressBar::no_length() } else { ProgressBar::hidden() };
        bar.set_length(u64::try_from(last.saturating_sub(base)).unwrap_or_default());
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {percent}% {pos}/{len} revisions, {eta} left") {
            bar.set_style(style);
        }
        Self { stream, bar, base, unseen: 0 }
    }
}

impl<S: EventStream> EventStream for WithProgress<S> {
    fn advance(&mut self) -> Result<bool, EventError> {
        let more = self.stream.advance()?;
        self.unseen += 1;
        // Drawing costs more than an event does.
        if self.unseen >= 1000 {
            self.unseen = 0;
            let done = self.stream.event().mod_revision.saturating_sub(self.base);
            self.bar.set_position(u64::try_from(done).unwrap_or_default());
        }
        Ok(more)
    }

    fn event(&self) -> &ChangeEvent {
        self.stream.event()
    }

    fn finish(&mut self) -> Result<(), EventError> {
        self.stream.finish()
    }
}

impl<S> Drop for WithProgress<S> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
