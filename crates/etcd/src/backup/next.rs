//! What a writer does next: continue the chain, begin one with a full backup, or keep away.

use jiff::Timestamp;

use super::catalogue::{Catalogue, Standing};
use super::name::ObjectName;
use crate::snapshot::Digest256;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writer {
    pub epoch: u64,
    pub fencing: u64,
    /// What the server says now.
    pub auth_revision: u64,
    /// Up to where the server has forgotten its history: a watch can begin above it only.
    pub compact_revision: i64,
    pub revision: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullReason {
    NoChain,
    NewEpoch,
    /// Changes after the end of the chain are not to be had any more.
    Gap,
    /// Deltas do not carry users and roles.
    AuthChanged,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0} belongs to another cluster: give each cluster a prefix of its own")]
    ForeignCluster(ObjectName),
    #[error("{0} was written by a later writer: this one has been replaced")]
    Fenced(ObjectName),
    #[error("{0} is of a later epoch: this member belongs to a cluster that was restored since")]
    LaterEpoch(ObjectName),
    #[error("the backups reach revision {stored}, but the server is at {server}: it has lost what was stored")]
    ServerBehind { stored: i64, server: i64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The ends of this object must be read first.
    Read(ObjectName),
    Continue {
        first: i64,
        parent: Digest256,
        covered_before: Timestamp,
    },
    Full(FullReason),
    Refuse(Refusal),
}

/// Decides from a listing that was made after the writer got its fencing number.
pub fn next(catalogue: &Catalogue, writer: &Writer) -> Next {
    if let Some(stranger) = catalogue.strangers.first() {
        return Next::Refuse(Refusal::ForeignCluster(*stranger));
    }
    let names = || catalogue.objects.iter().map(|object| object.name);
    if let Some(later) = names().find(|name| name.epoch > writer.epoch) {
        return Next::Refuse(Refusal::LaterEpoch(later));
    }
    if let Some(later) = names().find(|name| name.epoch == writer.epoch && name.fencing > writer.fencing) {
        return Next::Refuse(Refusal::Fenced(later));
    }
    let chains = catalogue.chains.iter().filter(|chain| chain.epoch == writer.epoch);
    let Some(chain) = chains.max_by_key(|chain| (chain.last, chain.base)) else {
        let known = !catalogue.objects.is_empty();
        return Next::Full(if known { FullReason::NewEpoch } else { FullReason::NoChain });
    };
    let end = chain.deltas.last().copied().unwrap_or(chain.base);
    let Some(object) = catalogue.get(end) else { return Next::Full(FullReason::NoChain) };
    let Some(facts) = &object.facts else { return Next::Read(object.name) };
    // A base that reaches beyond its deltas still has them continued where they end, so that they have no hole.
    let last = if object.name.kind.is_base() { object.name.last } else { facts.last_revision };
    if last > writer.revision {
        return Next::Refuse(Refusal::ServerBehind { stored: last, server: writer.revision });
    }
    let beyond = |standing: &Standing| matches!(standing, Standing::Unconnected);
    let hole = catalogue.objects.iter().any(|object| {
        object.name.epoch == writer.epoch && beyond(&object.standing) && object.name.first > last.saturating_add(1)
    });
    if hole || writer.compact_revision > last {
        return Next::Full(FullReason::Gap);
    }
    if facts.auth_revision != writer.auth_revision {
        return Next::Full(FullReason::AuthChanged);
    }
    let covered_before = object.covered_through().max(facts.covered_through);
    Next::Continue { first: last.saturating_add(1), parent: facts.digest, covered_before }
}
