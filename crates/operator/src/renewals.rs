//! When members were last heard of, by this operator's own clock.
//!
//! A member writes the time of a renewal from its node's clock. To compare that with the clock here would make a node that
//! runs late look dead, and one that runs ahead live too long. Between two renewals of one member only its own clock counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher::Event;
use quorate_core::lease::Heartbeat;

/// How long a member that is met for the first time has to be heard of. More than the time between two renewals, and so
/// little that one that died just before is missed in time.
const PROBATION: SignedDuration = SignedDuration::from_secs(5);

/// How a renewal came to our knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By a watch, as it happened.
    Told,
    /// By a list or a read, some time after it happened.
    Found,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    /// By the member's clock.
    renewed: Timestamp,
    /// By ours.
    at: Timestamp,
    duration: SignedDuration,
}

type Place = (Option<String>, Option<String>);

/// What is known of all members in one scope.
#[derive(Clone, Debug, Default)]
pub struct Renewals {
    known: Arc<Mutex<HashMap<Place, Heard>>>,
}

impl Renewals {
    /// Follows the watch of Leases.
    pub fn on(&self, event: &Event<Lease>, now: Timestamp) {
        match event {
            Event::Apply(lease) => drop(self.saw(lease, Source::Told, now)),
            Event::InitApply(lease) => drop(self.saw(lease, Source::Found, now)),
            Event::Delete(lease) => drop(self.lock().remove(&place(lease))),
            Event::Init | Event::InitDone => {}
        }
    }

    /// Takes note of a Lease, and says when its latest renewal was heard of.
    pub fn saw(&self, lease: &Lease, source: Source, now: Timestamp) -> Option<Timestamp> {
        let heartbeat = Heartbeat::read(lease);
        let renewed = heartbeat.renewed?;
        let mut known = self.lock();
        let at = heard(known.get(&place(lease)), renewed, heartbeat.duration, source, now);
        known.insert(place(lease), Heard { renewed, at, duration: heartbeat.duration });
        Some(at)
    }

    /// When the member of this Lease was last heard of.
    pub fn last(&self, lease: &Lease) -> Option<Timestamp> {
        self.lock().get(&place(lease)).map(|heard| heard.at)
    }

    /// Until when the member of a Lease counts as heard of.
    pub fn expires(&self, namespace: &str, name: &str) -> Option<Timestamp> {
        let place = (Some(namespace.to_owned()), Some(name.to_owned()));
        let heard = self.lock().get(&place).copied()?;
        heard.at.checked_add(heard.duration).ok()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Place, Heard>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(lease: &Lease) -> Place {
    (lease.metadata.namespace.clone(), lease.metadata.name.clone())
}

fn heard(
    known: Option<&Heard>,
    renewed: Timestamp,
    duration: SignedDuration,
    source: Source,
    now: Timestamp,
) -> Timestamp {
    match known {
        Some(known) if known.renewed == renewed => known.at,
        Some(_) if source == Source::Told => now,
        // As much later as the member's own clock says, and never in the future.
        Some(known) => known.at.checked_add(renewed.duration_since(known.renewed)).unwrap_or(now).min(now),
        None if now.duration_since(renewed) >= duration => renewed,
        None => now.checked_add(PROBATION - duration).unwrap_or(now).min(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lease(renewed: i64) -> Lease {
        let spec = LeaseSpec {
            lease_duration_seconds: Some(10),
            renew_time: Some(MicroTime(at(renewed))),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    /// Seconds for which the member still counts as alive.
    fn left(renewals: &Renewals, renewed: i64, source: Source, now: i64) -> i64 {
        let heard = renewals.saw(&lease(renewed), source, at(now)).unwrap();
        10 - at(now).duration_since(heard).as_secs()
    }

    #[test]
    fn a_skewed_clock_neither_shortens_nor_lengthens_a_members_life() {
        for skew in [-3600, -8, 0, 8, 3600] {
            let renewals = Renewals::default();
            left(&renewals, 1000 + skew, Source::Told, 1000);
            assert_eq!(left(&renewals, 1003 + skew, Source::Told, 1003), 10, "{skew}");
            assert_eq!(left(&renewals, 1003 + skew, Source::Told, 1009), 4, "seen again is not renewed again");
        }
    }

    #[test]
    fn a_renewal_that_is_found_late_counts_from_when_it_happened() {
        for skew in [-3600, 0, 3600] {
            let renewals = Renewals::default();
            left(&renewals, 1000 + skew, Source::Told, 1000);
            left(&renewals, 1003 + skew, Source::Told, 1003);
            // The watch is silent; a read at 1030 finds the renewal of 1027, and one at 1040 nothing newer.
            assert_eq!(left(&renewals, 1027 + skew, Source::Found, 1030), 7, "{skew}");
            assert_eq!(left(&renewals, 1027 + skew, Source::Found, 1040), -3, "{skew}");
        }
    }

    #[test]
    fn after_a_start_a_member_that_died_is_missed_in_time_and_one_that_lives_has_time_to_show() {
        for found_after in 0..60 {
            let left = left(&Renewals::default(), 1000, Source::Found, 1000 + found_after);
            assert!(left <= 0 || found_after + left < 15, "found {found_after} s after its last word");
        }
        let ahead = Renewals::default();
        assert_eq!(left(&ahead, 5000, Source::Found, 1000), 5, "a clock that is ahead earns nothing");
        let fresh = Renewals::default();
        assert!(left(&fresh, 1000, Source::Found, 1000) > 4, "more than the time between two renewals");
    }
}
