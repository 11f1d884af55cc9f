//! Nodes, and the volumes that can be used on one of them alone.

use std::collections::{BTreeMap, BTreeSet};

use quorate_api::names;
use quorate_core::node::{NodeFact, Reach};
use quorate_core::view::View;

use super::world::World;

/// The nodes that are not well. All others are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) facts: BTreeMap<String, NodeFact>,
    /// Whether volumes are made of a node's own disk.
    pub(crate) local: bool,
    /// On which node the volume of a claim is.
    pub(crate) pins: BTreeMap<String, String>,
    /// Whether the operator may not ask.
    pub(crate) refused: bool,
}

impl Nodes {
    fn fact(&self, node: &str) -> NodeFact {
        self.facts.get(node).copied().unwrap_or(NodeFact::Ready)
    }

    /// Nothing if the operator may not ask.
    pub(super) fn asked(&self, node: &str) -> Option<NodeFact> {
        (!self.refused).then(|| self.fact(node))
    }
}

impl World {
    pub(crate) fn is_ephemeral(&self) -> bool {
        self.cluster.spec.storage.ephemeral.is_some()
    }

    /// The scheduler and the provisioner: a pod gets a node that takes it, and a volume there.
    pub(super) fn give_place(&mut self, name: &str) {
        if self.pods.get(name).is_none_or(|pod| pod.node.is_some()) {
            // On a node that was made anew its directory is there again, and nothing in it.
            if self.is_placed(name) {
                self.volumes.entry(name.to_owned()).or_default();
            }
            return;
        }
        let claim = names::data_claim(name);
        let usable = |node: &String| self.nodes.fact(node) == NodeFact::Ready;
        let node = match self.nodes.pins.get(&claim) {
            _ if !self.is_ephemeral() && !self.claims.contains_key(&claim) => None,
            Some(pinned) => Some(pinned.clone()).filter(usable),
            None => [format!("node-of-{name}"), format!("spare-for-{name}")].into_iter().find(usable),
        };
        if let Some(pod) = self.pods.get_mut(name) {
            pod.starting = node.is_none().then(|| "waiting for a node".to_owned());
            pod.node.clone_from(&node);
        }
        if let Some(node) = node {
            if self.nodes.local {
                self.nodes.pins.insert(claim, node);
            }
            self.volumes.entry(name.to_owned()).or_default();
        }
    }

    /// Whether the pod has a node that runs it.
    pub(super) fn is_placed(&self, name: &str) -> bool {
        let node = self.pods.get(name).and_then(|pod| pod.node.as_deref());
        node.is_some_and(|node| self.nodes.fact(node) < NodeFact::Silent)
    }

    /// A node dies. Whatever ran there ends, and what was on its own disk is gone if the node is. Its pods stay listed.
    pub(crate) fn node_becomes(&mut self, node: &str, fact: NodeFact) {
        self.nodes.facts.insert(node.to_owned(), fact);
        let is_there = |name: &&String| {
            let runs = self.pods.get(*name).is_some_and(|pod| pod.node.as_deref() == Some(node));
            runs || self.nodes.pins.get(&names::data_claim(name)).is_some_and(|pinned| pinned == node)
        };
        for name in self.volumes.keys().filter(is_there).cloned().collect::<BTreeSet<_>>() {
            let is_lost = fact == NodeFact::Gone && (self.nodes.local || self.is_ephemeral());
            if is_lost {
                self.volumes.remove(&name);
                self.recoveries.harmed.insert(name);
            } else if fact >= NodeFact::Silent
                && let Some(volume) = self.volumes.get_mut(&name)
            {
                volume.stop();
            }
        }
    }

    /// All nodes are well again, also those that were gone: somebody has made them anew.
    pub(crate) fn nodes_come_back(&mut self) {
        self.nodes.facts.clear();
    }

    pub(super) fn ask_for_node(&self, view: &mut View, node: &str) {
        view.nodes_refused |= self.nodes.refused;
        view.nodes.extend(self.nodes.asked(node).map(|fact| (node.to_owned(), fact)));
    }

    pub(super) fn ask_for_reach(&self, view: &mut View, claim: &str) {
        view.nodes_refused |= self.nodes.refused;
        if !self.nodes.refused {
            view.reaches.insert(claim.to_owned(), self.reach(claim));
        }
    }

    pub(super) fn reach(&self, claim: &str) -> Reach {
        let pinned = self.nodes.pins.get(claim);
        pinned.map_or(Reach::Open, |node| Reach::Pinned([(node.clone(), self.nodes.fact(node))].into()))
    }
}
