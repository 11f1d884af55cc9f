//! Which objects may go.
//!
//! As etcd-backup-restore does it: a full backup and the deltas up to the next one are a stream; the newest stream is never
//! touched; deltas of others go when they are old enough, full backups by one of two policies. Unlike there, what
//! compaction made does not count as a backup somebody asked for, so a busy cluster keeps as long a history as an idle
//! one.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::catalogue::{Catalogue, Standing};
use super::format::Kind;
use super::name::ObjectName;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// All of this hour, the last of each hour of today, of each of the seven days before, and of each of the four
    /// weeks before those; in UTC.
    Exponential,
    /// The newest ones.
    LimitBased { keep: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub policy: Policy,
    /// How long deltas outlive their stream's time as the newest one.
    pub delta_period: SignedDuration,
}

/// Why an object stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    NewestChain,
    InUse,
    Locked,
    CurrentHour,
    LastOfHour,
    LastOfDay,
    LastOfWeek,
    WithinLimit,
    /// A delta that is younger than the period.
    RecentDelta,
    /// The policy has no say in it: whatever it belongs to is not older than the newest stream.
    Undecided,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Keep(Keep),
    Delete,
}

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// Judges every object of the catalogue, in its order.
pub fn retain(
    catalogue: &Catalogue,
    retention: &Retention,
    in_use: &BTreeSet<ObjectName>,
    locked: &BTreeSet<ObjectName>,
    now: Timestamp,
) -> Vec<(ObjectName, Verdict)> {
    let newest = catalogue.chains.iter().max_by_key(|chain| (chain.epoch, chain.last, chain.base));
    let Some(newest) = newest else {
        // Without a full backup nothing is redundant.
        return catalogue.objects.iter().map(|object| (object.name, Verdict::Keep(Keep::Undecided))).collect();
    };
    let pinned: BTreeSet<usize> = std::iter::once(newest.base).chain(newest.deltas.iter().copied()).collect();
    let newest_base = catalogue.get(newest.base).map(|base| (base.name.epoch, base.name.last));
    let bases: Vec<ObjectName> =
        catalogue.objects.iter().map(|object| object.name).filter(|name| name.kind == Kind::Full).collect();
    let judged = catalogue.objects.iter().enumerate().map(|(place, object)| {
        let name = object.name;
        let keep = if pinned.contains(&place) {
            Some(Keep::NewestChain)
        } else if in_use.contains(&name) {
            Some(Keep::InUse)
        } else if locked.contains(&name) {
            Some(Keep::Locked)
        } else if Some((name.epoch, name.last)) > newest_base {
            // Superseded and repeated ones go with the stream they lie in, and this one is the newest.
            Some(Keep::Undecided)
        } else {
            match name.kind {
                Kind::Full => by_policy(&bases, name, retention.policy, now),
                Kind::Compacted => None,
                Kind::Delta => {
                    let recent = now.duration_since(name.time()) <= retention.delta_period;
                    let is_used = matches!(object.standing, Standing::Used | Standing::Unconnected);
                    (recent && is_used).then_some(Keep::RecentDelta)
                }
            }
        };
        (name, keep.map_or(Verdict::Delete, Verdict::Keep))
    });
    judged.collect()
}

fn by_policy(bases: &[ObjectName], name: ObjectName, policy: Policy, now: Timestamp) -> Option<Keep> {
    let newer: Vec<&ObjectName> = bases.iter().filter(|other| **other > name).collect();
    match policy {
        Policy::LimitBased { keep } => (newer.len() < keep).then_some(Keep::WithinLimit),
        Policy::Exponential => {
            let seconds = name.time().as_second();
            let now = now.as_second();
            let midnight = now.div_euclid(DAY).saturating_add(1) * DAY;
            // The next newer one decides: whatever is not the last of its window has it as a neighbour there.
            let neighbour = newer.first().map(|next| next.time().as_second());
            let last_of = |window: i64, end: i64| {
                let number = |seconds: i64| (end - 1 - seconds).div_euclid(window);
                neighbour.is_none_or(|next| number(next) != number(seconds))
            };
            let age = midnight - 1 - seconds;
            let yesterday = midnight - DAY;
            match age {
                _ if seconds.div_euclid(HOUR) >= now.div_euclid(HOUR) => Some(Keep::CurrentHour),
                ..DAY => last_of(HOUR, midnight).then_some(Keep::LastOfHour),
                DAY.. if age < 8 * DAY => last_of(DAY, midnight).then_some(Keep::LastOfDay),
                _ if age < 35 * DAY => last_of(7 * DAY, yesterday).then_some(Keep::LastOfWeek),
                _ => None,
            }
        }
    }
}
