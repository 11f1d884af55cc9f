//! The members' data is compared now and then, and a member that differs is fenced.
//!
//! etcd checks itself when it starts and when it compacts; this is the look from outside. A difference is believed when it
//! was seen twice in a row. Then, if a majority of all voters agrees, whoever has other data is kept from running: one
//! member at a time, and only if the others are a quorum without it. Without a majority nobody can tell who is right, and
//! nobody is stopped. What came of it is in the status, so that schedule and suspicion survive the operator.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::member::{DataState, Ticket};
use quorate_api::names::annotations;
use quorate_api::status::{ComparisonFailure, ConsistencyStatus, DifferingMember};

use super::{Plan, access, corruption, renewal, restart, size};
use crate::context::{Context, Member};
use crate::gate;
use crate::hashes::{self, Comparison, DataHash, Found, HashAnswer};
use crate::read::Read;
use crate::reason::Reason;

const PERIOD: SignedDuration = SignedDuration::from_hours(6);
/// How soon it is asked again what has come of a comparison that takes its time.
const UNTIL_TOLD: SignedDuration = SignedDuration::from_secs(1);
/// A difference is looked at again after this time before it is believed.
const SECOND_LOOK: SignedDuration = SignedDuration::from_secs(10);
/// How soon a comparison that came to nothing is tried again, and a known difference is looked at. Later if that goes on.
const RETRY: SignedDuration = SignedDuration::from_mins(10);
/// A member is fenced on what was found within this time, and no later: a leader may have sent it all data anew since.
const FRESH: SignedDuration = SignedDuration::from_mins(1);
/// Each cluster has some minutes of every hour for itself, so that a thousand that are due at once do not ask at once.
const OWN_SECONDS: i64 = 600;
const HOUR: i64 = 3600;
/// How often in a row a difference must be seen.
pub(crate) const BELIEVED: i32 = 2;
/// As much of the value of an annotation as is remembered.
const LONGEST_REQUEST: usize = 64;

/// Asks for a comparison when one is due, and writes down what came of it.
pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    let voters = context.size();
    // Whatever else is being done may be what keeps members from answering alike.
    if !context.is_formed() || voters < 2 || !plan.actions.is_empty() {
        return ControlFlow::Continue(());
    }
    let due = due(context, known(context));
    plan.consistency = known(context).and_then(|known| without_old_alarms(context, known));
    if due > context.now {
        plan.wake_after(due.duration_since(context.now));
        return ControlFlow::Continue(());
    }
    let came_of_it = match &context.view.hashes {
        HashAnswer::NotAsked => {
            // One that is away is not compared, and two of three alone prove nothing.
            // One of which etcd itself says that it is corrupt is not needed for it.
            let excused = corruption::voters(context).into_iter().filter(|member| !member.is_ready()).count();
            if context.ready_voters() + excused == voters {
                let members = context.members.iter().filter(|member| member.seat.is_voter());
                plan.reads.insert(Read::Hashes(size::endpoints(context, members)));
            }
            return ControlFlow::Continue(());
        }
        HashAnswer::Pending => {
            plan.wake_after(UNTIL_TOLD);
            return ControlFlow::Continue(());
        }
        HashAnswer::Failed(cause) => failed(context, cause.clone()),
        HashAnswer::Refused(cause) => refused(context, cause),
        HashAnswer::Answered(answers) => compared(context, answers),
    };
    plan.wake_after(self::due(context, Some(&came_of_it)).duration_since(context.now));
    plan.consistency = Some(came_of_it);
    ControlFlow::Continue(())
}

/// An alarm that is raised again after it was disarmed is news.
fn without_old_alarms(context: &Context<'_>, known: &ConsistencyStatus) -> Option<ConsistencyStatus> {
    let (alarmed, raised) = (known.alarmed.iter().cloned(), corruption::ids(context));
    let alarmed = alarmed.filter(|id| raised.contains(id)).collect::<Vec<_>>();
    (alarmed != known.alarmed).then(|| ConsistencyStatus { alarmed, ..known.clone() })
}

/// Says what is known. Also while the cluster is paused.
pub(super) fn note(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    let Some(known) = known(context).filter(|_| context.is_formed()) else { return ControlFlow::Continue(()) };
    if let Some(failure) = known.failure.as_ref().filter(|failure| failure.refused) {
        access::note_refusal(context, plan, "compare the members' data", &failure.reason);
    }
    // Of a member that is fenced its own report says more.
    let is_said = |member: &Member<'_>| member.data_state() == Some(DataState::Fenced);
    let believed = context.members.iter().filter(|member| is_believed(member, known) && !is_said(member));
    let (trusted, believed): (Vec<_>, Vec<_>) = believed.partition(|member| is_trusted_by_owner(context, member));
    let reason = if known.undecided { Reason::MembersDiffer } else { Reason::MemberDiverged };
    for (reason, members) in [(reason, believed), (Reason::MemberTrusted, trusted)] {
        if !members.is_empty() {
            let names = members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ");
            plan.note(reason, format!("{names}: {}", reason.sentence()));
        }
    }
    ControlFlow::Continue(())
}

/// The ticket that keeps a member from running, if it must not. One that was given stays for as long as nobody says that it
/// is another member by now, whatever becomes of the status; so does a fence that its volume brings along.
pub(super) fn fence(context: &Context<'_>, member: &Member<'_>, plan: &mut Plan) -> Option<Ticket> {
    // What is known is of whoever was here before.
    if member.seat.newcomer().is_some_and(|id| member.recorded_id() != Some(id)) {
        return None;
    }
    let latch = context.latch();
    let is_present = |epoch: Option<i64>| latch.is_none_or(|latch| epoch == Some(latch.epoch));
    if let Some((given, id)) = fence_of(member).filter(|(given, _)| is_present(given.epoch())) {
        return (!is_trusted(context, id)).then(|| given.clone());
    }
    let id = identifier(member).filter(|id| !is_trusted(context, id))?;
    let data = member.report.and_then(|report| report.data.as_ref());
    let brought = data.filter(|data| data.diverged && data.state == DataState::Fenced && is_present(data.epoch));
    if let Some(epoch) = brought.and_then(|data| data.epoch) {
        return Some(ticket(epoch, id));
    }
    let found = known(context).filter(|known| !known.undecided && is_believed(member, known))?;
    let epoch = latch.filter(|_| context.is_formed())?.epoch;
    if is_fresh(context, found) && may_fence(context, member, plan) {
        return Some(ticket(epoch, id));
    }
    // Its record was lost, and with it whether it was fenced. A ticket to resume would open that fence.
    let reason = Reason::MemberDiverged.sentence().to_owned();
    member.report.is_none().then_some(Ticket::Hold { reason, epoch: Some(epoch) })
}

fn is_fresh(context: &Context<'_>, found: &ConsistencyStatus) -> bool {
    found.last_compared.as_ref().is_some_and(|last| context.now.duration_since(last.0) < FRESH)
}

fn ticket(epoch: i64, member_id: &str) -> Ticket {
    let reason = Reason::FenceOrdered.sentence().to_owned();
    Ticket::Fence { epoch, member_id: member_id.to_owned(), reason }
}

/// The fence that the member has, and for whom it is: for this one, unless the record says otherwise.
fn fence_of<'a>(member: &Member<'a>) -> Option<(&'a Ticket, &'a str)> {
    let Some(given @ Ticket::Fence { member_id, .. }) = member.ticket else { return None };
    member.recorded_id().is_none_or(|id| id == member_id).then_some((given, member_id))
}

/// The others are a quorum without it, and no other member is fenced or about to be. All are asked again first.
fn may_fence(context: &Context<'_>, member: &Member<'_>, plan: &mut Plan) -> bool {
    let is_fenced = |other: &Member<'_>| {
        let about_to_be = matches!(plan.tickets.get(&other.name), Some(Ticket::Fence { .. }));
        about_to_be || fence_of(other).is_some()
    };
    let is_paused = context.desired.spec.maintenance.paused;
    // Somebody is on its way in or out: an even number is never where a cluster stays.
    let is_changing = context.members.len() != context.size() || context.size().is_multiple_of(2);
    if is_paused || is_changing || context.members.iter().any(is_fenced) || !gate::by_health(context).may_stop(member) {
        return false;
    }
    restart::confirm_all(context, plan);
    size::is_confirmed(context, plan)
}

/// Whether it is fenced because it differs, and its owner trusts it all the same.
pub(super) fn is_trusted_member(context: &Context<'_>, member: &Member<'_>) -> bool {
    let diverged = member.report.and_then(|report| report.data.as_ref()).is_some_and(|data| data.diverged);
    diverged && is_trusted_by_owner(context, member)
}

/// Whether its owner trusts it, whatever is found.
pub(super) fn is_trusted_by_owner(context: &Context<'_>, member: &Member<'_>) -> bool {
    identifier(member).is_some_and(|id| is_trusted(context, id))
}

fn is_trusted(context: &Context<'_>, id: &str) -> bool {
    annotation(context, annotations::TRUSTED_MEMBER) == Some(id)
}

/// Which member it is: as is on record or, where that was lost, as it was last heard.
fn identifier<'c>(member: &'c Member<'_>) -> Option<&'c str> {
    member.recorded_id().or(member.status.id.as_deref())
}

pub(super) fn is_believed(member: &Member<'_>, known: &ConsistencyStatus) -> bool {
    let is_it = |found: &&DifferingMember| Some(found.id.as_str()) == identifier(member);
    known.differing.iter().find(is_it).is_some_and(|found| found.seen >= BELIEVED)
}

fn known<'a>(context: &Context<'a>) -> Option<&'a ConsistencyStatus> {
    context.status()?.consistency.as_ref()
}

fn annotation<'a>(context: &Context<'a>, key: &str) -> Option<&'a str> {
    context.view.cluster.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn request(context: &Context<'_>) -> Option<String> {
    let value = annotation(context, annotations::COMPARE_NOW).filter(|value| !value.is_empty())?;
    Some(value.chars().take(LONGEST_REQUEST).collect())
}

/// When to compare next; now, if it is due.
fn due(context: &Context<'_>, known: Option<&ConsistencyStatus>) -> Timestamp {
    let requested =
        request(context).filter(|request| known.and_then(|known| known.requested.as_ref()) != Some(request));
    let is_news = |id: &String| known.is_none_or(|known| !known.alarmed.contains(id));
    if requested.is_some() || corruption::ids(context).iter().any(is_news) {
        return context.now;
    }
    let last = known.and_then(|known| known.last_compared.as_ref()).map(|time| time.0);
    let wait = match known {
        // It costs nobody anything, and whoever has given the right waits for it.
        Some(ConsistencyStatus { failure: Some(failure), .. }) if failure.refused => {
            Some((failure.last_tried.0, RETRY))
        }
        Some(ConsistencyStatus { differing, alarmed, failure: Some(failure), .. }) => {
            let soonest = if differing.is_empty() && alarmed.is_empty() { RETRY } else { SECOND_LOOK };
            // As long again as it has been going on, so that what never works is tried ever less often.
            let so_far = failure.last_tried.0.duration_since(failure.since.0);
            Some((failure.last_tried.0, so_far.clamp(soonest, PERIOD)))
        }
        Some(ConsistencyStatus { differing, .. }) if differing.iter().any(|found| found.seen < BELIEVED) => {
            last.map(|last| (last, SECOND_LOOK))
        }
        Some(ConsistencyStatus { differing, .. }) if !differing.is_empty() => last.map(|last| (last, RETRY)),
        _ => None,
    };
    // A clock that was put back must not put this off.
    let after = |moment: Timestamp, wait| moment.min(context.now).checked_add(wait).unwrap_or(context.now);
    if let Some((moment, wait)) = wait {
        return after(moment, wait).max(context.now);
    }
    let since = last.or(context.latch().map(|latch| latch.since.0)).unwrap_or(context.now);
    own_time(context.uid, after(since, PERIOD).max(context.now))
}

/// The first moment from then on that is this cluster's own.
fn own_time(cluster_uid: &str, from: Timestamp) -> Timestamp {
    let begins = HOUR * renewal::share(cluster_uid) / renewal::SHARES;
    let passed = (from.as_second() - begins).rem_euclid(HOUR);
    if passed < OWN_SECONDS {
        return from;
    }
    from.checked_add(SignedDuration::from_secs(HOUR - passed)).unwrap_or(from)
}

fn compared(context: &Context<'_>, answers: &BTreeMap<String, Result<DataHash, String>>) -> ConsistencyStatus {
    let cluster_id = context.latch().and_then(|latch| latch.cluster_id.as_deref()).unwrap_or_default();
    let answers = by_whom_was_asked(context, answers);
    if let Some(found) = corruption::borne_out(context, &answers) {
        return ConsistencyStatus { requested: request(context), alarmed: corruption::ids(context), ..found };
    }
    let (revision, undecided, members) = match hashes::compare(&answers, cluster_id, context.size()) {
        Comparison::Same { revision } => (revision, false, Vec::new()),
        Comparison::Differ { revision, members } => (revision, false, members),
        Comparison::Undecided { revision, members } => (revision, true, members),
        Comparison::Incomplete { same, cause } => return incomplete(context, &same, cause),
    };
    let before = known(context).filter(|known| known.undecided == undecided);
    let before = before.map(|known| known.differing.as_slice()).unwrap_or_default();
    ConsistencyStatus {
        last_compared: Some(Time(context.now)),
        revision: Some(revision),
        differing: members.into_iter().map(|found| seen_again(found, before)).collect(),
        undecided,
        failure: None,
        requested: request(context),
        alarmed: corruption::ids(context),
    }
}

/// An address may have become another member's meanwhile: then one would be counted twice.
fn by_whom_was_asked(
    context: &Context<'_>,
    answers: &BTreeMap<String, Result<DataHash, String>>,
) -> BTreeMap<String, Result<DataHash, String>> {
    let asked = |name: &str| context.members.iter().find(|member| member.name == name).and_then(identifier);
    let checked = answers.iter().map(|(name, answer)| {
        let answer = answer.clone().and_then(|found| match asked(name) {
            Some(id) if id != found.member_id => Err(format!("member {} answered in its place", found.member_id)),
            _ => Ok(found),
        });
        (name.clone(), answer)
    });
    checked.collect()
}

fn seen_again((name, found): Found<'_>, before: &[DifferingMember]) -> DifferingMember {
    let times = before.iter().find(|known| known.id == found.member_id).map_or(0, |known| known.seen);
    DifferingMember { name: name.to_owned(), id: found.member_id.clone(), seen: (times + 1).min(BELIEVED) }
}

/// Whoever has the same data as a majority is no longer suspected, though not all could be compared.
fn incomplete(context: &Context<'_>, same: &[Found<'_>], cause: String) -> ConsistencyStatus {
    let mut known = failed(context, cause);
    if context.membership.is_quorate(same.len()) {
        known.differing.retain(|suspect| same.iter().all(|(_, found)| found.member_id != suspect.id));
        known.undecided &= !known.differing.is_empty();
    }
    known
}

/// What was known stays.
fn failed(context: &Context<'_>, reason: String) -> ConsistencyStatus {
    let before = known(context).cloned().unwrap_or_default();
    let since = before.failure.as_ref().map_or(Time(context.now), |failure| failure.since.clone());
    let failure = Some(ComparisonFailure { since, last_tried: Time(context.now), reason, refused: false });
    ConsistencyStatus { failure, requested: request(context), alarmed: corruption::ids(context), ..before }
}

fn refused(context: &Context<'_>, cause: &str) -> ConsistencyStatus {
    let mut known = failed(context, cause.to_owned());
    known.failure.iter_mut().for_each(|failure| failure.refused = true);
    known
}
