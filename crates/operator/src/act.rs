//! Decisions into requests.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use quorate_api::names::{VOLUMES_FINALIZER, labels};
use quorate_api::{EtcdCluster, EtcdMember};
use quorate_core::action::MemberChange;
use quorate_core::guard::Found;
use quorate_core::node::Reach;
use quorate_core::read::Endpoints;
use quorate_core::view::PodFact;
use quorate_core::{
    Action, ApplyMode, ClusterIdentity, Decision, Effect, Guard, Kind, Object, ObjectKey, is_as_wanted,
};
use quorate_runtime::election::Claim;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::etcd::{EtcdClients, Target};
use crate::writes::Writes;
use crate::{nodes, secrets, unanswered};

/// The client repeats a request for minutes while the API server is overloaded. A pass must not: its view grows old.
const DEADLINE: Duration = Duration::from_secs(15);

/// Carries out decisions about one cluster.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Actor<'a> {
    pub client: &'a Client,
    pub claim: &'a Claim,
    pub etcd: &'a EtcdClients,
    pub writes: &'a Writes,
    pub identity: &'a ClusterIdentity,
    /// As it was viewed.
    pub cluster: &'a EtcdCluster,
}

impl Actor<'_> {
    /// Writes the status, if it differs. Fails if the EtcdCluster has changed since it was viewed.
    pub async fn write_status(&self, decision: &Decision) -> Result<bool, Error> {
        if !decision.status_changed {
            return Ok(false);
        }
        self.claim.check()?;
        let mut changed = self.cluster.clone();
        changed.status = Some(decision.status.clone());
        changed.metadata.managed_fields = None;
        let params = PostParams { field_manager: Some(labels::MANAGER.to_owned()), ..PostParams::default() };
        let clusters = self.clusters();
        let write = clusters.replace_status(self.identity.name(), &params, &changed);
        within("write the status of the EtcdCluster", write).await?;
        Ok(true)
    }

    /// Takes actions in order, up to the first that fails. Returns those that were taken.
    pub async fn take<'d>(&self, actions: &'d [Action]) -> (Vec<&'d Action>, Result<(), Error>) {
        let mut done = Vec::new();
        for action in actions {
            let result = match self.claim.check() {
                Ok(()) => self.take_one(action).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = result {
                return (done, Err(error));
            }
            tracing::info!(reason = %action.reason, object = action.target(), namespace = self.namespace(), "done");
            done.push(action);
        }
        (done, Ok(()))
    }

    async fn take_one(&self, action: &Action) -> Result<(), Error> {
        match &action.effect {
            Effect::Apply { object, how, guard } => self.apply(object, *how, guard).await,
            Effect::Delete { key, guard } => {
                let api =
                    Api::<DynamicObject>::namespaced_with(self.client.clone(), self.namespace(), &resource(key.kind));
                self.delete(&api, &key.name, guard, None, &action.target()).await
            }
            Effect::RestartPod { name, guard } => {
                self.remove_pod(name, guard, DeleteParams::background(), &action.target()).await
            }
            // Its kubelet would be asked whether it has ended, and there is none.
            Effect::RemovePod { name, guard } => {
                self.remove_pod(name, guard, DeleteParams::background().grace_period(0), &action.target()).await
            }
            Effect::SetServing { pod, uid, serving } => {
                let api = Api::<Pod>::namespaced(self.client.clone(), self.namespace());
                // The identifier is a precondition: a pod that was made anew meanwhile stays as it is.
                let patch = Patch::Merge(json!({
                    "metadata": { "uid": uid, "labels": { labels::SERVING: serving.to_string() } },
                }));
                let params = PatchParams { field_manager: Some(labels::MANAGER.to_owned()), ..PatchParams::default() };
                let target = action.target();
                match within(&format!("label {target}"), api.patch_metadata(pod, &params, &patch)).await {
                    Err(Error::Api { source: kube::Error::Api(status), .. }) if status.code == 404 => Ok(()),
                    // It is another pod by now.
                    Err(Error::Api { source: kube::Error::Api(status), .. }) if status.code == 422 => {
                        Err(Error::Outdated { what: target })
                    }
                    result => result.map(|_| ()),
                }
            }
            Effect::DeleteClaim { name, guard } => {
                let api = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), self.namespace());
                let reach = if guard.needs_reach() {
                    Some(nodes::reach(self.client, self.namespace(), name).await?)
                } else {
                    None
                };
                self.delete(&api, name, guard, reach.as_ref(), &action.target()).await
            }
            Effect::ChangeMembers { change, via, guard } => {
                self.change_members(change, via, guard, &action.target()).await
            }
            Effect::IssueCertificate(request) => {
                let issue = secrets::issue(self.client, self.identity, self.cluster, request, Timestamp::now());
                let what = format!("issue {}", request.secret);
                tokio::time::timeout(DEADLINE, issue).await.unwrap_or(Err(Error::Deadline { what, limit: DEADLINE }))
            }
            Effect::AddFinalizer => self.change_finalizer(true).await,
            Effect::RemoveFinalizer => self.change_finalizer(false).await,
        }
    }

    /// Deletes a pod, if the guard holds for it and for its node.
    async fn remove_pod(&self, name: &str, guard: &Guard, params: DeleteParams, target: &str) -> Result<(), Error> {
        let api = Api::<Pod>::namespaced(self.client.clone(), self.namespace());
        let Some(pod) = within(&format!("read {target}"), api.get_opt(name)).await? else { return Ok(()) };
        let fact = PodFact::from(&pod);
        let node = match guard {
            Guard::NodeGone { node, .. } => Some(nodes::fact(self.client, node).await?),
            _ => None,
        };
        let found = Found { target: Some(&pod.metadata), pod: Some(&fact), node, ..Found::default() };
        if !guard.holds(found) {
            return Err(Error::Outdated { what: target.to_owned() });
        }
        self.delete_found(&api, name, pod.metadata, params, target).await
    }

    /// Server-side apply. An object that was absent is not forced: if somebody else made one of this name in the
    /// meantime, theirs stays as it is.
    async fn apply(&self, object: &Object, how: ApplyMode, guard: &Guard) -> Result<(), Error> {
        let ObjectKey { kind, name } = object.key();
        let what = format!("apply {kind:?} {name}");
        if guard.needs_cluster() && !self.holds_for(guard, kind, &name).await? {
            return Err(Error::Outdated { what });
        }
        let params = PatchParams::apply(labels::MANAGER);
        let params = if how == ApplyMode::Create { params } else { params.force() };
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), self.namespace(), &resource(kind));
        let patch = Patch::Apply(object);
        match within(&what, api.patch(&name, &params, &patch)).await {
            Err(Error::Api { source: kube::Error::Api(status), .. })
                if status.code == 422 && kind == Kind::EtcdMember =>
            {
                let only_ours = Patch::Merge(only_this_ticket(object));
                within(&what, api.patch(&name, &PatchParams::default(), &only_ours)).await?;
                within(&what, api.patch(&name, &params, &patch)).await.map(|_| ())
            }
            Ok(applied) if how == ApplyMode::PutRight => remove_additions(&api, object, &applied, &what).await,
            result => result.map(|_| ()),
        }
    }

    /// Deletes exactly the object that a live read just showed, and only if the guard holds for it.
    async fn delete<K>(
        &self,
        api: &Api<K>,
        name: &str,
        guard: &Guard,
        reach: Option<&Reach>,
        target: &str,
    ) -> Result<(), Error>
    where
        K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let Some(found) = within(&format!("read {target}"), api.get_metadata_opt(name)).await? else {
            return Ok(());
        };
        let cluster = if guard.needs_cluster() { self.fresh_cluster().await? } else { None };
        let seen = Found { cluster: cluster.as_ref(), target: Some(&found.metadata), reach, ..Found::default() };
        if !guard.holds(seen) {
            return Err(Error::Outdated { what: target.to_owned() });
        }
        self.delete_found(api, name, found.metadata, DeleteParams::background(), target).await
    }

    async fn delete_found<K>(
        &self,
        api: &Api<K>,
        name: &str,
        found: ObjectMeta,
        params: DeleteParams,
        target: &str,
    ) -> Result<(), Error>
    where
        K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let ObjectMeta { uid, resource_version, .. } = found;
        let params = DeleteParams { preconditions: Some(Preconditions { uid, resource_version }), ..params };
        match within(&format!("delete {target}"), api.delete(name, &params)).await {
            Err(Error::Api { source: kube::Error::Api(status), .. }) if status.code == 404 => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// Asks etcd once, whatever comes of it: if the answer is lost, the next pass asks who the members are.
    async fn change_members(
        &self,
        change: &MemberChange,
        via: &Endpoints,
        guard: &Guard,
        target: &str,
    ) -> Result<(), Error> {
        let cluster = self.fresh_cluster().await?;
        let confirmed = match self.etcd.confirm(self.client, &Target::new(self.identity, via)).await {
            Err(Error::NoMemberAnswered { failures }) => {
                let what = format!("confirm who is a member, for {target}");
                return Err(match unanswered::forbidden(&failures) {
                    Some(said) => Error::NotAllowed { what, cause: said.to_owned() },
                    // There was a quorum a moment ago.
                    None => Error::NotYet { what, cause: unanswered::listed(&failures) },
                });
            }
            answer => answer?,
        };
        let found = Found { cluster: cluster.as_ref(), members: Some(&confirmed.list), ..Found::default() };
        if !guard.holds(found) {
            return Err(Error::Outdated { what: target.to_owned() });
        }
        // Asking took its time, and etcd knows no preconditions.
        self.claim.check()?;
        self.writes.around(verb(change), "etcd members", confirmed.change(change)).await
    }

    async fn change_finalizer(&self, wanted: bool) -> Result<(), Error> {
        let Some(cluster) = self.fresh_cluster().await? else { return Ok(()) };
        if !self.identity.is(&cluster.metadata) {
            return Err(Error::Outdated { what: "EtcdCluster".to_owned() });
        }
        let mut finalizers = cluster.finalizers().to_vec();
        let had = finalizers.iter().any(|finalizer| finalizer == VOLUMES_FINALIZER);
        if had == wanted {
            return Ok(());
        }
        finalizers.retain(|finalizer| finalizer != VOLUMES_FINALIZER);
        if wanted {
            finalizers.push(VOLUMES_FINALIZER.to_owned());
        }
        // The list is replaced as a whole, so it must be the one that was read.
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": cluster.resource_version(), "finalizers": finalizers },
        }));
        let params = PatchParams { field_manager: Some(labels::MANAGER.to_owned()), ..PatchParams::default() };
        let clusters = self.clusters();
        let change = clusters.patch_metadata(self.identity.name(), &params, &patch);
        within("change the finalizers of the EtcdCluster", change).await?;
        Ok(())
    }

    async fn fresh_cluster(&self) -> Result<Option<EtcdCluster>, Error> {
        within("read the EtcdCluster", self.clusters().get_opt(self.identity.name())).await
    }

    /// The member is read only if the EtcdCluster alone does not speak for it.
    async fn holds_for(&self, guard: &Guard, kind: Kind, name: &str) -> Result<bool, Error> {
        let cluster = self.fresh_cluster().await?;
        let found = Found { cluster: cluster.as_ref(), ..Found::default() };
        if guard.holds(found) || kind != Kind::EtcdMember {
            return Ok(guard.holds(found));
        }
        let member = self.fresh_member(name).await?;
        Ok(guard.holds(Found { member: member.as_ref(), ..found }))
    }

    async fn fresh_member(&self, name: &str) -> Result<Option<EtcdMember>, Error> {
        let members = Api::<EtcdMember>::namespaced(self.client.clone(), self.namespace());
        within(&format!("read EtcdMember {name}"), members.get_opt(name)).await
    }

    fn clusters(&self) -> Api<EtcdCluster> {
        Api::namespaced(self.client.clone(), self.namespace())
    }

    fn namespace(&self) -> &str {
        self.identity.namespace()
    }
}

fn verb(change: &MemberChange) -> &'static str {
    match change {
        MemberChange::AddLearner { .. } => "add",
        MemberChange::Promote { .. } => "promote",
        MemberChange::Remove { .. } => "remove",
        MemberChange::MoveLeader { .. } => "move leader",
        MemberChange::DisarmCorrupt { .. } => "disarm",
    }
}

/// Apply leaves alone what others have added to a list whose items have keys: containers, volumes, variables, ports. A
/// merge patch replaces lists as a whole.
async fn remove_additions(
    api: &Api<DynamicObject>,
    wanted: &Object,
    applied: &DynamicObject,
    what: &str,
) -> Result<(), Error> {
    let is_current = serde_json::to_value(applied).is_ok_and(|applied| is_as_wanted(wanted, &applied));
    let Some(patch) = whole_lists(wanted, applied).filter(|_| !is_current) else { return Ok(()) };
    let params = PatchParams { field_manager: Some(labels::MANAGER.to_owned()), ..PatchParams::default() };
    within(what, api.patch(wanted.name(), &params, &Patch::Merge(patch))).await.map(|_| ())
}

fn whole_lists(wanted: &Object, applied: &DynamicObject) -> Option<Value> {
    let Ok(Value::Object(mut patch)) = serde_json::to_value(wanted) else { return None };
    patch.remove("status");
    patch.insert("metadata".to_owned(), json!({ "resourceVersion": applied.metadata.resource_version }));
    // It cannot be changed, and comes back with defaults filled in.
    if let Some(Value::Object(spec)) = patch.get_mut("spec") {
        spec.remove("volumeClaimTemplates");
    }
    Some(Value::Object(patch))
}

/// Removes the tickets that somebody else has put beside ours. Apply leaves them where they are, and two are not valid.
fn only_this_ticket(member: &Object) -> Value {
    let mut tickets: Map<String, Value> = ["bootstrap", "join", "restore", "recover", "resume", "hold", "fence"]
        .map(|kind| (kind.to_owned(), Value::Null))
        .into_iter()
        .collect();
    if let Object::EtcdMember(member) = member
        && let Ok(Value::Object(ours)) = serde_json::to_value(&member.spec.ticket)
    {
        tickets.extend(ours);
    }
    json!({ "spec": { "ticket": Value::Object(tickets) } })
}

/// A request with a time limit: the client itself waits as long as the connection seems to live.
pub(crate) async fn within<T>(what: &str, request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(result) => result.map_err(|source| Error::api(what, source)),
        Err(_) => Err(Error::Deadline { what: what.to_owned(), limit: DEADLINE }),
    }
}

fn resource(kind: Kind) -> ApiResource {
    use k8s_openapi::api::{apps, coordination, core, policy, rbac};
    match kind {
        Kind::ServiceAccount => ApiResource::erase::<core::v1::ServiceAccount>(&()),
        Kind::Role => ApiResource::erase::<rbac::v1::Role>(&()),
        Kind::RoleBinding => ApiResource::erase::<rbac::v1::RoleBinding>(&()),
        Kind::Service => ApiResource::erase::<core::v1::Service>(&()),
        Kind::Lease => ApiResource::erase::<coordination::v1::Lease>(&()),
        Kind::EtcdMember => ApiResource::erase::<EtcdMember>(&()),
        Kind::StatefulSet => ApiResource::erase::<apps::v1::StatefulSet>(&()),
        Kind::PodDisruptionBudget => ApiResource::erase::<policy::v1::PodDisruptionBudget>(&()),
    }
}
