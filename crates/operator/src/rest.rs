//! A settled cluster is left alone while nothing is told about it and its members renew their Leases. Renewals are what
//! happens most, and a pass for each of them would be most of the operator's work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use quorate_api::status::MemberHealth;
use quorate_core::Decision;

use crate::renewals::Renewals;
use crate::wake::ClusterRef;

/// How often each cluster was woken by an event.
#[derive(Clone, Debug, Default)]
pub struct News {
    told: Arc<Mutex<HashMap<ClusterRef, u64>>>,
}

impl News {
    pub fn tell(&self, cluster: &ClusterRef) {
        *lock(&self.told).entry(cluster.clone()).or_default() += 1;
    }

    pub fn count(&self, cluster: &ClusterRef) -> u64 {
        lock(&self.told).get(cluster).copied().unwrap_or_default()
    }

    pub fn forget(&self, cluster: &ClusterRef) {
        lock(&self.told).remove(cluster);
    }
}

/// The clusters that rest.
#[derive(Debug, Default)]
pub struct Resting {
    known: Mutex<HashMap<ClusterRef, Rest>>,
}

#[derive(Debug)]
struct Rest {
    news: u64,
    until: Timestamp,
    /// Members that were ready.
    members: Vec<String>,
}

impl Resting {
    /// Begins to rest after a pass that found nothing to do. `news` was counted before it began.
    pub fn begin(&self, cluster: ClusterRef, news: u64, decision: &Decision, longest: SignedDuration, now: Timestamp) {
        let ready = decision.status.members.iter().filter(|member| member.status == MemberHealth::Ready);
        let members = ready.map(|member| member.name.clone()).collect();
        let until = now.checked_add(decision.rest.min(longest)).unwrap_or(now);
        lock(&self.known).insert(cluster, Rest { news, until, members });
    }

    /// How long to go on resting. Nothing if it is time to look.
    pub fn left(&self, cluster: &ClusterRef, news: u64, renewals: &Renewals, now: Timestamp) -> Option<SignedDuration> {
        let known = lock(&self.known);
        let rest = known.get(cluster).filter(|rest| rest.news == news)?;
        let expiries = rest.members.iter().map(|member| renewals.expires(&cluster.namespace, member));
        let first = expiries.collect::<Option<Vec<_>>>()?.into_iter().chain([rest.until]).min()?;
        Some(first.duration_since(now)).filter(SignedDuration::is_positive)
    }

    pub fn end(&self, cluster: &ClusterRef) {
        lock(&self.known).remove(cluster);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
    use kube::runtime::watcher::Event;
    use quorate_api::status::{EtcdClusterStatus, MemberReason, MemberStatus};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn seconds(count: i64) -> SignedDuration {
        SignedDuration::from_secs(count)
    }

    fn renew(renewals: &Renewals, second: i64) {
        let mut lease = Lease::default();
        lease.metadata.namespace = Some("default".to_owned());
        lease.metadata.name = Some("etcd-0".to_owned());
        lease.spec = Some(LeaseSpec {
            lease_duration_seconds: Some(8),
            renew_time: Some(MicroTime(at(second))),
            ..LeaseSpec::default()
        });
        renewals.on(&Event::Apply(lease), at(second));
    }

    fn cluster() -> ClusterRef {
        ClusterRef { namespace: "default".to_owned(), name: "etcd".to_owned() }
    }

    /// A cluster whose one member was heard at second 100, and that rests since then.
    fn resting() -> (Resting, News, Renewals) {
        let (resting, news, renewals) = (Resting::default(), News::default(), Renewals::default());
        renew(&renewals, 97);
        renew(&renewals, 100);
        let member = MemberStatus {
            name: "etcd-0".to_owned(),
            id: None,
            role: None,
            status: MemberHealth::Ready,
            reason: MemberReason::LeaseSucceeded,
            version: None,
            message: None,
            last_transition_time: Time(at(0)),
            troubled_since: None,
        };
        let status = EtcdClusterStatus { members: vec![member], ..EtcdClusterStatus::default() };
        let decision = Decision {
            reads: Vec::new(),
            actions: Vec::new(),
            status,
            status_changed: false,
            events: Vec::new(),
            requeue: seconds(8),
            rest: seconds(300),
        };
        resting.begin(cluster(), news.count(&cluster()), &decision, seconds(60), at(100));
        (resting, news, renewals)
    }

    #[test]
    fn a_cluster_rests_while_its_members_renew_and_looks_when_one_falls_silent() {
        let (resting, news, renewals) = resting();
        let left = |now: i64| resting.left(&cluster(), news.count(&cluster()), &renewals, at(now));
        assert_eq!(left(104), Some(seconds(4)));
        renew(&renewals, 105);
        assert_eq!(left(110), Some(seconds(3)), "it was renewed meanwhile");
        assert_eq!(left(113), None);
    }

    #[test]
    fn news_and_time_end_a_rest() {
        let (resting, news, renewals) = resting();
        let left = |now: i64| resting.left(&cluster(), news.count(&cluster()), &renewals, at(now));
        renew(&renewals, 158);
        assert_eq!(left(158), Some(seconds(2)), "certificates are looked at now and then");
        assert_eq!(left(160), None);
        renew(&renewals, 101);
        assert!(left(102).is_some());
        news.tell(&cluster());
        assert_eq!(left(102), None);
    }

    #[test]
    fn a_member_whose_lease_is_gone_ends_a_rest() {
        let (resting, news, _) = resting();
        assert_eq!(resting.left(&cluster(), news.count(&cluster()), &Renewals::default(), at(101)), None);
    }
}
