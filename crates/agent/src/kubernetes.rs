//! The agent's half of the conversation in Kubernetes: it reads its ticket, reports facts, and renews its Lease.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::watcher,
};
use quorate_api::{
    EtcdMember,
    member::{EtcdMemberStatus, EtcdReport},
    names::annotations,
};
use quorate_core::{lease::DURATION_SECONDS, record::Orders, start::Identity};
use quorate_runtime::{error::chain, kubernetes::config};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::error::{Error, Result};

const MANAGER: &str = "quorate-agent";
/// Longer than a busy API server needs, and so short that a renewal that fails is tried again before the Lease runs out.
const PATIENCE: Duration = Duration::from_millis(1500);
/// For whoever can do nothing without an answer.
const LONG_PATIENCE: Duration = Duration::from_secs(5);
const BEFORE_NEXT_TRY: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Kubernetes {
    name: String,
    members: Api<EtcdMember>,
    leases: Api<Lease>,
}

/// What a renewal of the Lease says. The figures that always move ride along.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    /// How far the member has got, and that is on its disk.
    pub(crate) mark: Identity,
    pub(crate) revision: Option<i64>,
    pub(crate) etcd: EtcdReport,
}

impl Kubernetes {
    pub(crate) async fn connect(namespace: &str, member: &str) -> Result<Self> {
        let config = config(concat!("quorate-agent/", env!("CARGO_PKG_VERSION"))).await;
        let config = config.map_err(kube::Error::InferConfig).map_err(Box::new)?;
        let client = Client::try_from(config).map_err(Box::new)?;
        Ok(Kubernetes {
            name: member.to_owned(),
            members: Api::namespaced(client.clone(), namespace),
            leases: Api::namespaced(client, namespace),
        })
    }

    /// No answer in time counts as unreachable. An answer that says no is something else.
    pub(crate) async fn orders(&self) -> Orders {
        self.orders_within(PATIENCE).await
    }

    /// The same for whoever cannot go on without: an API that is slow is waited for.
    pub(crate) async fn patient_orders(&self) -> Orders {
        self.orders_within(LONG_PATIENCE).await
    }

    async fn orders_within(&self, patience: Duration) -> Orders {
        let read = async { tokio::try_join!(self.members.get_opt(&self.name), self.leases.get_opt(&self.name)) };
        match tokio::time::timeout(patience, read).await {
            Ok(Ok((member, lease))) => Orders::read(member.as_ref(), lease.as_ref()),
            Ok(Err(error)) if is_refusal(&error) => {
                tracing::warn!(
                    error = chain(&error),
                    "the Kubernetes API refuses an answer; look at the member's Role"
                );
                Orders::refused()
            }
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "the Kubernetes API cannot be reached");
                Orders::unreachable()
            }
            Err(_) => {
                tracing::warn!("the Kubernetes API did not answer in time");
                Orders::unreachable()
            }
        }
    }

    /// This member's object as it is seen, again whenever it may have changed.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<EtcdMember>> {
        let (seen, changes) = watch::channel(None);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = watcher(self.members.clone(), config).boxed();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(member) | watcher::Event::InitApply(member)) => {
                        seen.send_replace(Some(member));
                    }
                    Ok(watcher::Event::Delete(_)) => drop(seen.send_replace(None)),
                    Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                    Err(_) => tokio::time::sleep(BEFORE_NEXT_TRY).await,
                }
            }
        });
        changes
    }

    /// Writes what is sent through the channel, the newest only, and again until it is there: also when somebody has
    /// deleted the object, and it came back without its reports.
    pub(crate) fn reporter(
        &self,
        mut seen: watch::Receiver<Option<EtcdMember>>,
    ) -> watch::Sender<Option<EtcdMemberStatus>> {
        let (report, mut reports) = watch::channel(None::<EtcdMemberStatus>);
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                let there = tokio::select! {
                    changed = reports.changed() => if changed.is_err() { return } else { None },
                    changed = seen.changed() => if changed.is_err() { return } else { reported(seen.borrow_and_update().as_ref()) },
                };
                loop {
                    let newest = reports.borrow_and_update().clone();
                    if newest.is_none() || newest == there {
                        break;
                    }
                    match this.write_status(newest.as_ref()).await {
                        Ok(()) => break,
                        Err(error) => {
                            tracing::warn!(error = chain(&error), "the report could not be written");
                            tokio::time::sleep(BEFORE_NEXT_TRY).await;
                        }
                    }
                }
            }
        });
        report
    }

    async fn write_status(&self, status: Option<&EtcdMemberStatus>) -> Result<()> {
        let status = json!({
            "apiVersion": "quorate.dev/v1alpha1",
            "kind": "EtcdMember",
            "metadata": {"name": self.name},
            "status": status,
        });
        let manager = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(status);
        within(LONG_PATIENCE, self.members.patch_status(&self.name, &manager, &patch)).await
    }

    /// Says that the member is alive.
    pub(crate) async fn renew(&self, renewal: &Renewal, now: Timestamp) -> Result<()> {
        let Renewal { mark, revision, etcd } = renewal;
        let role = etcd.role.map_or("", |role| role.as_str());
        let holder = format!("{}:{role}", mark.member_id);
        let figures = [
            (annotations::BOOT_COUNT, Some(mark.boot_count)),
            (annotations::LAST_INDEX, Some(mark.last_index).filter(|index| *index > 0)),
            (annotations::REVISION, *revision),
            (annotations::TERM, etcd.term),
            (annotations::DB_SIZE, etcd.db_size),
            (annotations::DB_IN_USE, etcd.db_in_use),
        ];
        let figures = figures.into_iter().filter_map(|(key, value)| Some((key, json!(value?.to_string()))));
        // What whoever held the Lease before has left there would count as this member's own.
        let unknown = (mark.last_index == 0).then_some((annotations::LAST_INDEX, Value::Null));
        let figures: BTreeMap<_, _> = figures.chain(unknown).collect();
        let renewal = json!({
            "metadata": {"annotations": figures},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION_SECONDS,
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            },
        });
        let manager = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(renewal);
        within(PATIENCE, self.leases.patch(&self.name, &manager, &patch)).await
    }
}

/// What an object says that was reported; nothing if there is no object.
fn reported(seen: Option<&EtcdMember>) -> Option<EtcdMemberStatus> {
    seen.map(|member| member.status.clone().unwrap_or_default())
}

async fn within<T>(patience: Duration, call: impl Future<Output = kube::Result<T>>) -> Result<()> {
    match tokio::time::timeout(patience, call).await {
        Ok(answer) => Ok(answer.map(drop).map_err(Box::new)?),
        Err(late) => {
            Err(Error::Io { what: "the Kubernetes API did not answer in time".to_owned(), source: late.into() })
        }
    }
}

/// The API server answers, and what it says is no. One that is overloaded, or cannot reach its own storage, has not
/// answered.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && ![408, 429].contains(&status.code))
}
