//! Random sound histories, and the same ones with one thing changed.

use quorate_ledger::{History, Moment, Outcome, ReadKind, check};

use crate::story::Story;

const HISTORIES: u64 = 300;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % 1_000_003).unwrap() % bound
    }
}

/// Writes of all kinds, some of whose callers never hear of them; of those some are done at once, some later, some never.
fn random_story(random: &mut Random) -> Story {
    let mut story = Story::new();
    let mut late = Vec::new();
    for n in 0..60 {
        let register = format!("register/{}", random.below(4));
        match random.below(11) {
            0 | 1 => _ = story.put(&format!("once/{n}")),
            2 | 3 => _ = story.put(&register),
            4 => _ = story.put_all(&["pair/left", "pair/right"]),
            5 => _ = story.compare_and_put(&register),
            6 if story.has(&register) => _ = story.delete(&register),
            7 => late.push((story.begin(&[&register], false), register)),
            8 => late.push((story.begin(&[&register], true), register)),
            9 if !late.is_empty() => {
                let (write, key) = late.swap_remove(random.below(late.len()));
                let deletes = story.history.writes[write].changes[0].value.is_none();
                // What is not there is not deleted, and that is the end of it.
                if !deletes || story.has(&key) {
                    story.apply(write);
                }
            }
            _ => {
                let kinds = [ReadKind::Linearizable, ReadKind::Serializable, ReadKind::At(story.revision / 2 + 1)];
                story.read(kinds[random.below(3)]);
            }
        }
    }
    story.put("once/last");
    story.read(ReadKind::Linearizable);
    story
}

#[test]
fn random_sound_histories_are_clean() {
    for seed in 1..=HISTORIES {
        let history = random_story(&mut Random(seed * 0x9e37_79b9)).end();
        let violations = check(&history);
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
    }
}

#[test]
fn any_one_change_to_a_random_sound_history_is_found() {
    for seed in 1..=HISTORIES {
        for (change, plant) in CHANGES {
            let mut random = Random(seed * 0x9e37_79b9);
            let mut history = random_story(&mut random).end();
            plant(&mut history, &mut random);
            assert!(!check(&history).is_empty(), "seed {seed}: {change}");
        }
    }
}

type Plant = fn(&mut History, &mut Random);

const CHANGES: [(&str, Plant); 11] = [
    ("an event is dropped", |history, random| {
        let messages = &mut history.streams[0].messages;
        let place = random.below(messages.len() - 1);
        messages.remove(place);
    }),
    ("an event comes twice", |history, random| {
        let messages = &mut history.streams[0].messages;
        let place = random.below(messages.len());
        messages.insert(place, messages[place].clone());
    }),
    ("two events change places", |history, random| {
        let messages = &mut history.streams[0].messages;
        let place = random.below(messages.len() - 1);
        messages.swap(place, place + 1);
    }),
    ("a read leaves a key out", |history, random| {
        let read = filled_read(history, random);
        history.reads[read].found.pop();
    }),
    ("a read shows another value", |history, random| {
        let read = filled_read(history, random);
        history.reads[read].found[0].value.push('0');
    }),
    ("a read is of another revision", |history, _| {
        let read = history.reads.last_mut().unwrap();
        read.at.revision -= 1;
    }),
    ("a member misses a key at the end", |history, random| {
        let last = &mut history.finals[random.below(3)].found;
        last.remove(0);
    }),
    ("a member has an older version at the end", |history, random| {
        history.finals[random.below(3)].found[0].version += 1;
    }),
    ("two acknowledgements change places", |history, random| {
        let writes = acknowledged(history);
        let place = random.below(writes.len() - 1);
        let (one, other) = (writes[place], writes[place + 1]);
        let outcome = history.writes[one].outcome.clone();
        history.writes[one].outcome = std::mem::replace(&mut history.writes[other].outcome, outcome);
    }),
    ("a write that was done is called failed", |history, random| {
        // A deletion of unknown fate may explain another deletion.
        let mut writes = acknowledged(history);
        writes.retain(|n| history.writes[*n].changes[0].value.is_some());
        history.writes[writes[random.below(writes.len())]].outcome = Outcome::Failed;
    }),
    ("a write is asked for only after it was done", |history, random| {
        let writes = acknowledged(history);
        let write = writes[random.below(writes.len())];
        history.writes[write].called = history.stopped;
        history.writes[write].returned = Some(Moment(history.stopped.0 + 1));
    }),
];

fn filled_read(history: &History, random: &mut Random) -> usize {
    let filled = history.reads.iter().enumerate().filter(|(_, read)| !read.found.is_empty());
    let filled: Vec<usize> = filled.map(|(n, _)| n).collect();
    filled[random.below(filled.len())]
}

fn acknowledged(history: &History) -> Vec<usize> {
    let writes = history.writes.iter().enumerate();
    writes.filter(|(_, write)| matches!(write.outcome, Outcome::Acknowledged(_))).map(|(n, _)| n).collect()
}
