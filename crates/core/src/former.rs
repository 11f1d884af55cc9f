//! Who was a member and is none any more.
//!
//! etcd never gives an identifier to a second member. So whoever was known before and is not in a list that a quorum has
//! confirmed is gone for good, and every list that still has it is older than that one. Agents tell what their etcd had applied
//! when they last spoke, and the last to speak may be one that was removed: without this, its word would outrank what is known.

use std::collections::BTreeSet;

use quorate_api::member::ListedMember;
use quorate_api::status::EtcdClusterStatus;

use crate::membership::{self, ListSource, Membership};
use crate::view::View;

/// So many are remembered, the latest last. A list that none of them is in, and that is out of date all the same, would be older
/// than so many changes.
const MOST: usize = 32;

/// Whether somebody is in the list who is known to be gone.
pub(crate) fn is_outdated(status: Option<&EtcdClusterStatus>, list: &[ListedMember]) -> bool {
    let former = status.map(|status| status.former_members.as_slice()).unwrap_or_default();
    list.iter().any(|listed| former.contains(&listed.id))
}

/// All who are known to be gone from the present incarnation.
pub(crate) fn of(view: &View, membership: &Membership) -> Vec<String> {
    let status = view.cluster.status.as_ref();
    let known = status.map(|status| status.former_members.as_slice()).unwrap_or_default();
    if membership.source != ListSource::Confirmed {
        return known.to_vec();
    }
    let shown = status.into_iter().flat_map(|status| &status.members).filter_map(|member| member.id.as_deref());
    // They were seen before the list was asked for.
    let ours = membership::cluster_id(view);
    let reports = view.reports().filter_map(|(_, report)| report.etcd.as_ref());
    let reports = reports.filter(|etcd| etcd.cluster_id.as_deref() == ours);
    let reported = reports.flat_map(|etcd| etcd.members.iter().map(|listed| listed.id.as_str()));
    let mut seen = BTreeSet::new();
    let is_gone = |id: &&str| !id.is_empty() && membership.list.iter().all(|listed| listed.id != **id);
    let former = known.iter().map(String::as_str).chain(shown).chain(reported);
    let former = former.filter(is_gone).filter(|id| seen.insert(*id)).map(str::to_owned).collect::<Vec<_>>();
    former[former.len().saturating_sub(MOST)..].to_vec()
}
