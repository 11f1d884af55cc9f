//! The end of a cluster: volumes stay unless they are to go.

use quorate_api::names::VOLUMES_FINALIZER;
use quorate_api::status::ClusterPhase;
use quorate_api::storage::RetentionPolicy;
use quorate_core::{Effect, Guard, Kind, ObjectKey, Reason};

use crate::common::{decision, running, settle, status};

#[test]
fn by_default_nothing_is_done_and_volumes_stay() {
    let mut world = running(3);
    world.delete_cluster();
    let decision = world.operate(None);
    assert_eq!(decision.actions, []);
    assert_eq!(decision.status.phase, Some(ClusterPhase::Deleting));
    assert_eq!(world.claims.len(), 3);
    assert_eq!(world.cluster.metadata.finalizers, None, "nothing holds the EtcdCluster");
}

#[test]
fn with_on_delete_the_volumes_go_after_the_pods_and_the_cluster_after_the_volumes() {
    let mut world = running(3);
    world.cluster.spec.storage.retention.on_delete = RetentionPolicy::Delete;
    settle(&mut world);
    assert_eq!(world.cluster.metadata.finalizers.as_deref(), Some(&[VOLUMES_FINALIZER.to_owned()][..]));
    world.delete_cluster();
    let first = decision(&world).actions;
    assert!(matches!(&first[..], [action] if matches!(&action.effect, Effect::Delete { .. })), "{first:#?}");
    let pods = world.pods.clone();
    world.operate(None);
    world.pods = pods;
    assert_eq!(decision(&world).actions, [], "pods are still there");
    world.pods.clear();
    let second = decision(&world).actions;
    assert_eq!(second.len(), 3);
    for action in &second {
        assert_eq!(action.reason, Reason::VolumesGoWithCluster);
        let Effect::DeleteClaim { guard, .. } = &action.effect else { panic!("{action:?}") };
        assert!(matches!(guard, Guard::ClusterDeleting { .. }));
    }
    world.operate(None);
    assert!(world.claims.is_empty());
    world.operate(None);
    assert_eq!(world.cluster.metadata.finalizers, None);
}

#[test]
fn volumes_of_a_cluster_that_is_not_being_deleted_after_all_are_not_touched() {
    let mut world = running(3);
    world.cluster.spec.storage.retention.on_delete = RetentionPolicy::Delete;
    settle(&mut world);
    world.delete_cluster();
    world.objects.remove(&ObjectKey::new(Kind::StatefulSet, "etcd"));
    world.pods.clear();
    let actions = decision(&world).actions;
    assert_eq!(actions.len(), 3);
    world.cluster.metadata.deletion_timestamp = None;
    world.act_all(&actions);
    assert_eq!(world.claims.len(), 3);
    world.cluster.metadata.uid = Some("another".to_owned());
    world.delete_cluster();
    world.act_all(&actions);
    assert_eq!(world.claims.len(), 3, "nor those of its successor");
}

#[test]
fn claims_of_others_that_carry_the_label_stay() {
    let mut world = running(1);
    world.cluster.spec.storage.retention.on_delete = RetentionPolicy::Delete;
    settle(&mut world);
    let claim = world.claims["data-etcd-0"].clone();
    world.claims.insert("results-of-a-job".to_owned(), claim);
    world.delete_cluster();
    for _ in 0..4 {
        world.operate(None);
    }
    assert_eq!(world.claims.keys().collect::<Vec<_>>(), ["results-of-a-job"]);
    assert_eq!(world.cluster.metadata.finalizers, None, "nor does the cluster wait for them");
}

#[test]
fn what_a_hand_has_orphaned_keeps_its_volumes_and_does_not_hold_the_cluster() {
    let mut world = running(1);
    world.cluster.spec.storage.retention.on_delete = RetentionPolicy::Delete;
    settle(&mut world);
    world.delete_cluster();
    let set = ObjectKey::new(Kind::StatefulSet, "etcd");
    let mut without_owner = world.clone();
    without_owner.objects.get_mut(&set).unwrap().metadata_mut().owner_references = None;
    let mut without_set = world.clone();
    without_set.objects.remove(&set);
    without_set.pods.values_mut().for_each(|pod| pod.controlled = false);
    for world in [&mut without_owner, &mut without_set] {
        world.operate(None);
        assert_eq!((&world.cluster.metadata.finalizers, world.claims.len(), world.pods.len()), (&None, 1, 1));
    }
}

#[test]
fn a_change_of_mind_before_the_end_keeps_the_volumes() {
    let mut world = running(1);
    world.cluster.spec.storage.retention.on_delete = RetentionPolicy::Delete;
    settle(&mut world);
    world.cluster.spec.storage.retention.on_delete = RetentionPolicy::Retain;
    settle(&mut world);
    assert_eq!(world.cluster.metadata.finalizers, None);
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
}

#[test]
fn deleting_goes_on_in_a_paused_cluster() {
    let mut world = running(1);
    world.cluster.spec.storage.retention.on_delete = RetentionPolicy::Delete;
    settle(&mut world);
    world.cluster.spec.maintenance.paused = true;
    world.delete_cluster();
    for _ in 0..4 {
        world.operate(None);
    }
    assert!(world.claims.is_empty() && world.cluster.metadata.finalizers.is_none());
}
