//! Why a member has not answered: it could not be reached, it does not let the operator ask, or anything else.
//!
//! The three call for different acts: somebody opens a way, somebody gives a right, or it passes by itself.

use std::collections::BTreeMap;

use quorate_core::hashes::{DataHash, HashAnswer};
use quorate_core::membership::ListAnswer;
use quorate_etcd::client::ClientError;
use quorate_runtime::error::chain;

/// A member that was asked, and why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    pub member: String,
    pub why: Why,
    /// With all that is known, for logs.
    pub cause: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No connection came about.
    OutOfReach,
    /// Authentication is enabled, and the operator may not ask this. In etcd's words.
    Forbidden(String),
    /// Too few of the others are there, it takes too long, it is not believed.
    Other,
}

impl Unanswered {
    pub(crate) fn new(member: &str, error: &ClientError) -> Self {
        let why = match error.message() {
            Some(said) if error.is_forbidden() => Why::Forbidden(said.to_owned()),
            _ if error.is_out_of_reach() => Why::OutOfReach,
            _ => Why::Other,
        };
        Self { member: member.to_owned(), why, cause: chain(error) }
    }

    pub(crate) fn other(member: &str, cause: impl Into<String>) -> Self {
        Self { member: member.to_owned(), why: Why::Other, cause: cause.into() }
    }
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.member, self.cause)
    }
}

/// All of them, in a line.
pub(crate) fn listed(failures: &[Unanswered]) -> String {
    match failures {
        [] => "no member has an address yet".to_owned(),
        some => some.iter().map(Unanswered::to_string).collect::<Vec<_>>().join("; "),
    }
}

/// What etcd says about the right that is missing, if one is. All members have the same users.
pub(crate) fn forbidden(failures: &[Unanswered]) -> Option<&str> {
    failures.iter().find_map(|failure| match &failure.why {
        Why::Forbidden(said) => Some(said.as_str()),
        Why::OutOfReach | Why::Other => None,
    })
}

/// What it means for the core that nobody has listed the members.
pub(crate) fn list_answer(failures: &[Unanswered]) -> ListAnswer {
    match forbidden(failures) {
        Some(said) => ListAnswer::Refused { cause: said.to_owned() },
        None if failures.is_empty() => ListAnswer::Failed,
        None if failures.iter().all(|failure| failure.why == Why::OutOfReach) => ListAnswer::OutOfReach,
        None => ListAnswer::Failed,
    }
}

/// A hash over the data of each member, or why there is none. By member.
pub type Hashes = BTreeMap<String, Result<DataHash, Unanswered>>;

/// While a right is given or taken, some members know of it already: that is no refusal yet.
pub(crate) fn hash_answer(hashes: Hashes) -> HashAnswer {
    let failures = hashes.values().filter_map(|answer| answer.as_ref().err().cloned()).collect::<Vec<_>>();
    match forbidden(&failures) {
        Some(said) if failures.len() == hashes.len() => HashAnswer::Refused(said.to_owned()),
        _ => {
            let causes = hashes.into_iter().map(|(name, answer)| (name, answer.map_err(|failure| failure.cause)));
            HashAnswer::Answered(causes.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn because(why: Why) -> Unanswered {
        Unanswered { member: "db-0".to_owned(), why, cause: "it is so".to_owned() }
    }

    fn forbidden() -> Unanswered {
        because(Why::Forbidden("etcdserver: permission denied".to_owned()))
    }

    #[test]
    fn a_closed_way_is_called_one_only_if_no_member_at_all_could_be_reached() {
        let (closed, other) = (because(Why::OutOfReach), because(Why::Other));
        assert_eq!(list_answer(&[closed.clone(), closed.clone()]), ListAnswer::OutOfReach);
        assert_eq!(list_answer(&[closed.clone(), other]), ListAnswer::Failed, "one was reached and has no quorum");
        assert_eq!(list_answer(&[]), ListAnswer::Failed, "nobody was asked");
        let cause = "etcdserver: permission denied".to_owned();
        assert_eq!(list_answer(&[closed, forbidden()]), ListAnswer::Refused { cause }, "one has spoken for all");
    }

    #[test]
    fn hashes_are_refused_only_if_no_member_gives_one() {
        let found = DataHash {
            cluster_id: "c".to_owned(),
            member_id: "a".to_owned(),
            revision: 1,
            compact_revision: 0,
            hash: 7,
        };
        let both = |second| Hashes::from([("db-0".to_owned(), Err(forbidden())), ("db-1".to_owned(), second)]);
        assert!(matches!(hash_answer(both(Ok(found))), HashAnswer::Answered(_)));
        let refused = hash_answer(both(Err(because(Why::Other))));
        assert_eq!(refused, HashAnswer::Refused("etcdserver: permission denied".to_owned()));
    }
}
