//! What belongs to the cluster is put right; what belongs to others is left alone; a pause stops both.

use quorate_api::conditions::ConditionType::{Degraded, Progressing, Ready};
use quorate_api::status::ClusterPhase;
use quorate_core::{Kind, Object, ObjectKey, Reason};

use crate::common::{decision, running, says, seconds, settle, status, without_heartbeat_from};

#[test]
fn every_object_that_is_deleted_by_hand_comes_back() {
    let world = running(3);
    for key in world.objects.keys().cloned().collect::<Vec<_>>() {
        let mut world = world.clone();
        world.objects.remove(&key);
        let actions = decision(&world).actions;
        assert!(actions.iter().any(|action| action.target() == key.to_string()), "{key}: {actions:#?}");
        settle(&mut world);
        assert!(world.objects.contains_key(&key), "{key}");
        assert_eq!((status(&world).phase, world.starts.len()), (Some(ClusterPhase::Running), 3), "{key}");
    }
}

#[test]
fn every_object_that_is_edited_by_hand_is_put_right() {
    let world = running(3);
    for key in world.objects.keys().cloned().collect::<Vec<_>>() {
        let mut world = world.clone();
        let object = world.objects.get_mut(&key).unwrap();
        object.metadata_mut().labels.get_or_insert_default().insert("quorate.dev/cluster".into(), "other".into());
        let actions = decision(&world).actions;
        let [action] = &actions[..] else { panic!("{key}: {actions:#?}") };
        assert_eq!((action.reason, action.target()), (Reason::ObjectChanged, key.to_string()));
    }
}

#[test]
fn what_others_add_is_not_fought_over() {
    let mut world = running(3);
    for object in world.objects.values_mut() {
        object.metadata_mut().labels.get_or_insert_default().insert("team".into(), "db".into());
        object.metadata_mut().annotations.get_or_insert_default().insert("tool".into(), "x".into());
    }
    assert_eq!(decision(&world).actions, []);
}

#[test]
fn an_object_of_somebody_else_is_never_touched() {
    let mut world = running(3);
    let key = ObjectKey::new(Kind::Service, "etcd-client");
    let service = world.objects.get_mut(&key).unwrap();
    service.metadata_mut().owner_references.as_mut().unwrap()[0].uid = "somebody".to_owned();
    world.objects.remove(&ObjectKey::new(Kind::Service, "etcd-peer"));
    let decision = decision(&world);
    assert_eq!(decision.actions, []);
    says(&decision.status, Degraded, "True", "NameTaken");
    says(&decision.status, Ready, "True", "Quorate");
    assert!(decision.status.message.unwrap().contains("Service etcd-client"));
}

#[test]
fn an_object_on_its_way_out_is_waited_for() {
    let mut world = running(1);
    let key = ObjectKey::new(Kind::Service, "etcd-peer");
    let service = world.objects.get_mut(&key).unwrap();
    service.metadata_mut().deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    service.metadata_mut().labels = None;
    assert_eq!(decision(&world).actions, []);
}

#[test]
fn a_pause_stops_actions_and_not_the_status() {
    let mut world = running(3);
    world.cluster.spec.maintenance.paused = true;
    world.objects.remove(&ObjectKey::new(Kind::Service, "etcd-peer"));
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(11));
    let decision = world.operate(None);
    assert_eq!(decision.actions, []);
    assert_eq!(decision.status.phase, Some(ClusterPhase::Degraded));
    says(&decision.status, Degraded, "True", "Paused");
    world.cluster.spec.maintenance.paused = false;
    world.frozen.clear();
    settle(&mut world);
    says(status(&world), Degraded, "False", "AsExpected");
    says(status(&world), Progressing, "False", "Settled");
}

#[test]
fn a_paused_cluster_is_not_formed() {
    let mut world = crate::sim::World::new(3);
    world.operate(None);
    world.cluster.spec.maintenance.paused = true;
    settle(&mut world);
    assert_eq!((world.latch_state(), world.starts.len()), (None, 0));
}

#[test]
fn certificates_come_before_what_mounts_them_and_no_key_is_in_a_decision() {
    let world = crate::sim::World::new(3);
    let actions = decision(&world).actions;
    let certificates = actions.iter().take_while(|action| action.reason == Reason::CertificateMissing).count();
    assert_eq!(certificates, 7);
    assert!(!serde_json::to_string(&actions).unwrap().contains("PRIVATE"));
    let mut plain = world.clone();
    plain.cluster.spec.tls.mode = quorate_api::tls::TlsMode::Disabled;
    assert!(decision(&plain).actions.iter().all(|action| action.reason == Reason::ObjectMissing));
}

#[test]
fn an_identical_apply_is_not_repeated_after_the_api_server_filled_in_defaults() {
    let mut world = running(3);
    let Some(Object::StatefulSet(set)) = world.objects.get_mut(&ObjectKey::new(Kind::StatefulSet, "etcd")) else {
        panic!()
    };
    let pod = set.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
    pod.dns_policy = Some("ClusterFirst".to_owned());
    pod.containers[0].termination_message_path = Some("/dev/termination-log".to_owned());
    set.spec.as_mut().unwrap().revision_history_limit = Some(10);
    assert_eq!(decision(&world).actions, []);
}
