//! What agents say about the disks of their members, in the words of the cluster's status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::conditions::ConditionType::{Degraded, Ready, Stalled};
use quorate_api::member::{EtcdMemberStatus, Verified, VolumeReport, VolumeState};
use quorate_core::{Kind, Object, ObjectKey};

use crate::common::{condition, decision, running, says};
use crate::sim::World;

fn report<'a>(world: &'a mut World, member: &str) -> &'a mut EtcdMemberStatus {
    let member = world.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, member)).unwrap();
    let Object::EtcdMember(member) = member else { panic!() };
    member.status.as_mut().unwrap()
}

fn with_volume(state: VolumeState) -> World {
    let mut world = running(3);
    report(&mut world, "etcd-1").volume = Some(VolumeReport { state, reason: Some("as said".to_owned()) });
    world
}

#[test]
fn a_volume_that_is_filling_needs_attention_and_nobody_is_stopped_by_it() {
    let decision = decision(&with_volume(VolumeState::Filling));
    says(&decision.status, Degraded, "True", "VolumeFilling");
    says(&decision.status, Stalled, "False", "AsExpected");
    says(&decision.status, Ready, "True", "Quorate");
    let message = &condition(&decision.status, Degraded).message;
    assert!(message.starts_with("etcd-1: ") && message.ends_with("(etcd-1: as said)"), "{message}");
    assert_eq!(decision.actions, []);
}

#[test]
fn a_volume_without_room_for_a_start_needs_a_human() {
    let decision = decision(&with_volume(VolumeState::Full));
    says(&decision.status, Degraded, "True", "VolumeFull");
    says(&decision.status, Stalled, "True", "VolumeFull");
    assert_eq!(decision.actions, []);
}

#[test]
fn ample_room_is_nothing_to_talk_about() {
    says(&decision(&with_volume(VolumeState::Ample)).status, Degraded, "False", "AsExpected");
}

#[test]
fn proven_damage_of_a_running_member_needs_a_human_and_disturbs_nobody() {
    let mut world = running(3);
    let verified =
        |damaged: Option<&str>| Verified { time: Time(Timestamp::UNIX_EPOCH), damaged: damaged.map(str::to_owned) };
    report(&mut world, "etcd-1").data.as_mut().unwrap().verified = Some(verified(None));
    says(&decision(&world).status, Degraded, "False", "AsExpected");
    report(&mut world, "etcd-1").data.as_mut().unwrap().verified = Some(verified(Some("page 7")));
    let decision = decision(&world);
    says(&decision.status, Degraded, "True", "MemberDataDamaged");
    says(&decision.status, Stalled, "True", "MemberDataDamaged");
    says(&decision.status, Ready, "True", "Quorate");
    assert!(condition(&decision.status, Degraded).message.contains("etcd-1: page 7"));
    assert_eq!(decision.actions, [], "neither a restart nor a fence follows from this alone");
}
