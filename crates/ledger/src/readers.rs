//! Clients that read: now, as far as one member has come, and as of an older revision.

use std::sync::Arc;

use quorate_etcd::client::{Client, prefix_end};
use quorate_etcd::pb::rpc::kv::RangeRequest;

use crate::endpoints::Route;
use crate::history::{Read, ReadKind, Scope};
use crate::ledger::{Phases, rest};
use crate::load::{KEYS, Load, ONCE, PAIRS, REGISTERS, Random};
use crate::outcome::position;
use crate::recorder::{Recorder, kv};

/// How far back reads of older revisions go.
const BACK: u64 = 200;

pub(crate) fn range(scope: &Scope, kind: ReadKind) -> RangeRequest {
    let (key, range_end) = match scope {
        Scope::Key(key) => (key.clone().into_bytes(), Vec::new()),
        Scope::Prefix(prefix) => (prefix.clone().into_bytes(), prefix_end(prefix.as_bytes())),
    };
    let (revision, serializable) = match kind {
        ReadKind::Linearizable => (0, false),
        ReadKind::Serializable => (0, true),
        ReadKind::At(revision) => (revision, true),
    };
    RangeRequest { key, range_end, revision, serializable, ..RangeRequest::default() }
}

/// Reads and writes it down. A read that fails says nothing.
pub(crate) async fn read(
    recorder: &Recorder,
    by: String,
    client: &Client,
    kind: ReadKind,
    scope: Scope,
) -> Option<Read> {
    let called = recorder.now();
    let answer = client.range(range(&scope, kind)).await.ok()?;
    let (returned, at) = (recorder.now(), position(answer.header)?);
    let found = answer.kvs.into_iter().map(kv).collect();
    let read = Read { by, called, returned, kind, scope, at, found, not_changed_at: None };
    recorder.history().reads.push(read.clone());
    Some(read)
}

pub(crate) async fn run(number: usize, mut route: Route, recorder: Arc<Recorder>, load: Load, mut phases: Phases) {
    let (prefix, mut random) = (recorder.prefix(), Random::new(number + 1000));
    while phases.running() {
        if let Some((member, client)) = route.next(&recorder) {
            let kind = match random.below(4) {
                0 => ReadKind::Serializable,
                1 => {
                    let back = i64::try_from(random.below(BACK)).unwrap_or_default();
                    ReadKind::At((recorder.latest() - back).max(1))
                }
                _ => ReadKind::Linearizable,
            };
            let scope = match random.below(4) {
                0 => Scope::Prefix(format!("{prefix}{PAIRS}")),
                1 => {
                    let writes = u64::try_from(recorder.history().writes.len()).unwrap_or_default();
                    Scope::Key(format!("{prefix}{ONCE}{}", random.below(writes + 1)))
                }
                2 => Scope::Key(format!("{prefix}{REGISTERS}{}", random.below(KEYS))),
                _ => Scope::Prefix(format!("{prefix}{REGISTERS}")),
            };
            read(&recorder, format!("reader {number} via {member}"), &client, kind, scope).await;
        }
        rest(&mut phases, load.pause).await;
    }
}
