//! Members of etcd that nobody has asked for: somebody has added them by hand.
//!
//! They are spoken of for a while before they are removed, because whoever added one may know why. Since when is in the status,
//! by identifier: it survives the operator, and one that was removed and added again is somebody else.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::member::ListedMember;
use quorate_api::names;
use quorate_api::status::{EtcdClusterStatus, StrangerStatus};

use crate::membership::{ListSource, Membership, Seat};
use crate::validate::Desired;
use crate::view::View;

/// How long one is only spoken of.
const UNTIL_REMOVED: SignedDuration = SignedDuration::from_mins(10);

/// A member that nobody has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stranger {
    pub id: String,
    /// Its name or, if it has none yet, where it is said to be.
    pub name: String,
    pub learner: bool,
    /// Whether it has the name of a pod that this cluster could have.
    pub is_under_our_name: bool,
    pub first_seen: Timestamp,
}

impl Stranger {
    /// When it is removed.
    pub(crate) fn due(&self) -> Timestamp {
        self.first_seen.checked_add(UNTIL_REMOVED).unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn status(&self) -> StrangerStatus {
        let Self { id, name, learner, is_under_our_name, first_seen } = self.clone();
        StrangerStatus { id, name, learner, under_our_name: is_under_our_name, first_seen: Time(first_seen) }
    }
}

/// All of them, by identifier. While nobody can say who the members are, they are as they were.
pub(crate) fn of(view: &View, membership: &Membership, desired: &Desired, now: Timestamp) -> Vec<Stranger> {
    let nothing = EtcdClusterStatus::default();
    let status = view.cluster.status.as_ref().unwrap_or(&nothing);
    if desired.members.is_zero() || membership.source < ListSource::Stored {
        return status.strangers.iter().map(remembered).collect();
    }
    let under_our_names = membership.seats.iter().filter(|seat| seat.ordinal >= desired.members.get());
    let under_our_names = under_our_names.filter(|seat| !is_known(view, status, seat)).filter_map(|seat| {
        let name = names::member(view.identity.name(), seat.ordinal);
        Some((seat.listed.as_ref()?, name, true))
    });
    let has_seat = |id: &String| membership.seats.iter().flat_map(|seat| &seat.listed).any(|listed| listed.id == *id);
    let others = membership.list.iter().filter(|listed| !has_seat(&listed.id));
    let others = others.map(|listed| (listed, described(listed), false));
    let mut strangers = under_our_names
        .chain(others)
        .map(|(listed, name, is_under_our_name)| {
            let before = status.strangers.iter().find(|before| before.id == listed.id);
            let first_seen = before.map_or(now, |before| before.first_seen.0);
            Stranger { id: listed.id.clone(), name, learner: listed.learner, is_under_our_name, first_seen }
        })
        .collect::<Vec<_>>();
    strangers.sort_by(|one, other| one.id.cmp(&other.id));
    strangers
}

fn remembered(known: &StrangerStatus) -> Stranger {
    let StrangerStatus { id, name, learner, under_our_name, first_seen } = known.clone();
    Stranger { id, name, learner, is_under_our_name: under_our_name, first_seen: first_seen.0 }
}

/// Whether this member has begun as one of ours, was there when its number was wished for, or was added by us: it is not
/// needed any more, and nobody has added it past us.
fn is_known(view: &View, status: &EtcdClusterStatus, seat: &Seat) -> bool {
    let Some(listed) = &seat.listed else { return true };
    if status.strangers.iter().any(|stranger| stranger.id == listed.id) {
        return false;
    }
    let name = names::member(view.identity.name(), seat.ordinal);
    let shown = status.members.iter().any(|member| member.id.as_ref() == Some(&listed.id));
    let report = view.member(&name).and_then(|member| member.status.as_ref()?.data.as_ref()?.member_id.as_ref());
    // Whomever we add has no vote, and a pod that has reported.
    let is_added = listed.learner && view.pods.contains_key(&name);
    seat.newcomer().is_none() || shown || report == Some(&listed.id) || is_added
}

fn described(listed: &ListedMember) -> String {
    match (listed.name.as_str(), listed.peer_urls.first()) {
        ("", Some(url)) => url.clone(),
        ("", None) => "a member without a name".to_owned(),
        (name, _) => name.to_owned(),
    }
}
