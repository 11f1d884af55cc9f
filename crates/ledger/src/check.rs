//! What a history must show, whatever happened to the cluster meanwhile.
//!
//! Every change that was acknowledged, reported by a watch or shown by a read carries a revision, so the order of all
//! changes is known without a search: they are sorted, replayed, and everything that clients were told is held against
//! that. Nothing here takes longer than sorting does.

mod epochs;
mod leases;
mod log;
mod order;
mod reads;
mod replay;
mod watches;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::History;

/// How many sentences one rule may take: an anomaly breaks a rule a thousand times over.
const SENTENCES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// What was acknowledged and not overwritten is there at the end, on every member.
    NothingLost,
    /// A revision is one write, everywhere and for ever.
    OneWritePerRevision,
    /// What nobody asked for, or what failed for certain, is never seen.
    NothingUnasked,
    /// No write has an effect twice, whatever its caller was told.
    AtMostOnce,
    /// What begins after something was known comes after it.
    RealTimeOrder,
    /// A read shows what the writes up to its revision have made.
    ReadsAreTrue,
    /// A transaction is done if and only if its comparison holds.
    Comparisons,
    /// A watch delivers what was asked for and nothing else.
    WatchFilter,
    /// In the order of revisions.
    WatchOrdered,
    /// Nothing twice.
    WatchUnique,
    /// A revision at once.
    WatchAtomic,
    /// After a notice of progress, nothing from before it.
    WatchBookmarkable,
    /// One that goes on from a revision gets everything from there.
    WatchResumable,
    /// No gap.
    WatchReliable,
    /// Creations are told from changes.
    WatchCreation,
    /// What was there before is told truly.
    WatchPrevious,
    /// A restore says what it lost, raises the revision, ends old watches, and ends the incarnation before.
    Epochs,
    /// A lease lives from its grant to its revocation.
    Leases,
    /// Members are equal, can be read, and watches have come as far as the writes.
    Ending,
}

/// One broken rule, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

#[derive(Debug, Default)]
struct Findings {
    counts: BTreeMap<Rule, usize>,
    list: Vec<Violation>,
}

impl Findings {
    fn add(&mut self, rule: Rule, what: impl FnOnce() -> String) {
        let count = self.counts.entry(rule).or_default();
        *count += 1;
        if *count <= SENTENCES {
            self.list.push(Violation { rule, what: what() });
        }
    }

    fn finish(mut self) -> Vec<Violation> {
        for (rule, count) in self.counts {
            if count > SENTENCES {
                let what = format!("{} more of this kind", count - SENTENCES);
                self.list.push(Violation { rule, what });
            }
        }
        self.list.sort_by_key(|violation| violation.rule);
        self.list
    }
}

/// Every rule that this history breaks.
pub fn check(history: &History) -> Vec<Violation> {
    let mut findings = Findings::default();
    let epochs = epochs::Epochs::of(history, &mut findings);
    let known = order::Known::of(history, &epochs);
    let log = log::Log::of(history, &epochs, &known, &mut findings);
    let replays = replay::Replay::of_all(history, &epochs, &log);
    epochs::check(history, &epochs, &mut findings);
    order::check(history, &known, &log, &mut findings);
    reads::check(history, &epochs, &known, &log, &replays, &mut findings);
    watches::check(history, &epochs, &log, &replays, &mut findings);
    leases::check(history, &epochs, &mut findings);
    for sentence in &history.shortcomings {
        findings.add(Rule::Ending, || sentence.clone());
    }
    findings.finish()
}
