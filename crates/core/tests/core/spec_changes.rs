//! A new spec is followed, or the last good one stays in effect and the status says why.

use quorate_api::conditions::ConditionType::{Degraded, Ready};
use quorate_api::names::annotations;
use quorate_api::status::ClusterPhase;
use quorate_core::{Kind, Object, ObjectKey, Reason};

use crate::common::{decision, running, says, settle, status};

#[test]
fn a_setting_that_changes_goes_into_the_template_and_is_shown_as_pending() {
    let mut world = running(3);
    world.cluster.spec.etcd.quota = Some("4Gi".to_owned());
    let actions = decision(&world).actions;
    let [action] = &actions[..] else { panic!("{actions:#?}") };
    assert_eq!((action.reason, action.target()), (Reason::ObjectChanged, "StatefulSet etcd".to_owned()));
    settle(&mut world);
    let Some(Object::StatefulSet(set)) = world.objects.get_mut(&ObjectKey::new(Kind::StatefulSet, "etcd")) else {
        panic!()
    };
    set.status = Some(k8s_openapi::api::apps::v1::StatefulSetStatus {
        update_revision: Some("new".to_owned()),
        ..Default::default()
    });
    world.pods.values_mut().for_each(|pod| pod.revision = Some("old".to_owned()));
    world.pods.get_mut("etcd-0").unwrap().revision = Some("new".to_owned());
    let pending = decision(&world).status.pending;
    assert_eq!(pending.len(), 1);
    assert!(pending[0].reason.contains("etcd-1, etcd-2"), "{pending:?}");
}

#[test]
fn a_spec_that_cannot_be_followed_leaves_the_last_good_one_in_effect() {
    let mut world = running(3);
    let good = world.cluster.spec.clone();
    world.cluster.spec.replicas = 4;
    world.cluster.spec.etcd.quota = Some("much".to_owned());
    world.objects.remove(&ObjectKey::new(Kind::Service, "etcd-peer"));
    settle(&mut world);
    assert!(world.objects.contains_key(&ObjectKey::new(Kind::Service, "etcd-peer")), "repairs go on");
    says(status(&world), Degraded, "True", "SpecInvalid");
    says(status(&world), Ready, "True", "Quorate");
    let fields = status(&world).pending.iter().map(|pending| pending.field.as_str()).collect::<Vec<_>>();
    assert_eq!(fields, ["spec.replicas", "spec.etcd.quota"]);
    world.cluster.spec = good;
    settle(&mut world);
    says(status(&world), Degraded, "False", "AsExpected");
    assert_eq!(status(&world).pending, []);
}

#[test]
fn a_limit_that_came_with_a_newer_operator_leaves_a_running_cluster_in_care() {
    let mut world = running(3);
    // Written when both were fine: a release that is refused by now, and a quota that the volume cannot hold.
    world.cluster.spec.version = "3.5.30".to_owned();
    world.cluster.spec.etcd.quota = Some("20Gi".to_owned());
    let set = world.objects.get_mut(&ObjectKey::new(Kind::StatefulSet, "etcd")).unwrap();
    let text = serde_json::to_string(&world.cluster.spec).unwrap();
    set.metadata_mut().annotations.as_mut().unwrap().insert(annotations::LAST_GOOD_SPEC.to_owned(), text);
    world.objects.remove(&ObjectKey::new(Kind::Service, "etcd-peer"));
    settle(&mut world);
    assert!(world.objects.contains_key(&ObjectKey::new(Kind::Service, "etcd-peer")), "repairs go on");
    says(status(&world), Degraded, "True", "SpecInvalid");
    let fields = status(&world).pending.iter().map(|pending| pending.field.as_str()).collect::<Vec<_>>();
    assert_eq!(fields, ["spec.version", "spec.etcd.quota"]);
}

#[test]
fn a_change_that_is_not_supported_yet_is_pending_and_changes_nothing() {
    let mut world = running(3);
    world.cluster.spec.version = "3.6.17".to_owned();
    let decision = decision(&world);
    assert_eq!(decision.actions, []);
    says(&decision.status, Degraded, "True", "ChangeNotSupportedYet");
    assert_eq!(decision.status.pending[0].field, "a change of spec.version");
}

#[test]
fn a_spec_that_never_could_be_followed_gets_a_condition_and_no_objects() {
    let mut world = crate::sim::World::new(2);
    let decision = world.operate(None);
    assert_eq!(decision.actions, []);
    assert_eq!(decision.status.phase, Some(ClusterPhase::Invalid));
    says(&decision.status, Degraded, "True", "SpecInvalid");
    says(&decision.status, Ready, "False", "NotFormed");
    assert!(decision.status.message.unwrap().contains("spec.replicas is 2"));
    let again = world.operate(None);
    assert_eq!(Some(again.status), world.cluster.status);
}

#[test]
fn a_formed_cluster_whose_spec_cannot_be_followed_at_all_is_not_called_ready() {
    let mut world = running(3);
    world.cluster.spec.replicas = 4;
    world.objects.remove(&ObjectKey::new(Kind::StatefulSet, "etcd"));
    let decision = world.operate(None);
    assert_eq!(decision.status.phase, Some(ClusterPhase::Invalid));
    says(&decision.status, Ready, "Unknown", "SpecInvalid");
    assert!(decision.status.latch.is_some(), "the latch stays");
}

#[test]
fn two_defects_of_one_field_are_one_entry() {
    let mut world = running(3);
    let amount = |text: &str| {
        let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
        Some([("cpu".to_owned(), quantity)].into())
    };
    world.cluster.spec.pod_template.resources.etcd = Some(k8s_openapi::api::core::v1::ResourceRequirements {
        limits: amount("much"),
        requests: amount("more"),
        ..Default::default()
    });
    let pending = decision(&world).status.pending;
    let [change] = &pending[..] else { panic!("{pending:?}") };
    assert!(change.reason.contains("much") && change.reason.contains("more"), "{}", change.reason);
}

#[test]
fn a_name_that_is_too_long_gets_a_condition() {
    let mut world = crate::sim::World::new(3);
    world.cluster.metadata.name = Some("a".repeat(53));
    let decision = decision(&world);
    assert_eq!(decision.actions, []);
    assert!(decision.status.message.unwrap().contains("metadata.name"));
}

#[test]
fn pausing_is_heard_even_with_a_spec_that_cannot_be_followed() {
    let mut world = running(3);
    world.cluster.spec.replicas = 4;
    world.cluster.spec.maintenance.paused = true;
    world.objects.remove(&ObjectKey::new(Kind::Service, "etcd-peer"));
    assert_eq!(decision(&world).actions, []);
}
