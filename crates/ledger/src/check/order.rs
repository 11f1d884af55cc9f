//! Real time: what was known before a call began comes before it.

use super::epochs::{Epochs, acknowledgements};
use super::log::Log;
use super::{Findings, Rule};
use crate::history::{History, Message, Moment};

/// The highest revision that some client had been told of, at every moment, in each epoch.
#[derive(Debug)]
pub(super) struct Known {
    epochs: Vec<Vec<(Moment, i64)>>,
}

impl Known {
    pub(super) fn of(history: &History, epochs: &Epochs<'_>) -> Self {
        let mut known: Vec<Vec<(Moment, i64)>> = vec![Vec::new(); epochs.count()];
        for (_, position, at) in acknowledgements(history) {
            known[epochs.number(position.cluster)].push((at, position.revision));
        }
        for read in &history.reads {
            known[epochs.number(read.at.cluster)].push((read.returned, read.at.revision));
        }
        for stream in &history.streams {
            let told = &mut known[epochs.number(stream.cluster)];
            for message in &stream.messages {
                let revision = match &message.body {
                    Message::Events { events, .. } => events.iter().map(|event| event.kv.mod_revision).max(),
                    Message::Progress(revision) => Some(*revision),
                    Message::Compacted(_) => None,
                };
                told.extend(revision.map(|revision| (message.at, revision)));
            }
        }
        for told in &mut known {
            told.sort_unstable();
            let mut highest = 0;
            for (_, revision) in told {
                highest = highest.max(*revision);
                *revision = highest;
            }
        }
        Self { epochs: known }
    }

    /// Before this moment; 0 if nothing was.
    pub(super) fn before(&self, epoch: usize, moment: Moment) -> i64 {
        let told = &self.epochs[epoch];
        let earlier = told.partition_point(|(at, _)| *at < moment);
        earlier.checked_sub(1).map_or(0, |n| told[n].1)
    }
}

pub(super) fn check(history: &History, known: &Known, log: &Log<'_>, findings: &mut Findings) {
    for (write, place) in history.writes.iter().zip(&log.places) {
        let Some((epoch, revision)) = *place else { continue };
        let before = known.before(epoch, write.called);
        if revision <= before {
            findings.add(Rule::RealTimeOrder, || {
                format!(
                    "the write that {} began at {} is revision {revision}, but {before} was known before",
                    write.by, write.called
                )
            });
        }
    }
}
