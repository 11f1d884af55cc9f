//! The checker on histories into which an anomaly was planted, and on the same ones without.

#![cfg(test)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod epochs;
mod random;
mod story;
mod watches;
mod writes;

use std::collections::BTreeSet;

use quorate_ledger::{History, Message, Rule, Stream, Verdict, check};
use story::Story;

/// The rules that a history breaks, each once.
fn broken(history: &History) -> Vec<Rule> {
    let rules: BTreeSet<Rule> = check(history).into_iter().map(|violation| violation.rule).collect();
    rules.into_iter().collect()
}

/// The number of the message with this revision.
fn message_of(stream: &Stream, revision: i64) -> usize {
    let is_it = |message: &quorate_ledger::StreamMessage| match &message.body {
        Message::Events { events, .. } => events[0].kv.mod_revision == revision,
        _ => false,
    };
    stream.messages.iter().position(is_it).unwrap()
}

#[test]
fn a_sound_history_is_clean() {
    let verdict = Verdict::of(Story::ordinary().end());
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!((verdict.acknowledged, verdict.unknown, verdict.failed, verdict.reads), (105, 0, 0, 75));
    assert_eq!(verdict.events, 2 * (105 + 25));
}

#[test]
fn a_run_with_too_few_acknowledged_writes_is_void() {
    let mut story = Story::new();
    (0..49).for_each(|n| _ = story.put(&format!("once/{n}")));
    let verdict = Verdict::of(story.end());
    assert!(verdict.violations.is_empty() && !verdict.is_clean(), "{verdict}");
    assert!(verdict.to_string().contains("void: only 49 writes"), "{verdict}");
}

#[test]
fn the_longest_pause_is_found_with_its_time() {
    let mut story = Story::ordinary();
    let before = story.moment();
    (0..1000).for_each(|_| _ = story.moment());
    story.put("once/late");
    let pause = Verdict::of(story.end()).longest_pause.unwrap();
    assert_eq!(pause.length.as_millis(), 1004);
    let began = u64::try_from(pause.from.as_nanosecond()).unwrap();
    assert!(began < before.0 && before.0 - began < 2_000_000, "{pause:?}");
}

#[test]
fn a_history_that_was_saved_gives_the_same_verdict() {
    let mut history = Story::ordinary().end();
    history.streams[0].messages.remove(7);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.json");
    history.save(&path).unwrap();
    assert_eq!(check(&History::load(&path).unwrap()), check(&history));
}

#[test]
fn a_thousand_broken_rules_of_one_kind_are_a_few_sentences() {
    let mut history = Story::ordinary().end();
    history.finals[1].found.clear();
    let violations = check(&history);
    assert_eq!(violations.len(), 6);
    assert!(violations[5].to_string().contains("more of this kind"), "{violations:?}");
}

#[test]
fn a_million_records_are_checked() {
    let mut story = Story::new();
    for n in 0..200_000 {
        story.put(&format!("once/{n}"));
    }
    let mut history = story.end();
    let events = history.streams[0].messages.len();
    assert!(history.writes.len() + 2 * events + 3 * history.finals[0].found.len() >= 1_000_000);
    assert_eq!(broken(&history), []);
    history.streams[0].messages.remove(100_000);
    assert_eq!(broken(&history), [Rule::WatchReliable]);
}
