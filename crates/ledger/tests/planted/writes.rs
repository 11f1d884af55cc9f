//! Writes, reads, and what is there at the end.

use quorate_ledger::{Lease, Message, Moment, Outcome, ReadKind, Rule, Scope};

use crate::broken;
use crate::story::{CLUSTER, PREFIX, Story};

#[test]
fn an_acknowledged_write_that_is_gone_at_the_end_is_found() {
    let mut history = Story::ordinary().end();
    history.finals[2].found.remove(3);
    assert_eq!(broken(&history), [Rule::NothingLost]);
}

#[test]
fn an_acknowledged_write_that_no_watch_reported_and_no_read_showed_is_found() {
    let mut story = Story::ordinary();
    let lost = story.begin(&["once/lost"], false);
    story.revision += 1;
    story.acknowledge(lost);
    story.put("once/after");
    let mut history = story.end();
    // The watch that broke off knows where it was.
    history.streams[2].start = history.streams[2].start.min(60);
    let rules = broken(&history);
    assert!(rules.contains(&Rule::NothingLost) && rules.contains(&Rule::WatchReliable), "{rules:?}");
}

#[test]
fn a_revision_that_was_given_twice_is_found() {
    let mut story = Story::ordinary();
    story.revision -= 1;
    story.put("once/again");
    let rules = broken(&story.end());
    assert!(rules.contains(&Rule::OneWritePerRevision) && rules.contains(&Rule::RealTimeOrder), "{rules:?}");
}

#[test]
fn a_revision_of_which_two_clients_were_told_different_things_is_found() {
    let mut history = Story::ordinary().end();
    let Message::Events { events, .. } = &mut history.streams[0].messages[30].body else { panic!() };
    events[0].kv.lease = 77;
    assert_eq!(broken(&history), [Rule::OneWritePerRevision]);
}

#[test]
fn a_write_with_a_lower_revision_than_one_before_it_is_found() {
    let mut story = Story::ordinary();
    let (first, second) = (story.put("once/first"), story.put("once/second"));
    let mut history = story.end();
    let outcome = history.writes[first].outcome.clone();
    history.writes[first].outcome = std::mem::replace(&mut history.writes[second].outcome, outcome);
    history.streams.clear();
    assert!(broken(&history).contains(&Rule::RealTimeOrder));
}

#[test]
fn a_linearizable_read_of_an_older_state_is_found() {
    let mut story = Story::ordinary();
    story.read(ReadKind::Linearizable);
    let stale = story.history.reads.len() - 1;
    story.put("once/new");
    let mut history = story.end();
    // The same answer, to a question that was asked after the write.
    let (called, returned) = (history.stopped, Moment(history.stopped.0 + 1));
    (history.reads[stale].called, history.reads[stale].returned) = (called, returned);
    assert_eq!(broken(&history), [Rule::RealTimeOrder]);
    // As far as one member had come, it is the truth.
    history.reads[stale].kind = ReadKind::Serializable;
    assert_eq!(broken(&history), []);
}

#[test]
fn a_read_that_hides_or_changes_something_is_found() {
    for read in [0, 40, 74] {
        let mut history = Story::ordinary().end();
        history.reads[read].found.pop();
        assert_eq!(broken(&history), [Rule::ReadsAreTrue]);
        let mut history = Story::ordinary().end();
        history.reads[read].found[0].version += 1;
        assert_eq!(broken(&history), [Rule::ReadsAreTrue]);
    }
}

#[test]
fn a_read_that_shows_what_was_not_asked_for_is_found() {
    let mut history = Story::ordinary().end();
    history.reads[40].scope = Scope::Prefix(format!("{PREFIX}once/"));
    assert_eq!(broken(&history), [Rule::ReadsAreTrue]);
}

#[test]
fn a_member_that_lacks_what_others_have_is_found_though_nobody_was_told_that_it_was_done() {
    let mut story = Story::ordinary();
    let unknown = story.begin(&["once/unknown"], false);
    story.apply(unknown);
    let mut history = story.end();
    history.finals[1].found.retain(|kv| !kv.key.ends_with("once/unknown"));
    assert_eq!(broken(&history), [Rule::Ending]);
}

#[test]
fn a_write_of_unknown_fate_may_have_been_done_or_not_but_not_twice() {
    for times in 0..3 {
        let mut story = Story::ordinary();
        let unknown = story.begin(&["register/7"], false);
        for _ in 0..times {
            story.apply(unknown);
            story.put("register/7");
        }
        story.put("once/after");
        let expected: &[Rule] = if times == 2 { &[Rule::AtMostOnce] } else { &[] };
        assert_eq!(broken(&story.end()), expected, "{times} times");
    }
}

#[test]
fn a_deletion_of_unknown_fate_explains_one_deletion_and_no_more() {
    for times in 0..3 {
        let mut story = Story::ordinary();
        story.put("register/7");
        let unknown = story.begin(&["register/7"], true);
        for _ in 0..times {
            story.apply(unknown);
            story.put("register/7");
        }
        let expected: &[Rule] = if times == 2 { &[Rule::NothingUnasked] } else { &[] };
        assert_eq!(broken(&story.end()), expected, "{times} times");
    }
}

#[test]
fn a_write_of_unknown_fate_that_was_done_before_it_was_asked_for_is_found() {
    let mut story = Story::ordinary();
    let early = story.begin(&["once/early"], false);
    story.apply(early);
    story.put("once/after");
    let mut history = story.end();
    history.writes[early].called = history.stopped;
    assert_eq!(broken(&history), [Rule::RealTimeOrder]);
}

#[test]
fn half_a_transaction_of_unknown_fate_is_found() {
    let mut story = Story::ordinary();
    let unknown = story.begin(&["pair/left", "pair/right"], false);
    let both = story.history.writes[unknown].changes.clone();
    story.history.writes[unknown].changes.truncate(1);
    story.apply(unknown);
    story.history.writes[unknown].changes = both;
    assert_eq!(broken(&story.end()), [Rule::WatchAtomic]);
}

#[test]
fn a_write_that_failed_for_certain_and_was_done_all_the_same_is_found() {
    for outcome in [Outcome::Failed, Outcome::Declined] {
        let mut story = Story::ordinary();
        let failed = story.begin(&["once/failed"], false);
        story.history.writes[failed].outcome = outcome;
        story.apply(failed);
        assert_eq!(broken(&story.end()), [Rule::NothingUnasked]);
    }
}

#[test]
fn what_nobody_wrote_is_found() {
    let mut story = Story::ordinary();
    let ghost = story.begin(&["once/ghost"], false);
    story.apply(ghost);
    let mut history = story.end();
    history.writes.pop();
    assert_eq!(broken(&history), [Rule::NothingUnasked]);
}

#[test]
fn a_transaction_that_was_done_though_its_comparison_failed_is_found() {
    let mut story = Story::ordinary();
    let done = story.compare_and_put("register/0");
    let mut history = story.end();
    *history.writes[done].only_if.as_mut().unwrap() -= 1;
    assert_eq!(broken(&history), [Rule::Comparisons]);
}

#[test]
fn a_transaction_that_was_declined_though_its_comparison_held_is_found() {
    let mut story = Story::ordinary();
    story.read(ReadKind::Linearizable);
    let read = story.history.reads.last_mut().unwrap();
    read.not_changed_at = Some(read.found[0].mod_revision);
    assert_eq!(broken(&story.end()), [Rule::Comparisons]);
}

#[test]
fn members_with_other_hashes_are_found_unless_they_compacted_differently() {
    let mut history = Story::ordinary().end();
    history.finals[1].hash = Some((8, 0));
    assert_eq!(broken(&history), [Rule::Ending]);
    history.finals[1].hash = Some((8, 30));
    assert_eq!(broken(&history), []);
}

#[test]
fn a_lease_that_is_gone_or_outlives_its_revocation_is_found() {
    let mut history = Story::ordinary().end();
    let by = "a writer".to_owned();
    let lease = Lease { by, id: 5, cluster: CLUSTER, granted: Moment(9), revocation: None };
    let revoked = Lease { id: 6, revocation: Some(history.writes[0].outcome.clone()), ..lease.clone() };
    history.leases = vec![lease, revoked];
    for (held, expected) in [(vec![5], vec![]), (vec![], vec![Rule::Leases]), (vec![6, 5], vec![Rule::Leases])] {
        history.finals[0].leases = Some(held);
        assert_eq!(broken(&history), expected);
    }
}

#[test]
fn nothing_is_held_against_a_cluster_where_writes_of_unknown_fate_were_out_of_sight() {
    let mut story = Story::ordinary();
    story.put("register/7");
    let unknown = story.begin(&["register/7"], true);
    story.apply(unknown);
    story.put("once/after");
    let mut history = story.end();
    // No watch was there: all were told that the past is compacted, and began anew.
    for stream in &mut history.streams {
        stream.messages.clear();
    }
    assert_eq!(broken(&history), []);
    let key = format!("{PREFIX}once/after");
    history.finals[0].found.retain(|kv| kv.key != key);
    assert_eq!(broken(&history), [Rule::NothingLost]);
}
