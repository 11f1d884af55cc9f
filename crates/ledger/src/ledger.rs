//! The run as a whole: from its start to the verdict.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::endpoints::{BREATH, Endpoints, Manner, Route};
use crate::history::{Epoch, ReadKind, Scope};
use crate::load::{GROUPS, Load};
use crate::recorder::Recorder;
use crate::settle::Settling;
use crate::verdict::Verdict;
use crate::watchers::Watcher;
use crate::{readers, writers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    Settling,
    /// Nobody waits for the verdict any more.
    Abandoned,
}

#[derive(Clone, Debug)]
pub(crate) struct Phases(watch::Receiver<Phase>);

impl Phases {
    pub(crate) fn running(&self) -> bool {
        *self.0.borrow() == Phase::Running
    }
}

/// Waits, but not beyond the end of the phase.
pub(crate) async fn rest(phases: &mut Phases, pause: Duration) {
    tokio::select! {
        () = sleep(pause) => {}
        _ = phases.0.changed() => {}
    }
}

/// A load under way. It has a thread of its own, so that a test that blocks does not look like a cluster that does.
/// Dropping it ends it without a verdict.
#[derive(Debug)]
pub struct Ledger {
    recorder: Arc<Recorder>,
    phase: watch::Sender<Phase>,
    verdict: oneshot::Receiver<Verdict>,
}

impl Ledger {
    /// Begins as soon as the cluster answers.
    pub fn start(endpoints: impl Into<Endpoints>, load: Load) -> Self {
        let (recorder, endpoints) = (Arc::new(Recorder::new()), endpoints.into());
        let (phase, phases) = watch::channel(Phase::Running);
        let (tell, verdict) = oneshot::channel();
        let ledger = Self { recorder: Arc::clone(&recorder), phase, verdict };
        let body = move || {
            match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    runtime.block_on(until_abandoned(Arc::clone(&recorder), endpoints, load, Phases(phases)));
                }
                Err(error) => recorder.fell_short(format!("the load could not be run: {error}")),
            }
            let history = std::mem::take(&mut *recorder.history());
            // Nobody listens if it was abandoned.
            tell.send(Verdict::of(history)).ok();
        };
        if let Err(error) = thread::Builder::new().name("ledger".to_owned()).spawn(body) {
            ledger.recorder.fell_short(format!("the load could not be started: {error}"));
        }
        ledger
    }

    /// Says that a restore or a recovery has made a new incarnation of the cluster, which the history has to bear out.
    pub fn declare(&self, epoch: Epoch) {
        self.recorder.history().epochs.push(epoch);
    }

    /// How many writes were acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.recorder.acknowledged()
    }

    /// A last write, what all members hold at it, and whether everything fits.
    pub async fn stop(mut self) -> Verdict {
        self.phase.send_replace(Phase::Settling);
        if let Ok(verdict) = (&mut self.verdict).await {
            return verdict;
        }
        // The thread never began, or ended in a panic: what it recorded still counts.
        self.recorder.fell_short("the load ended early".to_owned());
        Verdict::of(std::mem::take(&mut *self.recorder.history()))
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Abandoned);
    }
}

async fn until_abandoned(recorder: Arc<Recorder>, endpoints: Endpoints, load: Load, phases: Phases) {
    let mut abandoned = phases.0.clone();
    tokio::select! {
        () = run(recorder, endpoints, load, phases) => {}
        _ = abandoned.wait_for(|phase| *phase == Phase::Abandoned) => {}
    }
}

async fn run(recorder: Arc<Recorder>, endpoints: Endpoints, load: Load, mut phases: Phases) {
    let Some(first) = first_revision(&recorder, &endpoints, &load, &mut phases).await else { return };
    let (end, ending) = watch::channel(None);
    let (mut watchers, mut watching) = (JoinSet::new(), Vec::new());
    for n in 0..load.watchers {
        let watcher = watcher(n, first, &recorder, &endpoints, &load, ending.clone());
        watching.push(watcher.name.clone());
        let name = watcher.name.clone();
        watchers.spawn(async move {
            watcher.run().await;
            name
        });
    }
    let mut clients = JoinSet::new();
    for n in 0..load.writers {
        let route = Route::new(&endpoints, Manner::nth(n), n, &load);
        clients.spawn(writers::run(n, route, Arc::clone(&recorder), load.clone(), phases.clone()));
    }
    let route = Route::new(&endpoints, Manner { fresh: false, round: true }, 0, &load);
    clients.spawn(writers::run_steadily(route, Arc::clone(&recorder), load.clone(), phases.clone()));
    for n in 0..load.readers {
        let route = Route::new(&endpoints, Manner::nth(n + 1), n, &load);
        clients.spawn(readers::run(n, route, Arc::clone(&recorder), load.clone(), phases.clone()));
    }
    while phases.running() {
        rest(&mut phases, Duration::from_secs(1)).await;
    }
    recorder.history().stopped = recorder.now();
    while clients.join_next().await.is_some() {}
    Settling { recorder, endpoints, load, first, end, watchers, watching }.settle().await;
}

/// The revision from which on everything beneath the prefix is ours.
async fn first_revision(recorder: &Recorder, endpoints: &Endpoints, load: &Load, phases: &mut Phases) -> Option<i64> {
    let mut route = Route::new(endpoints, Manner { fresh: true, round: true }, 0, load);
    while phases.running() {
        if let Some((member, client)) = route.next(recorder) {
            let (by, scope) = (format!("the first reader via {member}"), Scope::Prefix(recorder.prefix()));
            if let Some(read) = readers::read(recorder, by, &client, ReadKind::Linearizable, scope).await {
                return Some(read.at.revision + 1);
            }
        }
        rest(phases, BREATH).await;
    }
    None
}

/// The first two watch everything, the others one part each; every second one is restless.
fn watcher(
    n: usize,
    first: i64,
    recorder: &Arc<Recorder>,
    endpoints: &Endpoints,
    load: &Load,
    end: watch::Receiver<Option<i64>>,
) -> Watcher {
    let part = n.checked_sub(2).map_or("", |n| GROUPS[n % GROUPS.len()]);
    let restless = n % 2 == 1;
    let manner = Manner { fresh: restless, round: restless };
    Watcher {
        name: format!("{} watcher {n} of /{part}", if restless { "restless" } else { "lasting" }),
        route: Route::new(endpoints, manner, n, load),
        recorder: Arc::clone(recorder),
        prefix: format!("{}{part}", recorder.prefix()),
        restless,
        first,
        end,
    }
}
