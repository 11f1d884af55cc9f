//! A history as a sound cluster of three members makes it, told step by step, for bugs to be planted into.

use std::collections::BTreeMap;

use quorate_ledger::{
    Change, Event, Final, History, Kv, Message, Moment, Outcome, Position, Read, ReadKind, Scope, Stream,
    StreamMessage, Write,
};

pub(crate) const PREFIX: &str = "/test/";
pub(crate) const CLUSTER: u64 = 0xc1;

#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) history: History,
    pub(crate) cluster: u64,
    pub(crate) revision: i64,
    now: u64,
    store: BTreeMap<String, Kv>,
    /// One message for each revision since the beginning of this incarnation.
    told: Vec<StreamMessage>,
    since: i64,
}

impl Story {
    pub(crate) fn new() -> Self {
        Self {
            history: History { prefix: PREFIX.to_owned(), ..History::default() },
            cluster: CLUSTER,
            revision: 1,
            now: 0,
            store: BTreeMap::new(),
            told: Vec::new(),
            since: 2,
        }
    }

    /// A hundred writes of all kinds and a read after each.
    pub(crate) fn ordinary() -> Self {
        let mut story = Self::new();
        for n in 0..25 {
            story.put(&format!("once/{n}"));
            story.read(ReadKind::Linearizable);
            story.put(&format!("register/{}", n % 3));
            story.read(ReadKind::At(story.revision - 1));
            story.put_all(&["pair/left", "pair/right"]);
            story.read(ReadKind::Serializable);
            story.compare_and_put(&format!("register/{}", n % 3));
            if n % 5 == 4 {
                story.delete(&format!("register/{}", n % 3));
            }
        }
        story
    }

    pub(crate) fn moment(&mut self) -> Moment {
        self.now += 1_000_000;
        Moment(self.now)
    }

    pub(crate) fn put(&mut self, key: &str) -> usize {
        self.put_all(&[key])
    }

    pub(crate) fn put_all(&mut self, keys: &[&str]) -> usize {
        let write = self.begin(keys, false);
        self.apply(write);
        self.acknowledge(write)
    }

    pub(crate) fn delete(&mut self, key: &str) -> usize {
        let write = self.begin(&[key], true);
        self.apply(write);
        self.acknowledge(write)
    }

    pub(crate) fn compare_and_put(&mut self, key: &str) -> usize {
        let write = self.begin(&[key], false);
        let last = self.store.get(&format!("{PREFIX}{key}")).map_or(0, |kv| kv.mod_revision);
        self.history.writes[write].only_if = Some(last);
        self.apply(write);
        self.acknowledge(write)
    }

    /// A write that is sent; nobody hears of it again unless told otherwise.
    pub(crate) fn begin(&mut self, keys: &[&str], delete: bool) -> usize {
        let (called, number) = (self.moment(), self.history.writes.len());
        let change = |(part, key): (usize, &&str)| Change {
            key: format!("{PREFIX}{key}"),
            value: (!delete).then(|| format!("{number}.{part}")),
            lease: 0,
        };
        self.history.writes.push(Write {
            by: "a writer".to_owned(),
            called,
            returned: None,
            changes: keys.iter().enumerate().map(change).collect(),
            only_if: None,
            outcome: Outcome::Unknown,
        });
        number
    }

    /// The cluster does it, and watches are told.
    pub(crate) fn apply(&mut self, write: usize) {
        self.revision += 1;
        let mut events = Vec::new();
        for Change { key, value, lease } in self.history.writes[write].changes.clone() {
            let previous = self.store.remove(&key);
            let deleted = value.is_none();
            let before = previous.as_ref();
            let kv = Kv {
                key: key.clone(),
                create_revision: if deleted { 0 } else { before.map_or(self.revision, |kv| kv.create_revision) },
                mod_revision: self.revision,
                version: if deleted { 0 } else { before.map_or(0, |kv| kv.version) + 1 },
                value: value.unwrap_or_default(),
                lease,
            };
            if !deleted {
                self.store.insert(key, kv.clone());
            }
            events.push(Event { deleted, kv, previous });
        }
        let at = self.moment();
        self.told.push(StreamMessage { at, body: Message::Events { events, complete: true } });
    }

    pub(crate) fn acknowledge(&mut self, write: usize) -> usize {
        let returned = self.moment();
        let position = Position { cluster: self.cluster, revision: self.revision };
        let write_down = &mut self.history.writes[write];
        write_down.returned = Some(returned);
        write_down.outcome = Outcome::Acknowledged(position);
        write
    }

    pub(crate) fn read(&mut self, kind: ReadKind) {
        let called = self.moment();
        let found = match kind {
            ReadKind::At(revision) => self.at(revision),
            ReadKind::Linearizable | ReadKind::Serializable => self.found(),
        };
        let returned = self.moment();
        self.history.reads.push(Read {
            by: "a reader".to_owned(),
            called,
            returned,
            kind,
            scope: Scope::Prefix(PREFIX.to_owned()),
            at: Position { cluster: self.cluster, revision: self.revision },
            found,
            not_changed_at: None,
        });
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.store.contains_key(&format!("{PREFIX}{key}"))
    }

    fn found(&self) -> Vec<Kv> {
        self.store.values().cloned().collect()
    }

    fn at(&self, revision: i64) -> Vec<Kv> {
        let mut store = BTreeMap::new();
        for message in &self.told {
            let Message::Events { events, .. } = &message.body else { continue };
            for event in events.iter().filter(|event| event.kv.mod_revision <= revision) {
                store.remove(&event.kv.key);
                if !event.deleted {
                    store.insert(event.kv.key.clone(), event.kv.clone());
                }
            }
        }
        store.into_values().collect()
    }

    /// What a restore leaves: the state at a revision, another cluster ID, a higher revision.
    pub(crate) fn restore(&mut self, kept: i64, raised_to: i64) {
        self.tell();
        self.store = self.at(kept).into_iter().map(|kv| (kv.key.clone(), kv)).collect();
        self.cluster += 1;
        self.raise(raised_to);
    }

    /// Another revision, and no past.
    pub(crate) fn raise(&mut self, to: i64) {
        self.told.clear();
        self.revision = to;
        self.since = to + 1;
    }

    fn stream(&mut self, start: i64, resumed: bool, messages: Vec<StreamMessage>) {
        self.history.streams.push(Stream {
            by: "a watcher".to_owned(),
            opened: messages.first().map_or(Moment(self.now), |message| message.at),
            cluster: self.cluster,
            prefix: PREFIX.to_owned(),
            start,
            resumed,
            messages,
        });
    }

    /// One watch that lasted, and one that broke off in the middle and went on.
    fn tell(&mut self) {
        self.stream(self.since, false, self.told.clone());
        let (first, second) = self.told.split_at(self.told.len() / 2);
        let (first, second) = (first.to_vec(), second.to_vec());
        let resumed = self.since + i64::try_from(first.len()).unwrap();
        self.stream(self.since, false, first);
        self.stream(resumed, true, second);
    }

    pub(crate) fn end(mut self) -> History {
        self.tell();
        for member in ["m0", "m1", "m2"] {
            self.history.finals.push(Final {
                member: member.to_owned(),
                at: Position { cluster: self.cluster, revision: self.revision },
                found: self.found(),
                hash: Some((7, 0)),
                leases: None,
            });
        }
        self.history.stopped = self.moment();
        self.history
    }
}
