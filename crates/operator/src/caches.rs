//! What the API server tells us unasked: one watch and one store per kind, limited to objects with a cluster's label.
//!
//! Secrets are not among them: to watch them, the operator would need the right to read all Secrets of all namespaces.

use std::fmt::Debug;

use futures::stream::{BoxStream, SelectAll, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use quorate_api::names::labels;
use quorate_api::{EtcdCluster, EtcdMember};
use quorate_core::Object;
use quorate_core::view::PodFact;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::error::Error;
use crate::renewals::Renewals;
use crate::rest::News;
use crate::wake::{ClusterRef, Facts, LeaseFacts, Version, Wake};

/// The API server ends a watch of Leases after this time, and the watcher begins anew a little later if it does not.
const LEASE_WATCH_SECONDS: u32 = 30;

/// An EtcdCluster, or what is left of one that cannot be read.
pub type GuardedCluster = DeserializeGuard<EtcdCluster>;

/// Clusters that should look again.
pub type Wakes = SelectAll<BoxStream<'static, Result<ObjectRef<GuardedCluster>, watcher::Error>>>;

/// Everything that is watched in one namespace, or in all.
#[derive(Clone, Debug)]
pub struct Caches {
    pub clusters: Store<GuardedCluster>,
    pub service_accounts: Store<ServiceAccount>,
    pub roles: Store<Role>,
    pub role_bindings: Store<RoleBinding>,
    pub services: Store<Service>,
    pub leases: Store<Lease>,
    pub renewals: Renewals,
    pub news: News,
    /// A member that cannot be read is the trouble of its own cluster.
    pub members: Store<DeserializeGuard<EtcdMember>>,
    pub stateful_sets: Store<StatefulSet>,
    pub budgets: Store<PodDisruptionBudget>,
    pub pods: Store<Pod>,
    pub claims: Store<PartialObjectMeta<PersistentVolumeClaim>>,
    /// How many stores still wait for their first list. The stores can be asked themselves, but they wake only the last
    /// one who asked.
    unfilled: watch::Receiver<usize>,
}

impl Caches {
    /// Begins to watch once the stream of wakes is polled.
    pub fn watch(client: &Client, namespace: Option<&str>) -> (Self, Wakes) {
        let mut wakes = Wakes::new();
        let (counter, unfilled) = watch::channel(0);
        let news = News::default();
        let scope = Scope { client, namespace, unfilled: counter, news: news.clone() };
        let renewals = Renewals::default();
        let caches = Self {
            clusters: scope.watch(&mut wakes, watcher::Config::default(), ClusterRef::itself, version, |_| ()),
            service_accounts: scope.watch_owned(&mut wakes, version),
            roles: scope.watch_owned(&mut wakes, version),
            role_bindings: scope.watch_owned(&mut wakes, version),
            services: scope.watch_owned(&mut wakes, version),
            leases: scope.watch_leases(&mut wakes, renewals.clone()),
            renewals,
            news,
            members: scope.watch_owned(&mut wakes, version),
            stateful_sets: scope.watch_owned(&mut wakes, version),
            budgets: scope.watch_owned(&mut wakes, version),
            pods: scope.watch_owned(&mut wakes, |pod: &Pod| PodFact::from(pod)),
            claims: scope.watch_owned(&mut wakes, version),
            unfilled,
        };
        (caches, wakes)
    }

    /// Stores that nobody fills but the writers that come with them.
    pub fn unwatched() -> (Self, CacheWriters) {
        let (clusters, _) = reflector::store();
        let (claims, _) = reflector::store();
        let (pods, pod_writer) = reflector::store();
        let (service_accounts, service_account_writer) = reflector::store();
        let (roles, role_writer) = reflector::store();
        let (role_bindings, role_binding_writer) = reflector::store();
        let (services, service_writer) = reflector::store();
        let (leases, lease_writer) = reflector::store();
        let (members, member_writer) = reflector::store();
        let (stateful_sets, stateful_set_writer) = reflector::store();
        let (budgets, budget_writer) = reflector::store();
        let (_, unfilled) = watch::channel(0);
        let (renewals, news) = (Renewals::default(), News::default());
        let caches = Self {
            clusters,
            service_accounts,
            roles,
            role_bindings,
            services,
            leases,
            renewals,
            news,
            members,
            stateful_sets,
            budgets,
            pods,
            claims,
            unfilled,
        };
        let writers = CacheWriters {
            service_accounts: service_account_writer,
            roles: role_writer,
            role_bindings: role_binding_writer,
            services: service_writer,
            leases: lease_writer,
            members: member_writer,
            stateful_sets: stateful_set_writer,
            budgets: budget_writer,
            pods: pod_writer,
        };
        (caches, writers)
    }

    /// Waits until every store has been filled once. Absence means nothing before.
    pub async fn filled(&self) -> Result<(), Error> {
        let mut unfilled = self.unfilled.clone();
        unfilled.wait_for(|stores| *stores == 0).await.map(drop).map_err(|_| Error::WatchesEnded)
    }
}

/// Fills stores by hand.
#[expect(missing_debug_implementations, reason = "a writer has none")]
pub struct CacheWriters {
    service_accounts: Writer<ServiceAccount>,
    roles: Writer<Role>,
    role_bindings: Writer<RoleBinding>,
    services: Writer<Service>,
    leases: Writer<Lease>,
    members: Writer<DeserializeGuard<EtcdMember>>,
    stateful_sets: Writer<StatefulSet>,
    budgets: Writer<PodDisruptionBudget>,
    pods: Writer<Pod>,
}

impl CacheWriters {
    pub fn insert_pod(&mut self, pod: Pod) {
        self.pods.apply_watcher_event(&watcher::Event::Apply(pod));
    }

    pub fn insert(&mut self, object: Object) {
        use watcher::Event::Apply;
        match object {
            Object::ServiceAccount(object) => self.service_accounts.apply_watcher_event(&Apply(object.into_inner())),
            Object::Role(object) => self.roles.apply_watcher_event(&Apply(object.into_inner())),
            Object::RoleBinding(object) => self.role_bindings.apply_watcher_event(&Apply(object.into_inner())),
            Object::Service(object) => self.services.apply_watcher_event(&Apply(object.into_inner())),
            Object::Lease(object) => self.leases.apply_watcher_event(&Apply(object.into_inner())),
            Object::EtcdMember(object) => {
                self.members.apply_watcher_event(&Apply(DeserializeGuard(Ok(object.into_inner()))));
            }
            Object::StatefulSet(object) => self.stateful_sets.apply_watcher_event(&Apply(object.into_inner())),
            Object::PodDisruptionBudget(object) => self.budgets.apply_watcher_event(&Apply(object.into_inner())),
        }
    }
}

fn version<K: Resource>(object: &K) -> Version {
    Version(object.meta().resource_version.clone())
}

struct Scope<'a> {
    client: &'a Client,
    namespace: Option<&'a str>,
    unfilled: watch::Sender<usize>,
    news: News,
}

impl Scope<'_> {
    fn watch_owned<K, F>(&self, wakes: &mut Wakes, facts: fn(&K) -> F) -> Store<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
        F: Facts + Send + 'static,
    {
        self.watch(wakes, watcher::Config::default().labels(labels::CLUSTER), ClusterRef::by_label, facts, |_| ())
    }

    /// Silence means something here: a connection that died without a word is to be noticed soon.
    fn watch_leases(&self, wakes: &mut Wakes, renewals: Renewals) -> Store<Lease> {
        let config = watcher::Config::default().labels(labels::CLUSTER).timeout(LEASE_WATCH_SECONDS);
        let hear = move |event: &watcher::Event<Lease>| renewals.on(event, Timestamp::now());
        self.watch(wakes, config, ClusterRef::by_label, LeaseFacts::of, hear)
    }

    fn watch<K, F>(
        &self,
        wakes: &mut Wakes,
        config: watcher::Config,
        cluster: fn(&ObjectMeta) -> Option<ClusterRef>,
        facts: fn(&K) -> F,
        hear: impl Fn(&watcher::Event<K>) + Send + 'static,
    ) -> Store<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
        F: Facts + Send + 'static,
    {
        let api = match self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::<K>::all(self.client.clone()),
        };
        let (store, writer) = reflector::store();
        let mut wake = Wake::default();
        self.unfilled.send_modify(|stores| *stores += 1);
        let mut unfilled = Some(self.unfilled.clone());
        let news = self.news.clone();
        let stream = watcher(api, config)
            .default_backoff()
            // Half of an object, and nobody here reads it.
            .modify(|object| object.meta_mut().managed_fields = None)
            .reflect(writer)
            .map_ok(move |event| {
                hear(&event);
                if matches!(event, watcher::Event::InitDone)
                    && let Some(unfilled) = unfilled.take()
                {
                    unfilled.send_modify(|stores| *stores -= 1);
                }
                let clusters = wake.on(&event, |object| (object.meta(), cluster(object.meta()), facts(object)));
                for cluster in &clusters {
                    news.tell(cluster);
                }
                let refs = clusters.into_iter().map(|cluster| ObjectRef::new(&cluster.name).within(&cluster.namespace));
                futures::stream::iter(refs.map(Ok).collect::<Vec<_>>())
            })
            .try_flatten();
        wakes.push(stream.boxed());
        store
    }
}
