//! What the core wants to know for certain before it is acted on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quorate_api::conditions::ConditionType;
use quorate_core::guard::Found;
use quorate_core::membership::ListAnswer;
use quorate_core::object::{Kind, Object, ObjectKey};
use quorate_core::read::Read;
use quorate_core::view::{PodFact, SecretsSeen, View};
use quorate_core::{Decision, Effect, Guard, decide};

use crate::common::{condition, decision, running, says, seconds, settle, status, without_heartbeat_from};
use crate::sim::{Listed, World};

fn reads(view: &View, world: &World) -> Vec<Read> {
    decide(view, world.now).reads
}

/// Answers all that is asked for, the list of members as told, and returns how often that took.
fn until_nothing_is_asked(mut view: View, world: &World, list: &ListAnswer) -> (usize, Decision) {
    for rounds in 0..10 {
        let decision = decide(&view, world.now);
        if decision.reads.is_empty() {
            return (rounds, decision);
        }
        for read in decision.reads {
            if let Read::MemberList(_) = &read {
                view.member_list = list.clone();
            }
            view.reads.insert(read);
        }
    }
    panic!("it never ends")
}

#[test]
fn a_settled_cluster_costs_no_read() {
    let world = running(3);
    assert_eq!(reads(&world.view(), &world), []);
    assert!(decide(&world.view(), world.now).is_settled());
}

#[test]
fn bad_news_is_confirmed_before_it_is_told() {
    let mut world = running(3);
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(11));
    assert_eq!(reads(&world.view(), &world), [Read::Cluster, Read::Member("etcd-1".to_owned())]);
    let (rounds, decision) = until_nothing_is_asked(world.view(), &world, &ListAnswer::NotAsked);
    assert_eq!((rounds, decision.is_settled()), (1, false));
}

#[test]
fn what_seems_to_be_missing_is_looked_for() {
    let mut world = running(3);
    let key = ObjectKey::new(Kind::Service, "etcd-peer");
    world.objects.remove(&key);
    assert_eq!(reads(&world.view(), &world), [Read::Cluster, Read::Object(key)]);
}

#[test]
fn no_pod_is_stopped_before_all_members_were_looked_at() {
    let mut world = running(3);
    for time in [11, 300] {
        without_heartbeat_from(&mut world, &["etcd-1"], seconds(time));
        world.pods.get_mut("etcd-1").unwrap().ready = false;
        if time == 11 {
            world.operate(None);
        }
    }
    let asked = reads(&world.view(), &world);
    for name in world.member_names() {
        assert!(asked.contains(&Read::Member(name.clone())), "{name}: {asked:?}");
    }
}

#[test]
fn secrets_are_asked_for_by_the_spec_that_is_followed() {
    let world = running(3);
    let mut view = world.view();
    view.secrets = SecretsSeen::NotAsked;
    view.certificates.clear();
    assert_eq!(reads(&view, &world), [Read::Secrets]);
    view.cluster.spec.tls.mode = quorate_api::tls::TlsMode::Disabled;
    assert!(reads(&view, &world).contains(&Read::Secrets), "the change is refused, so certificates are still needed");
}

#[test]
fn records_are_removed_only_after_a_quorum_has_said_who_its_members_are() {
    let world = with_an_extra_record();
    let asked = reads(&world.view(), &world);
    assert!(asked.iter().any(|read| matches!(read, Read::MemberList(_))), "{asked:?}");
    assert_eq!(decision(&world).actions.len(), 1);
    let another = ListAnswer::Answered { cluster_id: "another".to_owned(), members: Vec::new() };
    let refused = ListAnswer::Refused { cause: "etcdserver: permission denied".to_owned() };
    for answer in [ListAnswer::Failed, ListAnswer::OutOfReach, refused, another] {
        let (_, decision) = until_nothing_is_asked(world.view(), &world, &answer);
        assert_eq!(decision.actions, [], "{answer:?}");
    }
}

/// A cluster beside which the record of a fourth member lies.
fn with_an_extra_record() -> World {
    let mut world = running(3);
    let Some(mut extra) = world.objects.get(&ObjectKey::new(Kind::Lease, "etcd-2")).cloned() else { panic!() };
    extra.metadata_mut().name = Some("etcd-3".to_owned());
    world.objects.insert(ObjectKey::new(Kind::Lease, "etcd-3"), extra);
    world
}

#[test]
fn records_are_removed_only_in_the_epoch_in_which_the_members_were_asked() {
    let mut world = with_an_extra_record();
    let actions = decision(&world).actions;
    let key = ObjectKey::new(Kind::Lease, "etcd-3");
    let mut later = world.clone();
    later.cluster.status.as_mut().unwrap().latch.as_mut().unwrap().epoch = 2;
    later.act_all(&actions);
    assert!(later.objects.contains_key(&key));
    world.act_all(&actions);
    assert!(!world.objects.contains_key(&key));
}

#[test]
fn that_nobody_confirms_the_members_is_told_once_with_the_cause() {
    let told = |world: &mut World, reason: &str| {
        world.operate(None);
        says(status(world), ConditionType::Progressing, "True", reason);
        assert!(!decision(world).status_changed, "the same is not told again");
        condition(status(world), ConditionType::Progressing).message.clone()
    };
    let mut world = with_an_extra_record();
    world.cut_off = world.member_names().into_iter().collect();
    let message = told(&mut world, "EtcdOutOfReach");
    assert!(message.contains("port 2379 of etcd-0, etcd-1, etcd-2"), "{message}");
    world.pods.values_mut().for_each(|pod| pod.address = None);
    let message = told(&mut world, "WaitingForMemberList");
    assert!(message.contains("no member has an address"), "{message}");
    let mut world = with_an_extra_record();
    world.impostors = world.member_names().into_iter().collect();
    let message = told(&mut world, "WaitingForMemberList");
    assert!(message.contains("belongs to cluster another, and this one is cluster-of-"), "{message}");
    world.impostors.clear();
    settle(&mut world);
    assert!(!world.objects.contains_key(&ObjectKey::new(Kind::Lease, "etcd-3")));
    says(status(&world), ConditionType::Progressing, "False", "Settled");
}

/// What is reported about the members, by those that run and of the volumes, is lost.
fn forget_lists(world: &mut World, of_running: bool) {
    for object in world.objects.values_mut() {
        let Object::EtcdMember(member) = object else { continue };
        let Some(status) = &mut member.status else { continue };
        status.data.iter_mut().for_each(|data| data.members.clear());
        status.etcd.iter_mut().filter(|_| of_running).for_each(|etcd| etcd.members.clear());
    }
}

#[test]
fn after_a_status_was_wiped_nothing_beyond_the_wish_goes_before_the_members_have_spoken() {
    // Somebody has made it four: a member, and a pod for it.
    let mut world = running(3);
    world.change_members_by_hand(|listed| listed.extend([("etcd-3".to_owned(), Listed::by_hand("etcd-3", false))]));
    let Some(Object::StatefulSet(set)) = world.objects.get_mut(&ObjectKey::new(Kind::StatefulSet, "etcd")) else {
        panic!()
    };
    set.spec.as_mut().unwrap().replicas = Some(4);
    settle(&mut world);
    assert_eq!((world.pods.len(), status(&world).cluster_size), (4, Some(4)));
    world.cluster.status = None;
    let mut silent = world.clone();
    forget_lists(&mut silent, true);
    silent.cut_off = silent.member_names().into_iter().collect();
    silent.operate(None);
    silent.schedule();
    assert_eq!((silent.pods.len(), silent.torn_down.len()), (4, 0), "nobody could say who the members are");
    forget_lists(&mut world, false);
    assert_eq!(world.operate(None).status.cluster_size, Some(4), "those that run know");
    settle(&mut world);
    assert_eq!((world.pods.len(), world.torn_down.len()), (4, 0));
    assert_eq!(status(&world).cluster_size, Some(4));
}

#[test]
fn voters_that_somebody_else_added_count_also_when_the_list_is_lost() {
    let mut world = running(3);
    world
        .change_members_by_hand(|listed| listed.extend([("elsewhere".to_owned(), Listed::by_hand("elsewhere", true))]));
    settle(&mut world);
    assert_eq!(status(&world).foreign_voters, ["elsewhere (id-of-elsewhere)"]);
    assert_eq!(status(&world).cluster_size, Some(4));
    for name in ["etcd-0", "etcd-1", "etcd-2"] {
        world.objects.remove(&ObjectKey::new(Kind::EtcdMember, name));
    }
    world.operate(None);
    assert_eq!(status(&world).cluster_size, Some(4), "nobody tells of it, and it votes all the same");
    world.change_members_by_hand(|listed| listed.retain(|name, _| name != "elsewhere"));
    settle(&mut world);
    assert_eq!((status(&world).foreign_voters.len(), status(&world).cluster_size), (0, Some(3)));
}

#[test]
fn pods_are_taken_away_only_from_the_cluster_that_was_asked() {
    let mut world = running(3);
    let Some(Object::StatefulSet(set)) = world.objects.get_mut(&ObjectKey::new(Kind::StatefulSet, "etcd")) else {
        panic!()
    };
    set.spec.as_mut().unwrap().replicas = Some(5);
    let actions = decision(&world).actions;
    let shrinks = |effect: &Effect| matches!(effect, Effect::Apply { guard: Guard::SameIncarnation { .. }, .. });
    assert!(actions.iter().any(|action| shrinks(&action.effect)), "{actions:#?}");
    let meanwhile: [fn(&mut World); 3] = [
        |world| world.cluster.metadata.uid = Some("another".to_owned()),
        |world| world.cluster.status = None,
        |world| world.cluster.status.as_mut().unwrap().latch.as_mut().unwrap().epoch = 2,
    ];
    for change in meanwhile {
        let mut other = world.clone();
        change(&mut other);
        other.act_all(&actions);
        other.schedule();
        assert_eq!(other.pods.len(), 5, "it is not the one whose members were asked for: {:?}", other.cluster.status);
    }
    world.act_all(&actions);
    world.schedule();
    assert_eq!(world.pods.len(), 3);
}

#[test]
fn a_volume_that_nobody_has_looked_at_yet_may_be_a_members() {
    let mut world = running(5);
    world.recreate_with(1);
    world.operate(None);
    let key = ObjectKey::new(Kind::StatefulSet, "etcd");
    let pods = |world: &World| match &world.objects[&key] {
        Object::StatefulSet(set) => set.spec.as_ref().unwrap().replicas.unwrap(),
        _ => panic!(),
    };
    assert_eq!(pods(&world), 1);
    let Some(Object::StatefulSet(set)) = world.objects.get_mut(&key) else { panic!() };
    set.spec.as_mut().unwrap().replicas = Some(2);
    world.operate(None);
    assert_eq!((pods(&world), world.torn_down.len()), (2, 0));
}

#[test]
fn a_pod_that_was_made_anew_is_not_the_one_that_was_to_be_stopped() {
    let world = running(1);
    let pod = PodFact { ready: false, ..world.pods["etcd-0"].clone() };
    let guard = Guard::PodStillUnready("seen".to_owned());
    let holds = |uid: &str| {
        let target = ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() };
        guard.holds(Found { target: Some(&target), pod: Some(&pod), ..Found::default() })
    };
    assert!(holds("seen") && !holds("another"));
}
