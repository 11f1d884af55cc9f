//! The operator dies after every single write that it makes, and all ends as if it had not.
//!
//! Each way of a cluster is gone once undisturbed, and then once for each of its writes, after which the operator dies and
//! another takes over. What is there in the end is compared, but for what no two runs have in common: times, identifiers that
//! are made up, and who happens to lead.

use std::collections::BTreeMap;

use quorate_api::names::VOLUMES_FINALIZER;
use quorate_api::status::ClusterPhase;
use quorate_api::storage::RetentionPolicy;
use serde_json::Value;

use crate::common::{running, seconds, status};
use crate::sim::{Answer, Crash, Volume, World};

/// What somebody does, or what is lost, before the operator gets its turns.
type Turn = fn(&mut World);

/// A run in which the operator dies after so many writes, if it ever makes so many.
struct Run {
    world: World,
    death: Option<usize>,
    died: bool,
    /// Whether the answer to a change of the members that is its last write is lost too.
    unheard: bool,
}

impl Run {
    /// Rounds until three in a row have written nothing.
    fn until_calm(&mut self, context: &str) {
        let mut calm = 0;
        for _ in 0..200 {
            self.world.live_until_operator();
            let before = self.world.writes;
            let left = self.death.filter(|_| !self.died).map(|death| death.saturating_sub(before));
            if self.unheard && left == Some(1) {
                self.world.next_answer = Answer::Lost;
            }
            self.world.operate(left.map(Crash));
            self.world.next_answer = Answer::Heard;
            self.died |= left.is_some_and(|left| self.world.writes - before >= left);
            calm = if self.world.writes == before { calm + 1 } else { 0 };
            // One that has died without a single write of that pass has not come to rest.
            if calm == 3 && left != Some(0) {
                return;
            }
        }
        panic!("{context}: it never comes to rest: {:#?}", self.world.cluster.status);
    }
}

fn run(begin: fn() -> World, turns: &[Turn], death: Option<usize>, unheard: bool) -> Run {
    let mut world = begin();
    world.writes = 0;
    let mut run = Run { world, death, died: false, unheard };
    let context = format!("death after {death:?} writes");
    if turns.is_empty() {
        run.until_calm(&context);
    }
    for turn in turns {
        turn(&mut run.world);
        run.until_calm(&context);
    }
    let world = &run.world;
    assert!(!world.lost_writes && !world.quorum_given_away, "{context}");
    assert!(world.wrongly_removed.is_empty() && world.torn_down.is_empty(), "{context}");
    assert!(world.recoveries.wrong.is_empty(), "{context}: {:?}", world.recoveries.wrong);
    assert_eq!(world.wrongs, [] as [&str; 0], "{context}");
    run
}

/// All there is in the end, as text: what the operator has made, what it says, and who the members are.
fn end_state(world: &World) -> BTreeMap<String, String> {
    let mut end = BTreeMap::new();
    for (key, object) in &world.objects {
        end.insert(key.to_string(), masked(world, serde_json::to_value(object).unwrap()));
    }
    if let Some(status) = &world.cluster.status {
        end.insert("status".to_owned(), masked(world, serde_json::to_value(status).unwrap()));
    }
    let listed = world.listed.iter().map(|(name, it)| format!("{name} {} {}", it.learner, it.started));
    end.insert("members".to_owned(), listed.collect::<Vec<_>>().join(", "));
    let ready = world.pods.iter().map(|(name, pod)| format!("{name} {} {}", pod.ready, pod.serving));
    end.insert("pods".to_owned(), ready.collect::<Vec<_>>().join(", "));
    end.insert("claims".to_owned(), world.claims.keys().cloned().collect::<Vec<_>>().join(", "));
    end.insert("secrets".to_owned(), world.certificates.keys().cloned().collect::<Vec<_>>().join(", "));
    end.insert("finalizers".to_owned(), format!("{:?}", world.cluster.metadata.finalizers));
    end.insert("recoveries".to_owned(), world.recoveries.count.to_string());
    end
}

fn masked(world: &World, mut value: Value) -> String {
    mask(&mut value);
    let ids = world.listed.iter().map(|(name, listed)| (listed.id.as_str(), name));
    ids.fold(value.to_string(), |text, (id, name)| text.replace(id, &format!("id of {name}")))
}

/// What is different in every run.
const VOLATILE: [&str; 20] = [
    "uid",
    "creationTimestamp",
    "lastTransitionTime",
    "lastHeard",
    "since",
    "time",
    "notAfter",
    "renewTime",
    "holderIdentity",
    "role",
    "troubledSince",
    "lastIndex",
    "bootCount",
    "revision",
    "raisedTo",
    "highestKnownRevision",
    "quorate.dev/last-index",
    "quorate.dev/boot-count",
    "quorate.dev/revision",
    "quorate.dev/term",
];

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !VOLATILE.contains(&key.as_str()));
            fields.values_mut().for_each(mask);
        }
        Value::Array(values) => values.iter_mut().for_each(mask),
        _ => {}
    }
}

/// Goes the way with a death after each of its writes, until there is none left to die after.
fn sweep(name: &str, begin: fn() -> World, turns: &[Turn]) {
    let undisturbed = run(begin, turns, None, false);
    let expected = end_state(&undisturbed.world);
    for unheard in [false, true] {
        for death in 0.. {
            let disturbed = run(begin, turns, Some(death), unheard);
            if !disturbed.died {
                assert!(death >= undisturbed.world.writes, "{name}: only {death} writes");
                break;
            }
            let end = end_state(&disturbed.world);
            for key in expected.keys().chain(end.keys()) {
                let context = format!("{name}: {key}, after a death after {death} writes, unheard: {unheard}");
                assert_eq!(end.get(key), expected.get(key), "{context}");
            }
        }
    }
}

fn wish(world: &mut World, replicas: i32) {
    world.cluster.spec.replicas = replicas;
    *world.cluster.metadata.generation.get_or_insert_default() += 1;
}

fn wipe(world: &mut World, name: &str) {
    world.kill_pod(name);
    world.volumes.insert(name.to_owned(), Volume::default());
    world.recoveries.harmed.insert(name.to_owned());
}

#[test]
fn a_cluster_forms_the_same_whenever_the_operator_dies() {
    sweep("forming 1", || World::new(1), &[]);
    sweep("forming 3", || World::new(3), &[]);
}

#[test]
fn a_cluster_gets_to_every_size_the_same_whenever_the_operator_dies() {
    let sizes: [Turn; 4] = [|it| wish(it, 3), |it| wish(it, 5), |it| wish(it, 3), |it| wish(it, 1)];
    sweep("1-3-5-3-1", || running(1), &sizes);
}

#[test]
fn a_member_is_replaced_the_same_whenever_the_operator_dies() {
    sweep("replacing", || running(3), &[|it| wipe(it, "etcd-1")]);
}

#[test]
fn a_quorum_is_recovered_the_same_whenever_the_operator_dies() {
    let lose: Turn = |it| {
        wipe(it, "etcd-0");
        wipe(it, "etcd-2");
    };
    sweep("recovery", || running(3), &[lose]);
}

#[test]
fn a_cluster_sleeps_and_wakes_the_same_whenever_the_operator_dies() {
    sweep("hibernation", || running(3), &[|it| wish(it, 0), |it| wish(it, 3)]);
}

#[test]
fn a_cluster_goes_with_its_volumes_the_same_whenever_the_operator_dies() {
    let prepare = || {
        let mut world = running(3);
        world.cluster.spec.storage.retention.on_delete = RetentionPolicy::Delete;
        crate::common::settle(&mut world);
        assert_eq!(world.cluster.metadata.finalizers.as_deref(), Some(&[VOLUMES_FINALIZER.to_owned()][..]));
        world
    };
    sweep("deletion", prepare, &[World::delete_cluster]);
    let end = run(prepare, &[World::delete_cluster], None, false).world;
    assert!(end.claims.is_empty() && end.pods.is_empty() && end.cluster.metadata.finalizers.is_none());
}

#[test]
fn an_operator_that_never_finishes_a_pass_still_forms_the_cluster() {
    let mut world = World::new(3);
    for _ in 0..200 {
        world.advance(seconds(1));
        world.schedule();
        world.member_names().iter().for_each(|name| world.run_agent(name));
        world.run_etcd();
        world.operate(Some(Crash(1)));
    }
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
    assert_eq!(world.starts.len(), 3);
}
