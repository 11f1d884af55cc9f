//! Takes part in an election, as [`quorate_core::election`] decides, and tells the rest of the process who leads.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use quorate_core::election::{Candidate, Holding, Round, Step, Terms};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::chain;

/// The right to act was lost, or never there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica no longer leads and must not act")]
pub struct NotLeading;

/// The right to act, until a moment that moves on with each renewal.
#[derive(Clone, Debug)]
pub struct Claim {
    held: Option<watch::Receiver<Option<Holding>>>,
}

impl Claim {
    /// For the only replica.
    pub fn always() -> Self {
        Self { held: None }
    }

    pub fn is_held(&self) -> bool {
        self.held.as_ref().is_none_or(|held| is_good(*held.borrow()))
    }

    /// To be asked before every write.
    pub fn check(&self) -> Result<(), NotLeading> {
        if self.is_held() { Ok(()) } else { Err(NotLeading) }
    }

    /// What tells this holding from all before it. Nothing if it is not held, or there is no election.
    pub fn fencing_number(&self) -> Option<i32> {
        let held = *self.held.as_ref()?.borrow();
        held.filter(|_| is_good(held)).map(|held| held.fencing_number)
    }

    /// Waits until it is held.
    pub async fn held(&mut self) {
        if let Some(held) = &mut self.held
            && held.wait_for(|held| is_good(*held)).await.is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until it is lost. To be called while it is held.
    pub async fn lost(&mut self) {
        let Some(held) = &mut self.held else { return std::future::pending().await };
        loop {
            let Some(Holding { until, .. }) = *held.borrow_and_update() else { return };
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => if !is_good(*held.borrow()) { return },
                changed = held.changed() => if changed.is_err() { return },
            }
        }
    }
}

fn is_good(held: Option<Holding>) -> bool {
    held.is_some_and(|held| held.is_good(now()))
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// One of those who want to hold a Lease.
#[derive(Debug)]
pub struct Election {
    api: Api<Lease>,
    lease: String,
    candidate: Candidate,
    held: watch::Sender<Option<Holding>>,
}

impl Election {
    /// The identity must be of this life alone, see [`Candidate::new`].
    pub fn new(client: Client, namespace: &str, lease: &str, identity: String, terms: Terms) -> (Self, Claim) {
        let (held, receiver) = watch::channel(None);
        let api = Api::namespaced(client, namespace);
        let candidate = Candidate::new(identity, terms);
        (Self { api, lease: lease.to_owned(), candidate, held }, Claim { held: Some(receiver) })
    }

    /// Takes part until `stop`, then gives the Lease back so that the next one need not wait.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            let round = match self.round().await {
                Ok(round) => round,
                Err(error) => {
                    tracing::warn!(
                        lease = self.lease,
                        error = chain(&error),
                        "cannot read or write the leader's Lease"
                    );
                    Round::Failed
                }
            };
            tokio::select! {
                () = tokio::time::sleep(self.candidate.terms().pause_after(round)) => {}
                () = &mut stop => break,
            }
        }
        if let Err(error) = self.release().await {
            tracing::warn!(lease = self.lease, error = chain(&error), "cannot give the leader's Lease back");
        }
    }

    async fn round(&mut self) -> Result<Round, kube::Error> {
        let asked = now();
        let lease = self.bounded(self.api.get_opt(&self.lease)).await?;
        let Step::Claim(claim) = self.candidate.judge(lease.as_ref(), now(), Timestamp::now()) else {
            self.held.send_replace(None);
            return Ok(Round::Waited);
        };
        let params = PostParams::default();
        // With the resource version that was read, so that of two one fails.
        let written = if let Some(Lease { metadata, .. }) = lease {
            let claimed = Lease { metadata, spec: Some(claim.clone()) };
            self.bounded(self.api.replace(&self.lease, &params, &claimed)).await
        } else {
            let metadata = ObjectMeta { name: Some(self.lease.clone()), ..ObjectMeta::default() };
            let claimed = Lease { metadata, spec: Some(claim.clone()) };
            self.bounded(self.api.create(&params, &claimed)).await
        };
        match written {
            Ok(_) => {
                let held = self.candidate.written(&claim, asked);
                self.held.send_replace(Some(held));
                Ok(Round::Held)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Round::Conflict),
            Err(error) => Err(error),
        }
    }

    async fn release(&mut self) -> Result<(), kube::Error> {
        self.held.send_replace(None);
        let Some(lease) = self.bounded(self.api.get_opt(&self.lease)).await? else { return Ok(()) };
        if let Some(spec) = self.candidate.release(&lease) {
            let released = Lease { spec: Some(spec), ..lease };
            self.bounded(self.api.replace(&self.lease, &PostParams::default(), &released)).await?;
        }
        Ok(())
    }

    async fn bounded<T>(&self, request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let patience: Duration = self.candidate.terms().renew_every();
        match tokio::time::timeout(patience, request).await {
            Ok(result) => result,
            Err(elapsed) => Err(kube::Error::Service(elapsed.into())),
        }
    }
}
