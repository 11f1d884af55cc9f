//! The agent's half of the conversation in Kubernetes: it reads its ticket, reports facts, and renews its Lease.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use http::{HeaderValue, header::USER_AGENT};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{Patch, PatchParams},
    runtime::watcher,
};
use quorate_api::{
    EtcdMember,
    member::{DataReport, EtcdMemberStatus, Ticket},
    names::annotations,
};
use quorate_core::{
    lease::{DURATION_SECONDS, Heartbeat},
    start::{Identity, Word},
};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    error::{Error, Result, chain},
    local_etcd::Pulse,
};

const MANAGER: &str = "quorate-agent";
/// Longer than a busy API server needs, and so short that a renewal that fails is tried again before the Lease runs out.
const PATIENCE: Duration = Duration::from_millis(1500);
const BEFORE_NEXT_TRY: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Kubernetes {
    name: String,
    members: Api<EtcdMember>,
    leases: Api<Lease>,
}

/// What Kubernetes says about this member, read at one moment and not from a cache.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) ticket: Word<Ticket>,
    pub(crate) recorded: Word<Identity>,
    pub(crate) last_report: Option<DataReport>,
}

impl Kubernetes {
    pub(crate) async fn connect(namespace: &str, member: &str) -> Result<Self> {
        let mut config = Config::infer().await.map_err(kube::Error::InferConfig).map_err(Box::new)?;
        config
            .headers
            .push((USER_AGENT, HeaderValue::from_static(concat!("quorate-agent/", env!("CARGO_PKG_VERSION")))));
        let client = Client::try_from(config).map_err(Box::new)?;
        Ok(Kubernetes {
            name: member.to_owned(),
            members: Api::namespaced(client.clone(), namespace),
            leases: Api::namespaced(client, namespace),
        })
    }

    /// No answer in time counts as unreachable, whatever the reason.
    pub(crate) async fn orders(&self) -> Orders {
        let read = async { tokio::try_join!(self.members.get_opt(&self.name), self.leases.get_opt(&self.name)) };
        match tokio::time::timeout(PATIENCE, read).await {
            Ok(Ok((member, lease))) => orders(member, lease.as_ref()),
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "the Kubernetes API refused an answer");
                Orders { ticket: Word::Unreachable, recorded: Word::Unreachable, last_report: None }
            }
            Err(_) => {
                tracing::warn!("the Kubernetes API did not answer in time");
                Orders { ticket: Word::Unreachable, recorded: Word::Unreachable, last_report: None }
            }
        }
    }

    /// The reports on this member's object as they are seen, again whenever the object may have changed.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<EtcdMemberStatus>> {
        let (seen, changes) = watch::channel(None);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = watcher(self.members.clone(), config).boxed();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(member) | watcher::Event::InitApply(member)) => {
                        seen.send_replace(Some(member.status.unwrap_or_default()));
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
        mut seen: watch::Receiver<Option<EtcdMemberStatus>>,
    ) -> watch::Sender<Option<EtcdMemberStatus>> {
        let (report, mut reports) = watch::channel(None::<EtcdMemberStatus>);
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                let there = tokio::select! {
                    changed = reports.changed() => if changed.is_err() { return } else { None },
                    changed = seen.changed() => if changed.is_err() { return } else { seen.borrow_and_update().clone() },
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
        within(self.members.patch_status(&self.name, &manager, &patch)).await
    }

    /// Says that the member is alive. The figures that always move ride along.
    pub(crate) async fn renew(
        &self,
        pulse: &Pulse,
        on_disk: Option<i64>,
        boot_count: i64,
        now: Timestamp,
    ) -> Result<()> {
        let report = &pulse.report;
        let role = report.role.map_or("", |role| role.as_str());
        let holder = format!("{}:{role}", report.member_id.as_deref().unwrap_or_default());
        let mut figures = BTreeMap::from([
            (annotations::BOOT_COUNT, boot_count),
            (annotations::REVISION, pulse.revision),
            (annotations::TERM, report.term.unwrap_or_default()),
            (annotations::DB_SIZE, pulse.db_size),
            (annotations::DB_IN_USE, pulse.db_in_use),
        ]);
        figures.extend(on_disk.map(|index| (annotations::LAST_INDEX, index)));
        let figures: BTreeMap<_, _> = figures.into_iter().map(|(key, value)| (key, value.to_string())).collect();
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
        within(self.leases.patch(&self.name, &manager, &patch)).await
    }
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<()> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(answer) => Ok(answer.map(drop).map_err(Box::new)?),
        Err(late) => {
            Err(Error::Io { what: "the Kubernetes API did not answer in time".to_owned(), source: late.into() })
        }
    }
}

fn orders(member: Option<EtcdMember>, lease: Option<&Lease>) -> Orders {
    let heartbeat = lease.map(Heartbeat::read).unwrap_or_default();
    let last_report = member.as_ref().and_then(|member| member.status.clone()?.data);
    let recorded = last_report.as_ref().and_then(|report| identity_on_record(report, &heartbeat));
    let ticket = member.filter(|member| !member.name_any().is_empty()).map(|member| member.spec.ticket);
    let ticket = match ticket {
        // Its record is lost, and the Lease tells that it has started all the same: it may not do so empty again.
        Some(Ticket::Bootstrap { epoch, .. }) if recorded.is_none() && heartbeat.has_started() => {
            Some(Ticket::Resume { epoch })
        }
        ticket => ticket,
    };
    Orders {
        ticket: ticket.map_or(Word::Nothing, Word::Known),
        recorded: recorded.map_or(Word::Nothing, Word::Known),
        last_report,
    }
}

/// The report is written at transitions, the Lease every few seconds: the higher mark counts.
fn identity_on_record(report: &DataReport, heartbeat: &Heartbeat) -> Option<Identity> {
    Some(Identity {
        cluster_id: report.cluster_id.clone()?,
        member_id: report.member_id.clone()?,
        epoch: report.epoch?,
        boot_count: report.boot_count.max(heartbeat.boot_count).unwrap_or_default(),
        last_index: report.last_index.max(heartbeat.last_index).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_api::member::EtcdMemberSpec;

    #[test]
    fn a_lease_alone_remembers_that_a_member_has_started() {
        let ticket = Ticket::Bootstrap { epoch: 1, token: "t".to_owned(), initial_cluster: Vec::new() };
        let spec = EtcdMemberSpec { cluster: "etcd".to_owned(), ordinal: 0, ticket: ticket.clone() };
        let member = EtcdMember::new("etcd-0", spec);
        assert_eq!(orders(Some(member.clone()), Some(&Lease::default())).ticket, Word::Known(ticket));
        let mut lease = Lease::default();
        lease.metadata.annotations = Some(BTreeMap::from([(annotations::BOOT_COUNT.to_owned(), "1".to_owned())]));
        assert_eq!(orders(Some(member), Some(&lease)).ticket, Word::Known(Ticket::Resume { epoch: 1 }));
    }
}
