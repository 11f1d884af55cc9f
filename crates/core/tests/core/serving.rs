//! To which members clients are led.

use quorate_core::{Effect, Kind, Object, ObjectKey, Reason};

use crate::common::{decision, deeds, running, seconds, settle, without_heartbeat_from};
use crate::sim::World;

fn hidden(world: &World) -> Vec<&str> {
    world.pods.iter().filter(|(_, pod)| !pod.serving).map(|(name, _)| name.as_str()).collect()
}

#[test]
fn clients_are_led_away_from_a_silent_member_and_back() {
    let mut world = running(3);
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(8));
    let told = deeds(&world.operate(None));
    assert_eq!(told.iter().map(|action| action.reason).collect::<Vec<_>>(), [Reason::MemberHidden]);
    assert_eq!(hidden(&world), ["etcd-1"]);
    assert_eq!(decision(&world).actions, [], "once is enough");
    world.frozen.clear();
    settle(&mut world);
    assert_eq!(hidden(&world), Vec::<&str>::new());
}

#[test]
fn clients_are_not_led_away_when_most_members_are_silent() {
    for replicas in [1, 3, 5] {
        let mut world = running(replicas);
        let all = world.member_names();
        let all = all.iter().map(String::as_str).collect::<Vec<_>>();
        without_heartbeat_from(&mut world, &all, seconds(20));
        assert_eq!(deeds(&world.operate(None)), [], "{replicas} members");
    }
}

#[test]
fn a_hidden_member_is_shown_again_if_the_majority_that_spoke_against_it_falls_silent() {
    let mut world = running(3);
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(8));
    world.operate(None);
    without_heartbeat_from(&mut world, &["etcd-0", "etcd-1", "etcd-2"], seconds(8));
    world.operate(None);
    assert_eq!(hidden(&world), Vec::<&str>::new());
}

#[test]
fn clients_are_led_away_from_data_of_another_cluster() {
    let mut world = running(3);
    for name in ["etcd-0", "etcd-1", "etcd-2"] {
        let Some(Object::EtcdMember(member)) = world.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, name)) else {
            panic!("{name}")
        };
        let report = member.status.as_mut().unwrap();
        report.etcd.as_mut().unwrap().cluster_id = Some("another".to_owned());
    }
    let actions = decision(&world).actions;
    let hides = |name: &str| {
        actions
            .iter()
            .any(|action| matches!(&action.effect, Effect::SetServing { pod, serving: false, .. } if pod == name))
    };
    assert!(world.member_names().iter().all(|name| hides(name)), "also if all do: {actions:#?}");
}

#[test]
fn a_pod_made_anew_is_not_judged_by_what_was_seen_of_the_old_one() {
    let mut world = running(3);
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(8));
    let actions = decision(&world).actions;
    world.kill_pod("etcd-1");
    world.schedule();
    world.act_all(&actions);
    assert_eq!(hidden(&world), Vec::<&str>::new());
}
