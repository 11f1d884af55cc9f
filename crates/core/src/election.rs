//! Which of several candidates acts: the one that holds a Lease.
//!
//! A candidate trusts only its own clock, and only for how long something lasted. It takes the Lease of another when it has
//! seen it unchanged for its whole duration; the times that are written there are another machine's, and are looked at only
//! for whether they change. Its own right ends by itself, before anybody else may begin, unless a renewal succeeds: also
//! when the API server says nothing at all.
//!
//! A process that is frozen between its last look at the clock and its next write wakes up without the right and does not
//! know it. So the right has a number, which grows with each holder: whatever is written to can keep the highest that it has
//! seen and refuse a lower one.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// How long things last. All follow from one number, so that they fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    seconds: u16,
}

impl Terms {
    /// With a Lease that keeps others out for this long after its last renewal.
    pub const fn of_seconds(seconds: u16) -> Self {
        Self { seconds: if seconds == 0 { 1 } else { seconds } }
    }

    pub fn duration(self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// How long a renewal is good for its holder: less than for others, so that it stops before they begin, also if its
    /// clock is slow.
    pub fn held_for(self) -> Duration {
        self.duration() * 5 / 6
    }

    /// How often a holder renews. A request that takes longer has failed: one that hangs must not outlive the right
    /// unnoticed.
    pub fn renew_every(self) -> Duration {
        self.duration() / 3
    }

    fn ask_every(self) -> Duration {
        self.duration() / 6
    }

    /// When to look again.
    pub fn pause_after(self, round: Round) -> Duration {
        match round {
            Round::Held => self.renew_every(),
            Round::Waited | Round::Failed => self.ask_every(),
            Round::Conflict => self.ask_every() / 4,
        }
    }
}

/// How a look at the Lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// It was taken, or renewed.
    Held,
    /// Somebody else holds it.
    Waited,
    /// Somebody else wrote it meanwhile.
    Conflict,
    /// It could not be read or written.
    Failed,
}

/// The right to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    pub until: Instant,
    /// The Lease's `leaseTransitions`: higher than that of every holder before. Somebody who deletes a Lease makes it count
    /// anew.
    pub fencing_number: i32,
}

impl Holding {
    pub fn is_good(&self, now: Instant) -> bool {
        now < self.until
    }
}

/// What to do about the Lease as it was just read.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Write this, on the condition that the Lease has not changed since it was read.
    Claim(LeaseSpec),
    /// Somebody else holds it.
    Wait,
}

/// What one candidate knows about the Lease.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    terms: Terms,
    /// What was last read there, and since when it has been just that before our eyes.
    seen: Option<(Record, Instant)>,
    highest_number: i32,
    held: Option<Holding>,
}

/// What changes when a holder renews.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    /// Empty when it was given back.
    holder: String,
    renewed: Option<Timestamp>,
    transitions: i32,
    seconds: i32,
}

impl Record {
    fn of(spec: Option<&LeaseSpec>) -> Self {
        Self {
            holder: spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default(),
            renewed: spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0),
            transitions: spec.and_then(|spec| spec.lease_transitions).unwrap_or_default(),
            seconds: spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or_default(),
        }
    }

    /// What its holder counts on, which may be of another release than we are.
    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds.try_into().unwrap_or_default())
    }
}

impl Candidate {
    /// No two that live at the same time may have the same identity: who finds its own name in the Lease takes it.
    pub fn new(identity: String, terms: Terms) -> Self {
        Self { identity, terms, seen: None, highest_number: 0, held: None }
    }

    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// `answered` is when the Lease had been read: what changed on the way has not stood still since it was asked for.
    pub fn judge(&mut self, lease: Option<&Lease>, answered: Instant, wall_clock: Timestamp) -> Step {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let (record, since) = match self.seen.take() {
            // Only a human deletes it. Whoever held it still counts on it, and writes it again.
            Some((known, since)) if lease.is_none() || known == Record::of(spec) => (known, since),
            _ => (Record::of(spec), answered),
        };
        let is_free = record.holder.is_empty();
        let is_ours = record.holder == self.identity;
        let stood_still = answered.saturating_duration_since(since) >= self.terms.duration().max(record.duration());
        self.highest_number = self.highest_number.max(record.transitions);
        self.seen = Some((record, since));
        if is_free || is_ours || stood_still {
            let renewed = self.held.filter(|held| is_ours && held.is_good(answered));
            return Step::Claim(self.claimed(spec, renewed, wall_clock));
        }
        self.held = None;
        Step::Wait
    }

    /// A right that ran out is a new one when it comes back, also for the same holder.
    fn claimed(&self, before: Option<&LeaseSpec>, renewed: Option<Holding>, wall_clock: Timestamp) -> LeaseSpec {
        let now = MicroTime(wall_clock);
        let acquired = before.and_then(|spec| spec.acquire_time.clone()).filter(|_| renewed.is_some());
        let number = renewed.map_or(self.highest_number.saturating_add(1), |held| held.fencing_number);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(self.terms.seconds.into()),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(number),
            ..LeaseSpec::default()
        }
    }

    /// To be told when a claim was written. The right counts from before the Lease was `asked` for: answers take their time.
    pub fn written(&mut self, claim: &LeaseSpec, asked: Instant) -> Holding {
        let record = Record::of(Some(claim));
        let held = Holding { until: asked + self.terms.held_for(), fencing_number: record.transitions };
        self.seen = Some((record, asked));
        self.held = Some(held);
        held
    }

    /// Gives up what is held. What to write so that the next one need not wait, if it is still ours.
    pub fn release(&mut self, lease: &Lease) -> Option<LeaseSpec> {
        self.held = None;
        let spec = lease.spec.as_ref()?;
        let is_ours = spec.holder_identity.as_deref() == Some(self.identity.as_str());
        is_ours.then(|| LeaseSpec { holder_identity: None, ..spec.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms::of_seconds(12);

    fn candidate(name: &str) -> Candidate {
        Candidate::new(name.to_owned(), TERMS)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lease(holder: &str, renewed: i64) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Some(MicroTime(at(renewed))),
            lease_transitions: Some(7),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    fn holding(spec: LeaseSpec) -> Lease {
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[expect(clippy::disallowed_methods, reason = "there is no other Instant to begin from")]
    fn beginning() -> Instant {
        Instant::now()
    }

    fn claims(candidate: &mut Candidate, lease: Option<&Lease>, now: Instant) -> LeaseSpec {
        match candidate.judge(lease, now, at(100)) {
            Step::Claim(spec) => spec,
            Step::Wait => panic!("{candidate:?} waits for {lease:?}"),
        }
    }

    fn waits(candidate: &mut Candidate, lease: Option<&Lease>, now: Instant) -> bool {
        candidate.judge(lease, now, at(100)) == Step::Wait
    }

    #[test]
    fn a_lease_that_is_free_or_was_given_back_is_taken_at_once() {
        let now = beginning();
        claims(&mut candidate("a"), None, now);
        claims(&mut candidate("a"), Some(&Lease::default()), now);
        let (mut a, mut b) = (candidate("a"), candidate("b"));
        assert!(waits(&mut a, Some(&lease("b", 0)), now));
        let given_back = b.release(&lease("b", 0)).unwrap();
        claims(&mut a, Some(&holding(given_back)), now);
    }

    #[test]
    fn of_two_that_start_at_once_the_one_that_wrote_second_waits() {
        let start = beginning();
        let (mut a, mut b) = (candidate("a"), candidate("b"));
        let (first, _refused) = (claims(&mut a, None, start), claims(&mut b, None, start));
        assert!(a.written(&first, start).is_good(start));
        assert!(waits(&mut b, Some(&holding(first)), start + TERMS.pause_after(Round::Conflict)));
    }

    #[test]
    fn only_what_is_ours_is_given_back() {
        assert_eq!(candidate("a").release(&lease("b", 0)), None);
        assert_eq!(candidate("a").release(&Lease::default()), None);
    }

    #[test]
    fn a_lease_of_another_is_taken_only_after_it_stood_still_for_its_duration_before_our_eyes() {
        // However old, or far in the future, the written time is: clocks differ.
        for clock in [0, i64::from(u32::MAX)] {
            let start = beginning();
            let mut a = candidate("a");
            assert!(waits(&mut a, Some(&lease("b", clock)), start));
            assert!(waits(&mut a, Some(&lease("b", clock)), start + TERMS.held_for()));
            assert!(waits(&mut a, Some(&lease("b", clock + 1)), start + TERMS.duration()), "it was renewed");
            assert!(waits(&mut a, Some(&lease("b", clock)), start + TERMS.duration() * 2), "its clock was set back");
            claims(&mut a, Some(&lease("b", clock)), start + TERMS.duration() * 3);
        }
    }

    #[test]
    fn a_holder_that_counts_on_a_longer_duration_is_given_that() {
        let start = beginning();
        let mut held = lease("b", 0);
        held.spec.as_mut().unwrap().lease_duration_seconds = Some(60);
        let mut a = candidate("a");
        assert!(waits(&mut a, Some(&held), start));
        assert!(waits(&mut a, Some(&held), start + TERMS.duration() * 2));
        claims(&mut a, Some(&held), start + Duration::from_mins(1));
    }

    #[test]
    fn a_lease_that_somebody_deleted_is_still_its_holders_for_as_long_as_that_may_act() {
        let start = beginning();
        let mut a = candidate("a");
        assert!(waits(&mut a, Some(&lease("b", 0)), start));
        assert!(waits(&mut a, None, start + TERMS.held_for()));
        let taken = claims(&mut a, None, start + TERMS.duration());
        assert_eq!(taken.lease_transitions, Some(8), "it does not count anew");
    }

    #[test]
    fn a_takeover_has_a_higher_number_and_a_renewal_the_same() {
        let start = beginning();
        let mut a = candidate("a");
        assert!(waits(&mut a, Some(&lease("b", 0)), start));
        let taken = claims(&mut a, Some(&lease("b", 0)), start + TERMS.duration());
        assert_eq!((taken.lease_transitions, taken.acquire_time.clone()), (Some(8), Some(MicroTime(at(100)))));
        let asked = start + TERMS.duration();
        assert_eq!(a.written(&taken, asked).fencing_number, 8);
        let Step::Claim(renewed) = a.judge(Some(&holding(taken)), asked + TERMS.renew_every(), at(104)) else {
            panic!()
        };
        assert_eq!((renewed.lease_transitions, renewed.acquire_time), (Some(8), Some(MicroTime(at(100)))));
        assert_eq!(renewed.renew_time, Some(MicroTime(at(104))));
    }

    #[test]
    fn the_next_life_of_a_holder_has_a_higher_number_than_the_last() {
        assert_eq!(claims(&mut candidate("b"), Some(&lease("b", 0)), beginning()).lease_transitions, Some(8));
    }

    #[test]
    fn a_right_ends_while_the_api_is_away_before_others_may_begin_and_comes_back_as_another() {
        let start = beginning();
        let (mut a, mut b) = (candidate("a"), candidate("b"));
        let taken = claims(&mut a, None, start);
        let held = a.written(&taken, start);
        let taken = holding(taken);
        assert!(held.is_good(start) && !held.is_good(start + TERMS.held_for()));
        assert!(waits(&mut b, Some(&taken), start));
        assert!(waits(&mut b, Some(&taken), held.until), "it ended before others may begin");
        let again = claims(&mut a, Some(&taken), held.until);
        assert_eq!(again.lease_transitions, Some(held.fencing_number + 1));
    }

    #[test]
    fn a_right_that_was_taken_away_is_not_renewed() {
        let start = beginning();
        let mut a = candidate("a");
        let taken = claims(&mut a, None, start);
        a.written(&taken, start);
        assert!(waits(&mut a, Some(&lease("b", 0)), start));
        let back = claims(&mut a, Some(&holding(taken)), start);
        assert_eq!(back.lease_transitions, Some(8), "after the 7 of the one between");
    }
}
