//! Which events are news. Members renew their Leases every few seconds, and kubelets polish the status of pods: most
//! events change nothing that a decision depends on, and must not cause a pass.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use quorate_api::names::{annotations, labels};
use quorate_core::lease::DURATION_SECONDS;
use quorate_core::view::PodFact;

/// Namespace and name of an EtcdCluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterRef {
    pub namespace: String,
    pub name: String,
}

impl ClusterRef {
    /// The cluster that an object belongs to by its label.
    pub fn by_label(metadata: &ObjectMeta) -> Option<Self> {
        let name = metadata.labels.as_ref()?.get(labels::CLUSTER)?;
        Some(Self { namespace: metadata.namespace.clone()?, name: name.clone() })
    }

    /// The cluster that is the object.
    pub fn itself(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
    }
}

/// What is remembered of an object, to tell news from noise.
pub trait Facts {
    fn is_news_after(&self, before: &Self) -> bool;
}

/// Any change is news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub Option<String>);

impl Facts for Version {
    fn is_news_after(&self, before: &Self) -> bool {
        self != before
    }
}

impl Facts for PodFact {
    fn is_news_after(&self, before: &Self) -> bool {
        self != before
    }
}

/// A member's Lease without what always moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseFacts {
    lasting: Lasting,
    renewed: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lasting {
    uid: Option<String>,
    holder: Option<String>,
    duration: Option<i32>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Vec<Option<String>>,
    owners: Vec<String>,
    terminating: bool,
}

impl LeaseFacts {
    pub fn of(lease: &Lease) -> Self {
        let metadata = &lease.metadata;
        let spec = lease.spec.as_ref();
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
        Self {
            lasting: Lasting {
                uid: metadata.uid.clone(),
                holder: spec.and_then(|spec| spec.holder_identity.clone()),
                duration: spec.and_then(|spec| spec.lease_duration_seconds),
                labels: metadata.labels.clone(),
                annotations: [annotations::TERM, annotations::BOOT_COUNT, annotations::APPLIED]
                    .map(annotation)
                    .to_vec(),
                owners: metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect(),
                terminating: metadata.deletion_timestamp.is_some(),
            },
            renewed: spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0),
        }
    }
}

impl Facts for LeaseFacts {
    /// A renewal is news only after a pause: the Lease may have been seen as expired. Half of its duration, so that a
    /// renewal that was on its way at that moment is not missed.
    fn is_news_after(&self, before: &Self) -> bool {
        let duration = i64::from(self.lasting.duration.unwrap_or(DURATION_SECONDS));
        let paused = match (before.renewed, self.renewed) {
            (Some(before), Some(now)) => now.duration_since(before) * 2 > SignedDuration::from_secs(duration),
            (before, now) => before != now,
        };
        paused || self.lasting != before.lasting
    }
}

/// Namespace and name of an object.
type Place = (Option<String>, Option<String>);

/// Follows the events of one kind.
#[derive(Debug)]
pub struct Wake<F> {
    known: BTreeMap<Place, (Option<ClusterRef>, F)>,
    /// What a fresh list has not named yet. What it never names was deleted while nobody watched.
    unseen: BTreeSet<Place>,
}

impl<F> Default for Wake<F> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), unseen: BTreeSet::new() }
    }
}

impl<F: Facts> Wake<F> {
    /// The clusters that should look again because of an event.
    pub fn on<K>(
        &mut self,
        event: &Event<K>,
        read: impl Fn(&K) -> (&ObjectMeta, Option<ClusterRef>, F),
    ) -> Vec<ClusterRef> {
        let key = |metadata: &ObjectMeta| (metadata.namespace.clone(), metadata.name.clone());
        match event {
            Event::Init => {
                self.unseen = self.known.keys().cloned().collect();
                Vec::new()
            }
            Event::Apply(object) | Event::InitApply(object) => {
                let (metadata, cluster, facts) = read(object);
                let key = key(metadata);
                self.unseen.remove(&key);
                let before = self.known.get(&key);
                let is_news = before.is_none_or(|(owner, before)| *owner != cluster || facts.is_news_after(before));
                let owners = [cluster.clone(), before.and_then(|(owner, _)| owner.clone())];
                self.known.insert(key, (cluster, facts));
                let owners = owners.into_iter().flatten().collect::<BTreeSet<_>>();
                if is_news { owners.into_iter().collect() } else { Vec::new() }
            }
            Event::Delete(object) => {
                let (metadata, cluster, _) = read(object);
                let before = self.known.remove(&key(metadata)).and_then(|(owner, _)| owner);
                [cluster, before].into_iter().flatten().collect::<BTreeSet<_>>().into_iter().collect()
            }
            Event::InitDone => {
                let gone = std::mem::take(&mut self.unseen);
                gone.iter().filter_map(|key| self.known.remove(key)?.0).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    fn lease(name: &str, holder: &str, renewed: i64) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.namespace = Some("default".to_owned());
        lease.metadata.name = Some(name.to_owned());
        lease.metadata.labels = Some([(labels::CLUSTER.to_owned(), "etcd".to_owned())].into());
        lease.metadata.annotations = Some([(annotations::REVISION.to_owned(), renewed.to_string())].into());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(10),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        });
        lease
    }

    fn wakes(wake: &mut Wake<LeaseFacts>, event: &Event<Lease>) -> bool {
        !wake
            .on(event, |lease| (&lease.metadata, ClusterRef::by_label(&lease.metadata), LeaseFacts::of(lease)))
            .is_empty()
    }

    #[test]
    fn renewals_are_noise_until_one_comes_late() {
        let mut wake = Wake::default();
        assert!(wakes(&mut wake, &Event::Apply(lease("etcd-0", "a:Member", 0))));
        for second in [3, 6, 9, 12] {
            assert!(!wakes(&mut wake, &Event::Apply(lease("etcd-0", "a:Member", second))), "{second}");
        }
        assert!(wakes(&mut wake, &Event::Apply(lease("etcd-0", "a:Member", 30))), "back after it ran out");
        assert!(!wakes(&mut wake, &Event::Apply(lease("etcd-0", "a:Member", 33))));
    }

    #[test]
    fn a_change_of_role_or_term_or_label_is_news() {
        let mut wake = Wake::default();
        let first = lease("etcd-0", "a:Member", 0);
        wakes(&mut wake, &Event::Apply(first.clone()));
        let mut leads = first.clone();
        leads.spec.as_mut().unwrap().holder_identity = Some("a:Leader".to_owned());
        assert!(wakes(&mut wake, &Event::Apply(leads.clone())));
        let mut term = leads.clone();
        term.metadata.annotations.as_mut().unwrap().insert(annotations::TERM.to_owned(), "3".to_owned());
        assert!(wakes(&mut wake, &Event::Apply(term.clone())));
        term.metadata.labels.as_mut().unwrap().insert("by-hand".to_owned(), "x".to_owned());
        assert!(wakes(&mut wake, &Event::Apply(term)));
    }

    #[test]
    fn what_was_deleted_while_nobody_watched_is_noticed_with_the_next_list() {
        let mut wake = Wake::default();
        for name in ["etcd-0", "etcd-1"] {
            wakes(&mut wake, &Event::Apply(lease(name, "a:Member", 0)));
        }
        assert!(!wakes(&mut wake, &Event::Init));
        assert!(!wakes(&mut wake, &Event::InitApply(lease("etcd-0", "a:Member", 0))));
        assert!(wakes(&mut wake, &Event::InitDone), "etcd-1 is gone");
        assert!(!wakes(&mut wake, &Event::Init));
        assert!(!wakes(&mut wake, &Event::InitApply(lease("etcd-0", "a:Member", 0))));
        assert!(!wakes(&mut wake, &Event::InitDone));
    }

    #[test]
    fn an_object_that_loses_our_label_wakes_the_cluster_it_belonged_to() {
        let mut wake = Wake::default();
        wakes(&mut wake, &Event::Apply(lease("etcd-0", "a:Member", 0)));
        let mut stolen = lease("etcd-0", "a:Member", 0);
        stolen.metadata.labels = None;
        assert!(wakes(&mut wake, &Event::Delete(stolen)));
    }
}
