//! What is true about a cluster, in the words of its status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::conditions::{self, ConditionType, Verdict};
use quorate_api::names::{self, annotations};
use quorate_api::status::{
    CertificateStatus, ClusterPhase, CopiesLost, DataLossStatus, EtcdClusterStatus, LostNode, MemberHealth,
    MemberReason, MemberRole, MemberStatus, PendingChange, WorkloadRef,
};
use quorate_api::versions;

use crate::build;
use crate::context::{Context, Member};
use crate::object::Kind;
use crate::quorum;
use crate::reason::{Reason, Severity};
use crate::rules::{Note, Plan};
use crate::scaling;
use crate::strangers::Stranger;
use crate::validate::SpecError;
use crate::view::{SecretsSeen, View};
use crate::waking;

/// Followed by itself, so that nobody has to act.
const REPLICAS: &str = "spec.replicas";

/// The status after a pass.
pub(crate) fn of(context: &Context<'_>, plan: &Plan, defects: &[SpecError]) -> EtcdClusterStatus {
    let members = if context.desired.members.is_zero() {
        asleep(context)
    } else if let Some(alone) = &plan.sole_member {
        vec![alone.clone()]
    } else {
        context.members.iter().map(|member| told(plan, member)).collect()
    };
    let (size, ready) = (context.size(), context.ready_voters());
    let is_silent = |member: &&Member<'_>| member.status.status == MemberHealth::Unknown && member.seat.is_voter();
    let silent = context.members.iter().filter(is_silent).count();
    let latch = plan.latch.as_ref().or(context.latch()).cloned();
    let recovering = context.is_recovering() || latch.as_ref().is_some_and(|latch| latch.recovery.is_some());
    let mut status = EtcdClusterStatus {
        observed_generation: context.view.cluster.metadata.generation,
        epoch: latch.as_ref().map(|latch| latch.epoch),
        cluster_id: latch.as_ref().and_then(|latch| latch.cluster_id.clone()),
        latch,
        cluster_version: oldest_version(&members),
        cluster_size: i32::try_from(size).ok(),
        replicas: i32::try_from(context.view.pods.len()).unwrap_or(i32::MAX),
        ready_replicas: i32::try_from(ready).unwrap_or(i32::MAX),
        members_ready: Some(format!("{ready}/{size}")),
        selector: Some(build::selector_text(context)),
        etcd: Some(WorkloadRef {
            api_version: "apps/v1".to_owned(),
            kind: "StatefulSet".to_owned(),
            name: names::stateful_set(context.name),
        }),
        members,
        foreign_voters: context.membership.foreign_voters.clone(),
        lost_nodes: context.losses.iter().map(LostNode::from).collect(),
        strangers: context.strangers.iter().map(Stranger::status).collect(),
        certificates: certificates(context),
        pending: pending(context, plan, defects),
        scaling: scaling::of(context),
        etcd_out_of_reach_since: plan.out_of_reach_since.clone(),
        consistency: plan.consistency.clone().or_else(|| context.status()?.consistency.clone()),
        data_loss: data_loss(context, plan),
        copies_lost: copies_lost(context, plan),
        ..carried_over(context.view)
    };
    let service = context.view.object(Kind::Service, &names::client_service(context.name));
    let served_before = context.status().and_then(|status| status.phase).is_some_and(|phase| {
        use ClusterPhase::{Degraded, QuorumLost, Recovering, Running, Unknown, Waking};
        matches!(phase, Running | Degraded | QuorumLost | Recovering | Unknown | Waking)
    });
    let is_promoted = |member: &&Member<'_>| member.status.reason == MemberReason::Learning && member.seat.is_voter();
    let health = Health {
        ready,
        promoted: context.members.iter().filter(is_promoted).count(),
        wished: usize::try_from(context.desired.members.get()).unwrap_or_default(),
        silent,
        size,
        waiting: waiting(&status.members),
        stage: match recovering {
            true => Stage::Recovering,
            false if context.is_formed() => Stage::Formed,
            false => Stage::Forming,
        },
        without_quorum: if waking::is_waking(context) { Reason::Waking } else { Reason::QuorumLost },
        reachable: service.is_some_and(|service| !build::is_cut_off(service)),
        served_before,
    };
    set_phase(&mut status, &health, plan);
    for verdict in verdicts(&health, plan, defects, &status.pending) {
        set(context.view, &mut status, verdict, context.now);
    }
    if let Some(verdict) = data_loss_verdict(&status) {
        set(context.view, &mut status, verdict, context.now);
    }
    status
}

/// What may have been lost, until somebody has acknowledged it.
fn data_loss(context: &Context<'_>, plan: &Plan) -> Option<DataLossStatus> {
    let said = context.view.cluster.metadata.annotations.as_ref();
    let said = said.and_then(|all| all.get(annotations::ACKNOWLEDGE_DATA_LOSS)?.trim().parse::<i64>().ok());
    let known = plan.data_loss.clone().or_else(|| context.status()?.data_loss.clone());
    known.filter(|loss| said != Some(loss.epoch))
}

/// That all copies were lost, until a quorum serves again or has just been recovered.
fn copies_lost(context: &Context<'_>, plan: &Plan) -> Option<CopiesLost> {
    let is_over = plan.data_loss.is_some() || (context.is_formed() && context.is_quorate());
    let known = || context.status()?.copies_lost.clone().filter(|_| !is_over);
    plan.copies_lost.clone().or_else(known)
}

/// Nothing for a cluster that has never lost anything.
fn data_loss_verdict(status: &EtcdClusterStatus) -> Option<Judgement> {
    let type_ = ConditionType::DataLoss;
    if let Some(DataLossStatus { epoch, time, from, revision, highest_known_revision, last_heard, .. }) =
        &status.data_loss
    {
        let known = match highest_known_revision - revision {
            0 => "no later one is known".to_owned(),
            missing => format!("{missing} more were known, up to {highest_known_revision}"),
        };
        let heard =
            last_heard.as_ref().map(|heard| format!("; what was acknowledged after {} may be missing too", heard.0));
        let message = format!(
            "at {} the quorum was lost for good and recovered from {from} with all that it had, up to revision {revision}; \
             {known}{}; to acknowledge: {}={epoch}",
            time.0,
            heard.unwrap_or_default(),
            annotations::ACKNOWLEDGE_DATA_LOSS
        );
        return Some((type_, Some(true), Reason::DataLost, message));
    }
    conditions::find(&status.conditions, type_)?;
    let reason = Reason::DataLossAcknowledged;
    Some((type_, Some(false), reason, reason.sentence().to_owned()))
}

/// That a member is restarted is remembered from before it happens, so that the next restart waits longer.
fn told(plan: &Plan, member: &Member<'_>) -> MemberStatus {
    let is_restarted = plan.restarted.as_deref() == Some(&member.name);
    let troubled_since =
        if is_restarted { Some(Time(member.troubled_since())) } else { member.status.troubled_since.clone() };
    MemberStatus { troubled_since, ..member.status.clone() }
}

/// The members of a hibernated cluster, as they were last known: nobody else knows whom to wake.
fn asleep(context: &Context<'_>) -> Vec<MemberStatus> {
    let known = context.status().map(|status| status.members.clone()).unwrap_or_default();
    let asleep = known.into_iter().map(|member| {
        let since = match member.status {
            MemberHealth::NotReady => member.last_transition_time,
            MemberHealth::Ready | MemberHealth::Unknown => Time(context.now),
        };
        MemberStatus {
            role: member.role.filter(|role| *role == MemberRole::Learner),
            status: MemberHealth::NotReady,
            reason: MemberReason::PodNotReady,
            message: None,
            last_transition_time: since,
            ..member
        }
    });
    asleep.collect()
}

/// The status of a cluster whose spec cannot be followed, and never could.
pub(crate) fn invalid(view: &View, defects: &[SpecError], now: Timestamp) -> EtcdClusterStatus {
    let message = defects.iter().map(SpecError::to_string).collect::<Vec<_>>().join("; ");
    let mut status = view.cluster.status.clone().unwrap_or_default();
    status.observed_generation = view.cluster.metadata.generation;
    status.phase = Some(ClusterPhase::Invalid);
    status.reason = Some(Reason::SpecInvalid.to_string());
    status.message = Some(message.clone());
    for type_ in [ConditionType::Degraded, ConditionType::Stalled] {
        set(view, &mut status, (type_, Some(true), Reason::SpecInvalid, message.clone()), now);
    }
    // Nobody looks at the members of a cluster that was formed any more, so what they said last is not the truth.
    let ready = match status.latch {
        Some(_) => (ConditionType::Ready, None, Reason::SpecInvalid, Reason::SpecInvalid.sentence().to_owned()),
        None => (ConditionType::Ready, Some(false), Reason::NotFormed, Reason::NotFormed.sentence().to_owned()),
    };
    set(view, &mut status, ready, now);
    status
}

/// The status of a cluster that is being deleted.
pub(crate) fn deleting(view: &View, now: Timestamp) -> EtcdClusterStatus {
    let mut status = view.cluster.status.clone().unwrap_or_default();
    status.phase = Some(ClusterPhase::Deleting);
    status.reason = Some(Reason::Deleting.to_string());
    status.message = Some(Reason::Deleting.sentence().to_owned());
    let sentence = Reason::Deleting.sentence().to_owned();
    for type_ in [ConditionType::Progressing, ConditionType::Reconciling] {
        set(view, &mut status, (type_, Some(true), Reason::Deleting, sentence.clone()), now);
    }
    // Its members go, and nobody counts those that are left.
    for type_ in [ConditionType::Ready, ConditionType::AllMembersReady] {
        set(view, &mut status, (type_, Some(false), Reason::Deleting, sentence.clone()), now);
    }
    status
}

/// As the continuation of a sentence.
fn waiting(members: &[MemberStatus]) -> String {
    members.iter().filter_map(|member| Some(format!("; {}: {}", member.name, member.message.as_ref()?))).collect()
}

struct Health {
    ready: usize,
    /// Members that have just got their vote and use it, though no client is led to them yet.
    promoted: usize,
    /// As many as there are to be.
    wished: usize,
    /// Members that may be ready or not: nobody has heard from them.
    silent: usize,
    size: usize,
    /// What those wait for that are not ready, as far as it is known.
    waiting: String,
    stage: Stage,
    /// What it means that there is none now: it was lost or, while the cluster wakes, it is not there yet.
    without_quorum: Reason,
    /// There is a Service through which clients find it.
    reachable: bool,
    /// It has been formed and reachable at some time.
    served_before: bool,
}

/// Where the present incarnation is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Forming,
    /// It has had a quorum.
    Formed,
    /// The one before has lost its quorum for good, and this one is about to begin.
    Recovering,
}

impl Health {
    fn is_formed(&self) -> bool {
        self.stage == Stage::Formed
    }

    fn is_quorate(&self) -> bool {
        quorum::is_quorate(self.ready + self.promoted, self.size)
    }

    fn is_waking(&self) -> bool {
        self.without_quorum == Reason::Waking && !self.is_quorate()
    }

    /// Why it is not known to serve, and how many more it takes.
    fn without_quorum(&self) -> (Option<bool>, Reason, String) {
        let Health { ready, silent, size, ref waiting, .. } = *self;
        let needed = quorum::quorum(size);
        if quorum::is_quorate(ready + silent, size) {
            let message = format!(
                "{ready} of {size} members are ready and {silent} silent, {needed} are needed to serve{waiting}"
            );
            return (None, Reason::QuorumUnknown, message);
        }
        let message = format!("{ready} of {size} members are ready, {needed} are needed to serve{waiting}");
        (Some(false), self.without_quorum, message)
    }
}

type Judgement = (ConditionType, Option<bool>, Reason, String);

fn set(view: &View, status: &mut EtcdClusterStatus, (type_, state, reason, message): Judgement, now: Timestamp) {
    let observed_generation = view.cluster.metadata.generation;
    let verdict = Verdict { type_, status: state, reason: reason.as_str(), message, observed_generation };
    conditions::set(&mut status.conditions, verdict, now);
}

fn set_phase(status: &mut EtcdClusterStatus, health: &Health, plan: &Plan) {
    let (phase, reason, message) = phase(health, plan);
    status.phase = Some(phase);
    status.reason = Some(reason.to_string());
    status.message = Some(message);
}

fn phase(health: &Health, plan: &Plan) -> (ClusterPhase, Reason, String) {
    let Health { ready, size, reachable, served_before, ref waiting, .. } = *health;
    let formed = health.is_formed();
    let counted = format!("{ready} of {size} members are ready");
    let note = plan.notes.last();
    // A warning says more than the count.
    let warning = plan.notes.iter().find(|note| note.reason.severity() == Severity::Warning);
    let say = |reason: Reason, text: String| match warning {
        Some(Note { reason, detail, .. }) => (*reason, format!("{text}; {detail}")),
        None => (reason, text),
    };
    if size == 0 {
        return (ClusterPhase::Hibernated, Reason::NoMembersWanted, Reason::NoMembersWanted.sentence().to_owned());
    }
    if formed && !reachable && health.is_quorate() {
        let phase = if served_before { ClusterPhase::Degraded } else { ClusterPhase::Forming };
        let (reason, message) = say(Reason::ServiceMissing, Reason::ServiceMissing.sentence().to_owned());
        return (phase, reason, message);
    }
    if formed {
        let (phase, (reason, message)) = match ready {
            all if all == size => {
                (ClusterPhase::Running, say(Reason::AllMembersReady, format!("all {size} members are ready")))
            }
            _ if health.is_quorate() => (
                ClusterPhase::Degraded,
                say(Reason::NotAllMembersReady, format!("{counted}, enough to serve{waiting}")),
            ),
            _ => {
                let (known, reason, message) = health.without_quorum();
                let phase = match known {
                    None => ClusterPhase::Unknown,
                    Some(_) if health.is_waking() => ClusterPhase::Waking,
                    Some(_) => ClusterPhase::QuorumLost,
                };
                (phase, say(reason, message))
            }
        };
        return (phase, reason, message);
    }
    if health.stage == Stage::Recovering {
        let (reason, message) = say(Reason::RecoveryBegun, Reason::RecoveryBegun.sentence().to_owned());
        let message = note.map_or(message, |note| note.detail.clone());
        return (ClusterPhase::Recovering, note.map_or(reason, |note| note.reason), message);
    }
    match warning.or(note) {
        Some(Note { reason, detail, .. }) => {
            let forming = [
                Reason::WaitingForMembers,
                Reason::BootstrapClosed,
                Reason::Formed,
                Reason::BootstrapIssued,
                Reason::Adopted,
            ];
            let phase = if forming.contains(reason) { ClusterPhase::Forming } else { ClusterPhase::Creating };
            (phase, *reason, detail.clone())
        }
        None => (ClusterPhase::Creating, Reason::NotFormed, Reason::NotFormed.sentence().to_owned()),
    }
}

fn verdicts(health: &Health, plan: &Plan, defects: &[SpecError], pending: &[PendingChange]) -> Vec<Judgement> {
    let Health { ready, size, reachable, ref waiting, .. } = *health;
    let formed = health.is_formed();
    let counted = format!("{ready} of {size} members are ready{waiting}");
    let sentence = |reason: Reason| reason.sentence().to_owned();
    let serving = match (size, formed) {
        (0, _) => (Some(false), Reason::NoMembersWanted, sentence(Reason::NoMembersWanted)),
        (_, false) if health.stage == Stage::Recovering => {
            (Some(false), Reason::QuorumLost, sentence(Reason::RecoveryBegun))
        }
        (_, false) => (Some(false), Reason::NotFormed, sentence(Reason::NotFormed)),
        // They agree with each other about that, and about nothing else.
        _ if health.is_quorate() && plan.has_note(Reason::MemberCorrupt) => {
            (Some(false), Reason::MemberCorrupt, sentence(Reason::MemberCorrupt))
        }
        _ if health.is_quorate() && reachable => (Some(true), Reason::Quorate, counted.clone()),
        _ if health.is_quorate() => (Some(false), Reason::ServiceMissing, sentence(Reason::ServiceMissing)),
        _ => health.without_quorum(),
    };
    let all = if ready == size && size > 0 && (size == health.wished || !formed) {
        (Some(true), Reason::AllMembersReady, counted)
    } else if ready == size && size > 0 {
        (Some(false), Reason::Scaling, format!("{counted}, {} are wished for", health.wished))
    } else {
        (Some(false), Reason::NotAllMembersReady, counted)
    };
    let settled = plan.actions.is_empty() && plan.latch.is_none() && (formed || size == 0);
    let waits = |note: &&Note| {
        use Reason as R;
        matches!(
            note.reason,
            R::WaitingForOldPods
                | R::WaitingForMemberList
                | R::EtcdOutOfReach
                | R::EtcdRightsMissing
                | R::MemberCatchingUp
                | R::MemberJoining
                | R::MemberNotAskedFor
                | R::ForeignVoter
                | R::ForeignLearner
                | R::WaitingForPod
                | R::WaitingForReadyMembers
                | R::WaitingForQuorum
                | R::WaitingForCopies
                | R::SurvivorBegins
        )
    };
    let progressing = if health.is_waking() {
        (Some(true), Reason::Waking, sentence(Reason::Waking))
    } else if let Some(note) = plan.notes.iter().find(waits) {
        (Some(true), note.reason, note.detail.clone())
    } else if let Some(note) = plan.notes.iter().find(|note| note.reason == Reason::Scaling) {
        (Some(true), note.reason, note.detail.clone())
    } else if !settled {
        (Some(true), Reason::Working, sentence(Reason::Working))
    } else if health.promoted > 0 {
        (Some(true), Reason::MemberJoining, sentence(Reason::MemberJoining))
    } else if formed && plan.tickets.keys().any(|member| plan.may_begin(member)) {
        (Some(true), Reason::WaitingForMembers, format!("{}{waiting}", Reason::WaitingForMembers.sentence()))
    } else if !pending.is_empty() {
        (Some(true), Reason::RolloutPending, sentence(Reason::RolloutPending))
    } else {
        (Some(false), Reason::Settled, sentence(Reason::Settled))
    };
    let warnings = plan.notes.iter().filter(|note| note.reason.severity() == Severity::Warning).collect::<Vec<_>>();
    let degraded = match (defects.first(), warnings.first()) {
        (Some(_), _) => {
            let unsupported = defects.iter().all(|defect| matches!(defect, SpecError::NotYet { .. }));
            let reason = if unsupported { Reason::ChangeNotSupportedYet } else { Reason::SpecInvalid };
            let said = defects.iter().map(SpecError::to_string).chain(warnings.iter().map(|note| note.detail.clone()));
            (Some(true), reason, said.collect::<Vec<_>>().join("; "))
        }
        (None, Some(first)) => {
            let said = warnings.iter().map(|note| note.detail.as_str()).collect::<Vec<_>>();
            (Some(true), first.reason, said.join("; "))
        }
        (None, None) => (Some(false), Reason::AsExpected, sentence(Reason::AsExpected)),
    };
    let stalled = stalled(plan, defects, pending, &degraded);
    let judged = |type_: ConditionType, (state, reason, message): Finding| (type_, state, reason, message);
    vec![
        judged(ConditionType::Ready, serving),
        judged(ConditionType::AllMembersReady, all),
        judged(ConditionType::BackupReady, (None, Reason::BackupsOff, sentence(Reason::BackupsOff))),
        judged(ConditionType::Reconciling, progressing.clone()),
        judged(ConditionType::Progressing, progressing),
        judged(ConditionType::Degraded, degraded),
        judged(ConditionType::Stalled, stalled),
    ]
}

/// A state, why, and in words.
type Finding = (Option<bool>, Reason, String);

/// Whether nothing goes on until a human acts, and what that human should read.
fn stalled(plan: &Plan, defects: &[SpecError], pending: &[PendingChange], degraded: &Finding) -> Finding {
    if !defects.is_empty() {
        return degraded.clone();
    }
    if let Some(note) = plan.notes.iter().find(|note| note.reason.needs_human() && !note.passing) {
        return (Some(true), note.reason, note.detail.clone());
    }
    match pending.first() {
        Some(_) if plan.has_note(Reason::Paused) => (Some(true), Reason::Paused, Reason::Paused.sentence().to_owned()),
        // Nobody replaces pods by itself yet.
        Some(change) if change.field != REPLICAS => (Some(true), Reason::RolloutPending, change.reason.clone()),
        _ => (Some(false), Reason::AsExpected, Reason::AsExpected.sentence().to_owned()),
    }
}

/// Fields that no pass computes anew.
fn carried_over(view: &View) -> EtcdClusterStatus {
    let before = view.cluster.status.clone().unwrap_or_default();
    EtcdClusterStatus { conditions: before.conditions, backup: before.backup, ..EtcdClusterStatus::default() }
}

fn oldest_version(members: &[MemberStatus]) -> Option<String> {
    let versions = members.iter().filter_map(|member| versions::release(member.version.as_deref()?));
    versions.min().map(|version| version.to_string())
}

fn certificates(context: &Context<'_>) -> Option<CertificateStatus> {
    if context.view.secrets != SecretsSeen::Read {
        return context.status()?.certificates.clone();
    }
    let first_end = context.view.certificates.values().filter_map(|fact| fact.not_after).min()?;
    Some(CertificateStatus { not_after: Time(first_end) })
}

/// What the spec says and the cluster does not do yet.
fn pending(context: &Context<'_>, plan: &Plan, defects: &[SpecError]) -> Vec<PendingChange> {
    let mut pending = Vec::<PendingChange>::new();
    // Fields are the keys of the list: a second entry of the same field would make the whole status unwritable.
    for defect in defects {
        match pending.iter_mut().find(|change| change.field == defect.field()) {
            Some(change) => change.reason = format!("{defect}; {}", change.reason),
            None => pending.push(PendingChange {
                field: defect.field().to_owned(),
                reason: format!("{defect}; the previous value stays in effect"),
            }),
        }
    }
    let field = REPLICAS.to_owned();
    let differs = plan.notes.iter().find(|note| note.reason == Reason::Scaling);
    if let Some(note) = differs.filter(|_| !pending.iter().any(|change| change.field == field)) {
        pending.push(PendingChange { field, reason: note.detail.clone() });
    }
    pending.extend(rollout(context));
    pending
}

/// Members whose pods are older than the present template.
fn rollout(context: &Context<'_>) -> Option<PendingChange> {
    let set = context.view.stateful_set(&names::stateful_set(context.name))?;
    let newest = set.status.as_ref()?.update_revision.as_deref()?;
    let old = context
        .members
        .iter()
        .filter(|member| member.pod.and_then(|pod| pod.revision.as_deref()).is_some_and(|revision| revision != newest));
    let names = old.map(|member| member.name.as_str()).collect::<Vec<_>>();
    (!names.is_empty()).then(|| PendingChange {
        field: "spec".to_owned(),
        reason: format!(
            "{} take the new settings when their pods are replaced; delete them one at a time",
            names.join(", ")
        ),
    })
}
