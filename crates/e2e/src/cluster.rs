//! An `EtcdCluster` and all that belongs to it.

use base64::{Engine, engine::general_purpose::STANDARD};
use quorate_api::{
    conditions::{self, ConditionType},
    names,
    status::{EtcdClusterStatus, MemberHealth, MemberStatus},
};
use quorate_etcd::client::{Client, Options, Tls};
use serde_json::{Value, json};

use crate::{Bed, Kubernetes, eventually};

#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Cluster {
    pub kubernetes: Kubernetes,
    pub namespace: String,
    pub name: String,
}

/// Where a kind's objects are, below a namespace.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    EtcdCluster,
    EtcdMember,
    Lease,
    Pod,
    Service,
    ServiceAccount,
    Secret,
    VolumeClaim,
    StatefulSet,
    DisruptionBudget,
    Role,
    RoleBinding,
    EndpointSlice,
    Event,
}

impl Kind {
    fn place(self) -> (&'static str, &'static str) {
        match self {
            Kind::EtcdCluster => ("apis/quorate.dev/v1alpha1", "etcdclusters"),
            Kind::EtcdMember => ("apis/quorate.dev/v1alpha1", "etcdmembers"),
            Kind::Lease => ("apis/coordination.k8s.io/v1", "leases"),
            Kind::Pod => ("api/v1", "pods"),
            Kind::Service => ("api/v1", "services"),
            Kind::ServiceAccount => ("api/v1", "serviceaccounts"),
            Kind::Secret => ("api/v1", "secrets"),
            Kind::VolumeClaim => ("api/v1", "persistentvolumeclaims"),
            Kind::StatefulSet => ("apis/apps/v1", "statefulsets"),
            Kind::DisruptionBudget => ("apis/policy/v1", "poddisruptionbudgets"),
            Kind::Role => ("apis/rbac.authorization.k8s.io/v1", "roles"),
            Kind::RoleBinding => ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
            Kind::EndpointSlice => ("apis/discovery.k8s.io/v1", "endpointslices"),
            Kind::Event => ("apis/events.k8s.io/v1", "events"),
        }
    }
}

impl Cluster {
    /// A cluster in a namespace of its own, called like the test.
    pub async fn create(bed: &Bed, namespace: &str, spec: Value) -> Self {
        bed.kubernetes.empty_namespace(namespace).await;
        let cluster = Self::named(bed, namespace, "db");
        cluster.apply(spec).await;
        cluster
    }

    pub fn named(bed: &Bed, namespace: &str, name: &str) -> Self {
        Cluster { kubernetes: bed.kubernetes.clone(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub async fn apply(&self, spec: Value) {
        let object = json!({
            "apiVersion": "quorate.dev/v1alpha1",
            "kind": "EtcdCluster",
            "metadata": { "name": self.name },
            "spec": spec,
        });
        self.kubernetes.create(&self.all(Kind::EtcdCluster), &object).await;
    }

    pub fn all(&self, kind: Kind) -> String {
        let (group, plural) = kind.place();
        format!("/{group}/namespaces/{}/{plural}", self.namespace)
    }

    pub fn path(&self, kind: Kind, name: &str) -> String {
        format!("{}/{name}", self.all(kind))
    }

    /// Of the `EtcdCluster` itself.
    pub fn own_path(&self) -> String {
        self.path(Kind::EtcdCluster, &self.name)
    }

    pub fn member(&self, ordinal: i32) -> String {
        names::member(&self.name, ordinal)
    }

    pub async fn find(&self, kind: Kind, name: &str) -> Option<Value> {
        self.kubernetes.find(&self.path(kind, name)).await
    }

    pub async fn get(&self, kind: Kind, name: &str) -> Value {
        self.kubernetes.get(&self.path(kind, name)).await
    }

    pub async fn pod(&self, ordinal: i32) -> Value {
        self.get(Kind::Pod, &self.member(ordinal)).await
    }

    /// As it is now; empty while the operator has not looked or the API does not answer.
    pub async fn status(&self) -> EtcdClusterStatus {
        let object = self.kubernetes.find(&self.own_path()).await.unwrap_or_default();
        serde_json::from_value(object["status"].clone()).unwrap_or_default()
    }

    /// How many members it is to have.
    pub async fn size(&self) -> i32 {
        let object = self.kubernetes.get(&self.own_path()).await;
        i32::try_from(object["spec"]["replicas"].as_i64().unwrap()).unwrap()
    }

    pub async fn member_status(&self, ordinal: i32) -> Option<MemberStatus> {
        let name = self.member(ordinal);
        self.status().await.members.into_iter().find(|member| member.name == name)
    }

    /// `True`, `False`, `Unknown`, or nothing.
    pub async fn condition(&self, type_: ConditionType) -> Option<(String, String)> {
        let status = self.status().await;
        conditions::find(&status.conditions, type_).map(|found| (found.status.clone(), found.reason.clone()))
    }

    pub async fn is(&self, type_: ConditionType, status: &str) -> bool {
        self.condition(type_).await.is_some_and(|(found, _)| found == status)
    }

    pub async fn becomes(&self, type_: ConditionType, status: &str) {
        let what = format!("{}/{} is {}={status}", self.namespace, self.name, type_.as_str());
        eventually(&what, async || self.is(type_, status).await.then_some(())).await;
    }

    /// Serves, and every member is well.
    pub async fn is_whole(&self) {
        self.becomes(ConditionType::AllMembersReady, "True").await;
        self.becomes(ConditionType::Ready, "True").await;
    }

    pub async fn member_becomes(&self, ordinal: i32, health: MemberHealth) {
        let what = format!("{} is {health:?}", self.member(ordinal));
        eventually(&what, async || (self.member_status(ordinal).await?.status == health).then_some(())).await;
    }

    /// Who leads, by name.
    pub async fn leader(&self) -> i32 {
        let leader = eventually("somebody leads", async || {
            let members = self.status().await.members;
            members.into_iter().find(|member| member.role == Some(quorate_api::status::MemberRole::Leader))
        });
        names::ordinal_of(&self.name, &leader.await.name).unwrap()
    }

    /// What applications get to know: certificates, and the name to expect.
    pub async fn tls(&self) -> Tls {
        self.tls_of(&names::secrets::client(&self.name)).await
    }

    pub async fn tls_of(&self, secret: &str) -> Tls {
        let secret = self.get(Kind::Secret, secret).await;
        let entry = |key: &str| STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap();
        Tls {
            ca: entry("ca.crt"),
            identity: Some((entry("tls.crt"), entry("tls.key"))),
            server_name: Some(format!("{}.{}.svc", names::client_service(&self.name), self.namespace)),
        }
    }

    /// A connection to one member, wherever its pod is.
    pub async fn connect(&self, ordinal: i32) -> Client {
        let tls = self.tls().await;
        self.connect_with(ordinal, Some(tls)).await
    }

    /// Nothing while the member has no pod, or its pod no address.
    pub async fn try_connect(&self, ordinal: i32) -> Option<Client> {
        let pod = self.find(Kind::Pod, &self.member(ordinal)).await?;
        let address = pod["status"]["podIP"].as_str()?;
        Some(client(address, Some(self.tls().await)))
    }

    pub async fn connect_with(&self, ordinal: i32, tls: Option<Tls>) -> Client {
        let pod = self.pod(ordinal).await;
        let address = pod["status"]["podIP"].as_str().expect("the pod has an address");
        client(address, tls)
    }

    /// The address of the Service for applications, which nodes and pods can reach.
    pub async fn service_address(&self) -> String {
        let service = self.get(Kind::Service, &names::client_service(&self.name)).await;
        service["spec"]["clusterIP"].as_str().unwrap().to_owned()
    }

    /// Addresses behind that Service that traffic goes to.
    pub async fn serving_addresses(&self) -> Vec<String> {
        let selector = format!("labelSelector=kubernetes.io/service-name={}", names::client_service(&self.name));
        let slices = self.kubernetes.list(&format!("{}?{selector}", self.all(Kind::EndpointSlice))).await;
        let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
        let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
        ready.filter_map(|endpoint| Some(endpoint["addresses"][0].as_str()?.to_owned())).collect()
    }
}

/// A connection to etcd at an address.
pub fn client(address: &str, tls: Option<Tls>) -> Client {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let options = Options { tls, ..Options::new(format!("{scheme}://{host}:2379")) };
    Client::new(options).unwrap()
}
