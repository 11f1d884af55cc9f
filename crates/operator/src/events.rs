//! Events: what was done and why, for `kubectl describe`.
//!
//! They are sent from the side, so that no pass waits for them, and dropped rather than queued without end: the status
//! says the same.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use quorate_api::EtcdCluster;
use quorate_core::{Action, Reason, Severity};
use quorate_runtime::error::chain;
use tokio::sync::mpsc;

const QUEUE: usize = 256;
const DEADLINE: Duration = Duration::from_secs(15);
/// The longest note that the API accepts.
const LONGEST_NOTE: usize = 1024;
const LONGEST_ACTION: usize = 128;

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
                // One that hangs would be the last.
                match tokio::time::timeout(DEADLINE, recorder.publish(&event, &about)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::warn!(error = chain(&error), reason = event.reason, "cannot publish an event");
                    }
                    Err(_) => tracing::warn!(reason = event.reason, "cannot publish an event in time"),
                }
            }
        });
        Self { queue }
    }

    /// Tells what was done in a pass.
    pub fn acted(&self, cluster: &EtcdCluster, done: &[&Action]) {
        for event in of_actions(done) {
            self.send(cluster, event);
        }
    }

    /// Tells what a new status says.
    pub fn changed(&self, cluster: &EtcdCluster, changes: &[quorate_core::Event]) {
        changes.iter().map(of_change).for_each(|event| self.send(cluster, event));
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
        build(reason.severity(), reason.as_str(), &note, &targets.join(", "))
    };
    targets.into_iter().map(event).collect()
}

fn of_change(change: &quorate_core::Event) -> Event {
    let reason = change.reason;
    build(reason.severity(), reason.as_str(), &change.message, &change.message)
}

fn build(severity: Severity, reason: &str, note: &str, action: &str) -> Event {
    Event {
        type_: match severity {
            Severity::Normal => EventType::Normal,
            Severity::Warning => EventType::Warning,
        },
        reason: reason.to_owned(),
        note: Some(shortened(note, LONGEST_NOTE)),
        action: shortened(action, LONGEST_ACTION),
        secondary: None,
    }
}

fn shortened(text: &str, bytes: usize) -> String {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_core::Effect;
    use quorate_core::action::MemberChange;
    use quorate_core::read::Endpoints;

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
    fn each_change_of_members_is_told_once_and_names_the_member() {
        let change = |reason: Reason, change: MemberChange| {
            let via = Endpoints { members: Vec::new(), client_port: 2379, encrypted: true };
            Action { reason, effect: Effect::ChangeMembers { change, via, guard: quorate_core::Guard::None } }
        };
        let (from, to, to_id) = ("db-2".to_owned(), "db-0".to_owned(), "a".to_owned());
        let moved = change(Reason::LeaderMoved, MemberChange::MoveLeader { from, to, to_id });
        let (member, id) = ("db-2".to_owned(), "c".to_owned());
        let removed = change(Reason::MemberRemoved, MemberChange::Remove { member, id });
        let told = of_actions(&[&moved, &removed]).into_iter().map(|event| (event.reason, event.note, event.action));
        let target = "etcd member db-2".to_owned();
        let once = [Reason::MemberRemoved, Reason::LeaderMoved].map(|reason| {
            let note = format!("{target}: {}", reason.sentence());
            (reason.as_str().to_owned(), Some(note), target.clone())
        });
        assert_eq!(told.collect::<Vec<_>>(), once);
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        assert_eq!(shortened("aé", 2), "a");
        assert_eq!(shortened("aé", 9), "aé");
    }
}
