//! Events: what was done and why, for `kubectl describe`.
//!
//! They are sent from the side, so that no pass waits for them, and dropped rather than queued without end: the status
//! says the same.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use quorate_api::EtcdCluster;
use quorate_api::status::EtcdClusterStatus;
use quorate_core::{Action, Reason, Severity};
use tokio::sync::mpsc;

use crate::error::chain;

const QUEUE: usize = 256;
/// The longest note that the API accepts.
const LONGEST_NOTE: usize = 1024;

/// Where events go.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<(Event, ObjectReference)>,
}

impl Events {
    /// Starts the task that sends them. It ends when the last copy of the result is dropped.
    pub fn start(client: Client, instance: String) -> Self {
        let recorder =
            Recorder::new(client, Reporter { controller: "quorate.dev/operator".to_owned(), instance: Some(instance) });
        let (queue, mut waiting) = mpsc::channel::<(Event, ObjectReference)>(QUEUE);
        tokio::spawn(async move {
            while let Some((event, about)) = waiting.recv().await {
                if let Err(error) = recorder.publish(&event, &about).await {
                    tracing::warn!(error = chain(&error), reason = event.reason, "cannot publish an event");
                }
            }
        });
        Self { queue }
    }

    /// Tells what was done in a pass.
    pub fn acted(&self, cluster: &EtcdCluster, done: &[&Action]) {
        of_actions(done).into_iter().for_each(|event| self.send(cluster, event));
    }

    /// Tells that the cluster is now in another phase, or in the same one for another reason.
    pub fn turned(&self, cluster: &EtcdCluster, now: &EtcdClusterStatus) {
        if let Some(event) = of_status(cluster.status.as_ref(), now) {
            self.send(cluster, event);
        }
    }

    fn send(&self, cluster: &EtcdCluster, event: Event) {
        if self.queue.try_send((event, cluster.object_ref(&()))).is_err() {
            tracing::debug!("too many events are waiting; one was dropped");
        }
    }
}

/// One event per reason, which names everything that it was done to.
fn of_actions(done: &[&Action]) -> Vec<Event> {
    let mut targets = BTreeMap::<Reason, Vec<String>>::new();
    for action in done {
        targets.entry(action.reason).or_default().push(action.target());
    }
    let event = |(reason, targets): (Reason, Vec<String>)| {
        let note = format!("{}: {}", targets.join(", "), reason.sentence());
        // Repetitions are counted by what is in here, and not by the note.
        let action = targets.first().filter(|_| targets.len() == 1).cloned();
        build(reason.severity(), reason.as_str(), &note, action.unwrap_or_else(|| format!("{} objects", targets.len())))
    };
    targets.into_iter().map(event).collect()
}

fn of_status(before: Option<&EtcdClusterStatus>, now: &EtcdClusterStatus) -> Option<Event> {
    let reason = now.reason.as_deref()?;
    let is_same = before.is_some_and(|before| before.phase == now.phase && before.reason == now.reason);
    if is_same {
        return None;
    }
    let known = Reason::ALL.iter().find(|known| known.as_str() == reason);
    let severity = known.map_or(Severity::Warning, |known| known.severity());
    let phase = now.phase.map_or_else(String::new, |phase| format!("{phase:?}"));
    Some(build(severity, reason, now.message.as_deref().unwrap_or_default(), phase))
}

fn build(severity: Severity, reason: &str, note: &str, action: String) -> Event {
    Event {
        type_: match severity {
            Severity::Normal => EventType::Normal,
            Severity::Warning => EventType::Warning,
        },
        reason: reason.to_owned(),
        note: Some(note.chars().take(LONGEST_NOTE / 4).collect()),
        action: action.chars().take(128).collect(),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_api::status::ClusterPhase;
    use quorate_core::Effect;

    fn action(reason: Reason, name: &str) -> Action {
        let guard = quorate_core::Guard::None;
        Action { reason, effect: Effect::RestartPod { name: name.to_owned(), guard } }
    }

    #[test]
    fn a_pass_that_makes_many_objects_is_one_event_per_reason() {
        let actions =
            [action(Reason::ObjectMissing, "a"), action(Reason::MemberStuck, "b"), action(Reason::ObjectMissing, "c")];
        let events = of_actions(&actions.iter().collect::<Vec<_>>());
        assert_eq!(events.len(), 2);
        assert!(events[0].note.as_deref().unwrap().starts_with("Pod a, Pod c: "), "{:?}", events[0].note);
        assert_eq!(events[1].type_, EventType::Warning);
    }

    #[test]
    fn a_message_that_counts_is_not_an_event_each_time() {
        let status = |reason: Reason, message: &str| EtcdClusterStatus {
            phase: Some(ClusterPhase::Degraded),
            reason: Some(reason.to_string()),
            message: Some(message.to_owned()),
            ..EtcdClusterStatus::default()
        };
        let before = status(Reason::NotAllMembersReady, "4 of 5");
        assert!(of_status(Some(&before), &status(Reason::NotAllMembersReady, "3 of 5")).is_none());
        assert!(of_status(Some(&before), &status(Reason::QuorumLost, "2 of 5")).is_some());
        assert!(of_status(None, &before).is_some());
    }
}
