//! The nine rules of a watch.

use std::collections::HashMap;

use super::epochs::Epochs;
use super::log::{Entry, Log};
use super::replay::Replay;
use super::{Findings, Rule};
use crate::history::{Event, History, Message, Outcome, Stream};

/// The last revision that a stream has delivered wholly, or the one before its start.
pub(super) fn delivered_to(stream: &Stream) -> i64 {
    let told = stream.messages.iter().filter_map(|message| match &message.body {
        Message::Events { events, complete } => events.last().map(|last| last.kv.mod_revision - i64::from(!complete)),
        Message::Progress(revision) => Some(*revision),
        Message::Compacted(_) => None,
    });
    told.max().unwrap_or_default().max(stream.start - 1)
}

pub(super) fn check(
    history: &History,
    epochs: &Epochs<'_>,
    log: &Log<'_>,
    replays: &[Replay<'_, '_>],
    findings: &mut Findings,
) {
    let mut owed: HashMap<(usize, &str), Vec<Entry<'_>>> = HashMap::new();
    for stream in &history.streams {
        let epoch = epochs.number(stream.cluster);
        check_arrival(stream, findings);
        check_content(stream, log, &replays[epoch], compacted(history, stream.cluster), findings);
        let owed = owed.entry((epoch, &stream.prefix)).or_insert_with(|| {
            let mine = |entry: &&Entry<'_>| log.names[entry.key as usize].starts_with(stream.prefix.as_str());
            log.epochs[epoch].iter().filter(mine).copied().collect()
        });
        check_completeness(stream, log, owed, findings);
    }
    check_unknown_transactions(history, log, replays, findings);
}

fn events(stream: &Stream) -> impl Iterator<Item = &Event> {
    stream.messages.iter().flat_map(|message| match &message.body {
        Message::Events { events, .. } => &events[..],
        Message::Progress(_) | Message::Compacted(_) => &[],
    })
}

/// What, in which order, in which portions.
fn check_arrival(stream: &Stream, findings: &mut Findings) {
    let (mut last, mut bookmark, mut continues) = (0, 0, false);
    for message in &stream.messages {
        let (events, complete) = match &message.body {
            Message::Events { events, complete } => (events, *complete),
            Message::Progress(revision) => {
                bookmark = bookmark.max(*revision);
                continue;
            }
            Message::Compacted(_) => continue,
        };
        let before = last;
        for event in events {
            let (key, revision) = (&event.kv.key, event.kv.mod_revision);
            let what = || format!("{} was told at {} of revision {revision} of {key}", stream.by, message.at);
            if !key.starts_with(stream.prefix.as_str()) {
                findings.add(Rule::WatchFilter, || format!("{}, but asked for {} only", what(), stream.prefix));
            }
            if revision < stream.start {
                findings.add(Rule::WatchResumable, || format!("{}, but asked from {} on", what(), stream.start));
            }
            if revision < last {
                findings.add(Rule::WatchOrdered, || format!("{}, after {last}", what()));
            }
            if revision == before && !continues {
                findings.add(Rule::WatchAtomic, || format!("{}, of which it had been told before", what()));
            }
            if revision <= bookmark {
                findings.add(Rule::WatchBookmarkable, || {
                    format!("{}, after it had been told that all up to {bookmark} was delivered", what())
                });
            }
            last = last.max(revision);
        }
        continues = !complete;
    }
}

/// Up to which revision an incarnation has forgotten what was before.
fn compacted(history: &History, cluster: u64) -> i64 {
    let of_cluster = history.finals.iter().filter(|last| last.at.cluster == cluster);
    of_cluster.filter_map(|last| last.hash).map(|(_, compacted)| compacted).max().unwrap_or_default()
}

/// What each event says about its key now and before. etcd leaves out what was before if that is compacted when it tells.
fn check_content(stream: &Stream, log: &Log<'_>, replay: &Replay<'_, '_>, compacted: i64, findings: &mut Findings) {
    for event in events(stream) {
        let (name, revision) = (&event.kv.key, event.kv.mod_revision);
        let Some(key) = log.number(name) else { continue };
        let now = replay.at(key, revision).filter(|state| state.revision == revision && state.value.is_some());
        if let Some(state) = now
            && !event.deleted
            && !state.is_as_old_as(&event.kv)
        {
            findings.add(Rule::WatchCreation, || {
                let (created, version) = (event.kv.create_revision, event.kv.version);
                format!(
                    "{} was told that revision {revision} of {name} is version {version} since {created}; it is {} since {}",
                    stream.by, state.version, state.create_revision
                )
            });
        }
        let before = replay.expected(key, revision - 1);
        let is_forgotten = event.previous.is_none() && revision <= compacted;
        if is_forgotten || before.admits(event.previous.as_ref()) {
            continue;
        }
        findings.add(Rule::WatchPrevious, || {
            let told = event.previous.as_ref().map(|kv| (kv.value.as_str(), kv.mod_revision));
            let truth = before.state.map(|state| (state.value.unwrap_or_default(), state.revision));
            format!("{} was told that {name} was {told:?} before revision {revision}; it was {truth:?}", stream.by)
        });
    }
}

/// Everything from its start to where it has come, each once.
fn check_completeness(stream: &Stream, log: &Log<'_>, owed: &[Entry<'_>], findings: &mut Findings) {
    let mut delivered: Vec<(i64, u32)> =
        events(stream).filter_map(|event| Some((event.kv.mod_revision, log.number(&event.kv.key)?))).collect();
    delivered.sort_unstable();
    for pair in delivered.windows(2) {
        if pair[0] == pair[1] {
            let (revision, name) = (pair[0].0, log.names[pair[0].1 as usize]);
            findings
                .add(Rule::WatchUnique, || format!("{} was told twice of revision {revision} of {name}", stream.by));
        }
    }
    let first = delivered.first().map_or(i64::MAX, |(revision, _)| *revision);
    let end = delivered_to(stream);
    let begin = owed.partition_point(|entry| entry.revision < stream.start);
    let mut delivered = delivered.into_iter().peekable();
    for entry in owed[begin..].iter().take_while(|entry| entry.revision <= end) {
        let place = (entry.revision, entry.key);
        let mut part_came = false;
        while let Some(next) = delivered.next_if(|next| *next < place) {
            part_came = next.0 == entry.revision;
        }
        if delivered.peek() == Some(&place) {
            continue;
        }
        part_came |= delivered.peek().is_some_and(|next| next.0 == entry.revision);
        let rule = if part_came {
            Rule::WatchAtomic
        } else if stream.resumed && entry.revision < first {
            Rule::WatchResumable
        } else {
            Rule::WatchReliable
        };
        findings.add(rule, || {
            let name = log.names[entry.key as usize];
            format!(
                "{}, from {} on and told of all up to {end}, was not told of revision {} of {name}",
                stream.by, stream.start, entry.revision
            )
        });
    }
}

/// A transaction whose caller knows nothing of it was done wholly, if it was done.
fn check_unknown_transactions(history: &History, log: &Log<'_>, replays: &[Replay<'_, '_>], findings: &mut Findings) {
    for (write, place) in history.writes.iter().zip(&log.places) {
        let (Some((epoch, revision)), Outcome::Unknown) = (*place, &write.outcome) else { continue };
        if !replays[epoch].covers(revision, revision) {
            continue;
        }
        for change in &write.changes {
            let there = log.number(&change.key).and_then(|key| replays[epoch].at(key, revision));
            if there.is_none_or(|state| state.revision != revision) {
                findings.add(Rule::WatchAtomic, || {
                    format!("revision {revision} is a transaction of {}, and leaves {} out", write.by, change.key)
                });
            }
        }
    }
}
