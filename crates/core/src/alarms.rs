//! Alarms of etcd, as its members tell of them in their reports.

use std::collections::BTreeSet;

use crate::context::{Context, Member, MemberFacts};

/// etcd has found by itself that a member's data is not what the others have. Until it is disarmed, all of them refuse most
/// requests.
pub(crate) const CORRUPT: &str = "CORRUPT";

/// An alarm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alarm<'a> {
    pub name: &'a str,
    /// The member that it is about, in hexadecimal. Without one it is about all of them.
    pub member_id: Option<String>,
}

impl<'a> Alarm<'a> {
    /// etcd writes `memberID:123 alarm:NOSPACE`, with a decimal number, and in the same list other complaints that pass by
    /// themselves.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        let (before, name) = text.rsplit_once("alarm:").unwrap_or(("", text));
        let name = name.trim();
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase());
        let number = before.rsplit_once("memberID:").and_then(|(_, number)| number.trim().parse::<u64>().ok());
        let member_id = number.filter(|number| *number != 0).map(|number| format!("{number:x}"));
        is_name.then_some(Self { name, member_id })
    }

    pub(crate) fn is_corrupt(&self) -> bool {
        self.name == CORRUPT
    }
}

/// Members, by identifier, of which etcd says that their data is corrupt. Only those are heard that belong to this cluster and
/// speak now: what one that is gone has said last may have been disarmed since, and nobody would ever take it back.
pub(crate) fn corrupt(context: &Context<'_>) -> BTreeSet<String> {
    let is_heard = |member: &&Member<'_>| !context.is_stranger(member) && member.heartbeat.is_alive(context.now);
    let ours = context.members.iter().filter(is_heard);
    let raised = ours.flat_map(|member| MemberFacts::alarms(member));
    raised.filter(Alarm::is_corrupt).filter_map(|alarm| alarm.member_id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(&str, Option<String>)> {
        Alarm::read(text).map(|alarm| (alarm.name, alarm.member_id))
    }

    #[test]
    fn the_number_in_an_alarm_is_decimal_and_identifiers_are_not() {
        assert_eq!(read("memberID:255 alarm:CORRUPT "), Some(("CORRUPT", Some("ff".to_owned()))));
        assert_eq!(read("memberID:255  alarm:NOSPACE"), Some(("NOSPACE", Some("ff".to_owned()))));
        assert_eq!(read("memberID:18446744073709551615 alarm:CORRUPT"), Some(("CORRUPT", Some("f".repeat(16)))));
    }

    #[test]
    fn an_alarm_without_a_member_is_about_all_and_a_passing_complaint_is_none() {
        for text in ["alarm:CORRUPT ", "memberID:0 alarm:CORRUPT", "CORRUPT"] {
            assert_eq!(read(text), Some(("CORRUPT", None)), "{text}");
        }
        assert_eq!(read("etcdserver: no leader"), None);
    }
}
