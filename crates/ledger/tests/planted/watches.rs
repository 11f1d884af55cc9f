//! The nine rules of a watch.

use quorate_ledger::{Message, Moment, Rule, StreamMessage};

use crate::story::Story;
use crate::{broken, message_of};

#[test]
fn a_dropped_event_is_found() {
    let mut history = Story::ordinary().end();
    let dropped = message_of(&history.streams[0], 33);
    history.streams[0].messages.remove(dropped);
    assert_eq!(broken(&history), [Rule::WatchReliable]);
}

#[test]
fn a_doubled_event_is_found() {
    let mut history = Story::ordinary().end();
    let doubled = message_of(&history.streams[0], 33);
    let Message::Events { events, .. } = &mut history.streams[0].messages[doubled].body else { panic!() };
    events.push(events[0].clone());
    assert_eq!(broken(&history), [Rule::WatchUnique]);
    let mut history = Story::ordinary().end();
    let again = history.streams[0].messages[doubled].clone();
    history.streams[0].messages.insert(doubled + 4, again);
    assert_eq!(broken(&history), [Rule::WatchOrdered, Rule::WatchUnique]);
}

#[test]
fn events_out_of_order_are_found() {
    let mut history = Story::ordinary().end();
    let one = message_of(&history.streams[0], 33);
    let messages = &mut history.streams[0].messages;
    let (early, late) = (messages[one].at, messages[one + 1].at);
    messages.swap(one, one + 1);
    (messages[one].at, messages[one + 1].at) = (late, Moment(late.0 + 1));
    assert!(early < late);
    assert_eq!(broken(&history), [Rule::WatchOrdered]);
}

#[test]
fn a_transaction_in_two_portions_or_only_half_of_it_is_found() {
    let mut story = Story::ordinary();
    story.put_all(&["pair/left", "pair/right"]);
    let revision = story.revision;
    story.put("once/after");
    let mut history = story.end();
    let pair = message_of(&history.streams[0], revision);
    let Message::Events { events, .. } = &mut history.streams[0].messages[pair].body else { panic!() };
    let right = events.pop().unwrap();
    assert_eq!(broken(&history), [Rule::WatchAtomic]);
    let at = history.streams[0].messages[pair].at;
    let rest = |complete| StreamMessage { at, body: Message::Events { events: vec![right.clone()], complete } };
    history.streams[0].messages.insert(pair + 1, rest(true));
    assert_eq!(broken(&history), [Rule::WatchAtomic]);
    // Announced as a part, it may come in parts.
    let Message::Events { complete, .. } = &mut history.streams[0].messages[pair].body else { panic!() };
    *complete = false;
    assert_eq!(broken(&history), []);
}

#[test]
fn a_watch_that_goes_on_with_a_gap_is_found() {
    let mut history = Story::ordinary().end();
    assert!(history.streams[2].resumed);
    history.streams[2].messages.drain(..3);
    assert_eq!(broken(&history), [Rule::WatchResumable]);
}

#[test]
fn a_watch_that_is_told_what_it_did_not_ask_for_is_found() {
    let mut history = Story::ordinary().end();
    history.streams[2].start += 1;
    assert_eq!(broken(&history), [Rule::WatchResumable]);
    let mut history = Story::ordinary().end();
    history.streams[2].prefix.push_str("pair/");
    assert_eq!(broken(&history), [Rule::WatchFilter]);
}

#[test]
fn a_notice_of_progress_that_comes_too_early_is_found() {
    let mut history = Story::ordinary().end();
    let place = message_of(&history.streams[0], 33);
    let at = history.streams[0].messages[place].at;
    let notice = |revision| StreamMessage { at, body: Message::Progress(revision) };
    history.streams[0].messages.insert(place, notice(32));
    assert_eq!(broken(&history), []);
    history.streams[0].messages[place] = notice(33);
    assert_eq!(broken(&history), [Rule::WatchBookmarkable]);
}

#[test]
fn a_notice_of_progress_with_something_left_out_is_found() {
    let mut history = Story::ordinary().end();
    let last = history.streams[0].messages.pop().unwrap();
    let Message::Events { events, .. } = &last.body else { panic!() };
    // Without the notice, nobody claims that there is nothing more.
    assert_eq!(broken(&history), []);
    let body = Message::Progress(events[0].kv.mod_revision);
    history.streams[0].messages.push(StreamMessage { at: last.at, body });
    assert_eq!(broken(&history), [Rule::WatchReliable]);
}

#[test]
fn a_creation_that_is_called_a_change_is_found() {
    let mut history = Story::ordinary().end();
    let first = message_of(&history.streams[0], 2);
    let Message::Events { events, .. } = &mut history.streams[0].messages[first].body else { panic!() };
    events[0].kv.version = 2;
    assert_eq!(broken(&history), [Rule::WatchCreation]);
}

#[test]
fn a_wrong_or_missing_previous_value_is_found() {
    let mut history = Story::ordinary().end();
    let one = message_of(&history.streams[0], 40);
    let Message::Events { events, .. } = &mut history.streams[0].messages[one].body else { panic!() };
    let event = events.iter_mut().find(|event| event.previous.is_some()).unwrap();
    event.previous.as_mut().unwrap().version += 1;
    assert_eq!(broken(&history), [Rule::WatchPrevious]);
    let Message::Events { events, .. } = &mut history.streams[0].messages[one].body else { panic!() };
    for event in events {
        event.previous = None;
    }
    assert_eq!(broken(&history), [Rule::WatchPrevious]);
}

#[test]
fn a_watch_that_did_not_come_to_the_end_is_found() {
    let mut history = Story::ordinary().end();
    history.shortcomings.push("watcher 3 has not come to revision 106 within 60s".to_owned());
    assert_eq!(broken(&history), [Rule::Ending]);
}
