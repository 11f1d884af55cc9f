//! What is true about a cluster, in the words of its status.

pub(crate) mod members;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::conditions::{self, ConditionType, Verdict};
use quorate_api::names;
use quorate_api::status::{
    CertificateStatus, ClusterPhase, EtcdClusterStatus, MemberHealth, PendingChange, WorkloadRef,
};
use quorate_api::versions::Version;

use crate::build;
use crate::context::Context;
use crate::object::Kind;
use crate::quorum;
use crate::reason::{Reason, Severity};
use crate::rules::{Note, Plan};
use crate::validate::SpecError;
use crate::view::{SecretsSeen, View};

/// The status after a pass.
pub(crate) fn of(context: &Context<'_>, plan: &Plan, defects: &[SpecError]) -> EtcdClusterStatus {
    let members = members::observe(context);
    let size = context.size();
    let count = |health: MemberHealth| members.iter().filter(|member| member.status == health).count();
    let (ready, silent) = (count(MemberHealth::Ready), count(MemberHealth::Unknown));
    let latch = plan.latch.as_ref().or(context.latch()).cloned();
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
        certificates: certificates(context),
        pending: pending(context, defects),
        ..carried_over(context.view)
    };
    let service = context.view.object(Kind::Service, &names::client_service(context.name));
    let served_before = context.status().and_then(|status| status.phase).is_some_and(|phase| {
        use ClusterPhase::{Degraded, QuorumLost, Running, Unknown};
        matches!(phase, Running | Degraded | QuorumLost | Unknown)
    });
    let health =
        Health { ready, silent, size, formed: context.is_formed(), reachable: service.is_some(), served_before };
    set_phase(&mut status, &health, plan);
    for verdict in verdicts(&health, plan, defects) {
        set(context.view, &mut status, verdict, context.now);
    }
    status
}

/// The status of a cluster whose spec cannot be followed, and never could.
pub(crate) fn invalid(view: &View, defects: &[SpecError], now: Timestamp) -> EtcdClusterStatus {
    let message = defects.iter().map(SpecError::to_string).collect::<Vec<_>>().join("; ");
    let mut status = view.cluster.status.clone().unwrap_or_default();
    status.observed_generation = view.cluster.metadata.generation;
    status.phase = Some(ClusterPhase::Invalid);
    status.reason = Some(Reason::SpecInvalid.to_string());
    status.message = Some(message.clone());
    let degraded = (ConditionType::Degraded, Some(true), Reason::SpecInvalid, message);
    set(view, &mut status, degraded, now);
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
    set(view, &mut status, (ConditionType::Progressing, Some(true), Reason::Deleting, sentence), now);
    status
}

struct Health {
    ready: usize,
    /// Members that may be ready or not: nobody has heard from them.
    silent: usize,
    size: usize,
    /// It has had a quorum.
    formed: bool,
    /// There is a Service through which clients find it.
    reachable: bool,
    /// It has been formed and reachable at some time.
    served_before: bool,
}

impl Health {
    fn is_quorate(&self) -> bool {
        quorum::is_quorate(self.ready, self.size)
    }

    /// Why it is not known to serve, and how many more it takes.
    fn without_quorum(&self) -> (Option<bool>, Reason, String) {
        let Health { ready, silent, size, .. } = *self;
        let needed = quorum::quorum(size);
        if quorum::is_quorate(ready + silent, size) {
            let message =
                format!("{ready} of {size} members are ready and {silent} silent, {needed} are needed to serve");
            return (None, Reason::QuorumUnknown, message);
        }
        (Some(false), Reason::QuorumLost, format!("{ready} of {size} members are ready, {needed} are needed to serve"))
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
    let Health { ready, size, formed, reachable, served_before, .. } = *health;
    let counted = format!("{ready} of {size} members are ready");
    let note = plan.notes.last();
    // A warning says more than the count.
    let warning = plan.notes.iter().find(|note| note.reason.severity() == Severity::Warning);
    let say = |reason: Reason, text: String| match warning {
        Some(Note { reason, detail }) => (*reason, format!("{text}; {detail}")),
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
            _ if health.is_quorate() => {
                (ClusterPhase::Degraded, say(Reason::NotAllMembersReady, format!("{counted}, enough to serve")))
            }
            _ => {
                let (known, reason, message) = health.without_quorum();
                let phase = if known.is_none() { ClusterPhase::Unknown } else { ClusterPhase::QuorumLost };
                (phase, say(reason, message))
            }
        };
        return (phase, reason, message);
    }
    match warning.or(note) {
        Some(Note { reason, detail }) => {
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

fn verdicts(health: &Health, plan: &Plan, defects: &[SpecError]) -> Vec<Judgement> {
    let Health { ready, size, formed, reachable, .. } = *health;
    let counted = format!("{ready} of {size} members are ready");
    let sentence = |reason: Reason| reason.sentence().to_owned();
    let serving = match (size, formed) {
        (0, _) => (Some(false), Reason::NoMembersWanted, sentence(Reason::NoMembersWanted)),
        (_, false) => (Some(false), Reason::NotFormed, sentence(Reason::NotFormed)),
        _ if health.is_quorate() && reachable => (Some(true), Reason::Quorate, counted.clone()),
        _ if health.is_quorate() => (Some(false), Reason::ServiceMissing, sentence(Reason::ServiceMissing)),
        _ => health.without_quorum(),
    };
    let all = if ready == size && size > 0 {
        (Some(true), Reason::AllMembersReady, counted)
    } else {
        (Some(false), Reason::NotAllMembersReady, counted)
    };
    let settled = plan.actions.is_empty() && plan.latch.is_none() && (formed || size == 0);
    let waiting = plan.notes.iter().find(|note| note.reason == Reason::WaitingForOldPods);
    let progressing = if let Some(note) = waiting {
        (Some(true), note.reason, note.detail.clone())
    } else if settled {
        (Some(false), Reason::Settled, sentence(Reason::Settled))
    } else {
        (Some(true), Reason::Working, sentence(Reason::Working))
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
    let judged = |type_: ConditionType, (state, reason, message): (Option<bool>, Reason, String)| {
        (type_, state, reason, message)
    };
    vec![
        judged(ConditionType::Ready, serving),
        judged(ConditionType::AllMembersReady, all),
        judged(ConditionType::BackupReady, (None, Reason::BackupsOff, sentence(Reason::BackupsOff))),
        judged(ConditionType::Progressing, progressing),
        judged(ConditionType::Degraded, degraded),
    ]
}

/// Fields that no pass computes anew.
fn carried_over(view: &View) -> EtcdClusterStatus {
    let before = view.cluster.status.clone().unwrap_or_default();
    EtcdClusterStatus { conditions: before.conditions, backup: before.backup, ..EtcdClusterStatus::default() }
}

fn oldest_version(members: &[quorate_api::status::MemberStatus]) -> Option<String> {
    let versions = members.iter().filter_map(|member| Version::parse(member.version.as_deref()?));
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
fn pending(context: &Context<'_>, defects: &[SpecError]) -> Vec<PendingChange> {
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
