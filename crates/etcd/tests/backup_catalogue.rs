//! What a listing of stored backups means.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use quorate_etcd::backup::{
    Catalogue, Facts, FullReason, Keep, Kind, Listed, Next, ObjectName, PlanError, Policy, Refusal, Retention,
    Standing, Target, Verdict, Writer, cluster_tag, next, retain,
};
use quorate_etcd::events::Cut;

const UID: &str = "uid-1";

fn name(kind: Kind, first: i64, last: i64, seconds: i64, fencing: u64) -> ObjectName {
    ObjectName { epoch: 1, last, kind, first, millis: seconds * 1000, fencing, cluster: cluster_tag(UID) }
}

fn full(at_least: i64, seconds: i64) -> ObjectName {
    name(Kind::Full, at_least, at_least, seconds, 1)
}

fn delta(first: i64, last: i64, seconds: i64) -> ObjectName {
    name(Kind::Delta, first, last, seconds, 1)
}

fn by(fencing: u64, name: ObjectName) -> ObjectName {
    ObjectName { fencing, ..name }
}

fn second(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// A full backup's true revision is two above what its name says, its compaction five below.
fn listed(name: ObjectName) -> Listed {
    let last_revision = if name.kind.is_base() { name.last + 2 } else { name.last };
    let facts = Facts {
        cluster_uid: UID.to_owned(),
        last_revision,
        compact_revision: name.kind.is_base().then_some((name.last - 5).max(1)),
        covered_through: name.time(),
        auth_revision: 1,
        digest: [u8::try_from(name.last % 251).unwrap(); 32],
        parent: None,
        is_encrypted: false,
    };
    Listed { name: name.to_string(), size: 10, modified: name.time(), facts: Some(facts) }
}

fn catalogue(names: &[ObjectName]) -> Catalogue {
    Catalogue::new(names.iter().copied().map(listed).collect(), Some(UID))
}

fn standing(catalogue: &Catalogue, name: ObjectName) -> Standing {
    catalogue.objects.iter().find(|object| object.name == name).unwrap().standing
}

fn plan(catalogue: &Catalogue, target: Target) -> (ObjectName, Vec<ObjectName>) {
    let plan = catalogue.plan(target, None).unwrap();
    (plan.base, plan.deltas)
}

const WRITER: Writer = Writer { epoch: 1, fencing: 1, auth_revision: 1, compact_revision: 0, revision: 1000 };

#[test]
fn a_full_backup_and_contiguous_deltas_are_a_chain_in_whatever_order_they_are_listed() {
    let names = [delta(31, 40, 400), full(10, 100), delta(21, 30, 300), delta(11, 20, 200), full(30, 310)];
    let catalogue = catalogue(&names);
    assert_eq!(catalogue.chains.len(), 2);
    assert_eq!(catalogue.latest_revision(), Some(40));
    assert_eq!(plan(&catalogue, Target::Latest), (full(30, 310), vec![delta(31, 40, 400)]));
    assert_eq!(plan(&catalogue, Target::Revision(25)), (full(10, 100), vec![delta(11, 20, 200), delta(21, 30, 300)]));
    assert_eq!(plan(&catalogue, Target::Revision(15)), (full(10, 100), vec![delta(11, 20, 200)]));
    assert_eq!(plan(&catalogue, Target::Revision(6)), (full(10, 100), vec![]), "inside the full backup's history");
    assert!(matches!(catalogue.plan(Target::Revision(41), None), Err(PlanError::Revision { wanted: 41, .. })));
    assert!(matches!(catalogue.plan(Target::Revision(3), None), Err(PlanError::Revision { .. })));
    let at = |seconds| plan(&catalogue, Target::Time(second(seconds)));
    assert_eq!(at(250), (full(10, 100), vec![delta(11, 20, 200), delta(21, 30, 300)]));
    assert_eq!(at(305), (full(10, 100), vec![delta(11, 20, 200), delta(21, 30, 300), delta(31, 40, 400)]));
    assert_eq!(at(400), (full(30, 310), vec![delta(31, 40, 400)]));
    assert!(catalogue.plan(Target::Time(second(401)), None).is_err(), "nobody knows yet");
    assert!(catalogue.plan(Target::Time(second(99)), None).is_err());
    assert_eq!(catalogue.plan(Target::Time(second(250)), None).unwrap().cut, Cut::Time(second(250)));
}

#[test]
fn a_gap_ends_a_chain_and_asks_for_a_full_backup() {
    let catalogue = catalogue(&[full(10, 100), delta(11, 20, 200), delta(25, 30, 300)]);
    assert_eq!(catalogue.latest_revision(), Some(20));
    assert_eq!(standing(&catalogue, delta(25, 30, 300)), Standing::Unconnected);
    assert_eq!(next(&catalogue, &WRITER), Next::Full(FullReason::Gap));
}

#[test]
fn an_old_writer_that_wakes_up_is_superseded_from_where_the_new_one_began() {
    let kept = [full(10, 100), delta(11, 20, 200), by(2, delta(21, 32, 310)), by(2, delta(33, 40, 400))];
    let late = [delta(21, 30, 300), delta(31, 50, 500)];
    let catalogue = catalogue(&[&kept[..], &late].concat());
    for name in kept {
        assert_eq!(standing(&catalogue, name), Standing::Used, "{name}");
    }
    for name in late {
        assert_eq!(standing(&catalogue, name), Standing::Superseded { by: 2 }, "{name}");
    }
    assert_eq!(catalogue.latest_revision(), Some(40));
    assert!(matches!(next(&catalogue, &WRITER), Next::Refuse(Refusal::Fenced(_))));
    let successor = Writer { fencing: 3, ..WRITER };
    assert!(matches!(next(&catalogue, &successor), Next::Continue { first: 41, .. }));
}

#[test]
fn what_a_successor_repeats_is_no_gap() {
    let names = [full(10, 100), delta(11, 20, 200), by(2, delta(16, 30, 300))];
    let catalogue = catalogue(&names);
    assert_eq!(catalogue.latest_revision(), Some(30));
    assert_eq!(plan(&catalogue, Target::Latest).1, names[1..]);
}

#[test]
fn empty_deltas_extend_the_time_and_nothing_else() {
    let names = [full(10, 100), delta(11, 20, 200), delta(21, 20, 260), delta(21, 20, 320), delta(21, 30, 400)];
    let catalogue = catalogue(&names);
    assert_eq!(catalogue.latest_revision(), Some(30));
    assert_eq!(plan(&catalogue, Target::Latest).1, names[1..], "the next one names them as its parent");
    let before = self::catalogue(&names[..4]);
    assert_eq!(before.latest_revision(), Some(20));
    assert!(before.plan(Target::Time(second(320)), None).is_ok());
    assert!(before.plan(Target::Time(second(321)), None).is_err());
    assert!(
        matches!(next(&before, &WRITER), Next::Continue { first: 21, covered_before, .. } if covered_before == second(320))
    );
}

#[test]
fn a_writer_continues_begins_anew_or_keeps_away() {
    let chain = catalogue(&[full(10, 100), delta(11, 20, 200)]);
    let digest = [20; 32];
    assert_eq!(next(&chain, &WRITER), Next::Continue { first: 21, parent: digest, covered_before: second(200) });
    let after_full = catalogue(&[full(10, 100)]);
    assert!(matches!(next(&after_full, &WRITER), Next::Continue { first: 11, .. }), "its name is what is sure");
    assert_eq!(next(&catalogue(&[]), &WRITER), Next::Full(FullReason::NoChain));
    assert_eq!(next(&chain, &Writer { epoch: 2, ..WRITER }), Next::Full(FullReason::NewEpoch));
    assert_eq!(next(&chain, &Writer { auth_revision: 2, ..WRITER }), Next::Full(FullReason::AuthChanged));
    assert_eq!(next(&chain, &Writer { compact_revision: 21, ..WRITER }), Next::Full(FullReason::Gap));
    assert!(matches!(next(&chain, &Writer { compact_revision: 20, ..WRITER }), Next::Continue { .. }));
    assert!(matches!(next(&chain, &Writer { epoch: 0, ..WRITER }), Next::Refuse(Refusal::LaterEpoch(_))));
    let behind = Writer { revision: 15, ..WRITER };
    assert_eq!(next(&chain, &behind), Next::Refuse(Refusal::ServerBehind { stored: 20, server: 15 }));
    let unread = Listed { facts: None, ..listed(full(10, 100)) };
    let unread = Catalogue::new(vec![unread], Some(UID));
    assert_eq!(next(&unread, &WRITER), Next::Read(full(10, 100)));
    assert!(matches!(unread.plan(Target::Revision(12), None), Err(PlanError::Unread { .. })));
    assert_eq!(unread.latest_revision(), Some(10));
}

#[test]
fn another_cluster_on_the_prefix_is_seen_by_name_and_by_header() {
    let stranger = ObjectName { cluster: cluster_tag("uid-2"), ..full(10, 100) };
    let seen = catalogue(&[stranger]);
    assert_eq!(seen.strangers, [stranger]);
    assert_eq!(next(&seen, &WRITER), Next::Refuse(Refusal::ForeignCluster(stranger)));
    let mut disguised = listed(full(10, 100));
    disguised.facts.as_mut().unwrap().cluster_uid = "uid-3".to_owned();
    assert!(matches!(
        next(&Catalogue::new(vec![disguised], Some(UID)), &WRITER),
        Next::Refuse(Refusal::ForeignCluster(_))
    ));
    let both = || vec![listed(full(10, 100)), listed(stranger)];
    let guessed = Catalogue::new(both(), None).plan(Target::Latest, None);
    assert!(matches!(guessed, Err(PlanError::SeveralClusters { .. })));
    assert_eq!(plan(&Catalogue::new(both(), Some(UID)), Target::Latest).0, full(10, 100));
    let other = Listed { name: "README".to_owned(), size: 1, modified: second(1), facts: None };
    assert_eq!(Catalogue::new(vec![other], Some(UID)).foreign, ["README"]);
}

fn judged(names: &[ObjectName], retention: Retention, now: &str) -> Vec<(ObjectName, Verdict)> {
    retain(&catalogue(names), &retention, &BTreeSet::new(), &BTreeSet::new(), now.parse().unwrap())
}

fn at(time: &str) -> i64 {
    time.parse::<Timestamp>().unwrap().as_second()
}

const EXPONENTIAL: Retention = Retention { policy: Policy::Exponential, delta_period: SignedDuration::ZERO };

#[test]
fn exponential_retention_thins_out_with_age() {
    let table = [
        ("2026-11-18T12:50:00Z", Verdict::Keep(Keep::NewestChain)),
        ("2026-11-18T12:40:00Z", Verdict::Keep(Keep::CurrentHour)),
        ("2026-11-18T12:00:00Z", Verdict::Keep(Keep::CurrentHour)),
        ("2026-11-18T11:59:59Z", Verdict::Keep(Keep::LastOfHour)),
        ("2026-11-18T11:30:00Z", Verdict::Delete),
        ("2026-11-18T11:00:00Z", Verdict::Delete),
        ("2026-11-18T00:00:00Z", Verdict::Keep(Keep::LastOfHour)),
        ("2026-11-17T23:59:59Z", Verdict::Keep(Keep::LastOfDay)),
        ("2026-11-17T12:00:00Z", Verdict::Delete),
        ("2026-11-16T12:00:00Z", Verdict::Keep(Keep::LastOfDay)),
        ("2026-11-11T00:00:00Z", Verdict::Keep(Keep::LastOfDay)),
        ("2026-11-10T23:00:00Z", Verdict::Keep(Keep::LastOfWeek)),
        ("2026-11-06T12:00:00Z", Verdict::Delete),
        ("2026-11-04T00:00:00Z", Verdict::Delete),
        ("2026-11-03T12:00:00Z", Verdict::Keep(Keep::LastOfWeek)),
        ("2026-10-27T12:00:00Z", Verdict::Keep(Keep::LastOfWeek)),
        ("2026-10-15T00:00:00Z", Verdict::Keep(Keep::LastOfWeek)),
        ("2026-10-14T23:59:59Z", Verdict::Delete),
        ("2025-10-14T23:59:59Z", Verdict::Delete),
    ];
    let mut revision = 1000;
    let names: Vec<ObjectName> = table
        .iter()
        .map(|(time, _)| {
            revision -= 10;
            full(revision, at(time))
        })
        .collect();
    let verdicts = judged(&names, EXPONENTIAL, "2026-11-18T12:55:00Z");
    for ((time, expected), name) in table.iter().zip(&names) {
        let found = verdicts.iter().find(|(judged, _)| judged == name).unwrap().1;
        assert_eq!(found, *expected, "{time}");
    }
}

#[test]
fn what_compaction_made_takes_nobodys_place() {
    let compacted = |last, seconds| name(Kind::Compacted, last, last, seconds, 1);
    let names = [full(10, 100), full(20, 200), compacted(25, 250), compacted(26, 260), full(30, 300)];
    let retention = Retention { policy: Policy::LimitBased { keep: 2 }, delta_period: SignedDuration::ZERO };
    let verdicts: Vec<Verdict> =
        judged(&names, retention, "1970-01-02T00:00:00Z").into_iter().map(|(_, v)| v).collect();
    assert_eq!(
        verdicts,
        [
            Verdict::Delete,
            Verdict::Keep(Keep::WithinLimit),
            Verdict::Delete,
            Verdict::Delete,
            Verdict::Keep(Keep::NewestChain),
        ]
    );
    let newest = judged(&names[..4], retention, "1970-01-02T00:00:00Z");
    assert_eq!(newest[3].1, Verdict::Keep(Keep::NewestChain), "unless it is the newest");
}

#[test]
fn deltas_of_older_streams_go_by_age_and_what_is_used_or_locked_stays() {
    let names =
        [full(10, 100), delta(11, 20, 200), full(20, 210), delta(21, 30, 300), full(30, 310), delta(31, 40, 400)];
    let keep_all = Policy::LimitBased { keep: 9 };
    let verdict = |seconds, in_use: &[ObjectName], locked: &[ObjectName]| -> Vec<Verdict> {
        let retention = Retention { policy: keep_all, delta_period: SignedDuration::from_secs(seconds) };
        let (in_use, locked) = (in_use.iter().copied().collect(), locked.iter().copied().collect());
        retain(&catalogue(&names), &retention, &in_use, &locked, second(450)).into_iter().map(|(_, v)| v).collect()
    };
    // By name: full 10, delta ..20, full 20, delta ..30, full 30, delta ..40.
    let found = verdict(200, &[], &[]);
    let order: Vec<ObjectName> = catalogue(&names).objects.iter().map(|object| object.name).collect();
    let of = |found: &[Verdict], name: ObjectName| found[order.iter().position(|other| *other == name).unwrap()];
    assert_eq!(of(&found, names[1]), Verdict::Delete);
    assert_eq!(of(&found, names[3]), Verdict::Keep(Keep::RecentDelta));
    assert_eq!(of(&found, names[5]), Verdict::Keep(Keep::NewestChain));
    let found = verdict(0, &[names[1]], &[names[3]]);
    assert_eq!(of(&found, names[1]), Verdict::Keep(Keep::InUse));
    assert_eq!(of(&found, names[3]), Verdict::Keep(Keep::Locked));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Writers come and go, sleep and wake up, lose objects; whatever is left, a plan is always without a hole, and
    /// what retention leaves still leads to the latest revision.
    #[test]
    fn a_plan_has_no_holes_and_retention_never_costs_the_latest(
        steps in prop::collection::vec((0_u8..8, 1_i64..9, any::<prop::sample::Index>()), 1..60),
        keep in 1_usize..4, period in 0_i64..500,
    ) {
        let (mut head, mut clock, mut fencing) = (10, 1000, 1);
        // Where each writer believes the chain to end.
        let mut ends = std::collections::BTreeMap::from([(1_u64, 10_i64)]);
        let mut names = vec![full(10, 900)];
        for (step, size, pick) in steps {
            clock += size;
            match step {
                0 => names.push(by(fencing, full(head, clock))),
                1 => {
                    let end = ends[&fencing];
                    fencing += 1;
                    ends.insert(fencing, end);
                }
                2 if names.len() > 1 => {
                    names.remove(pick.index(names.len()));
                }
                3 => names.push(by(fencing, delta(ends[&fencing] + 1, ends[&fencing], clock))),
                _ => {
                    let writer = if step == 4 { 1 + pick.index(ends.len()) as u64 } else { fencing };
                    let first = ends[&writer] + 1;
                    let last = first + size - 1;
                    names.push(by(writer, delta(first, last, clock)));
                    ends.insert(writer, last);
                    head = head.max(last);
                }
            }
        }
        names.sort();
        names.dedup();
        let before = catalogue(&names);
        let Some(latest) = before.latest_revision() else { return Ok(()) };
        let check = |catalogue: &Catalogue, wanted: i64| -> Result<(), TestCaseError> {
            let Ok(plan) = catalogue.plan(Target::Revision(wanted), None) else { return Ok(()) };
            let mut reached = plan.base.last + 2;
            for delta in plan.deltas {
                prop_assert!(delta.first <= reached + 1, "{delta} after {reached}");
                reached = reached.max(delta.last);
            }
            prop_assert!(reached >= wanted);
            Ok(())
        };
        for wanted in 1..=latest {
            check(&before, wanted)?;
        }
        let retention = Retention { policy: Policy::LimitBased { keep }, delta_period: SignedDuration::from_secs(period) };
        let verdicts = retain(&before, &retention, &BTreeSet::new(), &BTreeSet::new(), second(clock));
        let left: Vec<ObjectName> = verdicts.iter().filter(|(_, verdict)| *verdict != Verdict::Delete).map(|(name, _)| *name).collect();
        let after = catalogue(&left);
        prop_assert_eq!(after.latest_revision(), Some(latest));
        prop_assert!(after.plan(Target::Latest, None).is_ok());
    }
}
