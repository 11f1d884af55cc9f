//! Members whose node is gone for good, and since when that is known.
//!
//! Since when is in the status and nowhere else: an operator that starts anew goes on waiting, and one whose status was
//! removed begins to wait again. So does a node that came back meanwhile.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::names;
use quorate_api::status::LostNode;

use crate::membership::Membership;
use crate::node::NodeFact;
use crate::validate::Desired;
use crate::view::View;

/// Kubernetes removes the pods of a node that is gone within this time. Those that it does not are ours to remove.
const PODS_GO_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// One member, or one that is to become a member, and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub member: String,
    pub node: String,
    pub since: Timestamp,
    /// Whether its volume can be used nowhere else.
    pub stranded: bool,
}

impl Loss {
    /// How much longer its pod is left to Kubernetes. What is ephemeral goes with the pod, so nothing else is waited for.
    pub(crate) fn until_pod_goes(&self, desired: &Desired, now: Timestamp) -> SignedDuration {
        let patience = desired.node_lost_after.filter(|_| desired.is_ephemeral()).unwrap_or(PODS_GO_AFTER);
        self.left(patience, now)
    }

    /// How much longer its volume is waited for. Nothing if that has no end.
    pub(crate) fn until_given_up(&self, desired: &Desired, now: Timestamp) -> Option<SignedDuration> {
        let patience = desired.node_lost_after.filter(|_| self.stranded)?;
        Some(self.left(patience, now))
    }

    fn left(&self, patience: SignedDuration, now: Timestamp) -> SignedDuration {
        (patience - now.duration_since(self.since)).max(SignedDuration::ZERO)
    }
}

impl From<&Loss> for LostNode {
    fn from(loss: &Loss) -> Self {
        let Loss { member, node, since, stranded } = loss.clone();
        Self { member, node, since: Time(since), stranded }
    }
}

/// The members, and whoever is to become one, by name.
pub(crate) fn places(cluster: &str, desired: &Desired, membership: &Membership) -> Vec<String> {
    let seats = membership.seats.iter().map(|seat| seat.ordinal);
    let all = seats.chain(0..desired.members.get()).collect::<BTreeSet<_>>();
    all.into_iter().map(|ordinal| names::member(cluster, ordinal)).collect()
}

/// As far as it was asked for.
pub(crate) fn of(view: &View, desired: &Desired, membership: &Membership, now: Timestamp) -> Vec<Loss> {
    let places = places(view.identity.name(), desired, membership);
    places.into_iter().filter_map(|member| of_one(view, member, now)).collect()
}

fn of_one(view: &View, member: String, now: Timestamp) -> Option<Loss> {
    let on = view.pods.get(&member).and_then(|pod| pod.node.as_ref());
    let gone = on.filter(|node| view.nodes.get(*node) == Some(&NodeFact::Gone));
    let reach = view.reaches.get(&names::data_claim(&member)).filter(|reach| reach.is_gone());
    let node = reach.map(crate::node::Reach::nodes).or_else(|| gone.cloned())?;
    // A pod that has found a node has found its volume there.
    if on.is_some() && gone.is_none() {
        return None;
    }
    let known = known(view, &member).filter(|known| known.node == node).map(|known| known.since.0);
    let since = known.map_or(now, |since| since.min(now));
    Some(Loss { member, node, since, stranded: reach.is_some() })
}

/// What the status says of it.
pub(crate) fn known<'a>(view: &'a View, member: &str) -> Option<&'a LostNode> {
    view.cluster.status.as_ref()?.lost_nodes.iter().find(|known| known.member == member)
}
