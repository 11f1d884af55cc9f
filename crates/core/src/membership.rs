//! Who the members of a cluster are: what etcd says, never what the spec wishes.
//!
//! etcd's list is known from several places, and the surest that is at hand counts: an answer that a quorum confirmed for
//! this very pass; what a member last told its agent; what the data on the volumes says; the last status; and before there
//! is an etcd, the size that its first incarnation was given.

use std::collections::BTreeSet;

use quorate_api::member::{DataState, EtcdMemberStatus, ListedMember};
use quorate_api::names;
use quorate_api::status::EtcdClusterStatus;

use crate::context::reported_cluster_id;
use crate::lease::Heartbeat;
use crate::quorum;
use crate::validate::Desired;
use crate::view::View;

/// What etcd answered when it was asked for its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListAnswer {
    #[default]
    NotAsked,
    /// Somebody was reached, and there was no quorum to confirm it.
    Failed,
    /// Nobody could be reached: no connection came about.
    OutOfReach,
    /// Whoever asks may not know: authentication is enabled. In etcd's words.
    Refused { cause: String },
    /// Of which cluster, and who.
    Answered { cluster_id: String, members: Vec<ListedMember> },
}

/// Where the list of members comes from, the surest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListSource {
    /// There is no etcd yet: as many as the spec wishes, or as its first incarnation was given.
    Planned,
    /// As the last status has them.
    Remembered,
    /// As the data on the volumes has them.
    Stored,
    /// As a running member last told its agent.
    Reported,
    /// As a quorum has just confirmed.
    Confirmed,
}

/// The members of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub source: ListSource,
    /// Members that are pods of ours, by ordinal.
    pub seats: Vec<Seat>,
    /// Voters that are not: somebody else has added them.
    pub foreign_voters: Vec<String>,
    /// Learners that are not. While there is one, etcd takes no other.
    pub foreign_learners: Vec<String>,
    /// All of them, as etcd lists them. Empty where no list is known.
    pub list: Vec<ListedMember>,
}

/// A place in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    pub ordinal: i32,
    /// What etcd lists, where a list is known.
    pub listed: Option<ListedMember>,
}

impl Seat {
    pub fn is_voter(&self) -> bool {
        self.listed.as_ref().is_none_or(|listed| !listed.learner)
    }

    /// Whether etcd knows that the member has run.
    pub fn has_started(&self) -> bool {
        self.listed.as_ref().is_some_and(|listed| listed.started)
    }

    /// The identifier of a member that was added to a running cluster and has never started. Founders are listed by name
    /// from the start.
    pub fn newcomer(&self) -> Option<&str> {
        let listed = self.listed.as_ref().filter(|listed| !listed.started && listed.name.is_empty())?;
        Some(&listed.id)
    }
}

impl Membership {
    /// How many votes there are.
    pub fn voters(&self) -> usize {
        self.seats.iter().filter(|seat| seat.is_voter()).count() + self.foreign_voters.len()
    }

    pub fn is_quorate(&self, ready_voters: usize) -> bool {
        quorum::is_quorate(ready_voters, self.voters())
    }

    /// How many pods it takes for every seat to have one.
    pub fn pods(&self) -> i32 {
        self.seats.iter().map(|seat| seat.ordinal + 1).max().unwrap_or(0)
    }

    pub(crate) fn of(view: &View, desired: &Desired) -> Self {
        // A hibernated cluster has members, and none that anybody waits for.
        if desired.members.is_zero() {
            return Self::planned(0);
        }
        let status = view.cluster.status.as_ref();
        let latch = status.and_then(|status| status.latch.as_ref());
        let candidates = [
            cluster_id(view).and_then(|ours| confirmed(view, ours)),
            cluster_id(view).and_then(|ours| reported(view, ours)),
            latch.is_none().then(|| stored(view)).flatten(),
            // While a quorum is being recovered, members are those that may have a copy.
            latch
                .filter(|latch| latch.cluster_id.is_some() || latch.recovery.is_some())
                .and(status)
                .and_then(remembered),
        ];
        let planned = latch.and_then(|latch| latch.size).unwrap_or(desired.members.get());
        let Some((source, list)) = candidates.into_iter().flatten().next() else { return Self::planned(planned) };
        let listed = Self::listed(view, source, list);
        match status.filter(|_| source == ListSource::Remembered) {
            Some(status) => Self { foreign_voters: status.foreign_voters.clone(), ..listed },
            None => listed,
        }
    }

    fn planned(size: i32) -> Self {
        let seats = (0..size).map(|ordinal| Seat { ordinal, listed: None }).collect();
        Self {
            source: ListSource::Planned,
            seats,
            foreign_voters: Vec::new(),
            foreign_learners: Vec::new(),
            list: Vec::new(),
        }
    }

    fn listed(view: &View, source: ListSource, list: Vec<ListedMember>) -> Self {
        let seats = Vec::<Seat>::new();
        let (foreign_voters, foreign_learners) = (Vec::new(), Vec::new());
        let mut membership = Self { source, seats, foreign_voters, foreign_learners, list: list.clone() };
        for listed in list {
            // A pod can be one member only: whoever is listed under its name a second time is somebody else.
            let free = |ordinal: &i32| membership.seats.iter().all(|seat| seat.ordinal != *ordinal);
            match ordinal(view.identity.name(), &listed).filter(free) {
                Some(ordinal) => membership.seats.push(Seat { ordinal, listed: Some(listed) }),
                None if listed.learner => membership.foreign_learners.push(format!("{} ({})", listed.name, listed.id)),
                None => membership.foreign_voters.push(format!("{} ({})", listed.name, listed.id)),
            }
        }
        membership.seats.sort_by_key(|seat| seat.ordinal);
        membership
    }
}

type Found = (ListSource, Vec<ListedMember>);

/// Which cluster this is. If the status was removed, whoever reports data, or an etcd that runs, still knows: if they agree.
pub(crate) fn cluster_id(view: &View) -> Option<&str> {
    let latch = view.cluster.status.as_ref().and_then(|status| status.latch.as_ref());
    if let Some(latch) = latch {
        return latch.cluster_id.as_deref();
    }
    let told = newest_cluster_ids(view);
    told.first().copied().filter(|_| told.len() == 1)
}

/// The clusters that volumes, or an etcd that runs, belong to. What was left behind by a recovery does not count.
pub(crate) fn newest_cluster_ids(view: &View) -> BTreeSet<&str> {
    let epoch = |report: &EtcdMemberStatus| report.data.as_ref().and_then(|data| data.epoch);
    let told = view.reports().filter_map(|(_, report)| Some((reported_cluster_id(report)?, epoch(report))));
    let told = told.collect::<Vec<_>>();
    let newest = told.iter().map(|(_, epoch)| *epoch).max().flatten();
    told.into_iter().filter(|(_, epoch)| *epoch == newest).map(|(id, _)| id).collect()
}

/// Whoever answers under a member's name may be of another cluster.
fn confirmed(view: &View, ours: &str) -> Option<Found> {
    match &view.member_list {
        ListAnswer::Answered { cluster_id, members } if cluster_id == ours => {
            Some((ListSource::Confirmed, members.clone()))
        }
        _ => None,
    }
}

/// What the member said that has applied most: a list is as new as what its member has applied.
fn reported(view: &View, cluster_id: &str) -> Option<Found> {
    let told = view.reports().filter_map(|(name, report)| {
        let etcd = report.etcd.as_ref()?;
        let ours = etcd.running && etcd.cluster_id.as_deref() == Some(cluster_id) && !etcd.members.is_empty();
        let heartbeat = view.lease(name).map(Heartbeat::read).unwrap_or_default();
        // Without a leader it renews nothing, and says itself how far it has got.
        ours.then_some((heartbeat.last_index.max(etcd.index), view.heard.get(name), &etcd.members))
    });
    let (_, _, list) = told.max_by_key(|(index, heard, _)| (*index, *heard))?;
    Some((ListSource::Reported, list.clone()))
}

/// What the volume says that goes farthest.
fn stored(view: &View) -> Option<Found> {
    let told = view.reports().filter_map(|(_, report)| stored_list(report));
    let (_, list) = told.max_by_key(|(reach, _)| *reach)?;
    Some((ListSource::Stored, list.to_vec()))
}

type Reach = (Option<i64>, Option<i64>);

fn stored_list(report: &EtcdMemberStatus) -> Option<(Reach, &[ListedMember])> {
    let data = report.data.as_ref().filter(|data| data.state == DataState::Valid && !data.members.is_empty())?;
    Some(((data.epoch, data.last_index), &data.members))
}

fn remembered(status: &EtcdClusterStatus) -> Option<Found> {
    let list = status.members.iter().map(|member| ListedMember {
        id: member.id.clone().unwrap_or_default(),
        name: member.name.clone(),
        peer_urls: Vec::new(),
        learner: member.role == Some(quorate_api::status::MemberRole::Learner),
        started: member.id.is_some(),
    });
    let list = list.collect::<Vec<_>>();
    (!list.is_empty()).then_some((ListSource::Remembered, list))
}

/// A member that was added and has never started has no name; its address tells which pod it will be.
pub(crate) fn ordinal(cluster: &str, listed: &ListedMember) -> Option<i32> {
    let ordinal_of = |name: &str| names::ordinal_of(cluster, name).filter(|ordinal| *ordinal < names::MOST_MEMBERS);
    if !listed.name.is_empty() {
        return ordinal_of(&listed.name);
    }
    let host = |url: &String| url.split_once("://").map(|(_, rest)| rest.to_owned());
    let pod = |host: String| host.split_once('.').map(|(pod, _)| pod.to_owned());
    listed.peer_urls.iter().filter_map(host).filter_map(pod).find_map(|pod| ordinal_of(&pod))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, url: &str) -> ListedMember {
        let peer_urls = vec![url.to_owned()];
        ListedMember { id: "a".to_owned(), name: name.to_owned(), peer_urls, learner: false, started: false }
    }

    #[test]
    fn a_member_without_a_name_is_known_by_its_address() {
        assert_eq!(ordinal("db", &listed("", "https://db-3.db-peer.default.svc:2380")), Some(3));
        assert_eq!(ordinal("db", &listed("db-2", "https://elsewhere:2380")), Some(2));
        assert_eq!(ordinal("db", &listed("", "https://10.0.0.7:2380")), None);
        assert_eq!(ordinal("db", &listed("other", "https://db-1.db-peer.default.svc:2380")), None, "it has a name");
        assert_eq!(ordinal("db", &listed("db-50", "https://db-50.db-peer.default.svc:2380")), None, "no such pod");
    }
}
