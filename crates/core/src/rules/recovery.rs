//! A quorum that is lost for good: a new incarnation begins from the best copy that is left, and the others join it.
//!
//! The data of so many voters is proven to be gone that the rest is no majority. Then nothing of this incarnation can ever be
//! served again, and three steps lead out of it, each written into the latch before anything may rely on it. The epoch rises:
//! clients are cut off, and every etcd of the epoch before ends. All copies that are left say where their logs end, and the best
//! is chosen: the highest term, then the highest index. It becomes the only member, at a revision that nobody has seen. Whoever is
//! silent is waited for, because its copy may be the best. If the chosen copy turns out to be of no use, all begins again
//! with the next epoch: nobody can tell how far the one before got. What is a copy is said in `copies`, and when somebody has to
//! agree in `consent`.

mod consent;
mod copies;

use std::ops::ControlFlow;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::member::{RecoveredFrom, Ticket};
use quorate_api::names::annotations;
use quorate_api::status::{DataLossStatus, Latch, LatchState, MemberRole, MemberStatus, QuorumRecovery};

use self::consent::Consent;
use super::{Plan, restart, size};
use crate::context::{Context, Member};
use crate::membership::ListAnswer;
use crate::object::{Kind, Object, ObjectKey};
use crate::read::Read;
use crate::reason::Reason;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if context.desired.members.is_zero() {
        return ControlFlow::Continue(());
    }
    let Some(latch) = context.latch() else { return ControlFlow::Continue(()) };
    let next = match (latch.state, &latch.recovery) {
        (LatchState::Formed, _) => begin(context, latch, plan),
        (LatchState::Issued, None) => None,
        (LatchState::Issued, Some(recovery)) => match context.member(recovery.survivor.as_deref()) {
            None => choose(context, latch, recovery, plan),
            Some(survivor) => watch(context, latch, recovery, survivor, plan),
        },
    };
    match next {
        // Whatever else this pass had in mind belongs to what was before.
        Some(next) => {
            plan.latch = Some(next);
            ControlFlow::Break(())
        }
        None => ControlFlow::Continue(()),
    }
}

/// `Formed` to the next epoch, if the quorum is lost for good and somebody wants that.
fn begin(context: &Context<'_>, latch: &Latch, plan: &mut Plan) -> Option<Latch> {
    let lost = context.lost_majority()?;
    let cluster_id = latch.cluster_id.clone()?;
    let gone = lost.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ");
    let consent = Consent::of(context, latch.epoch);
    let named = consent.as_ref().and_then(|consent| consent.copy.clone());
    if !copies::is_any_left(context, latch.epoch, named.as_deref()) {
        note_no_copy_left(context, latch.epoch, &format!("{gone}: "), plan);
        return None;
    }
    plan.note(Reason::MajorityLost, format!("{gone}: {}", Reason::MajorityLost.sentence()));
    if let Some(reason) = consent::is_missing(context, consent.as_ref()) {
        note_consent_missing(context, latch.epoch, &copies::best_known(context, latch.epoch), reason, plan);
        return None;
    }
    // What was said from a pod that is gone says nothing about the volume of the next one.
    let absent = lost.iter().filter(|member| !is_here(member)).copied().collect::<Vec<_>>();
    if !absent.is_empty() && named.is_none() {
        let since = absent.iter().map(|member| member.stuck_since()).max().unwrap_or(context.now);
        note_waiting(context, &absent, since, latch.epoch, plan);
        return None;
    }
    if !is_proven(context, plan) {
        return None;
    }
    let heartbeats = || context.view.heartbeats();
    let reported = context.view.reports().filter_map(|(_, report)| report.data.as_ref()?.revision);
    let recovery = QuorumRecovery {
        epoch: latch.epoch,
        cluster_id,
        since: Time(context.now),
        highest_revision: heartbeats().filter_map(|heartbeat| heartbeat.revision).chain(reported).max().unwrap_or(0),
        last_heard: heartbeats().filter_map(|heartbeat| heartbeat.renewed).max().map(Time),
        named,
        survivor: None,
        given_up: Vec::new(),
    };
    plan.note(Reason::RecoveryBegun, format!("{gone}: {}", Reason::RecoveryBegun.sentence()));
    Some(issued(context, recovery))
}

/// Nobody knows a leader, no quorum answers, and all of it was read just now.
fn is_proven(context: &Context<'_>, plan: &mut Plan) -> bool {
    confirm(context, plan);
    let alive = context.members.iter().filter_map(|member| member.heartbeat.expires);
    let alive = alive.filter(|expires| context.now < *expires).max();
    if let Some(expires) = alive {
        plan.wake_after(expires.duration_since(context.now));
        return false;
    }
    let endpoints = size::endpoints(context, context.members.iter());
    match &context.view.member_list {
        ListAnswer::NotAsked if !endpoints.members.is_empty() => {
            plan.reads.insert(Read::MemberList(endpoints));
            false
        }
        ListAnswer::Answered { .. } => false,
        // Whoever could not be asked cannot object: that nobody knows a leader, the members have said themselves.
        ListAnswer::NotAsked | ListAnswer::Failed | ListAnswer::OutOfReach | ListAnswer::Refused { .. } => true,
    }
}

/// Whether its agent runs on its present volume.
fn is_here(member: &Member<'_>) -> bool {
    member.pod.is_some_and(|pod| pod.terminating.is_none() && pod.starting.is_none())
}

fn note_waiting(context: &Context<'_>, waited_for: &[&Member<'_>], since: Timestamp, epoch: i64, plan: &mut Plan) {
    let left = context.desired.not_ready_grace - context.now.duration_since(since);
    plan.wake_after(left);
    let reason = if left.is_positive() { Reason::WaitingForCopies } else { Reason::CopyOutOfReach };
    let names = waited_for.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ");
    plan.note(reason, format!("{names}: {} ({}={epoch}:MEMBER)", reason.sentence(), annotations::RECOVER_QUORUM));
}

/// Nothing is left that would be used unasked.
fn note_no_copy_left(context: &Context<'_>, epoch: i64, of: &str, plan: &mut Plan) {
    consent::forget(context, plan);
    let reason = Reason::NoCopyLeft;
    let worth_naming = copies::worth_naming(context, epoch).map(|what| {
        format!(
            "; {what}: whoever knows that nothing better comes can name it ({}={epoch}:MEMBER)",
            annotations::RECOVER_QUORUM
        )
    });
    plan.note(reason, format!("{of}{}{}", reason.sentence(), worth_naming.unwrap_or_default()));
}

fn note_consent_missing(context: &Context<'_>, epoch: i64, copy: &str, reason: Reason, plan: &mut Plan) {
    if reason == Reason::CopyCameBack {
        consent::forget(context, plan);
    }
    let command = consent::command(context, epoch);
    plan.note(reason, format!("{copy}: {}; if that is wanted: {command}", reason.sentence()));
}

/// All copies have been looked at: the best of them begins.
fn choose(context: &Context<'_>, latch: &Latch, recovery: &QuorumRecovery, plan: &mut Plan) -> Option<Latch> {
    let consent = Consent::of(context, recovery.epoch);
    // Somebody may name the copy, or another one, while they are waited for.
    let named = consent.as_ref().and_then(|consent| consent.copy.clone());
    if named != recovery.named {
        return Some(Latch { recovery: Some(QuorumRecovery { named, ..recovery.clone() }), ..latch.clone() });
    }
    let is_meant = |member: &&Member<'_>| named.as_ref().is_none_or(|named| member.name == *named);
    let meant = || context.members.iter().filter(is_meant);
    let waited_for = meant().filter(|member| copies::is_waited_for(context, latch, recovery, member));
    let waited_for = waited_for.collect::<Vec<_>>();
    let ends = meant().filter_map(|member| Some((copies::end_of_copy(latch, recovery, member)?, member)));
    let ends = ends.collect::<Vec<_>>();
    let best = copies::best(context, recovery, &ends);
    // A learner alone is not waited for: it would not begin.
    let counts = |member: &&Member<'_>| named.is_some() || copies::has_vote(member);
    if best.is_none() && !waited_for.iter().any(counts) {
        match named {
            Some(named) => {
                let reason = Reason::NamedCopyUnusable;
                plan.note(reason, format!("{named}: {}", reason.sentence()));
            }
            None => note_no_copy_left(context, recovery.epoch, "", plan),
        }
        return None;
    }
    if !waited_for.is_empty() {
        note_waiting(context, &waited_for, latch.since.0, recovery.epoch, plan);
        return None;
    }
    let (end, best) = best?;
    if let Some(reason @ Reason::CopyCameBack) = consent::is_missing(context, consent.as_ref()) {
        note_consent_missing(context, recovery.epoch, &best.name, reason, plan);
        return None;
    }
    confirm(context, plan);
    let detail = format!("{} (term {}, index {})", best.name, end.term, end.index);
    plan.note(Reason::SurvivorChosen, format!("{detail}: {}", Reason::SurvivorChosen.sentence()));
    let recovery = QuorumRecovery { survivor: Some(best.name.clone()), ..recovery.clone() };
    Some(Latch { recovery: Some(recovery), since: Time(context.now), ..latch.clone() })
}

/// The chosen one begins, has begun, or turns out to be of no use.
fn watch(
    context: &Context<'_>,
    latch: &Latch,
    recovery: &QuorumRecovery,
    survivor: &Member<'_>,
    plan: &mut Plan,
) -> Option<Latch> {
    let data = survivor.report.and_then(|report| report.data.as_ref());
    let begun = data.and_then(|data| data.recovered.as_ref()).filter(|from| from.epoch == latch.epoch);
    if let (Some(from), true, Some(cluster_id)) = (begun, survivor.is_running(), survivor.cluster_id()) {
        plan.data_loss = Some(loss(context, recovery, survivor, from));
        plan.sole_member = Some(as_sole_member(survivor));
        let (cluster_id, formed) = (Some(cluster_id.to_owned()), LatchState::Formed);
        plan.note(Reason::QuorumRecovered, format!("{}: {}", survivor.name, Reason::QuorumRecovered.sentence()));
        return Some(Latch { cluster_id, ..Latch::new(formed, latch.epoch, Time(context.now)) });
    }
    if copies::has_heard(latch, survivor) && copies::is_of_no_use(context, latch, recovery, survivor) {
        confirm(context, plan);
        let why = survivor.data_reason().unwrap_or("its data is gone");
        plan.note(
            Reason::RecoveryBegun,
            format!("{} cannot be used ({why}); the copies are compared again", survivor.name),
        );
        return Some(issued(context, without(recovery, survivor)));
    }
    let named = Consent::of(context, recovery.epoch).and_then(|consent| consent.copy);
    if named.as_ref().is_some_and(|named| *named != survivor.name) {
        confirm(context, plan);
        plan.note(Reason::RecoveryBegun, format!("{} is given up for another copy, which was named", survivor.name));
        return Some(issued(context, QuorumRecovery { named, ..without(recovery, survivor) }));
    }
    // One that is busy may take long, and one that says why it cannot go on needs somebody.
    let patience = if is_busy(survivor) { LONGEST_WORK } else { context.desired.not_ready_grace };
    let left = patience.max(context.desired.not_ready_grace) - context.now.duration_since(latch.since.0);
    if left.is_positive() {
        let busy = survivor.progress().map(|progress| format!(" ({progress})")).unwrap_or_default();
        plan.wake_after(left);
        plan.note(Reason::SurvivorBegins, format!("{}: {}{busy}", survivor.name, Reason::SurvivorBegins.sentence()));
    } else {
        let (reason, why) = (Reason::SurvivorStuck, survivor.progress().or(survivor.data_reason()).unwrap_or("silent"));
        let command = format!("{}={}:MEMBER", annotations::RECOVER_QUORUM, recovery.epoch);
        plan.note(reason, format!("{} ({why}): {} ({command})", survivor.name, reason.sentence()));
    }
    None
}

/// What an agent says while it makes a new incarnation of a copy.
const WORK: [&str; 4] = ["checking the last copy", "replaying the log", "writing the new", "putting the new"];
/// The largest databases are read, applied and written by then. A disk that hangs says the same for ever.
const LONGEST_WORK: SignedDuration = SignedDuration::from_mins(45);

/// Whether it says that it is at work, and from a pod that is there.
fn is_busy(survivor: &Member<'_>) -> bool {
    is_here(survivor) && survivor.progress().is_some_and(|progress| WORK.iter().any(|work| progress.starts_with(work)))
}

/// Nobody can tell how far it got, so another is tried first.
fn without(recovery: &QuorumRecovery, survivor: &Member<'_>) -> QuorumRecovery {
    let others = recovery.given_up.iter().filter(|name| **name != survivor.name).cloned();
    let given_up = others.chain([survivor.name.clone()]).collect();
    QuorumRecovery { survivor: None, given_up, ..recovery.clone() }
}

/// What may be missing. A loss before this one that nobody has acknowledged is part of it.
fn loss(
    context: &Context<'_>,
    recovery: &QuorumRecovery,
    survivor: &Member<'_>,
    from: &RecoveredFrom,
) -> DataLossStatus {
    let loss = DataLossStatus {
        epoch: from.epoch,
        time: recovery.since.clone(),
        from: survivor.name.clone(),
        revision: from.revision,
        highest_known_revision: recovery.highest_revision.max(from.revision),
        last_heard: recovery.last_heard.clone(),
        raised_to: from.raised_to,
    };
    let Some(before) = context.status().and_then(|status| status.data_loss.clone()) else { return loss };
    DataLossStatus {
        time: Time(before.time.0.min(loss.time.0)),
        revision: before.revision.min(loss.revision),
        highest_known_revision: before.highest_known_revision.max(loss.highest_known_revision),
        last_heard: before.last_heard.or(loss.last_heard),
        ..loss
    }
}

/// Who else was a member is none of the new incarnation. Remembered as one, it would be missed for its quorum.
fn as_sole_member(survivor: &Member<'_>) -> MemberStatus {
    MemberStatus {
        id: survivor.recorded_id().map(str::to_owned),
        role: survivor.status.role.filter(|role| *role != MemberRole::Learner),
        ..survivor.status.clone()
    }
}

/// All that is decided by was read just now.
fn confirm(context: &Context<'_>, plan: &mut Plan) {
    restart::confirm_all(context, plan);
    let records = context.members.iter().map(|member| ObjectKey::new(Kind::EtcdMember, member.name.clone()));
    plan.reads.extend(records.map(Read::Object));
}

/// What may have been lost when an adopted incarnation began, as the member knows that it began from: the status that said so
/// is gone.
pub(super) fn loss_of_adopted(context: &Context<'_>, epoch: i64) -> Option<DataLossStatus> {
    context.view.reports().find_map(|(name, report)| {
        let from = report.data.as_ref()?.recovered.as_ref().filter(|from| from.epoch == epoch)?;
        Some(DataLossStatus {
            epoch,
            time: Time(context.now),
            from: name.to_owned(),
            revision: from.revision,
            highest_known_revision: from.revision,
            last_heard: None,
            raised_to: from.raised_to,
        })
    })
}

/// The ticket of a member while a new incarnation begins. What was given is kept: once it has begun, its report is about that.
pub(super) fn ticket(context: &Context<'_>, latch: &Latch, member: &Member<'_>) -> Option<Ticket> {
    let recovery = latch.recovery.as_ref().filter(|_| latch.state == LatchState::Issued)?;
    let resume = Ticket::Resume { epoch: latch.epoch };
    if recovery.survivor.as_ref() != Some(&member.name) {
        return Some(resume);
    }
    if let Some(given @ Ticket::Recover { epoch, .. }) = member.ticket
        && *epoch == latch.epoch
    {
        return Some(given.clone());
    }
    let data = member.report.and_then(|report| report.data.as_ref());
    let Some(member_id) =
        data.filter(|data| data.epoch == Some(recovery.epoch)).and_then(|data| data.member_id.clone())
    else {
        return Some(resume);
    };
    Some(Ticket::Recover {
        epoch: latch.epoch,
        token: super::tickets::token(context, latch.epoch),
        initial_cluster: vec![super::tickets::peer(context, &member.name)],
        cluster_id: recovery.cluster_id.clone(),
        member_id,
        raise_to: recovery.highest_revision.saturating_add(BEYOND),
        even_if_fenced: recovery.named.as_ref() == Some(&member.name),
    })
}

/// More writes than a cluster acknowledges between the last time that a member said how far it is and its end.
const BEYOND: i64 = 1_000_000_000;

/// The next epoch that nobody has ever heard of, whatever became of the status meanwhile.
fn issued(context: &Context<'_>, recovery: QuorumRecovery) -> Latch {
    let told = context.view.objects.values().filter_map(|object| match object {
        Object::EtcdMember(member) => {
            let reported = member.status.as_ref().and_then(|status| status.data.as_ref()?.epoch);
            reported.max(member.spec.ticket.epoch())
        }
        _ => None,
    });
    let last = told.chain(context.latch().map(|latch| latch.epoch)).max().unwrap_or_default();
    Latch { recovery: Some(recovery), ..Latch::new(LatchState::Issued, last + 1, Time(context.now)) }
}
