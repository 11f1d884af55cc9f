//! When the whole database of a running member is read through, and what that proves.
//!
//! The inspection before a start is quick. While etcd runs there is time to read every page and every entry, without etcd's
//! lock. A transaction of bbolt writes to pages that the one before does not use, so what belongs to a transaction stays as it
//! is on disk until another one is complete. Damage is proven only if none was completed meanwhile: otherwise a page may have
//! been used anew while it was on its way to the reader. A reading that finds nothing needs no such proof. A busy etcd completes
//! ten transactions a second, so the database is read in stretches, each judged by itself.

use jiff::{SignedDuration, Timestamp};

use crate::drift::short_number;

/// Each member's database is read through once in this time.
pub const PERIOD: SignedDuration = SignedDuration::from_hours(24);
/// What part of the period passes after a start before the first reading, when everybody has more urgent things to do,
const AFTER_START: i64 = 6;
/// and what part before one that proved nothing is repeated.
const AFTER_DOUBT: i64 = 24;

/// What was seen while a stretch of a database was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What is wrong with what was read.
    pub damage: Option<String>,
    /// The last complete transaction, before and after. Nothing if neither meta page could be read.
    pub transactions: [Option<u64>; 2],
    /// Whether another file took the place of the one that was read, as after defragmentation.
    pub replaced: bool,
}

/// What a reading proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    Sound,
    Damaged(String),
    /// Nothing: try again.
    None,
}

pub fn proof(reading: &Reading) -> Proof {
    let [before, after] = reading.transactions;
    match &reading.damage {
        _ if reading.replaced => Proof::None,
        None => Proof::Sound,
        Some(damage) if before == after => Proof::Damaged(damage.clone()),
        Some(_) => Proof::None,
    }
}

/// What is known of earlier readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// When this etcd was first seen to run.
    pub running_since: Timestamp,
    /// When a reading last proved something.
    pub verified: Option<Timestamp>,
    /// When the last one began that did not, if it is later.
    pub doubted: Option<Timestamp>,
}

/// Whether the database is to be read through now. Members take turns, each at a time of its own that its name decides, so
/// that a thousand clusters do not keep their disks busy all at once.
pub fn is_due(member: &str, history: &History, period: SignedDuration, now: Timestamp) -> bool {
    let period = i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1);
    // A clock that was put back must not put off the next reading: what is still to come says nothing.
    let past = |time: Timestamp| Some(time).filter(|time| *time <= now).map(Timestamp::as_millisecond);
    let running_since = past(history.running_since).unwrap_or(i64::MIN);
    let verified = history.verified.and_then(past).unwrap_or(i64::MIN);
    let doubted = history.doubted.and_then(past).filter(|doubted| *doubted > verified);
    let now = now.as_millisecond();
    if let Some(doubted) = doubted {
        return now.saturating_sub(doubted) >= period / AFTER_DOUBT;
    }
    let earliest = running_since.saturating_add(period / AFTER_START).max(verified);
    let shift = i64::try_from(short_number(member.as_bytes()) % period.unsigned_abs()).unwrap_or_default();
    let turn = |time: i64| time.saturating_sub(shift).div_euclid(period);
    turn(now) > turn(earliest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minutes * 60).unwrap()
    }

    /// When readings take place in the given number of days, looking once a minute, if each proves something.
    fn turns(member: &str, days: i64) -> Vec<i64> {
        let mut history = History { running_since: at(0), verified: None, doubted: None };
        let mut taken = Vec::new();
        for minute in 0..days * 24 * 60 {
            if is_due(member, &history, PERIOD, at(minute)) {
                history.verified = Some(at(minute));
                taken.push(minute);
            }
        }
        taken
    }

    #[test]
    fn each_member_has_one_turn_a_day_and_none_soon_after_its_start() {
        for member in ["a/db-0", "a/db-1", "b/db-0"] {
            let turns = turns(member, 10);
            assert!((9..=10).contains(&turns.len()), "{member}: {turns:?}");
            assert!(turns[0] >= 4 * 60, "{member}: {turns:?}");
            assert!(turns.windows(2).all(|two| two[1] - two[0] == 24 * 60), "{member}: {turns:?}");
        }
    }

    #[test]
    fn a_thousand_members_do_not_read_in_the_same_hour() {
        let mut by_hour = [0; 24];
        for cluster in 0..1000 {
            let first = turns(&format!("team-{cluster}/db-0"), 2)[0];
            by_hour[usize::try_from(first / 60 % 24).unwrap()] += 1;
        }
        assert!(by_hour.iter().all(|members| (20..=70).contains(members)), "{by_hour:?}");
    }

    #[test]
    fn what_proved_nothing_is_tried_again_within_the_hour() {
        let doubted = History { running_since: at(0), verified: Some(at(10)), doubted: Some(at(100)) };
        assert!(!is_due("db-0", &doubted, PERIOD, at(159)));
        assert!(is_due("db-0", &doubted, PERIOD, at(160)));
    }

    #[test]
    fn a_clock_that_was_put_back_does_not_stop_the_readings() {
        let year = 365 * 24 * 60;
        let later = Some(at(year));
        for history in [
            History { running_since: at(0), verified: later, doubted: None },
            History { running_since: at(0), verified: None, doubted: later },
            History { running_since: at(year), verified: None, doubted: None },
        ] {
            assert!((0..2 * 24 * 60).any(|minute| is_due("db-0", &history, PERIOD, at(minute))), "{history:?}");
        }
    }

    #[test]
    fn only_what_was_read_between_two_transactions_proves_damage() {
        let reading = |damage: bool, after: Option<u64>, replaced: bool| Reading {
            damage: damage.then(|| "page 7".to_owned()),
            transactions: [Some(5), after],
            replaced,
        };
        assert_eq!(proof(&reading(true, Some(5), false)), Proof::Damaged("page 7".to_owned()));
        assert_eq!(proof(&reading(true, Some(6), false)), Proof::None);
        assert_eq!(proof(&reading(true, None, false)), Proof::None);
        assert_eq!(proof(&reading(false, Some(6), false)), Proof::Sound);
        for damage in [false, true] {
            assert_eq!(proof(&reading(damage, Some(5), true)), Proof::None, "the file that was read is not in use");
        }
    }
}
