//! An EtcdCluster that cannot be read, for example because it was written before an upgrade. It is told so, in its own
//! status, and nobody else is held up.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use quorate_api::EtcdCluster;
use quorate_api::names::labels;
use quorate_runtime::election::Claim;
use serde_json::{Value, json};

use crate::error::Error;

const DEADLINE: Duration = Duration::from_secs(15);

/// Writes the condition, if it is not there yet. Returns whether it wrote.
pub async fn report(client: &Client, claim: &Claim, metadata: &ObjectMeta, defect: &str) -> Result<bool, Error> {
    let what = "report a malformed EtcdCluster";
    let write = async {
        let (Some(name), Some(namespace)) = (&metadata.name, &metadata.namespace) else { return Ok(false) };
        let failed = |source| Error::api(what, source);
        let api =
            Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &ApiResource::erase::<EtcdCluster>(&()));
        let Some(live) = api.get_opt(name).await.map_err(failed)? else { return Ok(false) };
        let generation = live.metadata.generation;
        let Some(status) = status(live.data.get("status"), generation, defect, Timestamp::now()) else {
            return Ok(false);
        };
        claim.check()?;
        let params = PatchParams { field_manager: Some(labels::MANAGER.to_owned()), ..PatchParams::default() };
        let patch = json!({ "metadata": { "resourceVersion": live.metadata.resource_version }, "status": status });
        api.patch_status(name, &params, &Patch::Merge(patch)).await.map_err(failed)?;
        tracing::warn!(name, namespace, defect, "an EtcdCluster cannot be read and is left alone");
        Ok(true)
    };
    let late = Err(Error::Deadline { what: what.to_owned(), limit: DEADLINE });
    tokio::time::timeout(DEADLINE, write).await.unwrap_or(late)
}

/// What to merge into the status; `None` if it says so already. Conditions that can be read stay.
fn status(before: Option<&Value>, generation: Option<i64>, defect: &str, now: Timestamp) -> Option<Value> {
    let message = format!("the object cannot be read: {defect}");
    let before = before.unwrap_or(&Value::Null);
    if before["message"] == message.as_str() && before["observedGeneration"] == json!(generation) {
        return None;
    }
    let known = serde_json::from_value::<Vec<Condition>>(before["conditions"].clone()).unwrap_or_default();
    serde_json::to_value(quorate_core::malformed(&message, generation, known, now)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_api::conditions::{self, ConditionType, Verdict};

    #[test]
    fn it_is_said_once_and_conditions_stay() {
        let now = Timestamp::from_second(100).unwrap();
        let mut ready = Vec::new();
        let verdict = Verdict {
            type_: ConditionType::Ready,
            status: Some(true),
            reason: "Quorate",
            message: String::new(),
            observed_generation: None,
        };
        conditions::set(&mut ready, verdict, now);
        let first = status(Some(&json!({ "conditions": ready })), Some(2), "replicas is a word", now).unwrap();
        let types = first["conditions"].as_array().unwrap().iter().map(|condition| &condition["type"]);
        assert_eq!(types.collect::<Vec<_>>(), ["Ready", "Degraded", "Stalled"]);
        assert_eq!(first["phase"], "Invalid");
        assert_eq!(status(Some(&first), Some(2), "replicas is a word", now), None);
        assert!(status(Some(&first), Some(3), "replicas is a word", now).is_some());
    }
}
