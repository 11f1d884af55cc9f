//! The decision table of a starting member, row by row.
//!
//! Where the table lets a member act by itself, ours waits for a ticket: the operator removes and adds members, and
//! chooses what to restore.

use quorate_api::member::{DataState, Peer, Ticket};
use quorate_core::start::{Found, Identity, Refusal, Start, Unusable, WaitFor, Word, start};

fn peers() -> Vec<Peer> {
    (0..3).map(|n| Peer { name: format!("etcd-{n}"), url: format!("https://etcd-{n}:2380") }).collect()
}

fn identity() -> Identity {
    Identity { cluster_id: "c".to_owned(), member_id: "m".to_owned(), epoch: 1, boot_count: 3, last_index: 100 }
}

fn found(state: DataState) -> Found {
    Found { state, identity: (state == DataState::Valid).then(identity) }
}

fn bootstrap(epoch: i64) -> Word<Ticket> {
    Word::Known(Ticket::Bootstrap { epoch, token: "t".to_owned(), initial_cluster: peers() })
}

fn join() -> Word<Ticket> {
    Word::Known(Ticket::Join { epoch: 1, initial_cluster: peers() })
}

fn resume(epoch: i64) -> Word<Ticket> {
    Word::Known(Ticket::Resume { epoch })
}

fn restore(epoch: i64) -> Word<Ticket> {
    Word::Known(Ticket::Restore {
        epoch,
        token: "t".to_owned(),
        initial_cluster: peers(),
        source: "full".to_owned(),
        revision: 7,
        digest: "d".to_owned(),
    })
}

fn hold() -> Word<Ticket> {
    Word::Known(Ticket::Hold { reason: "wait".to_owned() })
}

fn new(epoch: i64) -> Start {
    Start::New { epoch, token: "t".to_owned(), initial_cluster: peers() }
}

#[test]
fn row_1_the_first_member_of_a_fresh_cluster_starts_new_on_its_ticket() {
    assert_eq!(start(&found(DataState::Empty), &bootstrap(1), &Word::Nothing), new(1));
    assert_eq!(start(&found(DataState::Empty), &hold(), &Word::Nothing), Start::Wait(WaitFor::Ticket));
}

#[test]
fn row_2_a_following_member_of_a_fresh_cluster_starts_new_on_its_ticket() {
    assert_eq!(start(&found(DataState::Empty), &bootstrap(1), &Word::Nothing), new(1));
}

#[test]
fn row_3_a_member_of_a_quorate_cluster_with_valid_data_starts_from_it() {
    for ticket in [resume(1), bootstrap(1), join(), hold(), Word::Nothing, Word::Unreachable] {
        for recorded in [Word::Known(identity()), Word::Nothing, Word::Unreachable] {
            assert_eq!(start(&found(DataState::Valid), &ticket, &recorded), Start::Resume, "{ticket:?} {recorded:?}");
        }
    }
}

#[test]
fn row_4_a_member_with_damaged_data_waits_to_be_replaced_and_then_joins() {
    let damaged = found(DataState::Damaged);
    let recorded = Word::Known(identity());
    assert_eq!(start(&damaged, &resume(1), &recorded), Start::Wait(WaitFor::Replacement));
    assert_eq!(start(&damaged, &join(), &recorded), Start::Quarantine(Unusable::Damaged));
    let joined = Start::Join { epoch: 1, initial_cluster: peers() };
    assert_eq!(start(&found(DataState::Empty), &join(), &recorded), joined);
}

#[test]
fn row_5_a_member_without_data_waits_to_be_replaced_and_then_joins() {
    let recorded = Word::Known(identity());
    assert_eq!(start(&found(DataState::Empty), &resume(1), &recorded), Start::Wait(WaitFor::Replacement));
    let joined = Start::Join { epoch: 1, initial_cluster: peers() };
    assert_eq!(start(&found(DataState::Empty), &join(), &recorded), joined);
}

#[test]
fn row_6_a_member_of_a_cluster_without_quorum_with_valid_data_starts_from_it() {
    assert_eq!(start(&found(DataState::Valid), &resume(1), &Word::Known(identity())), Start::Resume);
}

#[test]
fn row_7_the_first_member_without_data_and_quorum_restores_only_what_it_is_told() {
    let recorded = Word::Known(identity());
    assert_eq!(start(&found(DataState::Empty), &resume(1), &recorded), Start::Wait(WaitFor::Replacement));
    let restored = start(&found(DataState::Empty), &restore(2), &recorded);
    assert!(matches!(restored, Start::Restore { epoch: 2, revision: 7, .. }), "{restored:?}");
    assert_eq!(start(&found(DataState::Damaged), &restore(2), &recorded), Start::Quarantine(Unusable::Damaged));
}

#[test]
fn row_8_a_following_member_without_data_and_quorum_waits_and_then_joins() {
    let recorded = Word::Known(identity());
    assert_eq!(start(&found(DataState::Empty), &bootstrap(1), &recorded), Start::Wait(WaitFor::Replacement));
    assert!(matches!(start(&found(DataState::Empty), &join(), &recorded), Start::Join { .. }));
}

#[test]
fn a_wiped_member_never_starts_new_in_an_epoch_it_has_run_in() {
    let recorded = Word::Known(identity());
    assert_eq!(start(&found(DataState::Empty), &bootstrap(1), &recorded), Start::Wait(WaitFor::Replacement));
    assert_eq!(start(&found(DataState::Empty), &bootstrap(2), &recorded), new(2));
    let unknown = start(&found(DataState::Empty), &bootstrap(1), &Word::Unreachable);
    assert_eq!(unknown, Start::Wait(WaitFor::KubernetesApi));
}

#[test]
fn an_empty_member_never_starts_while_the_api_is_out_of_reach() {
    let waiting = start(&found(DataState::Empty), &Word::Unreachable, &Word::Unreachable);
    assert_eq!(waiting, Start::Wait(WaitFor::KubernetesApi));
}

#[test]
fn a_volume_that_was_rolled_back_is_fenced() {
    for older in [
        Identity { boot_count: 2, ..identity() },
        Identity { last_index: 99, ..identity() },
        Identity { boot_count: 9, last_index: 99, ..identity() },
    ] {
        let found = Found { state: DataState::Valid, identity: Some(older) };
        let answer = start(&found, &resume(1), &Word::Known(identity()));
        assert_eq!(answer, Start::Refuse(Refusal::RolledBack), "{found:?}");
    }
    let newer = Identity { boot_count: 4, last_index: 101, ..identity() };
    let found = Found { state: DataState::Valid, identity: Some(newer) };
    assert_eq!(start(&found, &resume(1), &Word::Known(identity())), Start::Resume);
}

#[test]
fn data_of_others_is_refused_and_left_alone() {
    for ticket in [bootstrap(1), join(), resume(1), restore(2), hold(), Word::Nothing, Word::Unreachable] {
        let answer = start(&found(DataState::Foreign), &ticket, &Word::Nothing);
        assert_eq!(answer, Start::Refuse(Refusal::ForeignData));
    }
    for other in [
        Identity { member_id: "other".to_owned(), ..identity() },
        Identity { cluster_id: "other".to_owned(), ..identity() },
    ] {
        let found = Found { state: DataState::Valid, identity: Some(other) };
        let answer = start(&found, &resume(1), &Word::Known(identity()));
        assert_eq!(answer, Start::Refuse(Refusal::IdentityChanged));
    }
}

#[test]
fn data_of_another_epoch_does_not_start() {
    let earlier = start(&found(DataState::Valid), &resume(2), &Word::Nothing);
    assert_eq!(earlier, Start::Wait(WaitFor::Replacement));
    let replaced = start(&found(DataState::Valid), &restore(2), &Word::Nothing);
    assert_eq!(replaced, Start::Quarantine(Unusable::EarlierEpoch));
    assert_eq!(start(&found(DataState::Valid), &resume(0), &Word::Nothing), Start::Refuse(Refusal::LaterEpoch));
}

#[test]
fn unusable_data_is_not_moved_aside_before_a_ticket_needs_the_room() {
    for ticket in [hold(), resume(1), bootstrap(1), Word::Nothing, Word::Unreachable] {
        let answer = start(&found(DataState::Damaged), &ticket, &Word::Nothing);
        assert!(matches!(answer, Start::Wait(_)), "{ticket:?}: {answer:?}");
    }
}
