//! What a human must look at. Nothing is done about it here; the status says so.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use quorate_api::member::{DataState, VolumeState};

use super::Plan;
use crate::context::{Context, MemberFacts};
use crate::reason::Reason;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if context.is_formed() {
        note_members(context, plan, Reason::MemberOfAnotherCluster, |member| context.is_stranger(member));
        note_members(context, plan, Reason::MemberFenced, |member| {
            member.is_fenced() && member.seat.newcomer().is_none()
        });
        let lost = context.members.iter().filter(|member| member.is_data_lost(context) && !member.is_fenced());
        let lost = lost.map(|member| member.ordinal).collect::<Vec<_>>();
        note_members(context, plan, Reason::MemberDataLost, |member| lost.contains(&member.ordinal));
        note_members(context, plan, Reason::MemberDataUnreadable, |member| {
            member.data_state() == Some(DataState::Unreadable)
        });
        note_with(context, plan, Reason::MemberDataDamaged, MemberFacts::proven_damage);
        let ending =
            context.members.iter().filter(|member| context.is_volume_ending(&member.name) && member.pod.is_some());
        let ending = ending.map(|member| member.ordinal).collect::<Vec<_>>();
        note_members(context, plan, Reason::VolumeEnding, |member| ending.contains(&member.ordinal));
    }
    note_alarms(context, plan);
    for (reason, state) in [(Reason::VolumeFull, VolumeState::Full), (Reason::VolumeFilling, VolumeState::Filling)] {
        note_with(context, plan, reason, |member| member.volume_reason(state));
    }
    note_unreadable(context, plan);
    ControlFlow::Continue(())
}

fn note_members(context: &Context<'_>, plan: &mut Plan, reason: Reason, which: impl Fn(&MemberFacts<'_>) -> bool) {
    note_with(context, plan, reason, |member| which(member).then(|| member.data_reason().unwrap_or_default()));
}

/// The members that something is said of, and what, unless that is empty.
fn note_with<'a>(
    context: &'a Context<'a>,
    plan: &mut Plan,
    reason: Reason,
    said: impl Fn(&MemberFacts<'a>) -> Option<&'a str>,
) {
    let affected = context.members.iter().filter_map(|member| Some((&member.name, said(member)?))).collect::<Vec<_>>();
    if affected.is_empty() {
        return;
    }
    let names = affected.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let details = affected.iter().filter(|(_, said)| !said.is_empty()).map(|(name, said)| format!(" ({name}: {said})"));
    plan.note(reason, format!("{names}: {}{}", reason.sentence(), details.collect::<String>()));
}

/// Every member tells of every alarm, so they are gathered by alarm. One that says who is corrupt is not for a human yet.
fn note_alarms(context: &Context<'_>, plan: &mut Plan) {
    let mut raised = BTreeMap::<&str, Vec<&str>>::new();
    for member in &context.members {
        for alarm in member.alarms().filter(|alarm| !alarm.is_corrupt() || alarm.member_id.is_none()) {
            let told_by = raised.entry(alarm.name).or_default();
            if told_by.last() != Some(&member.name.as_str()) {
                told_by.push(&member.name);
            }
        }
    }
    if !raised.is_empty() {
        let list = raised.iter().map(|(alarm, told_by)| format!("{alarm} (told by {})", told_by.join(", ")));
        let list = list.collect::<Vec<_>>().join(", ");
        plan.note(Reason::AlarmRaised, format!("{list}: {}", Reason::AlarmRaised.sentence()));
    }
}

fn note_unreadable(context: &Context<'_>, plan: &mut Plan) {
    for (name, defect) in &context.view.unreadable_members {
        plan.note(Reason::MemberUnreadable, format!("{name}: {}: {defect}", Reason::MemberUnreadable.sentence()));
    }
}
