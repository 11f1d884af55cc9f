//! What a run has shown.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::check::{Violation, check};
use crate::history::{History, Message, Moment, Outcome};

/// With fewer acknowledged writes, nothing that is missing would have been missed.
const FEWEST: usize = 50;

/// A stretch in which no write was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub length: Duration,
    /// When it began.
    pub from: Timestamp,
}

#[derive(Clone, Debug)]
pub struct Verdict {
    pub acknowledged: usize,
    /// Writes of which nobody was told what became of them.
    pub unknown: usize,
    /// Writes that changed nothing for certain, those that were declined included.
    pub failed: usize,
    pub reads: usize,
    pub events: usize,
    /// Between the first acknowledged write and the end.
    pub longest_pause: Option<Pause>,
    /// Why the run says nothing, if so.
    pub void: Option<String>,
    pub violations: Vec<Violation>,
    /// What all of this was found in.
    pub history: History,
}

impl Verdict {
    pub fn of(history: History) -> Self {
        let count = |wanted: fn(&Outcome) -> bool| history.writes.iter().filter(|write| wanted(&write.outcome)).count();
        let acknowledged = count(|outcome| matches!(outcome, Outcome::Acknowledged(_)));
        let messages = history.streams.iter().flat_map(|stream| &stream.messages);
        let events = messages.map(|message| match &message.body {
            Message::Events { events, .. } => events.len(),
            Message::Progress(_) | Message::Compacted(_) => 0,
        });
        Self {
            acknowledged,
            unknown: count(|outcome| *outcome == Outcome::Unknown),
            failed: count(|outcome| matches!(outcome, Outcome::Failed | Outcome::Declined)),
            reads: history.reads.len(),
            events: events.sum(),
            longest_pause: longest_pause(&history),
            void: (acknowledged < FEWEST)
                .then(|| format!("only {acknowledged} writes were acknowledged; it takes {FEWEST} to say anything")),
            violations: check(&history),
            history,
        }
    }

    /// Nothing is wrong, and that means something.
    pub fn is_clean(&self) -> bool {
        self.void.is_none() && self.violations.is_empty()
    }
}

fn longest_pause(history: &History) -> Option<Pause> {
    let acknowledged = history.writes.iter().filter(|write| matches!(write.outcome, Outcome::Acknowledged(_)));
    let mut moments: Vec<Moment> = acknowledged.filter_map(|write| write.returned).collect();
    moments.push(history.stopped.max(moments.iter().copied().min()?));
    moments.sort_unstable();
    let pauses = moments.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[0]));
    let (length, from) = pauses.max()?;
    let from = history.started.checked_add(from.since_start()).unwrap_or(history.started);
    Some(Pause { length: Duration::from_nanos(length), from })
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, unknown, failed, reads, events, .. } = self;
        write!(
            f,
            "{acknowledged} writes acknowledged, {unknown} unknown, {failed} without effect; {reads} reads, {events} events"
        )?;
        if let Some(Pause { length, from }) = &self.longest_pause {
            write!(f, "; longest pause {:.3} s from {from}", length.as_secs_f64())?;
        }
        if let Some(void) = &self.void {
            write!(f, "\nvoid: {void}")?;
        }
        self.violations.iter().try_for_each(|violation| write!(f, "\n{violation}"))
    }
}
