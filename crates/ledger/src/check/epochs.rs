//! Incarnations of the cluster: told apart by their cluster IDs, and each after the first declared by whoever made it.

use std::collections::BTreeMap;

use super::{Findings, Rule};
use crate::history::{Epoch, History, Moment, Outcome, Position};

#[derive(Debug)]
pub(super) struct Epochs<'h> {
    by_cluster: BTreeMap<u64, usize>,
    declared: &'h [Epoch],
}

impl<'h> Epochs<'h> {
    /// In the order in which clients first heard of them. One that nobody declared counts as the one before it, so that
    /// everything it does differently is found.
    pub(super) fn of(history: &'h History, findings: &mut Findings) -> Self {
        let mut first: BTreeMap<u64, Moment> = BTreeMap::new();
        let mut heard = |cluster: u64, at: Moment| {
            let earliest = first.entry(cluster).or_insert(at);
            *earliest = at.min(*earliest);
        };
        for (position, at) in acknowledgements(history).map(|(_, position, at)| (position, at)) {
            heard(position.cluster, at);
        }
        history.reads.iter().for_each(|read| heard(read.at.cluster, read.returned));
        history.streams.iter().for_each(|stream| heard(stream.cluster, stream.opened));
        history.leases.iter().for_each(|lease| heard(lease.cluster, lease.granted));
        history.finals.iter().for_each(|last| heard(last.at.cluster, Moment(u64::MAX)));
        let mut order: Vec<(Moment, u64)> = first.into_iter().map(|(cluster, at)| (at, cluster)).collect();
        order.sort_unstable();
        let declared = &history.epochs[..];
        for (_, cluster) in order.iter().skip(declared.len() + 1) {
            findings.add(Rule::Epochs, || format!("cluster {cluster:x} answered, an incarnation that nobody declared"));
        }
        if !order.is_empty() && order.len() <= declared.len() {
            findings.add(Rule::Epochs, || {
                format!("{} new incarnations were declared, and {} answered", declared.len(), order.len() - 1)
            });
        }
        let by_cluster =
            order.into_iter().enumerate().map(|(n, (_, cluster))| (cluster, n.min(declared.len()))).collect();
        Self { by_cluster, declared }
    }

    pub(super) fn count(&self) -> usize {
        self.declared.len() + 1
    }

    pub(super) fn last(&self) -> usize {
        self.declared.len()
    }

    pub(super) fn number(&self, cluster: u64) -> usize {
        self.by_cluster.get(&cluster).copied().unwrap_or_default()
    }

    /// The last revision that this epoch took over from the one before it.
    pub(super) fn kept(&self, epoch: usize) -> i64 {
        epoch.checked_sub(1).and_then(|n| self.declared.get(n)).map_or(0, |declared| declared.kept)
    }

    /// The last revision of the epochs before that this one may lack.
    pub(super) fn reported_lost(&self, epoch: usize) -> i64 {
        epoch.checked_sub(1).and_then(|n| self.declared.get(n)).map_or(0, |declared| declared.reported_lost)
    }

    /// The epoch in which something was written that this epoch shows.
    pub(super) fn home(&self, mut epoch: usize, revision: i64) -> usize {
        while epoch > 0 && revision <= self.kept(epoch) {
            epoch -= 1;
        }
        epoch
    }
}

/// Index of the write, where it was done, and when its caller knew.
pub(super) fn acknowledgements(history: &History) -> impl Iterator<Item = (usize, Position, Moment)> {
    history.writes.iter().enumerate().filter_map(|(n, write)| match write.outcome {
        Outcome::Acknowledged(position) => Some((n, position, write.returned.unwrap_or(write.called))),
        _ => None,
    })
}

/// What the declaration of each epoch promised.
pub(super) fn check(history: &History, epochs: &Epochs<'_>, findings: &mut Findings) {
    let mut highest = vec![0; epochs.count()];
    let mut begun: Vec<Option<Moment>> = vec![None; epochs.count()];
    for (_, position, at) in acknowledgements(history) {
        let epoch = epochs.number(position.cluster);
        highest[epoch] = position.revision.max(highest[epoch]);
        begun[epoch] = Some(begun[epoch].map_or(at, |earlier| earlier.min(at)));
    }
    for (n, position, _) in acknowledgements(history) {
        let (write, epoch) = (&history.writes[n], epochs.number(position.cluster));
        let revision = position.revision;
        let before = highest[..epoch].iter().copied().max().unwrap_or_default();
        if revision <= before {
            findings.add(Rule::Epochs, || {
                format!("epoch {epoch} acknowledged revision {revision}, and the epochs before it had come to {before}")
            });
        }
        let lost = (epoch + 1..epochs.count()).find(|later| revision > epochs.kept(*later));
        if let Some(later) = lost
            && revision > epochs.reported_lost(later)
        {
            findings.add(Rule::Epochs, || {
                let by = &write.by;
                format!("revision {revision} of {by} did not get into epoch {later}, which did not report it as lost")
            });
        }
        let replaced = begun[epoch + 1..].iter().flatten().min();
        if replaced.is_some_and(|replaced| write.called > *replaced) {
            findings.add(Rule::Epochs, || {
                format!(
                    "epoch {epoch} acknowledged a write of {} at {} to {}, when its successor did so already",
                    write.by, write.called, position.revision
                )
            });
        }
    }
    for last in &history.finals {
        let epoch = epochs.number(last.at.cluster);
        if epoch < epochs.last() {
            findings.add(Rule::Epochs, || format!("{} still belongs to epoch {epoch} at the end", last.member));
        }
    }
    for stream in &history.streams {
        let epoch = epochs.number(stream.cluster);
        let before = highest[..epoch].iter().copied().max().unwrap_or_default();
        if stream.start <= before && super::watches::delivered_to(stream) >= stream.start {
            findings.add(Rule::Epochs, || {
                format!(
                    "{} went on from revision {} in epoch {epoch} without being told to list anew",
                    stream.by, stream.start
                )
            });
        }
    }
}
