//! Rules that every entry etcd writes obeys, checked in one pass with constant state.

use prost::Message;

use super::{Finding, FindingKind};
use crate::mvcc::{Revision, StoredKey, StoredValue};
use crate::pb::auth::{Role, User};
use crate::pb::lease::Lease;
use crate::schema::{AUTH_ROLES, AUTH_USERS, KEY, LEASE, Schema};

const MOST_FINDINGS: usize = 100;

#[derive(Debug)]
pub(super) struct Semantics {
    findings: Vec<Finding>,
    unlisted: usize,
    compacted: i64,
    revision: i64,
    /// The entry before, once above the compacted revision.
    previous: Option<Revision>,
    /// Whether only a stretch of the history is seen, so that nobody knows what precedes and follows it.
    stretch: bool,
}

impl Semantics {
    pub(super) fn new(schema: &Schema) -> Self {
        let compacted = schema.compact_revision().unwrap_or(0);
        let revision = schema.revision();
        Self { findings: Vec::new(), unlisted: 0, compacted, revision, previous: None, stretch: false }
    }

    pub(super) fn of_stretch(schema: &Schema) -> Self {
        Self { stretch: true, ..Self::new(schema) }
    }

    fn found(&mut self, kind: FindingKind, text: String) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(Finding { kind, text });
        } else {
            self.unlisted += 1;
        }
    }

    pub(super) fn entry(&mut self, bucket: &[u8], key: &[u8], value: &[u8]) {
        let problem = match bucket {
            name if name == KEY.as_bytes() => return self.history(key, value),
            name if name == LEASE.as_bytes() => lease(key, value),
            name if name == AUTH_USERS.as_bytes() => named(key, User::decode(value).map(|user| user.name)),
            name if name == AUTH_ROLES.as_bytes() => named(key, Role::decode(value).map(|role| role.name)),
            // The others are small and read whole with the schema.
            _ => None,
        };
        if let Some(problem) = problem {
            let (bucket, key) = (String::from_utf8_lossy(bucket), String::from_utf8_lossy(key).into_owned());
            self.found(FindingKind::EntryDamaged, format!("bucket `{bucket}`, key `{key}`: {problem}"));
        }
    }

    fn history(&mut self, key: &[u8], value: &[u8]) {
        let Some(stored) = StoredKey::decode(key) else {
            return self.found(FindingKind::EntryDamaged, format!("bucket `key`: {key:02x?} is no revision"));
        };
        let Revision { main, sub } = stored.revision;
        if let Some(problem) = entry_problem(stored, value) {
            self.found(FindingKind::EntryDamaged, format!("revision {main}/{sub}: {problem}"));
        }
        self.sequence(stored.revision);
    }

    /// Above the compacted revision nothing may be missing: each revision has a change, each change its number.
    fn sequence(&mut self, found: Revision) {
        if found.main <= self.compacted {
            return;
        }
        if self.stretch && self.previous.is_none() {
            self.previous = Some(found);
            return;
        }
        // The numbers come from the file: at their upper end nothing follows, and that is no reason to stop.
        let next_change =
            self.previous.and_then(|Revision { main, sub }| sub.checked_add(1).map(|sub| Revision { main, sub }));
        let next_revision = match (self.previous, self.compacted) {
            (Some(previous), _) => previous.main.checked_add(1),
            // The first change of a new store makes revision 2.
            (None, 0) => Some(2),
            // Nothing says how the compacted revision ended.
            (None, compacted) => compacted.checked_add(1),
        };
        let follows = Some(found) == next_change || (found.sub == 0 && Some(found.main) == next_revision);
        if !follows {
            let after = self.previous.map_or(self.compacted, |previous| previous.main);
            self.found(
                FindingKind::RevisionMissing,
                format!("revision {}/{} follows {after}: changes in between are lost", found.main, found.sub),
            );
        }
        self.previous = Some(found);
    }

    pub(super) fn finish(mut self) -> Vec<Finding> {
        if let Some(last) = self.previous.filter(|last| !self.stretch && last.main != self.revision) {
            self.found(
                FindingKind::RevisionMissing,
                format!("the history ends at {} instead of {}", last.main, self.revision),
            );
        }
        if self.unlisted > 0 {
            let text = format!("{} more damaged entries", self.unlisted);
            self.findings.push(Finding { kind: FindingKind::EntryDamaged, text });
        }
        self.findings
    }
}

fn entry_problem(stored: StoredKey, value: &[u8]) -> Option<&'static str> {
    let main = stored.revision.main;
    if value.is_empty() && !stored.is_tombstone {
        // The marker that a bump of the revision leaves.
        return None;
    }
    let Ok(message) = StoredValue::decode(value) else { return Some("not a key-value message as etcd writes it") };
    if message.key.is_empty() {
        return Some("it has no key");
    }
    if stored.is_tombstone {
        let bare = StoredValue { key: message.key, ..StoredValue::default() };
        return (message != bare).then_some("a deletion holds more than the key");
    }
    if message.mod_revision != main {
        return Some("it says it was modified at another revision");
    }
    if !(1..=main).contains(&message.create_revision) || message.version < 1 {
        return Some("impossible creation revision or version");
    }
    ((message.version == 1) != (message.create_revision == main)).then_some("version 1 and creation do not coincide")
}

fn lease(key: &[u8], value: &[u8]) -> Option<&'static str> {
    let Ok(id) = key.try_into().map(i64::from_be_bytes) else { return Some("not a lease id") };
    match Lease::decode(value) {
        Ok(lease) if lease.id == id && lease.ttl > 0 => None,
        Ok(_) => Some("another lease, or one without time to live"),
        Err(_) => Some("not a lease"),
    }
}

fn named(key: &[u8], name: Result<Vec<u8>, prost::DecodeError>) -> Option<&'static str> {
    match name {
        Ok(name) if name == key => None,
        Ok(_) => Some("stored under another name"),
        Err(_) => Some("not the message that belongs here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_numbers_are_findings_and_no_panic() {
        for compacted in [0, i64::MAX - 1, i64::MAX] {
            let mut semantics = Semantics { compacted, revision: 3, ..Semantics::new(&Schema::default()) };
            for revision in [(2, i64::MAX), (2, i64::MAX), (i64::MAX, 0), (i64::MAX, i64::MAX), (i64::MAX, i64::MAX)] {
                semantics.sequence(Revision { main: revision.0, sub: revision.1 });
            }
            assert_eq!(semantics.finish().is_empty(), compacted == i64::MAX, "compacted at {compacted}");
        }
    }
}
