//! Changes of who the members of etcd are, and what its refusals mean.
//!
//! Nothing is repeated here. Much of what etcd refuses it takes a little later: a learner has to catch up, and members must
//! have been in touch for five seconds before another is added or removed. Messages are compared along with codes, because
//! etcd gives some of its refusals no code of their own.

use quorate_core::action::MemberChange;
use quorate_core::membership::ListAnswer;
use quorate_etcd::client::{Client as EtcdClient, Code};
use quorate_etcd::pb::rpc::maintenance::{AlarmAction, AlarmMember, AlarmType};
use quorate_runtime::error::chain;

use crate::error::Error;

const NOT_LEARNER: &str = "etcdserver: can only promote a learner member";
/// What passes by itself, whatever its code. The last is raft's own.
const PASSING: [&str; 8] = [
    "etcdserver: can only promote a learner member which is in sync with leader",
    "etcdserver: re-configuration failed due to not enough started members",
    "etcdserver: too many learner members in cluster",
    "etcdserver: member ID already exist",
    "etcdserver: not leader",
    "etcdserver: too many requests",
    "etcdserver: revision of auth store is old",
    "raft proposal dropped",
];
/// Followed by the likely cause. A transfer of leadership that took too long has no code of its own.
const TIMED_OUT: &str = "etcdserver: request timed out";

/// Who the members are, as a quorum has just said, and the member that said it.
#[derive(Debug)]
pub struct Confirmed {
    pub list: ListAnswer,
    pub(crate) member: EtcdClient,
}

impl Confirmed {
    /// Asks for one change, once. What is so already counts as done.
    pub async fn change(self, change: &MemberChange) -> Result<(), Error> {
        let what = describe(change);
        let number = |id: &String| {
            let cause = format!("`{id}` is not the identifier of a member");
            u64::from_str_radix(id, 16).map_err(|_| Error::ChangeRefused { what: what.clone(), cause })
        };
        let answer = match change {
            MemberChange::AddLearner { peer_url, .. } => {
                self.member.member_add(vec![peer_url.clone()], true).await.map(drop)
            }
            MemberChange::Promote { id, .. } => self.member.member_promote(number(id)?).await.map(drop),
            MemberChange::Remove { id, .. } => self.member.member_remove(number(id)?).await.map(drop),
            MemberChange::MoveLeader { to_id, .. } => self.member.move_leader(number(to_id)?).await.map(drop),
            MemberChange::DisarmCorrupt { id } => {
                let alarm = AlarmMember { member_id: number(id)?, alarm: AlarmType::Corrupt.into() };
                self.member.alarm(AlarmAction::Deactivate, alarm).await.map(drop)
            }
        };
        let Err(error) = answer else { return Ok(()) };
        if error.is_forbidden() {
            return Err(Error::NotAllowed { what, cause: error.message().unwrap_or_default().to_owned() });
        }
        let cause = chain(&error);
        match meaning(change, error.code(), error.message().unwrap_or_default()) {
            Meaning::Done => Ok(()),
            Meaning::NotYet => Err(Error::NotYet { what, cause }),
            Meaning::Refused => Err(Error::ChangeRefused { what, cause }),
        }
    }
}

fn describe(change: &MemberChange) -> String {
    match change {
        MemberChange::AddLearner { member, peer_url } => format!("add {member} at {peer_url} as a learner"),
        MemberChange::Promote { member, id } => format!("give {member} ({id}) a vote"),
        MemberChange::Remove { member, id } => format!("remove {member} ({id})"),
        MemberChange::MoveLeader { from, to, to_id } => format!("let {to} ({to_id}) lead in place of {from}"),
        MemberChange::DisarmCorrupt { id } => format!("disarm the alarm CORRUPT of the former member {id}"),
    }
}

/// What comes of a call that was not answered with yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Done,
    NotYet,
    Refused,
}

fn meaning(change: &MemberChange, code: Option<Code>, message: &str) -> Meaning {
    match (change, code) {
        (MemberChange::Promote { .. }, _) if message == NOT_LEARNER => Meaning::Done,
        (MemberChange::Remove { .. }, Some(Code::NotFound)) => Meaning::Done,
        // An identifier is made of address and second: within this one it was added, or added and removed, already.
        (MemberChange::AddLearner { .. }, Some(Code::NotFound)) => Meaning::NotYet,
        _ if PASSING.contains(&message) || message.starts_with(TIMED_OUT) => Meaning::NotYet,
        (_, Some(Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)) => Meaning::NotYet,
        _ => Meaning::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add() -> MemberChange {
        MemberChange::AddLearner { member: "db-3".to_owned(), peer_url: "https://db-3:2380".to_owned() }
    }

    fn promote() -> MemberChange {
        MemberChange::Promote { member: "db-3".to_owned(), id: "beef".to_owned() }
    }

    fn remove() -> MemberChange {
        MemberChange::Remove { member: "db-3".to_owned(), id: "beef".to_owned() }
    }

    #[test]
    fn what_is_so_already_counts_as_done_and_only_for_whom_it_was_asked() {
        let gone = (Some(Code::NotFound), "etcdserver: member not found");
        assert_eq!(meaning(&remove(), gone.0, gone.1), Meaning::Done);
        assert_eq!(meaning(&promote(), gone.0, gone.1), Meaning::Refused, "nobody has a vote now");
        assert_eq!(meaning(&add(), gone.0, gone.1), Meaning::NotYet, "the next second gives another identifier");
        let voter = Some(Code::FailedPrecondition);
        assert_eq!(meaning(&promote(), voter, NOT_LEARNER), Meaning::Done);
        let taken = "etcdserver: Peer URLs already exists";
        assert_eq!(meaning(&add(), voter, taken), Meaning::Refused, "it may be somebody else's");
    }

    #[test]
    fn a_learner_that_is_behind_has_no_vote_though_the_refusal_begins_like_that_for_a_voter() {
        let [behind, ..] = PASSING;
        assert!(behind.starts_with(NOT_LEARNER));
        assert_eq!(meaning(&promote(), Some(Code::FailedPrecondition), behind), Meaning::NotYet);
    }

    #[test]
    fn an_answer_that_is_lost_or_a_leader_that_changes_is_no_failure() {
        let unavailable = ["etcdserver: unhealthy cluster", "etcdserver: leader changed", "etcdserver: no leader", ""];
        for message in unavailable {
            assert_eq!(meaning(&remove(), Some(Code::Unavailable), message), Meaning::NotYet, "{message}");
        }
        assert_eq!(meaning(&add(), Some(Code::DeadlineExceeded), ""), Meaning::NotYet);
        let transfer = "etcdserver: request timed out, leader transfer took too long";
        assert_eq!(meaning(&remove(), Some(Code::Unknown), transfer), Meaning::NotYet);
        assert_eq!(meaning(&remove(), Some(Code::DataLoss), "etcdserver: corrupt cluster"), Meaning::Refused);
        assert_eq!(meaning(&remove(), None, ""), Meaning::Refused);
    }
}
