//! Conditions of an EtcdCluster: their types, and when a change counts as a transition.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The types of condition, in the order they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// The cluster has a quorum and serves requests.
    Ready,
    /// Every member is ready.
    AllMembersReady,
    /// The latest backup succeeded.
    BackupReady,
    /// The latest trial restore of a backup succeeded.
    BackupVerified,
    /// The same as `Progressing`, under the name that Helm and Flux look for.
    Reconciling,
    /// The operator is changing something, or the spec is not in effect yet.
    Progressing,
    /// Something needs attention although requests are served.
    Degraded,
    /// Nothing goes on until a human acts; the message says what to do.
    Stalled,
    /// Acknowledged data was lost; the message says which.
    DataLoss,
}

impl ConditionType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::AllMembersReady => "AllMembersReady",
            Self::BackupReady => "BackupReady",
            Self::BackupVerified => "BackupVerified",
            Self::Reconciling => "Reconciling",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
            Self::Stalled => "Stalled",
            Self::DataLoss => "DataLoss",
        }
    }
}

/// The condition of this type, if it was ever set.
pub fn find(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

/// What a condition should say now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub type_: ConditionType,
    /// `None` is shown as `Unknown`.
    pub status: Option<bool>,
    pub reason: &'static str,
    pub message: String,
    pub observed_generation: Option<i64>,
}

/// Writes a verdict into the list. The transition time moves only when the status itself changes, so that "since when"
/// stays true while messages change.
pub fn set(conditions: &mut Vec<Condition>, verdict: Verdict, now: Timestamp) {
    let Verdict { type_, status, reason, message, observed_generation } = verdict;
    let status = match status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let since = find(conditions, type_)
        .filter(|known| known.status == status)
        .map_or(Time(now), |known| known.last_transition_time.clone());
    let condition = Condition {
        type_: type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation,
        last_transition_time: since,
    };
    match conditions.iter_mut().find(|known| known.type_ == condition.type_) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(status: Option<bool>, message: &str) -> Verdict {
        Verdict {
            type_: ConditionType::Ready,
            status,
            reason: "Quorate",
            message: message.to_owned(),
            observed_generation: Some(1),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        set(&mut conditions, verdict(Some(true), "3 of 3"), at(10));
        set(&mut conditions, verdict(Some(true), "2 of 3"), at(20));
        assert_eq!(conditions.len(), 1);
        assert_eq!((conditions[0].message.as_str(), conditions[0].last_transition_time.0), ("2 of 3", at(10)));
        set(&mut conditions, verdict(None, "1 of 3"), at(30));
        assert_eq!((conditions[0].status.as_str(), conditions[0].last_transition_time.0), ("Unknown", at(30)));
    }
}
