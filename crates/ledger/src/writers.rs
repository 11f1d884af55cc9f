//! Clients that write: puts, deletions, transactions, leases. None of them repeats anything.

use std::sync::Arc;

use quorate_etcd::client::{Client, ClientError};
use quorate_etcd::pb::rpc::ResponseHeader;
use quorate_etcd::pb::rpc::kv::{
    Compare, CompareOperand, CompareResult, CompareTarget, DeleteRangeRequest, PutRequest, Request, Response,
    TxnRequest,
};
use quorate_etcd::pb::rpc::lease::LeaseGrantRequest;
use tokio::task::JoinSet;

use crate::endpoints::Route;
use crate::history::{Change, Kv, Lease, Moment, Outcome, Position, Read, ReadKind, Scope};
use crate::ledger::{Phases, rest};
use crate::load::{GROUPS, KEYS, LEASED, Load, ONCE, PAIRS, REGISTERS, Random};
use crate::outcome::{acknowledged, of_error, position};
use crate::readers::{range, read};
use crate::recorder::{Attempt, Recorder, kv};

/// Far longer than any run, so that none ends by itself, and short enough that nothing stays behind for long.
const LEASE_SECONDS: i64 = 7200;

/// How many requests the steady writer leaves open at most: more than come together within the usual patience.
const UNDER_WAY: usize = 200;

pub(crate) async fn run(number: usize, mut route: Route, recorder: Arc<Recorder>, load: Load, mut phases: Phases) {
    let mut random = Random::new(number);
    while phases.running() {
        if let Some((member, client)) = route.next(&recorder) {
            let by = format!("writer {number} via {member}");
            let writer = Writer { by, client, prefix: recorder.prefix(), recorder: &recorder };
            let register = format!("{}{REGISTERS}{}", writer.prefix, random.below(KEYS));
            match random.below(10) {
                0..=2 => writer.put_once().await,
                3..=4 => writer.put(register).await,
                5 => writer.delete(register).await,
                6..=7 => writer.compare_and_put(register).await,
                8 => writer.put_pair(random.below(KEYS / 2)).await,
                _ => writer.lease_and_perhaps_revoke(random.below(4) > 0).await,
            }
        }
        rest(&mut phases, load.pause).await;
    }
}

/// A client that does not wait for an answer before it asks again: how long a pause of acknowledged writes was does not
/// depend on how long others wait for what is lost.
pub(crate) async fn run_steadily(mut route: Route, recorder: Arc<Recorder>, load: Load, mut phases: Phases) {
    let mut under_way = JoinSet::new();
    while phases.running() {
        if let Some((member, client)) = route.next(&recorder) {
            let (by, recorder) = (format!("the steady writer via {member}"), Arc::clone(&recorder));
            under_way.spawn(async move {
                Writer { by, client, prefix: recorder.prefix(), recorder: &recorder }.put_once().await;
            });
        }
        while under_way.try_join_next().is_some() {}
        if under_way.len() >= UNDER_WAY {
            under_way.join_next().await;
        }
        rest(&mut phases, load.pause).await;
    }
    while under_way.join_next().await.is_some() {}
}

/// Writes the last key of every part at once, so that every watch has something to wait for.
pub(crate) async fn put_end(recorder: &Recorder, by: String, client: Client) -> Option<Position> {
    let writer = Writer { by, client, prefix: recorder.prefix(), recorder };
    let keys = GROUPS.map(|group| format!("{}{group}end", writer.prefix));
    match writer.put_all(keys.to_vec()).await {
        Outcome::Acknowledged(position) => Some(position),
        _ => None,
    }
}

struct Writer<'r> {
    by: String,
    client: Client,
    prefix: String,
    recorder: &'r Recorder,
}

impl Writer<'_> {
    fn begin(&self, only_if: Option<i64>, changes: impl FnOnce(usize) -> Vec<Change>) -> Attempt {
        self.recorder.begin(self.by.clone(), only_if, changes)
    }

    fn finish(&self, attempt: &Attempt, answer: Result<Option<ResponseHeader>, ClientError>) -> Outcome {
        let outcome = answer.map_or_else(|error| of_error(&error), acknowledged);
        self.recorder.finish(attempt, outcome.clone());
        outcome
    }

    /// A key that is written this once: if it is missing at the end, it was lost.
    async fn put_once(&self) {
        let key = |number| format!("{}{ONCE}{number}", self.prefix);
        let attempt = self.begin(None, |number| vec![put_of(number, 0, key(number), 0)]);
        let answer = self.client.put(put_request(&attempt.changes[0])).await;
        self.finish(&attempt, answer.map(|answer| answer.header));
    }

    async fn put(&self, key: String) {
        let attempt = self.begin(None, |number| vec![put_of(number, 0, key, 0)]);
        let answer = self.client.put(put_request(&attempt.changes[0])).await;
        self.finish(&attempt, answer.map(|answer| answer.header));
    }

    async fn delete(&self, key: String) {
        let attempt = self.begin(None, |_| vec![Change { key: key.clone(), value: None, lease: 0 }]);
        let request = DeleteRangeRequest { key: key.clone().into_bytes(), ..DeleteRangeRequest::default() };
        match self.client.delete_range(request).await {
            Ok(answer) if answer.deleted == 0 => self.decline(&attempt, answer.header, key, Vec::new(), None),
            answer => {
                self.finish(&attempt, answer.map(|answer| answer.header));
            }
        }
    }

    async fn compare_and_put(&self, key: String) {
        let scope = Scope::Key(key.clone());
        let seen = read(self.recorder, self.by.clone(), &self.client, ReadKind::Linearizable, scope.clone()).await;
        let Some(seen) = seen else { return };
        let revision = seen.found.first().map_or(0, |kv| kv.mod_revision);
        let attempt = self.begin(Some(revision), |number| vec![put_of(number, 0, key.clone(), 0)]);
        let request = TxnRequest {
            compare: vec![Compare {
                result: CompareResult::Equal.into(),
                target: CompareTarget::Mod.into(),
                key: key.clone().into_bytes(),
                operand: Some(CompareOperand::ModRevision(revision)),
                range_end: Vec::new(),
            }],
            success: vec![Request::Put(put_request(&attempt.changes[0])).into()],
            failure: vec![Request::Range(range(&scope, ReadKind::Linearizable)).into()],
        };
        match self.client.txn(request).await {
            Ok(answer) if !answer.succeeded => {
                let found = answer.responses.into_iter().filter_map(|part| match part.response {
                    Some(Response::Range(range)) => Some(range.kvs.into_iter().map(kv)),
                    _ => None,
                });
                self.decline(&attempt, answer.header, key, found.flatten().collect(), Some(revision));
            }
            answer => {
                self.finish(&attempt, answer.map(|answer| answer.header));
            }
        }
    }

    async fn put_pair(&self, pair: u64) {
        let key = |side| format!("{}{PAIRS}{side}{pair}", self.prefix);
        self.put_all(vec![key("left"), key("right")]).await;
    }

    /// All at one revision.
    async fn put_all(&self, keys: Vec<String>) -> Outcome {
        let attempt = self.begin(None, |number| {
            keys.into_iter().enumerate().map(|(part, key)| put_of(number, part, key, 0)).collect()
        });
        let puts = attempt.changes.iter().map(|change| Request::Put(put_request(change)).into());
        let request = TxnRequest { success: puts.collect(), ..TxnRequest::default() };
        let answer = self.client.txn(request).await;
        self.finish(&attempt, answer.map(|answer| answer.header))
    }

    /// Grants a lease, attaches two keys of its own, and ends it, with which they go.
    async fn lease_and_perhaps_revoke(&self, revoke: bool) {
        let granted = self.client.lease_grant(LeaseGrantRequest { ttl: LEASE_SECONDS, id: 0 }).await;
        let Some((id, at)) = granted.ok().and_then(|answer| Some((answer.id, position(answer.header)?))) else {
            return;
        };
        let place = {
            let mut history = self.recorder.history();
            let granted = self.recorder.now();
            history.leases.push(Lease { by: self.by.clone(), id, cluster: at.cluster, granted, revocation: None });
            history.leases.len() - 1
        };
        let mut keys = Vec::new();
        for side in ["left", "right"] {
            let key = |number| format!("{}{LEASED}{side}{number}", self.prefix);
            let attempt = self.begin(None, |number| vec![put_of(number, 0, key(number), id)]);
            let answer = self.client.put(put_request(&attempt.changes[0])).await;
            let outcome = self.finish(&attempt, answer.map(|answer| answer.header));
            // A revocation deletes what is there. Only if both are there for certain, so is what it does.
            if !matches!(outcome, Outcome::Acknowledged(_)) {
                return;
            }
            keys.extend(attempt.changes.into_iter().map(|change| change.key));
        }
        if revoke {
            let deletions = keys.into_iter().map(|key| Change { key, value: None, lease: 0 });
            let attempt = self.begin(None, |_| deletions.collect());
            if let Some(lease) = self.recorder.history().leases.get_mut(place) {
                lease.revocation = Some(Outcome::Unknown);
            }
            let answer = self.client.lease_revoke(id).await;
            let outcome = self.finish(&attempt, answer.map(|answer| answer.header));
            if let Some(lease) = self.recorder.history().leases.get_mut(place) {
                lease.revocation = Some(outcome);
            }
        }
    }

    /// A write that changed nothing has shown what is there, and by the same order as a write.
    fn decline(
        &self,
        attempt: &Attempt,
        header: Option<ResponseHeader>,
        key: String,
        found: Vec<Kv>,
        not_changed_at: Option<i64>,
    ) {
        let returned: Moment = self.recorder.finish(attempt, Outcome::Declined);
        let Some(at) = position(header) else { return };
        self.recorder.history().reads.push(Read {
            by: self.by.clone(),
            called: attempt.called,
            returned,
            kind: ReadKind::Linearizable,
            scope: Scope::Key(key),
            at,
            found,
            not_changed_at,
        });
    }
}

fn put_of(number: usize, part: usize, key: String, lease: i64) -> Change {
    Change { key, value: Some(format!("{number}.{part}")), lease }
}

fn put_request(change: &Change) -> PutRequest {
    PutRequest {
        key: change.key.clone().into_bytes(),
        value: change.value.clone().unwrap_or_default().into_bytes(),
        lease: change.lease,
        ..PutRequest::default()
    }
}
