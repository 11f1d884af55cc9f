//! The end of a run: one last write, then what every member holds at it, and how every member tells the whole story.

use std::sync::Arc;

use quorate_etcd::client::ClientError;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::endpoints::{BREATH, Endpoint, Endpoints, Manner, Route};
use crate::history::{Final, Position, ReadKind, Scope};
use crate::load::Load;
use crate::outcome::position;
use crate::readers::range;
use crate::recorder::{Recorder, kv};
use crate::watchers::Watcher;
use crate::writers::put_end;

pub(crate) struct Settling {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) endpoints: Endpoints,
    pub(crate) load: Load,
    pub(crate) first: i64,
    pub(crate) end: watch::Sender<Option<i64>>,
    /// Each ends with its name.
    pub(crate) watchers: JoinSet<String>,
    pub(crate) watching: Vec<String>,
}

impl Settling {
    pub(crate) async fn settle(mut self) {
        let patience = self.load.settle_timeout;
        let deadline = Instant::now() + patience;
        let Ok(last) = timeout_at(deadline, self.last_write()).await else {
            self.recorder.fell_short(format!("no write was acknowledged at the end within {patience:?}"));
            return;
        };
        self.end.send_replace(Some(last.revision));
        for member in self.endpoints.now() {
            let name = format!("a watcher from the beginning via {}", member.name);
            self.watching.push(name.clone());
            let reader =
                MemberReader { recorder: Arc::clone(&self.recorder), load: self.load.clone(), member, last, deadline };
            let (first, end) = (self.first, self.end.subscribe());
            self.watchers.spawn(async move {
                if reader.read().await {
                    reader.watch_from_the_beginning(name.clone(), first, end).await;
                }
                name
            });
        }
        while let Ok(Some(done)) = timeout_at(deadline, self.watchers.join_next()).await {
            self.watching.retain(|name| done.as_ref().is_ok_and(|done| name != done));
        }
        for name in &self.watching {
            let revision = last.revision;
            self.recorder.fell_short(format!("{name} has not come to revision {revision} within {patience:?}"));
        }
    }

    async fn last_write(&self) -> Position {
        let mut route = Route::new(&self.endpoints, Manner { fresh: true, round: true }, 0, &self.load);
        loop {
            if let Some((member, client)) = route.next(&self.recorder)
                && let Some(position) = put_end(&self.recorder, format!("the last writer via {member}"), client).await
            {
                return position;
            }
            sleep(BREATH).await;
        }
    }
}

/// One member at the end.
struct MemberReader {
    recorder: Arc<Recorder>,
    load: Load,
    member: Endpoint,
    last: Position,
    deadline: Instant,
}

impl MemberReader {
    /// What it holds. Returns whether it can also be watched, which a learner cannot.
    async fn read(&self) -> bool {
        let mut reason = String::from("it did not answer");
        let reading = async {
            loop {
                match self.try_read().await {
                    Ok(read) => return read,
                    Err(error) => reason = error,
                }
                sleep(BREATH).await;
            }
        };
        let Ok((held, learner)) = timeout_at(self.deadline, reading).await else {
            self.recorder.fell_short(format!("{} cannot be read at the end: {reason}", self.member.name));
            return false;
        };
        self.recorder.history().finals.push(held);
        !learner
    }

    /// By the member's own knowledge. One of another incarnation is read where it stands: it has no revision in common.
    async fn try_read(&self) -> Result<(Final, bool), String> {
        let told = |error: ClientError| error.to_string();
        let client = self.load.connect(&self.member.options).map_err(told)?;
        let learner = client.status().await.map_err(told)?.is_learner;
        let everything = Scope::Prefix(self.recorder.prefix());
        let mut question = range(&everything, ReadKind::Serializable);
        question.count_only = true;
        let standing =
            position(client.range(question).await.map_err(told)?.header).ok_or("its answer has no header")?;
        let same = standing.cluster == self.last.cluster;
        if same && standing.revision < self.last.revision {
            return Err(format!("it has come to revision {} of {}", standing.revision, self.last.revision));
        }
        let at = if same { self.last } else { standing };
        let answer = client.range(range(&everything, ReadKind::At(at.revision))).await.map_err(told)?;
        let (mut hash, mut leases) = (None, None);
        if !learner {
            let answer = client.hash_kv(at.revision).await.map_err(told)?;
            hash = Some((answer.hash, answer.compact_revision));
            leases = Some(client.leases().await.map_err(told)?.leases.into_iter().map(|lease| lease.id).collect());
        }
        let found = answer.kvs.into_iter().map(kv).collect();
        Ok((Final { member: self.member.name.clone(), at, found, hash, leases }, learner))
    }

    /// Each member tells all that happened, and all must tell the same.
    async fn watch_from_the_beginning(&self, name: String, first: i64, end: watch::Receiver<Option<i64>>) {
        let alone = Endpoints::from(vec![self.member.clone()]);
        let watcher = Watcher {
            name,
            route: Route::new(&alone, Manner { fresh: true, round: false }, 0, &self.load),
            recorder: Arc::clone(&self.recorder),
            prefix: self.recorder.prefix(),
            restless: false,
            first,
            end,
        };
        watcher.run().await;
    }
}
