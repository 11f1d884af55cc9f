//! Where all clients write down what they do.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use quorate_etcd::pb::mvcc::KeyValue;

use crate::history::{Change, History, Kv, Moment, Outcome, Stream, Write};

#[derive(Debug)]
pub(crate) struct Recorder {
    origin: Instant,
    history: Mutex<History>,
    acknowledged: AtomicUsize,
    latest: AtomicI64,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        // Two runs on one cluster must not meet.
        let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let prefix = format!("/quorate-ledger/{run:x}-{:x}/", std::process::id());
        Self {
            origin: Instant::now(),
            history: Mutex::new(History { prefix, started: Timestamp::now(), ..History::default() }),
            acknowledged: AtomicUsize::new(0),
            latest: AtomicI64::new(0),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// What is recorded stays true whoever panicked while holding it.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a write down before it is sent: whatever becomes of its caller, it is not forgotten. Until it has an outcome,
    /// that is unknown. The changes are made from its number, so that no value is used twice.
    pub(crate) fn begin(
        &self,
        by: String,
        only_if: Option<i64>,
        changes: impl FnOnce(usize) -> Vec<Change>,
    ) -> Attempt {
        let mut history = self.history();
        let number = history.writes.len();
        let changes = changes(number);
        let write = Write {
            by,
            called: self.now(),
            returned: None,
            changes: changes.clone(),
            only_if,
            outcome: Outcome::Unknown,
        };
        let called = write.called;
        history.writes.push(write);
        Attempt { number, called, changes }
    }

    pub(crate) fn finish(&self, attempt: &Attempt, outcome: Outcome) -> Moment {
        let returned = self.now();
        if let Outcome::Acknowledged(position) = &outcome {
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            self.latest.store(position.revision, Ordering::Relaxed);
        }
        if let Some(write) = self.history().writes.get_mut(attempt.number) {
            write.returned = Some(returned);
            write.outcome = outcome;
        }
        returned
    }

    pub(crate) fn open_stream(&self, stream: Stream) -> usize {
        let mut history = self.history();
        history.streams.push(stream);
        history.streams.len() - 1
    }

    /// What the run could not do, once.
    pub(crate) fn fell_short(&self, sentence: String) {
        let mut history = self.history();
        if !history.shortcomings.contains(&sentence) {
            history.shortcomings.push(sentence);
        }
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// The revision of a recent acknowledged write.
    pub(crate) fn latest(&self) -> i64 {
        self.latest.load(Ordering::Relaxed)
    }

    pub(crate) fn prefix(&self) -> String {
        self.history().prefix.clone()
    }
}

/// A write under way.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) number: usize,
    pub(crate) called: Moment,
    pub(crate) changes: Vec<Change>,
}

pub(crate) fn kv(pair: KeyValue) -> Kv {
    let KeyValue { key, create_revision, mod_revision, version, value, lease } = pair;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Kv { key: text(key), value: text(value), create_revision, mod_revision, version, lease }
}
