//! What must still be true when an action is taken, judged on what was read just then.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quorate_api::member::ListedMember;
use quorate_api::names::annotations;
use quorate_api::status::LatchState;
use quorate_api::{EtcdCluster, EtcdMember};
use serde::Serialize;

use crate::membership::ListAnswer;
use crate::node::{NodeFact, Reach};
use crate::view::PodFact;

/// What an action relies on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Guard {
    /// Applying is safe at any time: it only says again what the spec says.
    None,
    /// The object is still the one that was seen.
    Uid(String),
    /// The pod is still the one that was seen, and is still not ready.
    PodStillUnready(String),
    /// The EtcdCluster is still the one that was seen, in the same epoch. It is not formed yet, or nothing is on record of
    /// the member: whoever has never run may begin late.
    BootstrapOpen { cluster_uid: String, epoch: i64 },
    /// The EtcdCluster is still the one that was seen, in the same epoch, is not paused, and nobody trusts the member.
    FenceStands { cluster_uid: String, epoch: i64, member_id: String },
    /// The EtcdCluster is still the one that was seen, with the same spec, in the same epoch, or still without one. So is the
    /// object, if there is one to compare.
    SameIncarnation { cluster_uid: String, generation: Option<i64>, epoch: Option<i64>, object_uid: Option<String> },
    /// The EtcdCluster is still the one that was seen, with the same spec, in the same epoch and not paused. A quorum says
    /// that its members are these, each with whether it is a learner.
    MembersUnchanged {
        cluster_uid: String,
        generation: Option<i64>,
        epoch: i64,
        cluster_id: String,
        members: BTreeSet<(String, bool)>,
    },
    /// The EtcdCluster is still the one that was seen, in the same epoch.
    EpochStands { cluster_uid: String, epoch: i64 },
    /// The EtcdCluster is still the one that was seen, in the same epoch, which has not begun, and this member is to begin it.
    RecoveryOpen { cluster_uid: String, epoch: i64, survivor: String },
    /// The EtcdCluster is still the one that was seen, in the same epoch. The member that may join has not begun.
    JoinOpen { cluster_uid: String, epoch: i64, member_id: String },
    /// The pod is still the one that was seen, on this node, and the node is gone for good.
    NodeGone { pod_uid: String, node: String },
    /// The EtcdCluster is still the one that was seen, with the same spec, in the same epoch and not paused. The claim is
    /// still the one that was seen, and every node on which its volume can be used is gone for good.
    VolumeOutOfReach { cluster_uid: String, generation: Option<i64>, epoch: Option<i64>, claim_uid: String },
    /// The EtcdCluster is still the one that was seen, and is still being deleted.
    ClusterDeleting { cluster_uid: String, object_uid: String },
}

/// What a guard is judged on. `None` stands for what does not exist, or was not needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    pub cluster: Option<&'a EtcdCluster>,
    pub target: Option<&'a ObjectMeta>,
    pub member: Option<&'a EtcdMember>,
    pub pod: Option<&'a PodFact>,
    pub members: Option<&'a ListAnswer>,
    pub node: Option<NodeFact>,
    pub reach: Option<&'a Reach>,
}

/// The identifiers of members, each with whether it is a learner.
pub fn voters_and_learners(members: &[ListedMember]) -> BTreeSet<(String, bool)> {
    members.iter().map(|member| (member.id.clone(), member.learner)).collect()
}

impl Guard {
    /// Whether it takes a fresh look at the EtcdCluster.
    pub fn needs_cluster(&self) -> bool {
        !matches!(self, Self::None | Self::Uid(_) | Self::PodStillUnready(_) | Self::NodeGone { .. })
    }

    /// Whether it takes a fresh look at where a volume can be used.
    pub fn needs_reach(&self) -> bool {
        matches!(self, Self::VolumeOutOfReach { .. })
    }

    pub fn holds(&self, found: Found<'_>) -> bool {
        let uid = found.target.and_then(|target| target.uid.as_deref());
        let is_target = |expected: &str| !expected.is_empty() && uid == Some(expected);
        let is_cluster =
            |expected: &str| found.cluster.is_some_and(|cluster| cluster.metadata.uid.as_deref() == Some(expected));
        let latch = found.cluster.and_then(|cluster| cluster.status.as_ref()?.latch.as_ref());
        let is_epoch = |expected: i64| latch.is_some_and(|latch| latch.epoch == expected);
        let on_record = |member: &EtcdMember| member.status.as_ref()?.data.as_ref()?.member_id.clone();
        match self {
            Self::None => true,
            Self::Uid(uid) => is_target(uid),
            Self::PodStillUnready(uid) => is_target(uid) && found.pod.is_some_and(|pod| !pod.ready),
            Self::BootstrapOpen { cluster_uid, epoch } => {
                let is_new = found.member.is_some_and(|member| on_record(member).is_none());
                let open =
                    latch.is_some_and(|latch| latch.epoch == *epoch && (latch.state == LatchState::Issued || is_new));
                is_cluster(cluster_uid) && open
            }
            Self::FenceStands { cluster_uid, epoch, member_id } => {
                let stands = found.cluster.is_some_and(|cluster| {
                    let annotations = cluster.metadata.annotations.as_ref();
                    let trusted = annotations.and_then(|all| all.get(annotations::TRUSTED_MEMBER));
                    !cluster.spec.maintenance.paused && trusted != Some(member_id)
                });
                is_cluster(cluster_uid) && is_epoch(*epoch) && stands
            }
            Self::MembersUnchanged { cluster_uid, generation, epoch, cluster_id, members } => {
                let is_wished = found.cluster.is_some_and(|cluster| {
                    cluster.metadata.generation == *generation && !cluster.spec.maintenance.paused
                });
                let is_listed = found.members.is_some_and(|answer| match answer {
                    ListAnswer::Answered { cluster_id: of, members: listed } => {
                        of == cluster_id && voters_and_learners(listed) == *members
                    }
                    ListAnswer::NotAsked | ListAnswer::Failed | ListAnswer::OutOfReach | ListAnswer::Refused { .. } => {
                        false
                    }
                });
                is_cluster(cluster_uid) && is_epoch(*epoch) && is_wished && is_listed
            }
            Self::EpochStands { cluster_uid, epoch } => is_cluster(cluster_uid) && is_epoch(*epoch),
            Self::RecoveryOpen { cluster_uid, epoch, survivor } => {
                let chosen = latch.and_then(|latch| latch.recovery.as_ref()?.survivor.as_ref());
                is_cluster(cluster_uid) && is_epoch(*epoch) && chosen == Some(survivor)
            }
            Self::JoinOpen { cluster_uid, epoch, member_id } => {
                let is_new = found.member.is_some_and(|member| on_record(member).as_ref() != Some(member_id));
                is_cluster(cluster_uid) && is_epoch(*epoch) && is_new
            }
            Self::SameIncarnation { cluster_uid, generation, epoch, object_uid } => {
                let is_object = object_uid.as_deref().is_none_or(is_target);
                let is_wished = found.cluster.is_some_and(|cluster| cluster.metadata.generation == *generation);
                is_cluster(cluster_uid) && is_wished && latch.map(|latch| latch.epoch) == *epoch && is_object
            }
            Self::NodeGone { pod_uid, node } => {
                let is_on_it = found.pod.is_some_and(|pod| pod.node.as_ref() == Some(node));
                is_target(pod_uid) && is_on_it && found.node == Some(NodeFact::Gone)
            }
            Self::VolumeOutOfReach { cluster_uid, generation, epoch, claim_uid } => {
                let is_wished = found.cluster.is_some_and(|cluster| {
                    cluster.metadata.generation == *generation && !cluster.spec.maintenance.paused
                });
                let is_incarnation = is_cluster(cluster_uid) && latch.map(|latch| latch.epoch) == *epoch;
                is_incarnation && is_wished && is_target(claim_uid) && found.reach.is_some_and(Reach::is_gone)
            }
            Self::ClusterDeleting { cluster_uid, object_uid } => {
                let deleting = found.cluster.is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_some());
                is_cluster(cluster_uid) && deleting && is_target(object_uid)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use quorate_api::EtcdClusterSpec;
    use quorate_api::member::{DataReport, DataState, EtcdMemberSpec, EtcdMemberStatus, Ticket};
    use quorate_api::status::{EtcdClusterStatus, Latch, QuorumRecovery};

    fn cluster(state: LatchState, epoch: i64) -> EtcdCluster {
        let mut cluster = EtcdCluster::new("etcd", EtcdClusterSpec::default());
        cluster.metadata.uid = Some("c".to_owned());
        let latch = Latch::new(state, epoch, Time(Timestamp::UNIX_EPOCH));
        cluster.status = Some(EtcdClusterStatus { latch: Some(latch), ..EtcdClusterStatus::default() });
        cluster
    }

    fn with_uid(uid: &str) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() }
    }

    fn holds(guard: &Guard, cluster: Option<&EtcdCluster>, target: Option<&ObjectMeta>) -> bool {
        guard.holds(Found { cluster, target, ..Found::default() })
    }

    #[test]
    fn no_ticket_to_start_empty_is_written_once_the_latch_moved() {
        let guard = Guard::BootstrapOpen { cluster_uid: "c".to_owned(), epoch: 1 };
        assert!(holds(&guard, Some(&cluster(LatchState::Issued, 1)), None));
        assert!(!holds(&guard, Some(&cluster(LatchState::Formed, 1)), None));
        assert!(!holds(&guard, Some(&cluster(LatchState::Issued, 2)), None));
        assert!(!holds(&guard, None, None));
        let mut other = cluster(LatchState::Issued, 1);
        other.metadata.uid = Some("another".to_owned());
        assert!(!holds(&guard, Some(&other), None), "a cluster of the same name");
        let mut fresh = cluster(LatchState::Issued, 1);
        fresh.status = None;
        assert!(!holds(&guard, Some(&fresh), None));
    }

    #[test]
    fn a_copy_begins_a_new_incarnation_only_while_it_is_the_chosen_one() {
        let guard = Guard::RecoveryOpen { cluster_uid: "c".to_owned(), epoch: 2, survivor: "etcd-1".to_owned() };
        let chosen = |survivor: &str, epoch: i64| {
            let mut cluster = cluster(LatchState::Issued, epoch);
            let recovery = QuorumRecovery {
                epoch: 1,
                cluster_id: "beef".to_owned(),
                since: Time(Timestamp::UNIX_EPOCH),
                highest_revision: 7,
                last_heard: None,
                named: None,
                survivor: Some(survivor.to_owned()),
                given_up: Vec::new(),
            };
            cluster.status.iter_mut().flat_map(|status| &mut status.latch).for_each(|latch| {
                latch.recovery = Some(recovery.clone());
            });
            cluster
        };
        assert!(guard.needs_cluster());
        assert!(holds(&guard, Some(&chosen("etcd-1", 2)), None));
        assert!(!holds(&guard, Some(&chosen("etcd-2", 2)), None), "another copy was chosen");
        assert!(!holds(&guard, Some(&chosen("etcd-1", 3)), None), "it was tried and given up");
        assert!(!holds(&guard, Some(&cluster(LatchState::Formed, 2)), None), "it has begun");
    }

    #[test]
    fn a_member_begins_late_only_if_nothing_is_on_record_of_it() {
        let guard = Guard::BootstrapOpen { cluster_uid: "c".to_owned(), epoch: 1 };
        let formed = cluster(LatchState::Formed, 1);
        let spec = EtcdMemberSpec { cluster: "etcd".to_owned(), ordinal: 0, ticket: Ticket::Resume { epoch: 1 } };
        let mut member = EtcdMember::new("etcd-0", spec);
        let late = |member: &EtcdMember| {
            guard.holds(Found { cluster: Some(&formed), member: Some(member), ..Found::default() })
        };
        assert!(late(&member));
        let data = DataReport { member_id: Some("beef".to_owned()), ..DataReport::of(DataState::Empty) };
        member.status = Some(EtcdMemberStatus { data: Some(data), ..EtcdMemberStatus::default() });
        assert!(!late(&member), "it was about to begin, and its volume may have been lost since");
    }

    #[test]
    fn what_is_beyond_the_members_goes_only_with_the_incarnation_that_it_was_judged_by() {
        let guard = |object_uid: Option<&str>| Guard::SameIncarnation {
            cluster_uid: "c".to_owned(),
            generation: None,
            epoch: Some(1),
            object_uid: object_uid.map(str::to_owned),
        };
        let formed = cluster(LatchState::Formed, 1);
        assert!(guard(None).needs_cluster());
        assert!(holds(&guard(None), Some(&formed), None));
        assert!(holds(&guard(Some("m")), Some(&formed), Some(&with_uid("m"))));
        assert!(!holds(&guard(Some("m")), Some(&formed), Some(&with_uid("n"))), "another record of that name");
        assert!(!holds(&guard(None), Some(&cluster(LatchState::Formed, 2)), None), "restored meanwhile");
        let mut other = formed.clone();
        other.metadata.uid = Some("another".to_owned());
        assert!(!holds(&guard(None), Some(&other), None), "a cluster of the same name");
        let mut wished = formed.clone();
        wished.metadata.generation = Some(2);
        assert!(!holds(&guard(None), Some(&wished), None), "somebody wishes for something else by now");
        let mut wiped = formed;
        wiped.status = None;
        assert!(!holds(&guard(None), Some(&wiped), None), "nobody knows what is formed any more");
        assert!(!holds(&guard(None), None, None));
    }

    #[test]
    fn nobody_is_fenced_in_a_cluster_that_is_paused_or_another_by_now_nor_whom_its_owner_trusts() {
        let guard = Guard::FenceStands { cluster_uid: "c".to_owned(), epoch: 1, member_id: "beef".to_owned() };
        let formed = cluster(LatchState::Formed, 1);
        assert!(guard.needs_cluster());
        assert!(holds(&guard, Some(&formed), None));
        assert!(!holds(&guard, Some(&cluster(LatchState::Formed, 2)), None), "restored meanwhile");
        let mut paused = formed.clone();
        paused.spec.maintenance.paused = true;
        assert!(!holds(&guard, Some(&paused), None));
        let mut trusted = formed.clone();
        trusted.metadata.annotations = Some([(annotations::TRUSTED_MEMBER.to_owned(), "beef".to_owned())].into());
        assert!(!holds(&guard, Some(&trusted), None));
        let mut other = formed;
        other.metadata.uid = Some("another".to_owned());
        assert!(!holds(&guard, Some(&other), None), "a cluster of the same name");
        assert!(!holds(&guard, None, None));
    }

    #[test]
    fn volumes_go_only_with_the_cluster_they_were_viewed_with() {
        let guard = Guard::ClusterDeleting { cluster_uid: "c".to_owned(), object_uid: "v".to_owned() };
        let mut deleted = cluster(LatchState::Formed, 1);
        assert!(!holds(&guard, Some(&deleted), Some(&with_uid("v"))), "nobody deletes the cluster");
        deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert!(holds(&guard, Some(&deleted), Some(&with_uid("v"))));
        assert!(!holds(&guard, Some(&deleted), Some(&with_uid("w"))), "another volume of that name");
        assert!(!holds(&guard, Some(&deleted), None));
        assert!(!holds(&guard, None, Some(&with_uid("v"))), "the cluster is gone");
    }

    #[test]
    fn a_pod_is_removed_by_force_only_while_its_node_is_gone() {
        let guard = Guard::NodeGone { pod_uid: "p".to_owned(), node: "a".to_owned() };
        assert!(!guard.needs_cluster());
        let pod = |node: &str| {
            let pod = serde_json::json!({ "metadata": { "uid": "p" }, "spec": { "nodeName": node, "containers": [] } });
            PodFact::from(&serde_json::from_value::<k8s_openapi::api::core::v1::Pod>(pod).unwrap())
        };
        let holds = |uid: &str, on: &str, node: Option<NodeFact>| {
            guard.holds(Found { target: Some(&with_uid(uid)), pod: Some(&pod(on)), node, ..Found::default() })
        };
        assert!(holds("p", "a", Some(NodeFact::Gone)));
        assert!(!holds("p", "a", Some(NodeFact::Silent)), "it was made again");
        assert!(!holds("p", "a", None), "nobody may ask");
        assert!(!holds("p", "b", Some(NodeFact::Gone)), "it was another node");
        assert!(!holds("q", "a", Some(NodeFact::Gone)), "another pod of that name");
    }

    #[test]
    fn a_volume_is_given_up_only_while_all_its_nodes_are_gone_and_the_wish_stands() {
        let guard = Guard::VolumeOutOfReach {
            cluster_uid: "c".to_owned(),
            generation: None,
            epoch: Some(1),
            claim_uid: "v".to_owned(),
        };
        assert!(guard.needs_cluster() && guard.needs_reach());
        let pinned = |fact: NodeFact| Reach::Pinned([("a".to_owned(), fact)].into());
        let holds = |cluster: &EtcdCluster, uid: &str, reach: &Reach| {
            let target = with_uid(uid);
            guard.holds(Found { cluster: Some(cluster), target: Some(&target), reach: Some(reach), ..Found::default() })
        };
        let (formed, gone) = (cluster(LatchState::Formed, 1), pinned(NodeFact::Gone));
        assert!(holds(&formed, "v", &gone));
        assert!(!holds(&formed, "w", &gone), "another claim of that name");
        assert!(!holds(&formed, "v", &pinned(NodeFact::Silent)), "the node was made again");
        assert!(!holds(&formed, "v", &Reach::Open));
        assert!(!holds(&cluster(LatchState::Formed, 2), "v", &gone), "restored meanwhile");
        let mut paused = formed.clone();
        paused.spec.maintenance.paused = true;
        assert!(!holds(&paused, "v", &gone));
        let mut wished = formed.clone();
        wished.metadata.generation = Some(2);
        assert!(!holds(&wished, "v", &gone), "somebody wishes for something else by now");
        let mut other = formed;
        other.metadata.uid = Some("another".to_owned());
        assert!(!holds(&other, "v", &gone), "a cluster of the same name");
    }

    #[test]
    fn an_object_without_identity_is_not_the_one_that_was_seen() {
        assert!(!holds(&Guard::Uid(String::new()), None, Some(&with_uid(""))));
        assert!(!holds(&Guard::Uid("a".to_owned()), None, Some(&ObjectMeta::default())));
    }
}
