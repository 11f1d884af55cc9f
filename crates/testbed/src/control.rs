//! What the supervisor of a bed can be asked, and what it answers: JSON lines over a Unix socket.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// One [`State`].
    Status,
    /// A [`State`] whenever it changed, until the bed is ready or has failed.
    Follow,
    Node {
        number: u8,
        action: NodeAction,
    },
    Component {
        name: String,
        start: bool,
    },
    /// Loads an archive that waits in the bed's directory for incoming images into every running node, and keeps it.
    LoadImage {
        file: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum NodeAction {
    /// A power cut: everything on the node is gone at this instant.
    Kill,
    /// Power on again: the node boots and rejoins.
    Start,
    /// Pull the cable: the node goes on running, nobody hears it.
    Cut,
    /// Plug the cable in again.
    Heal,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    State(Box<State>),
    Done { what: String },
    Failed { error: String },
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    pub phase: Phase,
    /// What it is busy with, or why it failed.
    pub step: String,
    pub components: Vec<ComponentState>,
    pub nodes: Vec<NodeState>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    #[default]
    Starting,
    Ready,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentState {
    pub name: String,
    pub running: bool,
    pub restarts: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    pub name: String,
    pub running: bool,
    pub connected: bool,
    /// What the API server says; nothing if it does not answer.
    pub ready: Option<bool>,
}
