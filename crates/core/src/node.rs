//! What is known of nodes, and on which of them a volume can be used.
//!
//! A node is gone for good if its Node was deleted, or if it is not ready and somebody has said by a taint that it is out of
//! service. Kubernetes itself relies on these two signs alone where it removes pods without a word from their kubelet. That a
//! node is silent is no sign: whatever runs there may go on running.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume};
use serde::Serialize;

/// Somebody has made sure that nothing runs on a node that has this taint.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// What volumes name their node by.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// How a node is, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum NodeFact {
    /// It takes pods.
    Ready,
    /// It is well, and takes no new pods.
    Cordoned,
    /// Nobody has heard from it lately.
    Silent,
    /// Nothing runs on it, and it does not come back by itself.
    Gone,
}

impl NodeFact {
    /// `None` is a node that the API server does not know.
    pub fn of(node: Option<&Node>) -> Self {
        let Some(node) = node else { return Self::Gone };
        let spec = node.spec.as_ref();
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let is_ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let is_out_of_service = taints.iter().any(|taint| taint.key == OUT_OF_SERVICE);
        let is_cordoned = spec.and_then(|spec| spec.unschedulable) == Some(true);
        match (is_ready, is_out_of_service) {
            (false, true) => Self::Gone,
            (false, false) => Self::Silent,
            // It says itself that it is well, whatever others say.
            (true, true) => Self::Cordoned,
            (true, false) if is_cordoned => Self::Cordoned,
            (true, false) => Self::Ready,
        }
    }
}

/// Where a volume can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// On no particular node, as far as anybody can tell.
    Open,
    /// On these nodes and on no other.
    Pinned(BTreeMap<String, NodeFact>),
}

impl Reach {
    /// Of a volume that names these nodes. A node counts under its name and under its label: if either is still there, it is.
    pub fn of(pins: &BTreeSet<String>, nodes: &[Node]) -> Self {
        let is_called = |node: &Node, pin: &String| {
            let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(HOSTNAME));
            node.metadata.name.as_ref() == Some(pin) || label == Some(pin)
        };
        let fact = |pin: &String| {
            let facts = nodes.iter().filter(|node| is_called(node, pin)).map(|node| NodeFact::of(Some(node)));
            facts.min().unwrap_or(NodeFact::Gone)
        };
        Self::Pinned(pins.iter().map(|pin| (pin.clone(), fact(pin))).collect())
    }

    /// The best of the nodes that it can be used on, if it names any.
    pub fn best(&self) -> Option<NodeFact> {
        match self {
            Self::Open => None,
            Self::Pinned(nodes) => nodes.values().min().copied(),
        }
    }

    /// Whether all the nodes that it can be used on are gone.
    pub fn is_gone(&self) -> bool {
        self.best() == Some(NodeFact::Gone)
    }

    /// The nodes, as one text.
    pub fn nodes(&self) -> String {
        match self {
            Self::Open => String::new(),
            Self::Pinned(nodes) => nodes.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        }
    }
}

/// The nodes that a volume names, if it can be used on these alone. A volume of a zone names none: the next node there finds
/// it. Nor does one that names its node in words of its own, which nobody else understands.
pub fn pins(volume: &PersistentVolume) -> Option<BTreeSet<String>> {
    let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required.as_ref()?.node_selector_terms;
    let pins = terms.iter().map(pinned_by).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect::<BTreeSet<_>>();
    (!pins.is_empty()).then_some(pins)
}

/// All the requirements of a term hold, so one that names nodes is enough.
fn pinned_by(term: &NodeSelectorTerm) -> Option<Vec<String>> {
    let names = |requirements: &Option<Vec<NodeSelectorRequirement>>, key: &str| {
        let mut named = requirements.iter().flatten().filter(|one| one.key == key && one.operator == "In");
        named.find_map(|one| one.values.clone())
    };
    names(&term.match_expressions, HOSTNAME).or_else(|| names(&term.match_fields, "metadata.name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(name: &str, ready: &str, spec: &Value) -> Node {
        let node = json!({
            "metadata": { "name": name, "labels": { HOSTNAME: name } }, "spec": spec,
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        });
        serde_json::from_value(node).unwrap()
    }

    fn out_of_service() -> Value {
        json!({ "taints": [{ "key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute" }] })
    }

    fn volume(terms: &Value) -> PersistentVolume {
        let volume = json!({ "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } } });
        serde_json::from_value(volume).unwrap()
    }

    fn term(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
    }

    #[test]
    fn a_node_is_gone_if_it_was_deleted_or_is_down_and_out_of_service_and_never_because_it_is_silent() {
        assert_eq!(NodeFact::of(None), NodeFact::Gone);
        assert_eq!(NodeFact::of(Some(&node("a", "Unknown", &out_of_service()))), NodeFact::Gone);
        for silent in ["Unknown", "False"] {
            assert_eq!(NodeFact::of(Some(&node("a", silent, &json!({})))), NodeFact::Silent);
        }
        assert_eq!(NodeFact::of(Some(&Node::default())), NodeFact::Silent, "it has not said anything yet");
        assert_eq!(NodeFact::of(Some(&node("a", "True", &json!({ "unschedulable": true })))), NodeFact::Cordoned);
        assert_eq!(NodeFact::of(Some(&node("a", "True", &out_of_service()))), NodeFact::Cordoned, "it is well");
        assert_eq!(NodeFact::of(Some(&node("a", "True", &json!({})))), NodeFact::Ready);
    }

    #[test]
    fn a_volume_names_its_node_by_the_hostname_or_the_name_and_by_nothing_else() {
        let of = |terms: Value| pins(&volume(&terms)).map(|pins| pins.into_iter().collect::<Vec<_>>());
        assert_eq!(of(json!([term(HOSTNAME, "In", &["a"])])), Some(vec!["a".to_owned()]));
        let by_name = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["b"] }] });
        assert_eq!(
            of(json!([term(HOSTNAME, "In", &["a"]), by_name])),
            Some(vec!["a".to_owned(), "b".to_owned()]),
            "either of them will do"
        );
        let zone = term("topology.kubernetes.io/zone", "In", &["z"]);
        for open in [json!([]), json!([zone]), json!([term(HOSTNAME, "In", &["a"]), zone])] {
            assert_eq!(of(open.clone()), None, "{open}");
        }
        for anywhere in [term(HOSTNAME, "Exists", &[]), term(HOSTNAME, "NotIn", &["a"])] {
            assert_eq!(of(json!([anywhere])), None);
        }
        assert_eq!(pins(&PersistentVolume::default()), None);
    }

    #[test]
    fn a_volume_is_out_of_reach_only_if_each_of_its_nodes_is_gone_under_every_name() {
        let pins = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert!(Reach::of(&pins, &[]).is_gone());
        assert!(Reach::of(&pins, &[node("a", "False", &out_of_service()), node("c", "True", &json!({}))]).is_gone());
        assert!(!Reach::of(&pins, &[node("b", "Unknown", &json!({}))]).is_gone(), "one of them is only silent");
        let mut renamed = node("b", "True", &json!({}));
        renamed.metadata.labels = None;
        assert_eq!(Reach::of(&pins, &[renamed]).best(), Some(NodeFact::Ready), "somebody has taken its label");
        assert!(!Reach::Open.is_gone());
    }
}
