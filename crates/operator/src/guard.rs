//! Whether what an action relies on is still true, asked of objects that were read just now.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quorate_api::EtcdCluster;
use quorate_api::status::LatchState;
use quorate_core::Guard;
use quorate_core::view::PodFact;

/// Whether the guard needs a fresh look at the EtcdCluster.
pub fn needs_cluster(guard: &Guard) -> bool {
    matches!(guard, Guard::BootstrapOpen { .. } | Guard::ClusterDeleting { .. })
}

/// Whether the guard holds. `None` stands for what does not exist.
pub fn holds(guard: &Guard, cluster: Option<&EtcdCluster>, target: Option<&ObjectMeta>) -> bool {
    let is_cluster = |uid: &str| cluster.is_some_and(|cluster| cluster.metadata.uid.as_deref() == Some(uid));
    let is_target = |uid: &str| !uid.is_empty() && target.is_some_and(|target| target.uid.as_deref() == Some(uid));
    match guard {
        Guard::None => true,
        Guard::Uid(uid) | Guard::PodStillUnready(uid) => is_target(uid),
        Guard::BootstrapOpen { cluster_uid, epoch } => {
            let latch = cluster.and_then(|cluster| cluster.status.as_ref()?.latch.as_ref());
            let open = latch.is_some_and(|latch| latch.state == LatchState::Issued && latch.epoch == *epoch);
            is_cluster(cluster_uid) && open
        }
        Guard::ClusterDeleting { cluster_uid, object_uid } => {
            let deleting = cluster.is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_some());
            is_cluster(cluster_uid) && deleting && is_target(object_uid)
        }
    }
}

/// The same for a pod, whose readiness counts too.
pub fn holds_for_pod(guard: &Guard, pod: &Pod) -> bool {
    let must_be_unready = matches!(guard, Guard::PodStillUnready(_));
    holds(guard, None, Some(&pod.metadata)) && !(must_be_unready && PodFact::from(pod).ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use quorate_api::EtcdClusterSpec;
    use quorate_api::status::{EtcdClusterStatus, Latch};

    fn cluster(state: LatchState, epoch: i64) -> EtcdCluster {
        let mut cluster = EtcdCluster::new("etcd", EtcdClusterSpec::default());
        cluster.metadata.uid = Some("c".to_owned());
        let latch = Latch { state, epoch, since: Time(Timestamp::UNIX_EPOCH), cluster_id: None };
        cluster.status = Some(EtcdClusterStatus { latch: Some(latch), ..EtcdClusterStatus::default() });
        cluster
    }

    fn with_uid(uid: &str) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() }
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
    fn an_object_without_identity_is_not_the_one_that_was_seen() {
        assert!(!holds(&Guard::Uid(String::new()), None, Some(&with_uid(""))));
        assert!(!holds(&Guard::Uid("a".to_owned()), None, Some(&ObjectMeta::default())));
    }
}
