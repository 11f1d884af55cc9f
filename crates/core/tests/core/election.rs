//! Candidates whose clocks differ, on ways to the API server that are slow, lose questions and lose answers: never do two
//! hold the Lease at once, and no number comes twice.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use proptest::prelude::*;
use quorate_core::election::{Candidate, Holding, Round, Step, Terms};

const TERMS: Terms = Terms::of_seconds(12);
const CANDIDATES: usize = 3;

/// What happens to one request, in milliseconds of the true clock.
#[derive(Clone, Copy, Debug)]
struct Way {
    there: u64,
    back: u64,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    QuestionLost,
    AnswerLost,
}

/// One look of one candidate at the Lease.
#[derive(Clone, Copy, Debug)]
struct Turn {
    read: Way,
    write: Way,
    /// The process dies and is started again, with the same name, before this one.
    restarted: bool,
    /// It gives the Lease back after this one.
    stops: bool,
}

fn ways() -> impl Strategy<Value = Way> {
    let fates = prop_oneof![8 => Just(Fate::Answered), 1 => Just(Fate::QuestionLost), 2 => Just(Fate::AnswerLost)];
    let delays = prop_oneof![3 => 0..100_u64, 1 => 0..6_000_u64];
    (delays.clone(), delays, fates).prop_map(|(there, back, fate)| Way { there, back, fate })
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let rarely = || prop::bool::weighted(0.03);
    let turn = (ways(), ways(), rarely(), rarely());
    let turn = turn.prop_map(|(read, write, restarted, stops)| Turn { read, write, restarted, stops });
    prop::collection::vec(turn, 1..40)
}

/// A clock of its own: it is ahead or behind, and up to five percent too slow or too fast.
#[derive(Clone, Copy, Debug)]
struct Clock {
    wall_ahead: i64,
    percent: u64,
}

impl Clock {
    fn reads(self, start: Instant, millisecond: u64) -> Instant {
        start + Duration::from_millis(millisecond * self.percent / 100)
    }

    fn wall(self, millisecond: u64) -> Timestamp {
        Timestamp::from_millisecond(self.wall_ahead + i64::try_from(millisecond).unwrap()).unwrap()
    }

    /// When the true clock shows that so much has passed on this one.
    fn after(self, millisecond: u64, pause: Duration) -> u64 {
        millisecond + u64::try_from(pause.as_millis()).unwrap() * 100 / self.percent
    }
}

#[derive(Clone, Debug)]
enum Stage {
    Reads,
    ReadArrives { asked: u64 },
    Judges { asked: u64, found: Option<(Lease, u64)> },
    WriteArrives { asked: u64, claim: Lease, over: Option<u64> },
    Written { asked: u64, claim: Lease, round: Round },
    Pauses(Round),
}

struct Machine {
    candidate: Candidate,
    name: String,
    clock: Clock,
    turns: std::vec::IntoIter<Turn>,
    turn: Turn,
    held: Option<Holding>,
    next: (u64, Stage),
}

/// The Lease and how often it was written.
type Stored = Option<(Lease, u64)>;

struct World {
    start: Instant,
    stored: Stored,
    machines: Vec<Machine>,
    highest: i32,
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "there is no other Instant to begin from")]
    fn new(clocks: Vec<Clock>, histories: Vec<Vec<Turn>>) -> Self {
        let quiet = Way { there: 0, back: 0, fate: Fate::Answered };
        let quiet = Turn { read: quiet, write: quiet, restarted: false, stops: false };
        let machines = clocks.into_iter().zip(histories).zip(["a", "b", "c"]).map(|((clock, turns), name)| Machine {
            candidate: Candidate::new(name.to_owned(), TERMS),
            name: name.to_owned(),
            clock,
            turns: turns.into_iter(),
            turn: quiet,
            held: None,
            next: (0, Stage::Reads),
        });
        Self { start: Instant::now(), stored: None, machines: machines.collect(), highest: 0 }
    }

    /// The next thing that happens. False when a candidate has come to the end of its history.
    fn step(&mut self) -> Result<bool, TestCaseError> {
        let first = (0..self.machines.len()).min_by_key(|index| self.machines[*index].next.0).unwrap();
        let (start, stored) = (self.start, &mut self.stored);
        let machine = &mut self.machines[first];
        let (now, stage) = machine.next.clone();
        let patience = |asked: u64| machine.clock.after(asked, TERMS.renew_every());
        machine.next = match stage {
            Stage::Reads => {
                let Some(turn) = machine.turns.next() else { return Ok(false) };
                machine.turn = turn;
                if turn.restarted {
                    machine.candidate = Candidate::new(machine.name.clone(), TERMS);
                    machine.held = None;
                }
                (now + turn.read.there, Stage::ReadArrives { asked: now })
            }
            Stage::ReadArrives { asked } => {
                let Way { back, fate, .. } = machine.turn.read;
                if fate == Fate::Answered && now + back < patience(asked) {
                    (now + back, Stage::Judges { asked, found: stored.clone() })
                } else {
                    (patience(asked).max(now), Stage::Pauses(Round::Failed))
                }
            }
            Stage::Judges { asked, found } => {
                let (lease, over) = found.map_or((None, None), |(lease, version)| (Some(lease), Some(version)));
                let answered = machine.clock.reads(start, now);
                match machine.candidate.judge(lease.as_ref(), answered, machine.clock.wall(now)) {
                    Step::Claim(spec) => {
                        let claim = Lease { spec: Some(spec), ..Lease::default() };
                        (now + machine.turn.write.there, Stage::WriteArrives { asked, claim, over })
                    }
                    Step::Wait => {
                        machine.held = None;
                        (now, Stage::Pauses(Round::Waited))
                    }
                }
            }
            Stage::WriteArrives { asked, claim, over } => {
                let Way { there, back, fate } = machine.turn.write;
                let late = patience(now - there);
                if fate == Fate::QuestionLost {
                    (late.max(now), Stage::Pauses(Round::Failed))
                } else {
                    let conflicts = stored.as_ref().map(|(_, version)| *version) != over;
                    if !conflicts {
                        *stored = Some((claim.clone(), over.unwrap_or_default() + 1));
                    }
                    let round = if conflicts { Round::Conflict } else { Round::Held };
                    if fate == Fate::Answered && now + back < late {
                        (now + back, Stage::Written { asked, claim, round })
                    } else {
                        (late.max(now), Stage::Pauses(Round::Failed))
                    }
                }
            }
            Stage::Written { asked, claim, round } => {
                if round == Round::Held {
                    let held = machine.candidate.written(&claim.spec.unwrap(), machine.clock.reads(start, asked));
                    if machine.held.is_none_or(|before| before.fencing_number != held.fencing_number) {
                        prop_assert!(held.fencing_number > self.highest, "{} comes twice", held.fencing_number);
                        self.highest = held.fencing_number;
                    }
                    machine.held = Some(held);
                }
                if machine.turn.stops {
                    machine.held = None;
                    if let Some((lease, version)) = stored
                        && let Some(released) = machine.candidate.release(lease)
                    {
                        lease.spec = Some(released);
                        *version += 1;
                    }
                }
                (now, Stage::Pauses(round))
            }
            Stage::Pauses(round) => (machine.clock.after(now, TERMS.pause_after(round)), Stage::Reads),
        };
        self.at_most_one_holds(now)?;
        Ok(true)
    }

    fn at_most_one_holds(&self, now: u64) -> Result<(), TestCaseError> {
        let holds = |machine: &&Machine| {
            let reads = machine.clock.reads(self.start, now);
            machine.held.is_some_and(|held| held.is_good(reads))
        };
        let holders = self.machines.iter().filter(holds).map(|machine| &machine.name).collect::<Vec<_>>();
        prop_assert!(holders.len() <= 1, "{holders:?} hold it at {now} ms");
        Ok(())
    }
}

fn clocks() -> impl Strategy<Value = Clock> {
    (0..4_000_000_000_i64, 95..=105_u64).prop_map(|(wall_ahead, percent)| Clock { wall_ahead, percent })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_two_hold_a_lease_at_once_and_no_number_comes_twice(
        clocks in prop::collection::vec(clocks(), CANDIDATES),
        histories in prop::collection::vec(turns(), CANDIDATES),
    ) {
        let mut world = World::new(clocks, histories);
        while world.step()? {}
    }
}

#[test]
fn when_the_holder_is_gone_the_next_one_leads() {
    let quiet = Way { there: 1, back: 1, fate: Fate::Answered };
    let turn = Turn { read: quiet, write: quiet, restarted: false, stops: false };
    let clock = Clock { wall_ahead: 0, percent: 100 };
    let mut world = World::new(vec![clock; 2], vec![vec![turn; 3], vec![turn; 100]]);
    while world.step().unwrap() {}
    assert!(world.machines[0].held.is_some() && world.machines[1].held.is_none());
    world.machines.remove(0);
    while world.machines[0].held.is_none() {
        assert!(world.step().unwrap(), "nobody leads");
    }
}
