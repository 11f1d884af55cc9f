//! Reads, comparisons, and what members hold at the end.

use std::collections::HashMap;

use super::epochs::Epochs;
use super::log::{Key, Log};
use super::order::Known;
use super::replay::{Replay, State};
use super::{Findings, Rule};
use crate::history::{Final, History, Kv, Outcome, Read, ReadKind, Scope};

pub(super) fn check(
    history: &History,
    epochs: &Epochs<'_>,
    known: &Known,
    log: &Log<'_>,
    replays: &[Replay<'_, '_>],
    findings: &mut Findings,
) {
    let mut keys = Scopes { log, prefixes: HashMap::new() };
    for read in &history.reads {
        let epoch = epochs.number(read.at.cluster);
        check_read(read, &replays[epoch], known.before(epoch, read.called), &mut keys, findings);
    }
    check_comparisons(history, log, replays, findings);
    let everything = Scope::Prefix(history.prefix.clone());
    for last in &history.finals {
        let replay = &replays[epochs.number(last.at.cluster)];
        for difference in differences(replay, log, keys.of(&everything), last.at.revision, &last.found) {
            check_final(history, last, &difference, findings);
        }
    }
    check_hashes(&history.finals, findings);
}

fn check_read(read: &Read, replay: &Replay<'_, '_>, known: i64, keys: &mut Scopes<'_, '_>, findings: &mut Findings) {
    if read.kind == ReadKind::Linearizable && read.at.revision < known {
        findings.add(Rule::RealTimeOrder, || {
            format!(
                "the linearizable read that {} began at {} is of revision {}, but {known} was known before",
                read.by, read.called, read.at.revision
            )
        });
    }
    if let Some(kv) = read.found.iter().find(|kv| !read.scope.holds(&kv.key)) {
        findings.add(Rule::ReadsAreTrue, || format!("{} read {:?} and was shown {}", read.by, read.scope, kv.key));
    }
    let revision = match read.kind {
        ReadKind::At(revision) => revision,
        ReadKind::Linearizable | ReadKind::Serializable => read.at.revision,
    };
    for difference in differences(replay, keys.log, keys.of(&read.scope), revision, &read.found) {
        findings.add(Rule::ReadsAreTrue, || {
            format!("{} read at {} ({:?}, revision {revision}): {difference}", read.by, read.returned, read.kind)
        });
    }
    if let Some(compared) = read.not_changed_at {
        let found = read.found.first().map_or(0, |kv| kv.mod_revision);
        if found == compared {
            findings.add(Rule::Comparisons, || {
                let by = &read.by;
                format!(
                    "a transaction of {by} was declined at revision {revision}, but its comparison with {compared} held"
                )
            });
        }
    }
}

fn check_comparisons(history: &History, log: &Log<'_>, replays: &[Replay<'_, '_>], findings: &mut Findings) {
    for (write, place) in history.writes.iter().zip(&log.places) {
        let (Some(compared), Some((epoch, revision)), Some(change)) = (write.only_if, *place, write.changes.first())
        else {
            continue;
        };
        let Some(key) = log.number(&change.key) else { continue };
        let before = replays[epoch].expected(key, revision - 1);
        if !before.admits_change_at(compared) {
            let before = before.state.map_or(0, |state| state.revision);
            findings.add(Rule::Comparisons, || {
                let (by, key) = (&write.by, &change.key);
                format!(
                    "{by} changed {key} at revision {revision}, on condition of {compared}, but {before} was the last"
                )
            });
        }
    }
}

fn check_final(history: &History, last: &Final, difference: &Difference<'_, '_>, findings: &mut Findings) {
    let write = difference.expected.and_then(|state| state.write).map(|n| &history.writes[n]);
    match write {
        Some(write) if matches!(write.outcome, Outcome::Acknowledged(_)) => {
            let told = write.returned.unwrap_or(write.called);
            findings.add(Rule::NothingLost, || {
                format!(
                    "{} at revision {}: {difference}; acknowledged to {} at {told}",
                    last.member, last.at.revision, write.by
                )
            });
        }
        _ => findings.add(Rule::Ending, || format!("{} at revision {}: {difference}", last.member, last.at.revision)),
    }
}

/// Hashes count from the compacted revision on, so those of members that compacted differently say nothing.
fn check_hashes(finals: &[Final], findings: &mut Findings) {
    let mut hashes: HashMap<(u64, i64, i64), (u32, &str)> = HashMap::new();
    for last in finals {
        let Some((hash, compacted)) = last.hash else { continue };
        let (other, member) =
            *hashes.entry((last.at.cluster, last.at.revision, compacted)).or_insert((hash, &last.member));
        if other != hash {
            findings.add(Rule::Ending, || {
                format!(
                    "{member} and {} have other hashes at revision {}: {other:x} and {hash:x}",
                    last.member, last.at.revision
                )
            });
        }
    }
}

/// A key that is not as it must be.
#[derive(Debug)]
struct Difference<'r, 'h> {
    name: &'h str,
    expected: Option<&'r State<'h>>,
    found: Option<&'r Kv>,
}

impl std::fmt::Display for Difference<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} must be ", self.name)?;
        match self.expected {
            Some(State { revision, value, create_revision, version, .. }) => write!(
                f,
                "`{}` (revision {revision}, created at {create_revision}, version {version})",
                value.unwrap_or_default()
            ),
            None => f.write_str("absent"),
        }?;
        match self.found {
            Some(Kv { value, mod_revision, create_revision, version, .. }) => write!(
                f,
                " and is `{value}` (revision {mod_revision}, created at {create_revision}, version {version})"
            ),
            None => f.write_str(" and is absent"),
        }
    }
}

fn differences<'r, 'h>(
    replay: &'r Replay<'_, 'h>,
    log: &Log<'h>,
    keys: &[Key],
    revision: i64,
    found: &'r [Kv],
) -> Vec<Difference<'r, 'h>> {
    let found: HashMap<&str, &Kv> = found.iter().map(|kv| (kv.key.as_str(), kv)).collect();
    let judge = |key: &Key| {
        let name = log.names[*key as usize];
        let found = found.get(name).copied();
        let expected = replay.expected(*key, revision);
        (!expected.admits(found)).then_some(Difference { name, expected: expected.state, found })
    };
    keys.iter().filter_map(judge).collect()
}

/// The keys of each scope, found once.
struct Scopes<'l, 'h> {
    log: &'l Log<'h>,
    prefixes: HashMap<Scope, Vec<Key>>,
}

impl Scopes<'_, '_> {
    fn of(&mut self, scope: &Scope) -> &[Key] {
        if !self.prefixes.contains_key(scope) {
            let keys = match scope {
                Scope::Key(key) => self.log.number(key).into_iter().collect(),
                Scope::Prefix(prefix) => (0..)
                    .zip(&self.log.names)
                    .filter(|(_, name)| name.starts_with(prefix.as_str()))
                    .map(|(n, _)| n)
                    .collect(),
            };
            self.prefixes.insert(scope.clone(), keys);
        }
        &self.prefixes[scope]
    }
}
