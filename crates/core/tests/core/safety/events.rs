//! What may happen, and how often in which kind of history.

use proptest::prelude::*;
use quorate_core::node::NodeFact;

use crate::sim::STREAMS;

/// What may happen, in any order.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A pass of an operator that has heard everything.
    Operate,
    OperateAndCrash(usize),
    /// A pass on what has been heard so far.
    OperateAsHeard,
    /// One step of a pass that takes as long as it takes.
    OperateSlowly,
    AReadFails,
    /// One watch tells what has happened.
    Hear(usize),
    Schedule,
    Agent(usize),
    AgentDiesBeforeEtcdBegins(usize),
    Etcd,
    Advance(i64),
    KillPod(usize),
    Freeze(usize),
    Thaw,
    DeleteObject(usize),
    Pause(bool),
    /// The operator does not reach a member that the others reach.
    CutOff(usize),
    /// Somebody of another cluster answers under a member's address.
    Impostor(usize),
    Reconnect,
    Wipe(usize),
    Damage(usize),
    RollBack(usize),
    /// Only the data directory: what lies beside it stays.
    RollBackData(usize),
    /// The agent of a member gets no answer from the API.
    ApiAway(usize),
    /// It gets one, and is refused.
    ApiRefuses(usize),
    ApiBack,
    WipeStatus,
    /// Somebody gives the StatefulSet more pods than there are members.
    ScaleByHand(i32),
    /// Somebody adds a member, under the name of a pod or another, or removes one.
    AddByHand(usize),
    RemoveByHand(usize),
    /// The EtcdCluster is deleted and created again on its volumes.
    Recreate(i32),
    /// A bit is lost on a volume.
    Rot(usize),
    /// Somebody asks for a comparison of the members.
    Compare(u8),
    /// Somebody wishes for another number of members.
    Wish(i32),
    /// Two members get each other's volumes.
    Exchange(usize, usize),
    /// The data directory of one member is copied over that of another.
    CopyData(usize, usize),
    /// A member gets a volume of another cluster.
    Foreign(usize),
    /// A leader that nobody follows any more goes on writing for a while.
    WriteAlone,
    /// The next change of the members is made, and the operator does not hear of it, or it is sent twice.
    AnswerLost,
    AnswerDoubled,
    /// The node of a member, or the one that it would move to, is not what it was.
    Node(usize, bool, NodeFact),
    NodesBack,
    /// A learner gets no data, and after a while it does.
    Starve(usize),
    Feed,
}

impl Event {
    /// Whether it happens to one of the members.
    pub(super) fn is_about_a_member(&self) -> bool {
        let is_about_none = matches!(self, Self::Operate | Self::OperateAsHeard | Self::OperateSlowly)
            || matches!(self, Self::Hear(_) | Self::Schedule | Self::Etcd | Self::Advance(_));
        !is_about_none
    }

    /// Whether it is a fault, or something that somebody does. Passes and agents' moves are counted where they are made.
    pub(super) fn is_fault(&self) -> bool {
        !matches!(
            self,
            Self::Operate
                | Self::OperateAndCrash(_)
                | Self::OperateAsHeard
                | Self::OperateSlowly
                | Self::Hear(_)
                | Self::Schedule
                | Self::Agent(_)
                | Self::AgentDiesBeforeEtcdBegins(_)
                | Self::Etcd
                | Self::Advance(_)
                | Self::Thaw
                | Self::Reconnect
                | Self::ApiBack
                | Self::NodesBack
                | Self::Feed
        )
    }
}

pub(super) fn harmless() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Operate),
        2 => (0..20_usize).prop_map(Event::OperateAndCrash),
        4 => Just(Event::OperateAsHeard),
        6 => Just(Event::OperateSlowly),
        1 => Just(Event::AReadFails),
        8 => (0..STREAMS).prop_map(Event::Hear),
        4 => Just(Event::Schedule),
        6 => (0..5_usize).prop_map(Event::Agent),
        1 => (0..5_usize).prop_map(Event::AgentDiesBeforeEtcdBegins),
        4 => Just(Event::Etcd),
        2 => (1..90_i64).prop_map(Event::Advance),
        2 => (0..5_usize).prop_map(Event::KillPod),
        1 => (0..5_usize).prop_map(Event::Freeze),
        1 => Just(Event::Thaw),
        1 => (0..30_usize).prop_map(Event::DeleteObject),
        1 => any::<bool>().prop_map(Event::Pause),
        1 => (0..5_usize).prop_map(Event::CutOff),
        1 => (0..5_usize).prop_map(Event::Impostor),
        1 => Just(Event::Reconnect),
        1 => Just(Event::AnswerLost),
        1 => Just(Event::AnswerDoubled),
    ]
}

pub(super) fn harmful() -> impl Strategy<Value = Event> {
    prop_oneof![
        24 => harmless(),
        1 => (0..5_usize).prop_map(Event::Wipe),
        1 => (0..5_usize).prop_map(Event::Damage),
        1 => (0..5_usize).prop_map(Event::RollBack),
        1 => (0..5_usize, 1..5_usize).prop_map(|(n, m)| Event::Exchange(n, m)),
        1 => (0..5_usize).prop_map(Event::Foreign),
        1 => (0..5_usize, 1..5_usize).prop_map(|(n, m)| Event::CopyData(n, m)),
    ]
}

/// A disk that loses bits while everything else goes on.
pub(super) fn rotting() -> impl Strategy<Value = Event> {
    prop_oneof![
        16 => harmless(),
        2 => (0..5_usize).prop_map(Event::Rot),
        6 => any::<u8>().prop_map(Event::Compare),
    ]
}

/// What users do besides.
pub(super) fn by_hand() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => harmless(),
        1 => (0..5_i32).prop_map(Event::ScaleByHand),
        1 => (0..5_usize).prop_map(Event::AddByHand),
        1 => (0..5_usize).prop_map(Event::RemoveByHand),
        1 => Just(Event::WipeStatus),
        1 => sizes().prop_map(Event::Recreate),
    ]
}

pub(super) fn sizes() -> impl Strategy<Value = i32> {
    prop_oneof![Just(1), Just(3), Just(5)]
}

/// Wishes that change before they are fulfilled.
pub(super) fn scaling() -> impl Strategy<Value = Event> {
    prop_oneof![
        24 => harmless(),
        2 => prop_oneof![4 => sizes(), 1 => Just(0), 1 => Just(7)].prop_map(Event::Wish),
        1 => (0..7_usize).prop_map(Event::Starve),
        2 => Just(Event::Feed),
    ]
}

/// The same, while volumes are lost, also more of them than the cluster can bear.
pub(super) fn replacing() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => scaling(),
        1 => (0..7_usize).prop_map(Event::Wipe),
        1 => (0..7_usize).prop_map(Event::Damage),
        1 => (0..7_usize).prop_map(Event::RollBack),
        1 => (0..7_usize, 1..7_usize).prop_map(|(n, m)| Event::Exchange(n, m)),
        1 => (0..7_usize).prop_map(Event::Foreign),
        1 => (0..7_usize, 1..7_usize).prop_map(|(n, m)| Event::CopyData(n, m)),
        1 => Just(Event::WriteAlone),
    ]
}

/// Nodes that fall silent, are cordoned, go for good and come back, while the wish changes too.
pub(super) fn on_nodes() -> impl Strategy<Value = Event> {
    let fact = prop_oneof![
        1 => Just(NodeFact::Cordoned),
        2 => Just(NodeFact::Silent),
        2 => Just(NodeFact::Gone),
        2 => Just(NodeFact::Ready),
    ];
    prop_oneof![
        14 => scaling(),
        2 => (0..5_usize, prop::bool::weighted(0.2), fact).prop_map(|(n, spare, fact)| Event::Node(n, spare, fact)),
        1 => Just(Event::NodesBack),
    ]
}

/// Nothing that anybody has on record goes.
pub(super) fn records_stay(events: impl Strategy<Value = Event>) -> impl Strategy<Value = Event> {
    events.prop_filter("records stay", |event| !matches!(event, Event::DeleteObject(_)))
}

/// Histories in which the volumes and the records of the members may go, or the volumes and the status: whoever removes
/// all three has removed every trace that there ever was a cluster.
pub(super) fn history() -> impl Strategy<Value = Vec<Event>> {
    let status_may_go = prop_oneof![
        15 => records_stay(harmful()),
        1 => Just(Event::WipeStatus),
    ];
    prop_oneof![prop::collection::vec(harmful(), 1..120), prop::collection::vec(status_may_go, 1..120)]
}

/// Outages of the API, with and without volumes that go back.
pub(super) fn outages() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => records_stay(harmless()),
        2 => (0..3_usize).prop_map(Event::ApiAway),
        1 => (0..3_usize).prop_map(Event::ApiRefuses),
        1 => Just(Event::ApiBack),
    ]
}
