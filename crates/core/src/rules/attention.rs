//! What a human must look at. Nothing is done about it here; the status says so.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use quorate_api::member::DataState;

use super::Plan;
use crate::context::{Context, MemberFacts};
use crate::reason::Reason;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if context.is_formed() {
        note_members(context, plan, Reason::MemberOfAnotherCluster, |member| context.is_stranger(member));
        note_members(context, plan, Reason::MemberFenced, is_fenced);
        note_members(context, plan, Reason::MemberDataLost, |member| member.has_no_usable_data() && !is_fenced(member));
    }
    note_alarms(context, plan);
    note_unreadable(context, plan);
    ControlFlow::Continue(())
}

fn is_fenced(member: &MemberFacts<'_>) -> bool {
    matches!(member.data_state(), Some(DataState::Fenced | DataState::Foreign))
}

fn note_members(context: &Context<'_>, plan: &mut Plan, reason: Reason, which: impl Fn(&MemberFacts<'_>) -> bool) {
    let affected = context.members.iter().filter(|member| which(member)).collect::<Vec<_>>();
    if affected.is_empty() {
        return;
    }
    let names = affected.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ");
    let said = affected.iter().filter_map(|member| Some(format!(" ({}: {})", member.name, member.data_reason()?)));
    plan.note(reason, format!("{names}: {}{}", reason.sentence(), said.collect::<String>()));
}

/// Every member tells of every alarm, so they are gathered by alarm.
fn note_alarms(context: &Context<'_>, plan: &mut Plan) {
    let mut raised = BTreeMap::<&str, Vec<&str>>::new();
    for member in &context.members {
        for alarm in member.alarms() {
            let told_by = raised.entry(alarm).or_default();
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
