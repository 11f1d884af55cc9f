//! Restores and recoveries: what they may lose is what they said.

use quorate_ledger::{Epoch, Message, Moment, Outcome, ReadKind, Rule, StreamMessage};

use crate::broken;
use crate::story::Story;

/// A recovery that kept everything up to five revisions ago, and says so.
fn recovered(raised_to: i64) -> (Story, Epoch) {
    let mut story = Story::ordinary();
    let (kept, reported_lost) = (story.revision - 5, story.revision);
    story.restore(kept, raised_to);
    for n in 0..20 {
        story.put(&format!("later/{n}"));
        story.put("register/0");
        story.read(ReadKind::Linearizable);
    }
    (story, Epoch { kept, reported_lost })
}

#[test]
fn a_declared_recovery_is_clean() {
    let (mut story, epoch) = recovered(1000);
    story.history.epochs.push(epoch);
    assert_eq!(broken(&story.end()), []);
}

#[test]
fn an_incarnation_that_nobody_declared_is_found() {
    let (story, _) = recovered(1000);
    let rules = broken(&story.end());
    assert!(rules.contains(&Rule::Epochs) && rules.contains(&Rule::NothingLost), "{rules:?}");
}

#[test]
fn a_declared_recovery_that_nobody_saw_is_found() {
    let mut history = Story::ordinary().end();
    history.epochs.push(Epoch { kept: 4000, reported_lost: 5000 });
    history.finals.clear();
    assert_eq!(broken(&history), [Rule::Epochs]);
}

#[test]
fn a_recovery_that_lost_more_than_it_says_is_found() {
    let (mut story, epoch) = recovered(1000);
    story.history.epochs.push(Epoch { reported_lost: epoch.reported_lost - 1, ..epoch });
    assert_eq!(broken(&story.end()), [Rule::Epochs]);
    let (mut story, epoch) = recovered(1000);
    story.history.epochs.push(Epoch { kept: epoch.kept + 2, ..epoch });
    assert!(broken(&story.end()).contains(&Rule::NothingLost));
}

#[test]
fn a_recovery_may_have_kept_what_it_reported_as_perhaps_lost() {
    for fewer in 1..10 {
        let (mut story, epoch) = recovered(1000);
        story.history.epochs.push(Epoch { kept: epoch.kept - fewer, ..epoch });
        assert_eq!(broken(&story.end()), [], "{fewer} fewer");
    }
}

#[test]
fn a_survivor_may_have_what_nobody_acknowledged_at_the_revision_of_what_was() {
    let mut story = Story::ordinary();
    let kept = story.revision;
    let unknown = story.begin(&["register/0"], false);
    story.put("once/lost");
    story.restore(kept, kept);
    story.apply(unknown);
    story.raise(1000);
    story.read(ReadKind::Linearizable);
    story.put("register/0");
    story.history.epochs.push(Epoch { kept, reported_lost: kept + 1 });
    assert_eq!(broken(&story.end()), []);
}

#[test]
fn a_key_that_nothing_touched_since_is_there_after_a_recovery_or_it_was_lost() {
    let (mut story, epoch) = recovered(1000);
    story.history.epochs.push(epoch);
    let mut history = story.end();
    let untouched = history.finals[0].found.iter().position(|kv| kv.key.ends_with("once/3")).unwrap();
    history.finals[0].found.remove(untouched);
    assert_eq!(broken(&history), [Rule::NothingLost]);
    // One that was deleted by what was lost is there as it was, or not at all.
    let (mut story, epoch) = (Story::ordinary(), Story::ordinary().revision);
    story.delete("once/3");
    story.history.epochs.push(Epoch { kept: epoch, reported_lost: 1000 });
    story.restore(epoch, 1000);
    story.put("later/0");
    let mut history = story.end();
    assert_eq!(broken(&history), []);
    let deleted = history.finals[0].found.iter().position(|kv| kv.key.ends_with("once/3")).unwrap();
    history.finals.iter_mut().for_each(|last| _ = last.found.remove(deleted));
    assert_eq!(broken(&history), []);
    history.finals[0].found.remove(deleted);
    assert_eq!(broken(&history), [Rule::NothingLost]);
}

#[test]
fn a_recovery_that_does_not_raise_the_revision_is_found() {
    let (mut story, epoch) = recovered(Story::ordinary().revision - 1);
    story.history.epochs.push(epoch);
    let mut history = story.end();
    assert_eq!(broken(&history), [Rule::Epochs]);
    history.streams.clear();
    assert_eq!(broken(&history), [Rule::Epochs]);
}

#[test]
fn a_watch_that_goes_on_after_a_recovery_without_a_word_is_found() {
    let (mut story, epoch) = recovered(1000);
    story.history.epochs.push(epoch);
    let mut history = story.end();
    let old = epoch.reported_lost - 3;
    history.streams[4].start = old;
    assert_eq!(broken(&history), [Rule::Epochs]);
    // Told to list anew, all is well.
    let at = history.streams[4].messages[0].at;
    history.streams[4].messages = vec![StreamMessage { at, body: Message::Compacted(1000) }];
    assert_eq!(broken(&history), []);
}

#[test]
fn an_incarnation_that_goes_on_beside_its_successor_is_found() {
    let (mut story, epoch) = recovered(1000);
    story.history.epochs.push(epoch);
    let mut history = story.end();
    let position = |history: &quorate_ledger::History, n: usize| history.writes[n].outcome.clone();
    let last_before = history.writes.iter().rposition(|write| write.outcome == position(&history, 104)).unwrap();
    history.writes[last_before].called = history.stopped;
    history.writes[last_before].returned = Some(Moment(history.stopped.0 + 1));
    assert!(matches!(history.writes[last_before].outcome, Outcome::Acknowledged(_)));
    assert!(broken(&history).contains(&Rule::Epochs));
}

#[test]
fn a_member_left_behind_in_the_incarnation_before_is_found() {
    let (mut story, epoch) = recovered(1000);
    story.history.epochs.push(epoch);
    let mut history = story.end();
    history.finals[2].at = quorate_ledger::Position { cluster: crate::story::CLUSTER, revision: 1 };
    history.finals[2].found.clear();
    history.finals[2].hash = None;
    assert_eq!(broken(&history), [Rule::Epochs]);
}
