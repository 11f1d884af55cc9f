//! What is on record of a member, and what follows from it for the volume that was found.
//!
//! The record that counts is outside of the volume, in the member's EtcdMember and on its Lease, so that it does not travel
//! back in time with the volume. What was last known of it is kept on the volume too, beside the data, with the fence that
//! it led to: while the API is away a fence stays closed, and sound data is still compared. Only an API that answers with a
//! ticket opens a fence. A record rises and is never lowered.

use k8s_openapi::api::coordination::v1::Lease;
use quorate_api::EtcdMember;
use quorate_api::member::{DataReport, DataState, ListedMember, LogEnd, RecoveredFrom, Ticket};
use serde::{Deserialize, Serialize};

use crate::lease::Heartbeat;
use crate::start::{ApiAnswer, Found, Identity, Refusal, Start, WaitFor, in_force, start};

/// What Kubernetes says about a member, read at one moment and not from a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    pub ticket: ApiAnswer<Ticket>,
    pub recorded: ApiAnswer<Identity>,
    pub last_report: Option<DataReport>,
}

impl Orders {
    pub fn unreachable() -> Self {
        Self { ticket: ApiAnswer::Unreachable, recorded: ApiAnswer::Unreachable, last_report: None }
    }

    pub fn refused() -> Self {
        Self { ticket: ApiAnswer::Refused, recorded: ApiAnswer::Refused, last_report: None }
    }

    pub fn read(member: Option<&EtcdMember>, lease: Option<&Lease>) -> Self {
        let heartbeat = lease.map(Heartbeat::read).unwrap_or_default();
        let last_report = member.and_then(|member| member.status.clone()?.data);
        let recorded = last_report.as_ref().and_then(|report| on_record(report, &heartbeat));
        let ticket = member.map(|member| in_force(member.spec.ticket.clone(), recorded.as_ref(), &heartbeat));
        Self {
            ticket: ticket.map_or(ApiAnswer::Nothing, ApiAnswer::Known),
            recorded: recorded.map_or(ApiAnswer::Nothing, ApiAnswer::Known),
            last_report,
        }
    }

    /// Whether the API said what there is, so that a report can continue it.
    pub fn answered(&self) -> bool {
        matches!(self.ticket, ApiAnswer::Nothing | ApiAnswer::Known(_))
    }

    /// What was told before counts only while the API does not answer: a watch may lag behind it.
    #[must_use]
    pub fn or_as_told(self, told: Option<Self>) -> Self {
        if self.answered() { self } else { told.unwrap_or(self) }
    }

    /// Whether this can open a fence. An API that is just starting finds no objects of kinds that it does not know yet.
    fn decides(&self) -> bool {
        self.ticket.known().is_some()
    }

    /// Whether this opens that fence, if the data stands the comparison otherwise. That it differs from what others have
    /// cannot be seen here: it takes somebody's word that it may start all the same.
    fn opens(&self, fence: Refusal, epoch: i64) -> bool {
        match fence {
            Refusal::Diverged => matches!(self.ticket.known(), Some(Ticket::Resume { .. })),
            // A ticket of no epoch does not know that there is a later one.
            Refusal::EarlierEpoch => self.ticket.known().and_then(Ticket::epoch) == Some(epoch),
            _ => self.decides(),
        }
    }
}

/// The report is written at transitions, the Lease every few seconds: the higher mark counts. A Lease that another member,
/// or an earlier incarnation, has left says nothing.
fn on_record(report: &DataReport, heartbeat: &Heartbeat) -> Option<Identity> {
    let member_id = report.member_id.clone()?;
    let strange = heartbeat.member_id.as_ref().is_some_and(|holder| *holder != member_id);
    let renewed = Some(heartbeat).filter(|_| !strange);
    Some(Identity {
        cluster_id: report.cluster_id.clone()?,
        member_id,
        epoch: report.epoch?,
        boot_count: report.boot_count.max(renewed.and_then(|renewed| renewed.boot_count)).unwrap_or_default(),
        last_index: report.last_index.max(renewed.and_then(|renewed| renewed.last_index)).unwrap_or_default(),
    })
}

/// What is kept on the volume, beside the data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeRecord {
    /// The record outside of the volume, as last known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<Identity>,
    /// Why the data must not start, until the API says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Refusal>,
    /// What etcd began from, the first time, since the record was last compared: it had to start without the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<Identity>,
    /// The index that etcd is known to have got to on this volume: its data directory can go back alone.
    pub reached_index: i64,
}

/// What an inspection found, for the start table and for the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    pub found: Found,
    pub reason: Option<String>,
    pub revision: Option<i64>,
    /// What is behind this index can still be overruled by the others; up to it nothing can ever go missing.
    pub committed_index: Option<i64>,
    pub log_end: Option<LogEnd>,
    /// As the data has them.
    pub members: Vec<ListedMember>,
}

impl Inspection {
    pub fn empty() -> Self {
        Self::without_identity(DataState::Empty, None)
    }

    /// No data, on a volume on which etcd was about to begin as this member.
    pub fn prepared(own: Identity) -> Self {
        let found = Found { state: DataState::Empty, identity: None, prepared: Some(own) };
        Self { found, ..Self::empty() }
    }

    pub fn unusable(state: DataState, reason: String) -> Self {
        Self::without_identity(state, Some(reason))
    }

    fn without_identity(state: DataState, reason: Option<String>) -> Self {
        let found = Found { state, identity: None, prepared: None };
        Self { found, reason, revision: None, committed_index: None, log_end: None, members: Vec::new() }
    }

    pub fn valid(own: Identity) -> Self {
        let found = Found { state: DataState::Valid, identity: Some(own), prepared: None };
        Self { found, reason: None, revision: None, committed_index: None, log_end: None, members: Vec::new() }
    }
}

/// What to do with a volume, what to keep on it, and what to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub start: Start,
    pub keep: VolumeRecord,
    pub report: DataReport,
}

/// What the volume, the record on it and the record outside of it say together.
pub fn judge(inspection: &Inspection, orders: &Orders, kept: &VolumeRecord) -> Verdict {
    let found = &inspection.found;
    let mark = latest(orders.recorded.known(), kept.mark.as_ref());
    let began = found.identity.as_ref().map(|own| began(own, kept.unconfirmed.as_ref()));
    let start = decide(found, began.clone(), orders, mark.as_ref(), kept);
    // What was not judged this time is not cleared either.
    let undecided = matches!(start, Start::Wait(_) | Start::Refuse(_));
    let fence = fence(found, &start).or(kept.fence.filter(|_| undecided));
    let unconfirmed = match &start {
        Start::Resume if orders.decides() => None,
        Start::Resume => began,
        Start::Quarantine(_)
        | Start::New { .. }
        | Start::Join { .. }
        | Start::Restore { .. }
        | Start::Recover { .. } => None,
        // What it began from is what it is worth: it may have got beyond the record since, by another way.
        Start::Wait(_) | Start::Refuse(_) => kept.unconfirmed.clone(),
    };
    // What it has got to without a comparison is not put on record before there was one: it would be measured by that.
    let is_compared = kept.unconfirmed.is_none() || start == Start::Resume;
    let own = found.identity.as_ref().filter(|_| is_compared);
    let report = DataReport {
        log_end: inspection.log_end,
        ticket_epoch: orders.ticket.known().and_then(Ticket::epoch),
        ..report(inspection, own, known(orders.last_report.as_ref(), mark.as_ref()), &start)
    };
    let mark = match &start {
        // What is about to be reported.
        Start::Resume if orders.decides() => on_record(&report, &Heartbeat::default()).or(mark),
        _ => mark,
    };
    let keep = match &start {
        // What was known of whoever was here before says nothing about the one that begins.
        Start::New { .. } | Start::Join { .. } | Start::Restore { .. } | Start::Recover { .. } => {
            VolumeRecord::default()
        }
        _ => VolumeRecord { mark, fence, unconfirmed, reached_index: kept.reached_index },
    };
    Verdict { start, keep, report }
}

/// Whether an etcd that runs may go on, and what to keep on its volume: [`Start::Resume`], or it must be stopped. One that
/// started without a comparison is judged by what it began from, however far it has got since.
pub fn confirm(orders: &Orders, kept: &VolumeRecord) -> (Start, VolumeRecord) {
    match (&kept.unconfirmed, kept.fence) {
        // It was compared. An agent that was killed may have left less on the volume than it had put on record.
        (None, None) => {
            let mark = latest(orders.recorded.known(), kept.mark.as_ref());
            let fence = orders.ticket.known().zip(mark.as_ref()).and_then(|(ticket, mark)| stops(ticket, mark));
            (fence.map_or(Start::Resume, Start::Refuse), VolumeRecord { mark, fence, ..kept.clone() })
        }
        (None, Some(fence)) => (Start::Refuse(fence), kept.clone()),
        // A refusal says nothing about an etcd that runs: neither that it may go on nor that it must not.
        (Some(_), None) if orders.recorded == ApiAnswer::Refused => (Start::Resume, kept.clone()),
        (Some(began), _) => {
            let before = VolumeRecord { reached_index: 0, ..kept.clone() };
            let verdict = judge(&Inspection::valid(began.clone()), orders, &before);
            (verdict.start, VolumeRecord { reached_index: kept.reached_index, ..verdict.keep })
        }
    }
}

/// Why an etcd that runs as this member must end, if it must.
fn stops(ticket: &Ticket, running: &Identity) -> Option<Refusal> {
    let why = if ticket.fences(&running.member_id) { Refusal::Diverged } else { Refusal::EarlierEpoch };
    ticket.stops(&running.member_id, running.epoch).then_some(why)
}

fn decide(
    found: &Found,
    began: Option<Identity>,
    orders: &Orders,
    mark: Option<&Identity>,
    kept: &VolumeRecord,
) -> Start {
    let recorded = mark.cloned().map_or_else(|| orders.recorded.clone(), ApiAnswer::Known);
    let worth = Found { identity: began, ..found.clone() };
    let decided = start(&worth, &orders.ticket, &recorded);
    let Some(own) = &found.identity else { return decided };
    if let Some(fence) = stays_closed(own, &decided, orders, kept) {
        return Start::Refuse(fence);
    }
    let (Start::Resume | Start::Wait(WaitFor::KubernetesApiAccess)) = decided else { return decided };
    match kept.fence {
        // Which epoch is the present one, somebody is about to say.
        Some(Refusal::EarlierEpoch)
            if orders.decides() && orders.ticket.known().is_some_and(|it| it.epoch().is_none()) =>
        {
            Start::Wait(WaitFor::Ticket)
        }
        Some(fence) if !orders.opens(fence, own.epoch) => Start::Refuse(fence),
        _ if own.last_index < kept.reached_index => Start::Refuse(Refusal::RolledBack),
        // What an etcd has reached that was compared vouches for the data too.
        _ if kept.reached_index > 0 && kept.unconfirmed.is_none() => Start::Resume,
        _ => decided,
    }
}

/// Why data of an earlier incarnation is no copy to begin a later one from, if what is kept beside it says so. The ticket of a
/// later incarnation opens no fence by itself.
fn stays_closed(own: &Identity, decided: &Start, orders: &Orders, kept: &VolumeRecord) -> Option<Refusal> {
    let begins = match decided {
        Start::Wait(WaitFor::Replacement) => false,
        Start::Recover { .. } => matches!(orders.ticket.known(), Some(Ticket::Recover { even_if_fenced: true, .. })),
        _ => return None,
    };
    match kept.fence {
        _ if begins => None,
        Some(Refusal::Diverged) => Some(Refusal::Diverged),
        _ => (own.last_index < kept.reached_index).then_some(Refusal::RolledBack),
    }
}

/// Data that etcd has written to without a comparison is worth what it was before.
fn began(own: &Identity, unconfirmed: Option<&Identity>) -> Identity {
    unconfirmed.filter(|first| first.is_of(own)).unwrap_or(own).clone()
}

/// What keeps sound data from starting, if it is anything that the volume alone does not show.
fn fence(found: &Found, start: &Start) -> Option<Refusal> {
    match start {
        Start::Refuse(why) if *why != Refusal::ForeignData => Some(*why),
        Start::Wait(WaitFor::Replacement) if found.identity.is_some() => Some(Refusal::EarlierEpoch),
        _ => None,
    }
}

/// Of two records the one of the later incarnation counts, and within one the higher figures. If they are of two members,
/// the one outside of the volume counts.
fn latest(outside: Option<&Identity>, on_volume: Option<&Identity>) -> Option<Identity> {
    match (outside, on_volume) {
        (Some(outside), Some(kept)) if outside.is_of(kept) => Some(Identity {
            boot_count: outside.boot_count.max(kept.boot_count),
            last_index: outside.last_index.max(kept.last_index),
            ..outside.clone()
        }),
        (Some(outside), Some(kept)) if outside.epoch < kept.epoch => Some(kept.clone()),
        (outside, kept) => outside.or(kept).cloned(),
    }
}

/// The last report, completed by what is known of the record from elsewhere.
fn known(last: Option<&DataReport>, mark: Option<&Identity>) -> Option<DataReport> {
    let last = last.filter(|last| last.member_id.is_some());
    let Some(mark) = mark else { return last.cloned() };
    let recorded = last.and_then(|last| on_record(last, &Heartbeat::default()));
    let base = last.filter(|_| recorded.is_some_and(|recorded| recorded.is_of(mark)));
    Some(DataReport {
        cluster_id: Some(mark.cluster_id.clone()),
        member_id: Some(mark.member_id.clone()),
        epoch: Some(mark.epoch),
        boot_count: Some(mark.boot_count),
        last_index: Some(mark.last_index),
        ..base.cloned().unwrap_or(DataReport::of(DataState::Empty))
    })
}

/// The report on a volume on which etcd does not run. What was on record stays, unless this data continues it: a record
/// that follows the volume would let a volume that was rolled back, or exchanged, vouch for itself.
fn report(inspection: &Inspection, own: Option<&Identity>, known: Option<DataReport>, start: &Start) -> DataReport {
    let Inspection { found, revision, committed_index, members, .. } = inspection;
    let refusal = match start {
        Start::Refuse(why) => why.explanation(),
        _ => None,
    };
    let refused = matches!(start, Start::Refuse(_));
    let diverged = *start == Start::Refuse(Refusal::Diverged);
    let rolled_back = *start == Start::Refuse(Refusal::RolledBack);
    let state = if refusal.is_some() && found.state == DataState::Valid { DataState::Fenced } else { found.state };
    let reason = refusal.map(str::to_owned).or_else(|| inspection.reason.clone());
    let own = own.filter(|_| !refused);
    let recorded = known.as_ref().and_then(|known| on_record(known, &Heartbeat::default()));
    match (own, recorded) {
        (Some(own), recorded) if recorded.as_ref().is_none_or(|recorded| recorded.epoch < own.epoch) => DataReport {
            state,
            reason,
            cluster_id: Some(own.cluster_id.clone()),
            member_id: Some(own.member_id.clone()),
            epoch: Some(own.epoch),
            revision: *revision,
            last_index: *committed_index,
            boot_count: Some(own.boot_count),
            diverged,
            rolled_back,
            members: members.clone(),
            ..DataReport::of(state)
        },
        (Some(own), Some(recorded)) if recorded.is_of(own) => {
            let known = known.unwrap_or(DataReport::of(state));
            DataReport {
                state,
                reason,
                diverged,
                rolled_back,
                boot_count: known.boot_count.max(Some(own.boot_count)),
                last_index: known.last_index.max(*committed_index),
                revision: known.revision.max(*revision),
                members: if members.is_empty() { known.members.clone() } else { members.clone() },
                ..known
            }
        }
        // What was read through is not what lies there now.
        _ => {
            let known = known.unwrap_or(DataReport::of(state));
            DataReport { state, reason, diverged, rolled_back, verified: None, ..known }
        }
    }
}

/// The report on a member that is about to begin. It is on record before etcd runs: otherwise one that lost its volume right
/// after its first vote would look new.
pub fn beginning_report(own: &Identity) -> DataReport {
    DataReport {
        cluster_id: Some(own.cluster_id.clone()),
        member_id: Some(own.member_id.clone()),
        epoch: Some(own.epoch),
        boot_count: Some(own.boot_count),
        ..DataReport::of(DataState::Empty)
    }
}

/// The report on a member that is about to begin a new incarnation from its own data. That is on record before etcd runs, so
/// that it does not begin a second time.
pub fn recovered_report(own: &Identity, from: RecoveredFrom) -> DataReport {
    let revision = Some(from.raised_to);
    // That it has been let start is on the volume only a moment later: a record that is ahead of it would condemn it.
    let boot_count = Some(0);
    DataReport { state: DataState::Valid, revision, recovered: Some(from), boot_count, ..beginning_report(own) }
}

/// The report on a member whose etcd runs: it has a log, so from now on it can have voted.
pub fn running_report(running: &Identity, last: Option<&DataReport>) -> DataReport {
    let recorded = last.and_then(|last| on_record(last, &Heartbeat::default()));
    let base = last.filter(|_| recorded.as_ref().is_some_and(|recorded| recorded.is_of(running)));
    let base = base.cloned().unwrap_or(DataReport::of(DataState::Valid));
    DataReport {
        state: DataState::Valid,
        reason: None,
        diverged: false,
        rolled_back: false,
        log_end: None,
        ticket_epoch: None,
        cluster_id: Some(running.cluster_id.clone()),
        member_id: Some(running.member_id.clone()),
        epoch: Some(running.epoch),
        boot_count: base.boot_count.max(Some(running.boot_count)),
        ..base
    }
}

/// The report on a member whose etcd runs on data that must not be used, because nobody is there who could stop it. What was
/// on record stays.
pub fn fenced_report(why: Refusal, last: &DataReport) -> DataReport {
    let advice = "etcd runs on it, and there is no launcher that could stop it: delete the pod";
    let reason = why.explanation().map_or_else(|| advice.to_owned(), |explanation| format!("{explanation}; {advice}"));
    DataReport { state: DataState::Fenced, reason: Some(reason), ..last.clone() }
}

/// What a renewal of the Lease may say: an etcd that has just started has not applied yet all that is on record.
pub fn renewed(mark: Option<&Identity>, running: &Identity) -> Identity {
    let mark = mark.filter(|mark| mark.is_of(running));
    Identity {
        boot_count: running.boot_count.max(mark.map_or(0, |mark| mark.boot_count)),
        last_index: running.last_index.max(mark.map_or(0, |mark| mark.last_index)),
        ..running.clone()
    }
}
