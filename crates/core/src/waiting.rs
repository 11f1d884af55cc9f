//! What a member that is not ready waits for or is busy with, in words that stay the same until something changes.
//!
//! What the kubelet and the agents say is full of figures that always move and of causes that take turns. A status is
//! written only on transitions, so they are left out here; they are in the pod and in the EtcdMember.

use crate::context::{Context, Member, MemberFacts};
use crate::view::PodFact;

const MEBIBYTE: i64 = 1 << 20;
const GIBIBYTE: i64 = 1 << 30;

pub(crate) fn waits_for(member: &MemberFacts<'_>) -> Option<String> {
    let pod = member.pod?;
    pod_waits_for(pod).or_else(|| member.progress().map(without_figures))
}

pub(crate) fn pod_waits_for(pod: &PodFact) -> Option<String> {
    let starting = pod.starting.as_deref()?;
    let Some((container, reason)) = starting.split_once(": ") else { return Some(starting.to_owned()) };
    Some(match reason {
        "ContainerCreating" | "PodInitializing" => "its volume is being mounted, or an image pulled".to_owned(),
        "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" | "ImageInspectError" => {
            format!("the image of container {container} cannot be pulled")
        }
        _ => starting.to_owned(),
    })
}

/// How much of the data that the others have a member has received, if it has said so: in steps that a human would notice.
pub(crate) fn catching_up(context: &Context<'_>, learner: &Member<'_>) -> Option<String> {
    let here = learner.progress().and_then(so_far)?;
    let there = context.members.iter().filter(|member| member.seat.is_voter());
    let there = there.filter_map(|member| member.heartbeat.db_size).max()?;
    // Databases have free pages, which nobody sends.
    Some(format!("{} is catching up: {}", learner.name, of(here.min(there), there)))
}

fn of(part: i64, whole: i64) -> String {
    let tenths = |bytes: i64| format!("{}.{}", bytes / GIBIBYTE, bytes % GIBIBYTE * 10 / GIBIBYTE);
    if whole >= GIBIBYTE {
        return format!("{} of {} GiB", tenths(part), tenths(whole));
    }
    format!("{} of {} MiB", part / MEBIBYTE / 10 * 10, whole / MEBIBYTE)
}

/// What an agent says of a snapshot that arrives: `receiving a snapshot, 512 MiB so far`.
fn so_far(progress: &str) -> Option<i64> {
    let figure = progress.strip_suffix(" MiB so far")?.rsplit(' ').next()?;
    figure.parse::<i64>().ok()?.checked_mul(MEBIBYTE)
}

/// Up to the first figure, and without the words that lead to it.
fn without_figures(progress: &str) -> String {
    let steady = progress.split(|char: char| char.is_ascii_digit()).next().unwrap_or_default();
    let steady = if steady.len() < progress.len() { steady.trim_end().trim_end_matches(" of") } else { steady };
    steady.trim_end_matches([',', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_always_move_are_left_out() {
        assert_eq!(without_figures("receiving a snapshot, 512 MiB so far"), "receiving a snapshot");
        assert_eq!(without_figures("starting from a database of 17 MiB"), "starting from a database");
        assert_eq!(without_figures("starting without a database"), "starting without a database");
    }

    #[test]
    fn how_much_has_arrived_is_told_in_steps_that_a_human_would_notice() {
        assert_eq!(so_far("receiving a snapshot, 512 MiB so far"), Some(512 * MEBIBYTE));
        assert_eq!(so_far("catching up"), None);
        assert_eq!(of(1229 * MEBIBYTE, 3482 * MEBIBYTE), "1.2 of 3.4 GiB");
        assert_eq!(of(129 * MEBIBYTE, 340 * MEBIBYTE), "120 of 340 MiB");
    }
}
