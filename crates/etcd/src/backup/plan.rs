//! Which objects to read for a revision, a moment, or the latest state.

use jiff::Timestamp;

use super::catalogue::{Catalogue, Chain};
use super::format::Kind;
use super::name::ObjectName;
use crate::events::Cut;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Latest,
    Revision(i64),
    Time(Timestamp),
}

/// What can be restored from one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub epoch: u64,
    pub first_revision: i64,
    pub last_revision: i64,
    /// From when on every moment can be restored.
    pub from: Timestamp,
    pub through: Timestamp,
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { epoch, first_revision, last_revision, from, through } = self;
        write!(f, "epoch {epoch}: revisions {first_revision}..={last_revision}, {from} to {through}")
    }
}

/// What to read, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub base: ObjectName,
    pub deltas: Vec<ObjectName>,
    pub cut: Cut,
}

fn listed(ranges: &[Range]) -> String {
    if ranges.is_empty() {
        return "nothing can be restored".to_owned();
    }
    ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("there is no full backup")]
    NoBase,
    #[error("the ends of {} full backups must be read first", names.len())]
    Unread { names: Vec<ObjectName> },
    #[error("the prefix holds backups of several clusters, {other} is of another one; name the cluster to restore")]
    SeveralClusters { other: ObjectName },
    #[error("revision {wanted} cannot be restored; what can: {}", listed(ranges))]
    Revision { wanted: i64, ranges: Vec<Range> },
    #[error("the state at {wanted} cannot be restored; what can: {}", listed(ranges))]
    Time { wanted: Timestamp, ranges: Vec<Range> },
}

impl Catalogue {
    /// What can be restored, chain by chain; chains that another one contains are left out.
    ///
    /// Where a full backup's ends were not read, its range begins with the first revision that surely follows it.
    pub fn ranges(&self) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        for range in self.chains.iter().filter_map(|chain| self.range(chain)) {
            let contained = ranges.iter().any(|other| {
                other.epoch == range.epoch
                    && other.first_revision <= range.first_revision
                    && other.last_revision >= range.last_revision
                    && other.from <= range.from
                    && other.through >= range.through
            });
            if !contained {
                ranges.push(range);
            }
        }
        ranges
    }

    fn range(&self, chain: &Chain) -> Option<Range> {
        let base = self.get(chain.base)?;
        // The history inside a full backup can be cut anywhere above its compaction.
        let first_revision = match &base.facts {
            Some(facts) => facts.compact_revision.unwrap_or(1).clamp(1, facts.last_revision),
            None => chain.last,
        };
        Some(Range {
            epoch: chain.epoch,
            first_revision,
            last_revision: chain.last,
            from: base.name.taken_by(),
            through: chain.covered_through.max(base.name.time()),
        })
    }

    /// Chooses the objects to read: the newest full backup that can serve, and no delta more than needed.
    pub fn plan(&self, target: Target, epoch: Option<u64>) -> Result<Plan, PlanError> {
        if let Some(other) = self.strangers.first().filter(|_| !self.is_named) {
            return Err(PlanError::SeveralClusters { other: *other });
        }
        let chains: Vec<&Chain> =
            self.chains.iter().filter(|chain| epoch.is_none_or(|epoch| chain.epoch == epoch)).collect();
        if chains.is_empty() {
            return Err(PlanError::NoBase);
        }
        let unread = self.unread();
        if !unread.is_empty() && matches!(target, Target::Revision(_)) {
            return Err(PlanError::Unread { names: unread });
        }
        match target {
            Target::Latest => {
                let newest = chains.iter().max_by_key(|chain| (chain.epoch, chain.last, chain.base));
                newest.and_then(|chain| self.read(chain, Cut::End, i64::MAX)).ok_or(PlanError::NoBase)
            }
            Target::Revision(wanted) => self.for_revision(&chains, wanted),
            Target::Time(wanted) => self.for_time(&chains, wanted),
        }
    }

    fn for_revision(&self, chains: &[&Chain], wanted: i64) -> Result<Plan, PlanError> {
        let base_of = |chain: &Chain| self.get(chain.base).and_then(|base| base.facts.as_ref());
        let reaches =
            |chain: &&&Chain| base_of(chain).is_some_and(|facts| facts.last_revision <= wanted && wanted <= chain.last);
        // A base that must be cut inside comes second: all of it is read to write a part.
        let inside = |chain: &&&Chain| {
            base_of(chain).is_some_and(|facts| {
                facts.compact_revision.unwrap_or(1).max(1) <= wanted && wanted < facts.last_revision
            })
        };
        let newest = |chain: &&&Chain| (chain.epoch, base_of(chain).map(|facts| facts.last_revision));
        let after = chains.iter().filter(reaches).max_by_key(newest);
        let within = chains.iter().filter(inside).max_by_key(|chain| (chain.epoch, std::cmp::Reverse(newest(chain).1)));
        let chosen = match (after, within) {
            (Some(after), Some(within)) if within.epoch > after.epoch => Some(within),
            (after, within) => after.or(within),
        };
        let refused = || PlanError::Revision { wanted, ranges: self.ranges() };
        chosen.and_then(|chain| self.read(chain, Cut::Revision(wanted), wanted)).ok_or_else(refused)
    }

    fn for_time(&self, chains: &[&Chain], wanted: Timestamp) -> Result<Plan, PlanError> {
        // The epoch that was alive then, and in it the newest base that holds nothing younger.
        let taken = |chain: &Chain| self.get(chain.base).map(|base| base.name.taken_by());
        let older = chains.iter().filter(|chain| taken(chain).is_some_and(|taken| taken <= wanted));
        let alive = older.clone().map(|chain| chain.epoch).max();
        let chosen = older.filter(|chain| Some(chain.epoch) == alive && chain.covered_through >= wanted);
        let chosen = chosen.max_by_key(|chain| taken(chain));
        let refused = || PlanError::Time { wanted, ranges: self.ranges() };
        let mut plan = chosen.and_then(|chain| self.read(chain, Cut::Time(wanted), i64::MAX)).ok_or_else(refused)?;
        // Everything behind the first delta that covers the moment is younger.
        if let Some(enough) = plan.deltas.iter().position(|name| name.kind == Kind::Delta && name.time() > wanted) {
            plan.deltas.truncate(enough + 1);
        }
        Ok(plan)
    }

    fn read(&self, chain: &Chain, cut: Cut, last: i64) -> Option<Plan> {
        let base = self.get(chain.base)?;
        let deltas = chain.deltas.iter().filter_map(|place| self.get(*place)).map(|object| object.name);
        // The base may hold more than its name says; then its first deltas add nothing. Empty ones are read too: the next
        // one names them as its parent.
        let needed = |name: &ObjectName| {
            name.first <= last && (name.last > base.last() || name.is_empty() && name.last == base.last())
        };
        Some(Plan { base: base.name, deltas: deltas.filter(needed).collect(), cut })
    }
}
