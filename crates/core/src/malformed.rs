//! An object that does not even parse: written before an upgrade, or past the API server's checks.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quorate_api::conditions::{self, ConditionType, Verdict};
use quorate_api::status::ClusterPhase;
use serde::Serialize;

use crate::reason::Reason;

/// What to merge into the status of such an object. Everything else in it stays, above all the latch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MalformedStatus {
    pub observed_generation: Option<i64>,
    pub phase: ClusterPhase,
    pub reason: Reason,
    pub message: String,
    pub conditions: Vec<Condition>,
}

/// `known` are the conditions that could be read.
pub fn malformed(error: &str, generation: Option<i64>, known: Vec<Condition>, now: Timestamp) -> MalformedStatus {
    let mut conditions = known;
    for type_ in [ConditionType::Degraded, ConditionType::Stalled] {
        let verdict = Verdict {
            type_,
            status: Some(true),
            reason: Reason::SpecInvalid.as_str(),
            message: error.to_owned(),
            observed_generation: generation,
        };
        conditions::set(&mut conditions, verdict, now);
    }
    // Nobody looks at the members any more, so what was true of them may not be.
    for type_ in [ConditionType::Ready, ConditionType::AllMembersReady] {
        if type_ != ConditionType::Ready && conditions::find(&conditions, type_).is_none() {
            continue;
        }
        let verdict = Verdict {
            type_,
            status: None,
            reason: Reason::SpecInvalid.as_str(),
            message: Reason::SpecInvalid.sentence().to_owned(),
            observed_generation: generation,
        };
        conditions::set(&mut conditions, verdict, now);
    }
    MalformedStatus {
        observed_generation: generation,
        phase: ClusterPhase::Invalid,
        reason: Reason::SpecInvalid,
        message: error.to_owned(),
        conditions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_wrong_and_touches_nothing_else() {
        let status = malformed("spec.replicas: expected a number", Some(3), Vec::new(), Timestamp::UNIX_EPOCH);
        let patch = serde_json::to_value(&status).unwrap();
        assert_eq!((&patch["phase"], &patch["reason"]), (&"Invalid".into(), &"SpecInvalid".into()));
        assert_eq!(patch["conditions"][0]["type"], "Degraded");
        assert_eq!(patch.as_object().unwrap().len(), 5, "nothing else, above all no latch");
    }

    #[test]
    fn a_cluster_that_nobody_looks_at_is_not_called_ready() {
        let mut known = Vec::new();
        let verdict = Verdict {
            type_: ConditionType::Ready,
            status: Some(true),
            reason: Reason::Quorate.as_str(),
            message: String::new(),
            observed_generation: None,
        };
        conditions::set(&mut known, verdict, Timestamp::UNIX_EPOCH);
        let status = malformed("spec.replicas: expected a number", Some(3), known, Timestamp::UNIX_EPOCH);
        let ready = conditions::find(&status.conditions, ConditionType::Ready).unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("Unknown", "SpecInvalid"));
    }
}
