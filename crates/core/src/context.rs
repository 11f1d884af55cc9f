//! A view, put in order: what every rule needs to know.

use jiff::Timestamp;
use quorate_api::member::{DataState, EtcdMemberStatus, Ticket, VolumeState};
use quorate_api::names;
use quorate_api::status::{EtcdClusterStatus, Latch, LatchState, MemberHealth, MemberRole, MemberStatus};

use crate::alarms::Alarm;
use crate::health;
use crate::lease::Heartbeat;
use crate::loss::{self, Loss};
use crate::membership::{Membership, Seat};
use crate::object::Kind;
use crate::strangers::{self, Stranger};
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
    pub membership: Membership,
    /// The members, by ordinal.
    pub members: Vec<Member<'a>>,
    /// Those of them, and of whoever is to become one, whose node is gone for good.
    pub losses: Vec<Loss>,
    /// Members of etcd that nobody has asked for, by identifier.
    pub strangers: Vec<Stranger>,
}

/// One member: what is known about it, and what that comes to.
pub(crate) struct Member<'a> {
    pub facts: MemberFacts<'a>,
    /// As the status shows it.
    pub status: MemberStatus,
}

impl<'a> std::ops::Deref for Member<'a> {
    type Target = MemberFacts<'a>;

    fn deref(&self) -> &Self::Target {
        &self.facts
    }
}

/// What is known about one member.
pub(crate) struct MemberFacts<'a> {
    pub name: String,
    pub ordinal: i32,
    pub seat: Seat,
    pub pod: Option<&'a PodFact>,
    pub heartbeat: Heartbeat,
    pub report: Option<&'a EtcdMemberStatus>,
    pub ticket: Option<&'a Ticket>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(view: &'a View, desired: &'a Desired, now: Timestamp) -> Self {
        let membership = Membership::of(view, desired);
        let facts = membership.seats.iter().map(|seat| MemberFacts::new(view, seat)).collect();
        let members = health::judge(view, desired, facts, now);
        let losses = loss::of(view, desired, &membership, now);
        let strangers = strangers::of(view, &membership, desired, now);
        let identity = &view.identity;
        Self {
            view,
            now,
            name: identity.name(),
            namespace: identity.namespace(),
            uid: identity.uid(),
            desired,
            membership,
            members,
            losses,
            strangers,
        }
    }

    pub(crate) fn loss(&self, member: &str) -> Option<&Loss> {
        self.losses.iter().find(|loss| loss.member == member)
    }

    pub(crate) fn latch(&self) -> Option<&'a Latch> {
        self.status()?.latch.as_ref()
    }

    pub(crate) fn is_formed(&self) -> bool {
        self.latch().is_some_and(|latch| latch.state == LatchState::Formed)
    }

    /// Whether the member's data, or its running etcd, belongs to another cluster than this one.
    pub(crate) fn is_stranger(&self, member: &MemberFacts<'_>) -> bool {
        is_stranger(self.view, member)
    }

    /// Whether somebody has added the member by hand, past all wishes.
    pub(crate) fn is_uninvited(&self, member: &MemberFacts<'_>) -> bool {
        let id = member.seat.listed.as_ref().map(|listed| &listed.id);
        self.strangers.iter().any(|stranger| Some(&stranger.id) == id)
    }

    /// Whether some member's pod is on its way out, or not made yet: no other is disturbed meanwhile.
    pub(crate) fn is_pod_away(&self) -> bool {
        self.members.iter().any(|member| member.pod.is_none_or(|pod| pod.terminating.is_some()))
    }

    /// Whether the member's volume goes as soon as its pod does: somebody has deleted the claim.
    pub(crate) fn is_volume_ending(&self, member: &str) -> bool {
        self.view.claims.get(&names::data_claim(member)).is_some_and(|claim| claim.terminating)
    }

    /// Whether some member's pod is on its way out.
    pub(crate) fn is_pod_ending(&self) -> bool {
        self.members.iter().any(|member| member.pod.is_some_and(|pod| pod.terminating.is_some()))
    }

    pub(crate) fn status(&self) -> Option<&'a EtcdClusterStatus> {
        self.view.cluster.status.as_ref()
    }

    /// How many votes there are.
    pub(crate) fn size(&self) -> usize {
        self.membership.voters()
    }

    /// Members that are ready and have a vote.
    pub(crate) fn ready_voters(&self) -> usize {
        self.members.iter().filter(|member| member.is_ready() && member.seat.is_voter()).count()
    }

    pub(crate) fn is_quorate(&self) -> bool {
        self.membership.is_quorate(self.ready_voters())
    }

    /// When the account was made that members speak by.
    pub(crate) fn account_made(&self) -> Option<Timestamp> {
        let account = self.view.object(Kind::ServiceAccount, &names::member_account(self.name))?;
        Some(account.metadata().creation_timestamp.as_ref()?.0)
    }

    /// Whether its token died with an earlier account: it may serve, and cannot say so.
    pub(crate) fn is_speechless(&self, member: &MemberFacts<'_>) -> bool {
        let created = member.pod.and_then(|pod| pod.created);
        created.zip(self.account_made()).is_some_and(|(created, made)| created < made)
    }

    /// Whether it can be counted on. Those who cannot speak have only the kubelet to speak for them.
    pub(crate) fn serves(&self, member: &Member<'_>) -> bool {
        member.is_ready() || (self.is_speechless(member) && member.is_pod_ready())
    }

    /// Voters that can be counted on.
    pub(crate) fn serving_voters(&self) -> usize {
        self.members.iter().filter(|member| member.seat.is_voter() && self.serves(member)).count()
    }

    /// The voters whose data is proven to be gone, if so many are that the rest is no quorum.
    pub(crate) fn lost_majority(&self) -> Option<Vec<&Member<'a>>> {
        let voters = self.members.iter().filter(|member| member.seat.is_voter());
        let (lost, rest): (Vec<_>, Vec<_>) = voters.partition(|member| member.is_data_lost(self));
        let left = rest.len() + self.membership.foreign_voters.len();
        (!lost.is_empty() && !self.membership.is_quorate(left)).then_some(lost)
    }

    pub(crate) fn member(&self, name: Option<&str>) -> Option<&Member<'a>> {
        self.members.iter().find(|member| Some(member.name.as_str()) == name)
    }

    /// Whether no volume goes, whoever else wishes it: what lies there of an incarnation that was given up may be missed.
    pub(crate) fn keeps_volumes(&self) -> bool {
        self.is_recovering() || self.status().is_some_and(|status| status.data_loss.is_some())
    }

    /// Whether the quorum is lost for good, and a new incarnation is about to begin from what is left.
    pub(crate) fn is_recovering(&self) -> bool {
        self.latch().is_some_and(|latch| latch.recovery.is_some())
    }
}

impl Member<'_> {
    /// Whether it has no vote, and is in touch with the others.
    pub(crate) fn is_learning(&self, now: Timestamp) -> bool {
        !self.seat.is_voter() && self.seat.has_started() && self.is_heard() && self.heartbeat.is_alive(now)
    }

    pub(crate) fn leads(&self) -> bool {
        self.status.role == Some(MemberRole::Leader)
    }

    /// Whether it is proven that the data of this member, and not of one that was here before, is gone or of no use.
    pub(crate) fn is_data_lost(&self, context: &Context<'_>) -> bool {
        let is_recorded = self.seat.listed.as_ref().is_none_or(|listed| self.recorded_id() == Some(&listed.id));
        // What a newcomer has found is that of whoever was here before.
        if self.seat.newcomer().is_some() && !is_recorded {
            return false;
        }
        match self.data_state() {
            None | Some(DataState::Valid | DataState::Unreadable) => false,
            Some(DataState::Damaged | DataState::Foreign | DataState::Fenced) => !self.is_running() || self.is_fenced(),
            // Its agent may be unable to say that etcd runs; its kubelet sees that it does.
            Some(DataState::Empty) if self.is_running() || self.pod.is_some_and(|pod| pod.ready) => false,
            // A Lease may be heard of before the report is.
            Some(DataState::Empty) if self.is_heard() && self.heartbeat.is_alive(context.now) => false,
            Some(DataState::Empty) if self.has_renewed() => true,
            // It was about to begin, or may not any more, and has not for long.
            Some(DataState::Empty) => {
                let size = context.latch().and_then(|latch| latch.size);
                let is_founder = size.is_some_and(|size| self.ordinal < size);
                let may_begin = !is_recorded && is_founder && !self.seat.has_started();
                !may_begin && context.now.duration_since(self.stuck_since()) >= context.desired.not_ready_grace
            }
        }
    }

    /// Whether its node has been gone for so long that its volume, which can be used nowhere else, is not waited for any more.
    pub(crate) fn is_given_up(&self, context: &Context<'_>) -> bool {
        let left = context.loss(&self.name).and_then(|loss| loss.until_given_up(context.desired, context.now));
        let is_due = left.is_some_and(|left| left.is_zero());
        is_due && !self.is_ready() && !self.heartbeat.is_alive(context.now)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.status.status == MemberHealth::Ready
    }

    /// Since when it has not been ready, or since when restarts have not helped for long.
    pub(crate) fn troubled_since(&self) -> Timestamp {
        self.status.troubled_since.as_ref().unwrap_or(&self.status.last_transition_time).0
    }

    /// Since when it has not been ready, or since its pod was made if that is later: a new pod gets its time.
    pub(crate) fn stuck_since(&self) -> Timestamp {
        let unready = self.status.last_transition_time.0;
        self.pod.and_then(|pod| pod.created).map_or(unready, |created| created.max(unready))
    }
}

/// Identifier of the cluster that the data of a report, or the etcd that runs on it, belongs to.
pub(crate) fn reported_cluster_id(report: &EtcdMemberStatus) -> Option<&str> {
    let running = report.etcd.as_ref().filter(|etcd| etcd.running).and_then(|etcd| etcd.cluster_id.as_deref());
    let stored = report.data.as_ref().filter(|data| data.state == DataState::Valid);
    running.or_else(|| stored.and_then(|data| data.cluster_id.as_deref()))
}

pub(crate) fn is_stranger(view: &View, member: &MemberFacts<'_>) -> bool {
    let latch = view.cluster.status.as_ref().and_then(|status| status.latch.as_ref());
    let ours = latch.and_then(|latch| latch.cluster_id.as_deref());
    matches!((ours, member.cluster_id()), (Some(ours), Some(theirs)) if ours != theirs)
}

impl<'a> MemberFacts<'a> {
    fn new(view: &'a View, seat: &Seat) -> Self {
        let name = names::member(view.identity.name(), seat.ordinal);
        let member = view.member(&name);
        Self {
            ordinal: seat.ordinal,
            seat: seat.clone(),
            pod: view.pods.get(&name),
            heartbeat: heartbeat(view, &name),
            report: member.and_then(|member| member.status.as_ref()),
            ticket: member.map(|member| &member.spec.ticket),
            name,
        }
    }

    pub(crate) fn is_pod_ready(&self) -> bool {
        self.pod.is_some_and(|pod| pod.ready)
    }

    pub(crate) fn data_state(&self) -> Option<DataState> {
        self.report?.data.as_ref().map(|data| data.state)
    }

    /// Identifier of the cluster that the member's data, or its running etcd, belongs to.
    pub(crate) fn cluster_id(&self) -> Option<&'a str> {
        reported_cluster_id(self.report?)
    }

    /// The incarnation that the member's data belongs to.
    pub(crate) fn data_epoch(&self) -> Option<i64> {
        self.report?.data.as_ref().filter(|data| data.state == DataState::Valid)?.epoch
    }

    /// Which member it is, as is on record of it.
    pub(crate) fn recorded_id(&self) -> Option<&'a str> {
        self.report?.data.as_ref()?.member_id.as_deref()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.report.and_then(|report| report.etcd.as_ref()).is_some_and(|etcd| etcd.running)
    }

    /// Whether etcd may ever have run on this member. What is recorded outside of the volume counts too, and so does what
    /// the other members know, so a wiped volume does not make a member new again.
    pub(crate) fn has_started(&self) -> bool {
        self.has_begun() || self.recorded_id().is_some()
    }

    /// Whether etcd has run on it for certain, so that it has no use for a permission to start empty.
    pub(crate) fn has_begun(&self) -> bool {
        let has_data = self.data_state() == Some(DataState::Valid);
        self.is_running() || has_data || self.heartbeat.has_started() || self.seat.has_started()
    }

    /// Whether its Lease is its own, and not still that of whoever was here before.
    pub(crate) fn is_heard(&self) -> bool {
        self.heartbeat.member_id.as_deref() == self.seat.listed.as_ref().map(|listed| &*listed.id)
    }

    /// Whether it has no vote: by the list or, as soon as it has one, by its own word.
    pub(crate) fn is_learner(&self) -> bool {
        let says_otherwise = self.is_heard() && self.heartbeat.role != Some(MemberRole::Learner);
        !self.seat.is_voter() && !says_otherwise
    }

    /// Whether its data must not be used, though it may be sound.
    pub(crate) fn is_fenced(&self) -> bool {
        matches!(self.data_state(), Some(DataState::Fenced | DataState::Foreign))
    }

    /// Whether it has renewed its Lease, so that etcd has run on it, as the member that it is on record as.
    fn has_renewed(&self) -> bool {
        self.heartbeat.has_started() && self.heartbeat.member_id.as_deref() == self.recorded_id()
    }

    /// Whether the member has no data that it could start from. A new pod would not give it any.
    pub(crate) fn has_no_usable_data(&self) -> bool {
        match self.data_state() {
            // What cannot be read may be sound.
            None | Some(DataState::Valid | DataState::Unreadable) => false,
            Some(DataState::Empty) => !self.is_running(),
            Some(DataState::Damaged | DataState::Foreign | DataState::Fenced) => true,
        }
    }

    /// What the agent says about the data.
    pub(crate) fn data_reason(&self) -> Option<&'a str> {
        self.report?.data.as_ref()?.reason.as_deref()
    }

    /// What is said about the room on its volume, if that is in this state.
    pub(crate) fn volume_reason(&self, state: VolumeState) -> Option<&'a str> {
        let volume = self.report?.volume.as_ref().filter(|volume| volume.state == state)?;
        Some(volume.reason.as_deref().unwrap_or_default())
    }

    /// What is wrong with its database though etcd runs on it.
    pub(crate) fn proven_damage(&self) -> Option<&'a str> {
        self.report?.data.as_ref()?.verified.as_ref()?.damaged.as_deref().filter(|_| self.is_running())
    }

    /// What its etcd is busy with while it does not serve yet.
    pub(crate) fn progress(&self) -> Option<&'a str> {
        self.report?.etcd.as_ref()?.progress.as_deref()
    }

    pub(crate) fn alarms(&self) -> impl Iterator<Item = Alarm<'a>> + use<'a> {
        let etcd = self.report.and_then(|report| report.etcd.as_ref()).filter(|etcd| etcd.running);
        etcd.into_iter().flat_map(|etcd| &etcd.alarms).filter_map(|text| Alarm::read(text))
    }
}

fn heartbeat(view: &View, member: &str) -> Heartbeat {
    let heartbeat = view.lease(member).map(Heartbeat::read).unwrap_or_default();
    match view.heard.get(member) {
        Some(&heard) => heartbeat.heard_at(heard),
        None => heartbeat,
    }
}
