//! Which of several replicas acts: the one that holds a Lease.
//!
//! A replica trusts only its own clock. It measures how long the Lease has not changed, and takes it over after its
//! duration; it stops acting when its own last renewal is older than that, whatever the API server says by then.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{Error, chain};

/// Name of the Lease.
pub const LEASE: &str = "quorate-operator";
const DURATION: Duration = Duration::from_secs(12);
const RENEW_EVERY: Duration = Duration::from_secs(4);
const ASK_EVERY: Duration = Duration::from_secs(2);
/// How long a renewal is good for its holder: less than for others, so that it stops before they begin.
const HELD_FOR: Duration = Duration::from_secs(10);

/// The right to act, until a moment that moves on with each renewal.
#[derive(Clone, Debug)]
pub struct Claim {
    until: Option<watch::Receiver<Option<Instant>>>,
}

impl Claim {
    /// For the only replica.
    pub fn always() -> Self {
        Self { until: None }
    }

    pub fn is_held(&self) -> bool {
        match &self.until {
            None => true,
            Some(until) => until.borrow().is_some_and(|until| Instant::now() < until),
        }
    }

    /// To be asked before every write.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_held() { Ok(()) } else { Err(Error::NotLeading) }
    }

    /// Waits until it is held.
    pub async fn held(&mut self) {
        if let Some(until) = &mut self.until
            && until.wait_for(Option::is_some).await.is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until it is lost. To be called while it is held.
    pub async fn lost(&mut self) {
        let Some(until) = &mut self.until else { return std::future::pending().await };
        loop {
            let Some(moment) = *until.borrow_and_update() else { return };
            tokio::select! {
                () = tokio::time::sleep_until(moment) => if until.borrow().is_none_or(|until| until <= Instant::now()) { return },
                changed = until.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// What one replica knows about the Lease.
#[derive(Debug)]
struct Candidate {
    identity: String,
    /// Holder and time of the last renewal as written, and since when we have seen just that.
    seen: Option<(Record, Instant)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    holder: String,
    renewed: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Write our name, or renew.
    Claim,
    /// Somebody else holds it.
    Wait,
}

impl Candidate {
    fn new(identity: String) -> Self {
        Self { identity, seen: None }
    }

    /// What to do about the Lease as it was just read.
    fn step(&mut self, lease: Option<&Lease>, now: Instant) -> Step {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        let record = Record { holder, renewed: spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0) };
        let since = match &self.seen {
            Some((known, since)) if *known == record => *since,
            _ => now,
        };
        let is_free = record.holder.is_empty() || record.holder == self.identity;
        self.seen = Some((record, since));
        if is_free || now.duration_since(since) >= DURATION { Step::Claim } else { Step::Wait }
    }

    /// The Lease with our name in it. Its resource version stays, so that of two replicas one fails.
    fn claimed(&self, lease: Option<Lease>, now: Timestamp) -> Lease {
        let mut lease = lease.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(LEASE.to_owned()), ..ObjectMeta::default() },
            spec: None,
        });
        let before = lease.spec.take().unwrap_or_default();
        let is_ours = before.holder_identity.as_deref() == Some(self.identity.as_str());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            renew_time: Some(MicroTime(now)),
            acquire_time: if is_ours { before.acquire_time } else { Some(MicroTime(now)) },
            lease_transitions: Some(before.lease_transitions.unwrap_or(0).saturating_add(i32::from(!is_ours))),
            ..LeaseSpec::default()
        });
        lease
    }
}

/// Takes part in the election until `stop`, then gives the Lease back so that the next replica need not wait.
#[derive(Debug)]
pub struct Election {
    api: Api<Lease>,
    candidate: Candidate,
    until: watch::Sender<Option<Instant>>,
}

impl Election {
    /// The client should be one that no test makes die: renewals come by the clock.
    pub fn new(client: Client, namespace: &str, identity: String) -> (Self, Claim) {
        let (until, receiver) = watch::channel(None);
        let api = Api::namespaced(client, namespace);
        (Self { api, candidate: Candidate::new(identity), until }, Claim { until: Some(receiver) })
    }

    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            let pause = match self.round().await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(error = chain(&error), "cannot read or write the Lease of the leader");
                    ASK_EVERY
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = &mut stop => break,
            }
        }
        if let Err(error) = self.release().await {
            tracing::warn!(error = chain(&error), "cannot give the Lease of the leader back");
        }
    }

    async fn round(&mut self) -> Result<Duration, kube::Error> {
        // The claim counts from before the request: the answer may take its time.
        let started = Instant::now();
        let lease = self.bounded(self.api.get_opt(LEASE)).await?;
        if self.candidate.step(lease.as_ref(), started) == Step::Wait {
            self.until.send_replace(None);
            return Ok(ASK_EVERY);
        }
        let exists = lease.is_some();
        let claimed = self.candidate.claimed(lease, Timestamp::now());
        let params = PostParams::default();
        let written = if exists {
            self.bounded(self.api.replace(LEASE, &params, &claimed)).await
        } else {
            self.bounded(self.api.create(&params, &claimed)).await
        };
        match written {
            Ok(_) => {
                self.until.send_replace(Some(started + HELD_FOR));
                Ok(RENEW_EVERY)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(ASK_EVERY / 4),
            Err(error) => Err(error),
        }
    }

    async fn release(&mut self) -> Result<(), kube::Error> {
        self.until.send_replace(None);
        let Some(mut lease) = self.bounded(self.api.get_opt(LEASE)).await? else { return Ok(()) };
        let Some(spec) = lease.spec.as_mut() else { return Ok(()) };
        if spec.holder_identity.as_deref() == Some(self.candidate.identity.as_str()) {
            spec.holder_identity = None;
            self.bounded(self.api.replace(LEASE, &PostParams::default(), &lease)).await?;
        }
        Ok(())
    }

    /// A request that hangs must not outlive the claim unnoticed.
    async fn bounded<T>(&self, request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        match tokio::time::timeout(RENEW_EVERY, request).await {
            Ok(result) => result,
            Err(elapsed) => Err(kube::Error::Service(elapsed.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, renewed: i64) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn a_free_lease_is_taken_at_once() {
        let now = Instant::now();
        assert_eq!(Candidate::new("a".to_owned()).step(None, now), Step::Claim);
        assert_eq!(Candidate::new("a".to_owned()).step(Some(&lease("", 0)), now), Step::Claim);
        assert_eq!(Candidate::new("a".to_owned()).step(Some(&lease("a", 0)), now), Step::Claim);
    }

    #[test]
    fn a_lease_of_another_is_taken_only_after_it_stood_still_for_its_duration_before_our_eyes() {
        let start = Instant::now();
        let mut candidate = Candidate::new("a".to_owned());
        // However old the written time is: clocks differ.
        assert_eq!(candidate.step(Some(&lease("b", 0)), start), Step::Wait);
        assert_eq!(candidate.step(Some(&lease("b", 0)), start + HELD_FOR), Step::Wait);
        assert_eq!(candidate.step(Some(&lease("b", 1)), start + DURATION), Step::Wait, "it was renewed");
        assert_eq!(candidate.step(Some(&lease("b", 1)), start + DURATION * 2), Step::Claim);
    }

    #[test]
    fn a_takeover_is_counted_and_a_renewal_is_not() {
        let candidate = Candidate::new("a".to_owned());
        let now = Timestamp::from_second(100).unwrap();
        let taken = candidate.claimed(Some(lease("b", 0)), now);
        assert_eq!(taken.spec.as_ref().unwrap().lease_transitions, Some(1));
        let later = Timestamp::from_second(104).unwrap();
        let renewed = candidate.claimed(Some(taken), later).spec.unwrap();
        assert_eq!((renewed.lease_transitions, renewed.acquire_time), (Some(1), Some(MicroTime(now))));
        assert_eq!(renewed.renew_time, Some(MicroTime(later)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_is_not_renewed_ends_by_itself() {
        let (sender, receiver) = watch::channel(None);
        let mut claim = Claim { until: Some(receiver) };
        assert!(claim.check().is_err());
        sender.send_replace(Some(Instant::now() + DURATION));
        claim.held().await;
        assert!(claim.check().is_ok());
        claim.lost().await;
        assert!(claim.check().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewed_claim_is_not_lost() {
        let (sender, receiver) = watch::channel(Some(Instant::now() + DURATION));
        let mut claim = Claim { until: Some(receiver) };
        let renewals = async {
            for _ in 0..5 {
                tokio::time::sleep(RENEW_EVERY).await;
                sender.send_replace(Some(Instant::now() + DURATION));
            }
        };
        tokio::select! {
            () = claim.lost() => panic!("lost although it was renewed"),
            () = renewals => assert!(claim.is_held()),
        }
    }
}
