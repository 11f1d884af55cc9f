//! Leases at the end.

use super::epochs::Epochs;
use super::{Findings, Rule};
use crate::history::{History, Outcome};

/// Leases are far longer than a run, so only a revocation ends them. A restore may have lost those from before it.
pub(super) fn check(history: &History, epochs: &Epochs<'_>, findings: &mut Findings) {
    let current = |cluster| epochs.number(cluster) == epochs.last();
    for last in history.finals.iter().filter(|last| current(last.at.cluster)) {
        let Some(mut held) = last.leases.clone() else { continue };
        held.sort_unstable();
        for lease in history.leases.iter().filter(|lease| current(lease.cluster)) {
            let there = held.binary_search(&lease.id).is_ok();
            let (id, by, member) = (lease.id, &lease.by, &last.member);
            match &lease.revocation {
                None if !there => findings.add(Rule::Leases, || {
                    format!(
                        "lease {id:x}, granted to {by} at {} and never revoked, is not known to {member}",
                        lease.granted
                    )
                }),
                Some(Outcome::Acknowledged(_)) if there => {
                    findings.add(Rule::Leases, || format!("lease {id:x}, revoked by {by}, still lives on {member}"));
                }
                _ => {}
            }
        }
    }
}
