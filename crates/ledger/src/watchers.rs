//! Clients that watch: some hold on to one member, some keep breaking off and go on elsewhere from where they were.

use std::sync::Arc;
use std::time::Duration;

use quorate_etcd::client::{Watch, WatchMessage, prefix_end};
use quorate_etcd::pb::mvcc::{Event as EtcdEvent, EventType};
use quorate_etcd::pb::rpc::watch::WatchCreateRequest;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::endpoints::{BREATH, Route};
use crate::history::{Event, Kv, Message, ReadKind, Scope, Stream, StreamMessage};
use crate::readers::read;
use crate::recorder::{Recorder, kv};

/// How long those that keep breaking off hold on.
const RESTLESS: Duration = Duration::from_millis(700);

#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) name: String,
    pub(crate) route: Route,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) prefix: String,
    pub(crate) restless: bool,
    /// The first revision of all.
    pub(crate) first: i64,
    /// The revision after which there is nothing to wait for, once it is known.
    pub(crate) end: watch::Receiver<Option<i64>>,
}

enum Ended {
    /// It came as far as there is to come.
    Done,
    /// The connection or the member gave up, or this client did.
    Broken,
    /// The member no longer has what was asked for.
    Compacted,
}

impl Watcher {
    pub(crate) async fn run(mut self) {
        let (mut next, mut resumed) = (self.first, false);
        loop {
            let Some((member, client)) = self.route.next(&self.recorder) else {
                sleep(BREATH).await;
                continue;
            };
            let request = WatchCreateRequest {
                key: self.prefix.clone().into_bytes(),
                range_end: prefix_end(self.prefix.as_bytes()),
                start_revision: next,
                progress_notify: true,
                prev_kv: true,
                ..WatchCreateRequest::default()
            };
            // A member that has lost the others must not keep a client waiting.
            let Ok(watch) = client.requiring_leader().watch(request).await else {
                self.route.move_on();
                sleep(BREATH).await;
                continue;
            };
            let by = format!("{} via {member}", self.name);
            let stream = self.recorder.open_stream(Stream {
                by: by.clone(),
                opened: self.recorder.now(),
                cluster: watch.cluster_id(),
                prefix: self.prefix.clone(),
                start: next,
                resumed,
                messages: Vec::new(),
            });
            let ended = self.follow(watch, stream, &mut next).await;
            resumed = true;
            match ended {
                Ended::Done => return,
                Ended::Broken => {
                    self.route.move_on();
                    sleep(BREATH).await;
                }
                Ended::Compacted => {
                    let scope = Scope::Prefix(self.prefix.clone());
                    if let Some(list) = read(&self.recorder, by, &client, ReadKind::Linearizable, scope).await {
                        (next, resumed) = (list.at.revision + 1, false);
                    }
                }
            }
        }
    }

    /// Writes down what comes; `next` is the first revision that has not come wholly.
    async fn follow(&mut self, mut watch: Watch, stream: usize, next: &mut i64) -> Ended {
        let (half, mut asked) = (Instant::now() + RESTLESS / 2, false);
        loop {
            if self.end.borrow().is_some_and(|end| *next > end) {
                return Ended::Done;
            }
            let message = tokio::select! {
                message = watch.next() => message,
                changed = self.end.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return Ended::Done,
                },
                () = sleep_until(half), if self.restless && !asked => {
                    asked = true;
                    watch.request_progress().await.ok();
                    continue;
                }
                () = sleep_until(half + RESTLESS / 2), if self.restless => return Ended::Broken,
            };
            let body = match message {
                Ok(Some(WatchMessage::Events { events, complete })) => {
                    let events: Vec<Event> = events.into_iter().filter_map(event).collect();
                    if let Some(last) = events.last() {
                        *next = (last.kv.mod_revision + i64::from(complete)).max(*next);
                    }
                    Message::Events { events, complete }
                }
                Ok(Some(WatchMessage::Progress { revision })) => {
                    *next = (revision + 1).max(*next);
                    Message::Progress(revision)
                }
                Ok(Some(WatchMessage::Canceled { compact_revision, .. })) if compact_revision > 0 => {
                    Message::Compacted(compact_revision)
                }
                Ok(Some(WatchMessage::Canceled { .. }) | None) | Err(_) => return Ended::Broken,
            };
            let compacted = matches!(body, Message::Compacted(_));
            let at = self.recorder.now();
            if let Some(stream) = self.recorder.history().streams.get_mut(stream) {
                stream.messages.push(StreamMessage { at, body });
            }
            if compacted {
                return Ended::Compacted;
            }
        }
    }
}

fn event(event: EtcdEvent) -> Option<Event> {
    let deleted = event.r#type == i32::from(EventType::Delete);
    let now: Kv = kv(event.kv?);
    Some(Event { deleted, kv: now, previous: event.prev_kv.map(kv) })
}
