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

    /// Whether the member's data, or its running etcd, belongs to another cluster than this one.
    pub(crate) fn is_stranger(&self, member: &MemberFacts<'_>) -> bool {
        let ours = self.latch().and_then(|latch| latch.cluster_id.as_deref());
        matches!((ours, member.cluster_id()), (Some(ours), Some(theirs)) if ours != theirs)
    }

    /// Whether some member's pod is on its way out, or not made yet: no other is disturbed meanwhile.
    pub(crate) fn is_pod_away(&self) -> bool {
        self.members.iter().any(|member| member.pod.is_none_or(|pod| pod.terminating.is_some()))
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
            heartbeat: heartbeat(view, &name),
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

    /// Whether the member has no data that it could start from. A new pod would not give it any.
    pub(crate) fn has_no_usable_data(&self) -> bool {
        match self.data_state() {
            None | Some(DataState::Valid) => false,
            Some(DataState::Empty) => !self.is_running(),
            Some(DataState::Damaged | DataState::Foreign | DataState::Fenced) => true,
        }
    }

    /// What the agent says about the data.
    pub(crate) fn data_reason(&self) -> Option<&'a str> {
        self.report?.data.as_ref()?.reason.as_deref()
    }

    pub(crate) fn alarms(&self) -> impl Iterator<Item = &'a str> {
        let etcd = self.report.and_then(|report| report.etcd.as_ref()).filter(|etcd| etcd.running);
        etcd.into_iter().flat_map(|etcd| &etcd.alarms).filter_map(|text| alarm_name(text))
    }
}

fn heartbeat(view: &View, member: &str) -> Heartbeat {
    let heartbeat = view.lease(member).map(Heartbeat::read).unwrap_or_default();
    match view.heard.get(member) {
        Some(&heard) => heartbeat.heard_at(heard),
        None => heartbeat,
    }
}

/// etcd writes `memberID:123 alarm:NOSPACE`, and in the same list other complaints that pass by themselves.
fn alarm_name(text: &str) -> Option<&str> {
    let name = text.rsplit_once("alarm:").map_or(text, |(_, name)| name).trim();
    (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase())).then_some(name)
}
