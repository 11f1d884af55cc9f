//! What was put aside on a member's volume, and when it goes.
//!
//! It may be the only copy of something, so it stays: until somebody asks for it to go, by name, or until the room is needed
//! and it is known to be superseded. Names tell when, to the millisecond, so a wish that was forgotten on its object never
//! concerns what is put aside later. That is why there is no way to ask for all of it.

use quorate_api::member::{VolumeReport, VolumeState};

use crate::volume::{Room, report};

/// How the names of such directories begin.
pub const PREFIX: &str = "quarantine-";
/// How the name of one ends that is being removed.
const REMOVING: &str = ".removing";
/// What follows [`PREFIX`], with a digit for every zero.
const TIME: &str = "00000000T000000.000Z";
/// So many are named in a report.
const MOST_NAMES: usize = 5;

/// A directory in which something was put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    pub name: String,
    /// What it takes of the volume.
    pub bytes: i64,
    /// Whether it is known to hold nothing but what this very member had in the present incarnation: all of that, the
    /// others have too, or it never counted. What an earlier incarnation has left may be missing in this one, and what is
    /// somebody else's is not for us to judge.
    pub superseded: bool,
}

/// What is asked for, and what is needed.
#[derive(Clone, Copy, Debug)]
pub struct Need<'a> {
    /// Names of what is to go, as the user wrote them: with commas or spaces between.
    pub asked: &'a str,
    /// Where the data of a new incarnation is being made. It goes by no means.
    pub in_the_making: Option<&'a str>,
    pub room: Room,
    /// What was last reported about the room.
    pub before: Option<VolumeState>,
    /// Whether the member is a voter that serves, on data against which nothing is known, and no recovery is under way.
    pub voter: bool,
}

/// Whether something was put aside under this name. Nothing that is called in any other way is ever removed.
pub fn is_aside(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|time| {
        time.len() == TIME.len()
            && time.bytes().zip(TIME.bytes()).all(|(is, wanted)| match wanted {
                b'0' => is.is_ascii_digit(),
                wanted => is == wanted,
            })
    })
}

/// What it is called while it is being removed, so that whoever finds half of it knows what it is.
pub fn removing(name: &str) -> String {
    format!("{name}{REMOVING}")
}

/// Whether a removal was cut short here.
pub fn is_half_removed(name: &str) -> bool {
    name.strip_suffix(REMOVING).is_some_and(is_aside)
}

/// The names of what goes: what is asked for, and of the rest the oldest, as many as the room needs.
pub fn discarded(asides: &[Aside], need: &Need<'_>) -> Vec<String> {
    let is_asked = |aside: &Aside| need.asked.split([',', ' ']).any(|name| name == aside.name);
    let mut asides = asides.iter().filter(|aside| is_aside(&aside.name)).collect::<Vec<_>>();
    asides.retain(|aside| need.in_the_making != Some(aside.name.as_str()));
    asides.sort_by(|one, other| one.name.cmp(&other.name));
    let (mut goes, rest) = asides.into_iter().partition::<Vec<_>, _>(|aside| is_asked(aside));
    let state = report(&need.room, need.before).state;
    let is_short = |goes: &[&Aside]| {
        let freed = goes.iter().fold(0_i64, |freed, aside| freed.saturating_add(aside.bytes));
        let then = Room { free: need.room.free.saturating_add(freed), ..need.room };
        report(&then, Some(state)).state != VolumeState::Ample
    };
    for aside in rest.into_iter().filter(|aside| need.voter && aside.superseded) {
        if !is_short(&goes) {
            break;
        }
        goes.push(aside);
    }
    goes.into_iter().map(|aside| aside.name.clone()).collect()
}

/// The report, with the names of what could be asked to go.
#[must_use]
pub fn told(report: VolumeReport, asides: &[Aside]) -> VolumeReport {
    if asides.is_empty() {
        return report;
    }
    let more = asides.len().saturating_sub(MOST_NAMES);
    let named = asides.iter().take(MOST_NAMES).map(|aside| format!("{} ({} MiB)", aside.name, aside.bytes >> 20));
    let named = named.collect::<Vec<_>>().join(", ");
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let said = format!("moved aside: {named}{rest}");
    let reason = match report.reason {
        Some(reason) => format!("{reason}; {said}"),
        None => said,
    };
    VolumeReport { reason: Some(reason), ..report }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIBIBYTE: i64 = 1 << 30;
    const NAMES: [&str; 3] =
        ["quarantine-20260101T000000.000Z", "quarantine-20260201T000000.000Z", "quarantine-20260201T000000.001Z"];

    /// One gibibyte each, newest first.
    fn asides() -> Vec<Aside> {
        let aside = |name: &&str| Aside { name: (*name).to_owned(), bytes: GIBIBYTE, superseded: true };
        NAMES.iter().rev().map(aside).collect()
    }

    /// A volume of ten gibibytes of which so many percent are used.
    fn used(percent: i64) -> Need<'static> {
        let room =
            Room { size: 10 * GIBIBYTE, free: 10 * GIBIBYTE / 100 * (100 - percent), reserve: 0, reservable: false };
        Need { asked: "", in_the_making: None, room, before: Some(VolumeState::Ample), voter: true }
    }

    #[test]
    fn nothing_goes_while_there_is_room_and_nobody_asks() {
        assert_eq!(discarded(&asides(), &used(79)), [""; 0]);
    }

    #[test]
    fn for_room_the_oldest_go_first_and_only_as_many_as_it_takes() {
        assert_eq!(discarded(&asides(), &used(82)), NAMES[..1]);
        assert_eq!(discarded(&asides(), &used(90)), NAMES[..2]);
        assert_eq!(discarded(&asides(), &used(100)), NAMES, "not enough, and still of use");
        let was_filling = Need { before: Some(VolumeState::Filling), ..used(76) };
        assert_eq!(discarded(&asides(), &was_filling), NAMES[..1], "it is still said to be filling");
    }

    #[test]
    fn a_member_that_has_no_vote_yet_or_does_not_serve_gives_nothing_up_for_room() {
        assert_eq!(discarded(&asides(), &Need { voter: false, ..used(99) }), [""; 0]);
    }

    #[test]
    fn what_an_earlier_incarnation_or_somebody_else_has_left_never_goes_for_room() {
        let mut asides = asides();
        asides[2].superseded = false;
        assert_eq!(discarded(&asides, &used(82)), NAMES[1..2]);
        for aside in &mut asides {
            aside.superseded = false;
        }
        assert_eq!(discarded(&asides, &used(99)), [""; 0]);
        assert_eq!(discarded(&asides, &Need { asked: NAMES[0], ..used(10) }), NAMES[..1], "but when asked for");
    }

    #[test]
    fn what_is_asked_for_goes_in_any_case_and_counts_for_the_room() {
        let both = format!("{}, {}", NAMES[2], NAMES[0]);
        let asked = Need { asked: &both, voter: false, ..used(10) };
        assert_eq!(discarded(&asides(), &asked), [NAMES[0], NAMES[2]]);
        assert_eq!(discarded(&asides(), &Need { asked: NAMES[2], ..used(82) }), NAMES[2..], "that is room enough");
        for nothing in ["all", "*", "quarantine-", "quarantine-20260101T000000.000", "data", " ,"] {
            assert_eq!(discarded(&asides(), &Need { asked: nothing, ..used(10) }), [""; 0], "{nothing}");
        }
    }

    #[test]
    fn where_a_new_incarnation_is_made_nothing_goes() {
        let need = Need { asked: NAMES[0], in_the_making: Some(NAMES[0]), ..used(99) };
        assert_eq!(discarded(&asides(), &need), NAMES[1..]);
    }

    #[test]
    fn only_names_that_were_given_here_are_known() {
        for name in NAMES {
            assert!(is_aside(name) && !is_half_removed(name), "{name}");
            assert!(is_half_removed(&removing(name)) && !is_aside(&removing(name)), "{name}");
        }
        let others = ["data", "quarantine-", "quarantine-1", "quarantine-../../etc/passwd.000Z", "quorate.removing"];
        let similar = ["quarantine-20260101T000000.000Zx", "xquarantine-20260101T000000.000Z", "quarantine-.removing"];
        for name in others.into_iter().chain(similar) {
            assert!(!is_aside(name) && !is_half_removed(name), "{name}");
            let aside = Aside { name: name.to_owned(), bytes: GIBIBYTE, superseded: true };
            assert_eq!(discarded(&[aside], &Need { asked: name, ..used(99) }), [""; 0], "{name}");
        }
    }

    #[test]
    fn a_report_names_what_could_go() {
        let ample = VolumeReport { state: VolumeState::Ample, reason: None };
        assert_eq!(told(ample.clone(), &[]), ample);
        let said = told(ample.clone(), &asides()).reason.unwrap();
        assert!(said.starts_with(&format!("moved aside: {} (1024 MiB), ", NAMES[2])), "{said}");
        let full = VolumeReport { state: VolumeState::Full, reason: Some("no room".to_owned()) };
        let said = told(full, &[asides(), asides()].concat()).reason.unwrap();
        assert!(said.starts_with("no room; moved aside") && said.ends_with(" and 1 more"), "{said}");
    }
}
