//! A view, put in order: what every rule needs to know.

use jiff::Timestamp;
use quorate_api::member::{DataState, EtcdMemberStatus, Ticket};
use quorate_api::names;
use quorate_api::status::{EtcdClusterStatus, Latch, LatchState};

use crate::lease::Heartbeat;
use crate::validate::Desired;
use crate::view::{PodFact, View};

/// What is known about the cluster and its members.
pub(crate) struct Context<'a> {
    pub view: &'a View,
    pub now: Timestamp,
    pub name: &'a str,
    pub namespace: &'a str,
    pub uid: &'a str,
    pub desired: &'a Desired,
    pub members: Vec<MemberFacts<'a>>,
}

/// What is known about one member.
pub(crate) struct MemberFacts<'a> {
    pub name: String,
    pub ordinal: i32,
    pub pod: Option<&'a PodFact>,
    pub heartbeat: Heartbeat,
    pub report: Option<&'a EtcdMemberStatus>,
    pub ticket: Option<&'a Ticket>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(view: &'a View, desired: &'a Desired, now: Timestamp) -> Self {
        let metadata = &view.cluster.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let members = (0..desired.members.get()).map(|ordinal| MemberFacts::new(view, name, ordinal)).collect();
        Self {
            view,
            now,
            name,
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            uid: metadata.uid.as_deref().unwrap_or_default(),
            desired,
            members,
        }
    }

    pub(crate) fn latch(&self) -> Option<&'a Latch> {
        self.status()?.latch.as_ref()
    }

    pub(crate) fn is_formed(&self) -> bool {
        self.latch().is_some_and(|latch| latch.state == LatchState::Formed)
    }

    pub(crate) fn status(&self) -> Option<&'a EtcdClusterStatus> {
        self.view.cluster.status.as_ref()
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }
}

impl<'a> MemberFacts<'a> {
    fn new(view: &'a View, cluster: &str, ordinal: i32) -> Self {
        let name = names::member(cluster, ordinal);
        let member = view.member(&name);
        Self {
            ordinal,
            pod: view.pods.get(&name),
            heartbeat: view.lease(&name).map(Heartbeat::read).unwrap_or_default(),
            report: member.and_then(|member| member.status.as_ref()),
            ticket: member.map(|member| &member.spec.ticket),
            name,
        }
    }

    pub(crate) fn data_state(&self) -> Option<DataState> {
        self.report?.data.as_ref().map(|data| data.state)
    }

    /// Identifier of the cluster that the member's data, or its running etcd, belongs to.
    pub(crate) fn cluster_id(&self) -> Option<&'a str> {
        let report = self.report?;
        let running = report.etcd.as_ref().filter(|etcd| etcd.running).and_then(|etcd| etcd.cluster_id.as_deref());
        let stored = report.data.as_ref().filter(|data| data.state == DataState::Valid);
        running.or_else(|| stored.and_then(|data| data.cluster_id.as_deref()))
    }

    /// The incarnation that the member's data belongs to.
    pub(crate) fn data_epoch(&self) -> Option<i64> {
        self.report?.data.as_ref().filter(|data| data.state == DataState::Valid)?.epoch
    }

    pub(crate) fn is_running(&self) -> bool {
        self.report.and_then(|report| report.etcd.as_ref()).is_some_and(|etcd| etcd.running)
    }

    /// Whether etcd ever ran on this member. What is recorded outside of the volume counts too, so a wiped volume does
    /// not make a member new again.
    pub(crate) fn has_started(&self) -> bool {
        let identity = self.report.and_then(|report| report.data.as_ref()?.member_id.as_ref());
        self.is_running() || identity.is_some() || self.heartbeat.has_started()
    }

    /// Whether the member is known to hold no usable data although it once did.
    pub(crate) fn has_lost_data(&self) -> bool {
        !self.is_running() && self.data_state().is_some_and(|state| state != DataState::Valid)
    }
}
