//! A process that is kept running while it is wanted.

use std::{sync::Arc, time::Duration};

use tokio::{process::Child, sync::watch};

use crate::{
    control::ComponentState,
    error::{Error, Result},
    machine::tell,
};

const BEFORE_RESTART: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(15);

/// What to do when a wanted process ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterExit {
    Restart,
    StayDown,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    running: bool,
    restarts: u32,
}

#[derive(Debug)]
pub(super) struct Process {
    name: String,
    wanted: watch::Sender<bool>,
    seen: watch::Receiver<Seen>,
}

impl Process {
    /// Runs nothing until it is wanted.
    pub(super) fn keep<F>(name: impl Into<String>, after_exit: AfterExit, start: F) -> Self
    where
        F: Fn() -> Result<Child> + Send + Sync + 'static,
    {
        let name = name.into();
        let (wanted, wishes) = watch::channel(false);
        let (seen_by_keeper, seen) = watch::channel(Seen::default());
        let keeper = Keeper { name: name.clone(), after_exit, start: Arc::new(start), wishes, seen: seen_by_keeper };
        tokio::spawn(keeper.run(wanted.clone()));
        Process { name, wanted, seen }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_running(&self) -> bool {
        self.seen.borrow().running
    }

    /// Starts the process without waiting for it.
    pub(super) fn start(&self) {
        self.wanted.send_replace(true);
    }

    /// Starts or ends the process and returns when that has happened.
    pub(super) async fn want(&self, running: bool) -> Result<()> {
        self.wanted.send_replace(running);
        let mut seen = self.seen.clone();
        let happened = seen.wait_for(|seen| seen.running == running);
        // The keeper lives as long as the supervisor, so its channel cannot close.
        tokio::time::timeout(PATIENCE, happened).await.map(drop).map_err(|_| {
            let what = if running { "start" } else { "stop" };
            Error::refused(
                format!("{} did not {what} within {} s", self.name, PATIENCE.as_secs()),
                "see `testbed logs supervisor`",
            )
        })
    }

    pub(super) fn state(&self) -> ComponentState {
        let seen = *self.seen.borrow();
        ComponentState { name: self.name.clone(), running: seen.running, restarts: seen.restarts }
    }
}

struct Keeper<F> {
    name: String,
    after_exit: AfterExit,
    start: Arc<F>,
    wishes: watch::Receiver<bool>,
    seen: watch::Sender<Seen>,
}

impl<F: Fn() -> Result<Child>> Keeper<F> {
    async fn run(mut self, wanted: watch::Sender<bool>) {
        while self.wishes.wait_for(|wanted| *wanted).await.is_ok() {
            match tokio::task::block_in_place(|| (self.start)()) {
                Ok(child) => self.watch(child, &wanted).await,
                Err(error) => {
                    tell(&format!("{} does not start: {error}", self.name));
                    tokio::time::sleep(BEFORE_RESTART).await;
                }
            }
        }
    }

    async fn watch(&mut self, mut child: Child, wanted: &watch::Sender<bool>) {
        self.seen.send_modify(|seen| seen.running = true);
        let ended = tokio::select! {
            status = child.wait() => Some(status),
            _ = self.wishes.wait_for(|wanted| !*wanted) => None,
        };
        match ended {
            None => drop(child.kill().await),
            Some(status) => {
                tell(&format!("{} ended: {status:?}", self.name));
                if self.after_exit == AfterExit::StayDown {
                    wanted.send_replace(false);
                } else {
                    tokio::time::sleep(BEFORE_RESTART).await;
                    self.seen.send_modify(|seen| seen.restarts += 1);
                }
            }
        }
        self.seen.send_modify(|seen| seen.running = false);
    }
}
