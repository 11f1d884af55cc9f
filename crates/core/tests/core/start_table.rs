//! The decision table of a starting member, row by row.
//!
//! Where the table lets a member act by itself, ours waits for a ticket: the operator removes and adds members, and
//! chooses what to restore.

use quorate_api::member::{DataState, Peer, Ticket};
use quorate_core::lease::Heartbeat;
use quorate_core::start::{ApiAnswer, Found, Identity, Refusal, Start, Unusable, WaitFor, in_force, start};

fn peers() -> Vec<Peer> {
    (0..3).map(|n| Peer { name: format!("etcd-{n}"), url: format!("https://etcd-{n}:2380") }).collect()
}

fn identity() -> Identity {
    Identity { cluster_id: "c".to_owned(), member_id: "m".to_owned(), epoch: 1, boot_count: 3, last_index: 100 }
}

fn found(state: DataState) -> Found {
    Found { state, identity: (state == DataState::Valid).then(identity), prepared: None }
}

fn bootstrap(epoch: i64) -> ApiAnswer<Ticket> {
    ApiAnswer::Known(Ticket::Bootstrap { epoch, token: "t".to_owned(), initial_cluster: peers() })
}

fn join_as(member_id: &str) -> ApiAnswer<Ticket> {
    let (cluster_id, member_id) = ("c".to_owned(), member_id.to_owned());
    ApiAnswer::Known(Ticket::Join { epoch: 1, cluster_id, member_id, initial_cluster: peers() })
}

/// As another member than the one that was here before.
fn join() -> ApiAnswer<Ticket> {
    join_as("successor")
}

fn joined() -> Start {
    let (cluster_id, member_id) = ("c".to_owned(), "successor".to_owned());
    Start::Join { epoch: 1, cluster_id, member_id, initial_cluster: peers() }
}

fn resume(epoch: i64) -> ApiAnswer<Ticket> {
    ApiAnswer::Known(Ticket::Resume { epoch })
}

fn restore(epoch: i64) -> ApiAnswer<Ticket> {
    ApiAnswer::Known(Ticket::Restore {
        epoch,
        token: "t".to_owned(),
        initial_cluster: peers(),
        source: "full".to_owned(),
        revision: 7,
        digest: "d".to_owned(),
    })
}

fn hold() -> ApiAnswer<Ticket> {
    ApiAnswer::Known(Ticket::Hold { reason: "wait".to_owned(), epoch: None })
}

fn new(epoch: i64) -> Start {
    Start::New { epoch, token: "t".to_owned(), initial_cluster: peers() }
}

#[test]
fn row_1_the_first_member_of_a_fresh_cluster_starts_new_on_its_ticket() {
    assert_eq!(start(&found(DataState::Empty), &bootstrap(1), &ApiAnswer::Nothing), new(1));
    assert_eq!(start(&found(DataState::Empty), &hold(), &ApiAnswer::Nothing), Start::Wait(WaitFor::Ticket));
}

#[test]
fn row_2_a_following_member_of_a_fresh_cluster_starts_new_on_its_ticket() {
    assert_eq!(start(&found(DataState::Empty), &bootstrap(1), &ApiAnswer::Nothing), new(1));
}

#[test]
fn row_3_a_member_of_a_quorate_cluster_with_valid_data_starts_from_it() {
    for ticket in [resume(1), bootstrap(1), join_as("m"), hold(), ApiAnswer::Nothing, ApiAnswer::Unreachable] {
        for recorded in [ApiAnswer::Known(identity()), ApiAnswer::Nothing, ApiAnswer::Unreachable] {
            assert_eq!(start(&found(DataState::Valid), &ticket, &recorded), Start::Resume, "{ticket:?} {recorded:?}");
        }
    }
}

#[test]
fn row_4_a_member_with_damaged_data_waits_to_be_replaced_and_then_joins() {
    let damaged = found(DataState::Damaged);
    let recorded = ApiAnswer::Known(identity());
    assert_eq!(start(&damaged, &resume(1), &recorded), Start::Wait(WaitFor::Replacement));
    assert_eq!(start(&damaged, &join(), &recorded), Start::Quarantine(Unusable::Damaged));
    assert_eq!(start(&found(DataState::Empty), &join(), &recorded), joined());
}

#[test]
fn row_5_a_member_without_data_waits_to_be_replaced_and_then_joins() {
    let recorded = ApiAnswer::Known(identity());
    assert_eq!(start(&found(DataState::Empty), &resume(1), &recorded), Start::Wait(WaitFor::Replacement));
    assert_eq!(start(&found(DataState::Empty), &join(), &recorded), joined());
}

#[test]
fn row_6_a_member_of_a_cluster_without_quorum_with_valid_data_starts_from_it() {
    assert_eq!(start(&found(DataState::Valid), &resume(1), &ApiAnswer::Known(identity())), Start::Resume);
}

#[test]
fn row_7_the_first_member_without_data_and_quorum_restores_only_what_it_is_told() {
    let recorded = ApiAnswer::Known(identity());
    assert_eq!(start(&found(DataState::Empty), &resume(1), &recorded), Start::Wait(WaitFor::Replacement));
    let restored = start(&found(DataState::Empty), &restore(2), &recorded);
    assert!(matches!(restored, Start::Restore { epoch: 2, revision: 7, .. }), "{restored:?}");
    assert_eq!(start(&found(DataState::Damaged), &restore(2), &recorded), Start::Quarantine(Unusable::Damaged));
}

#[test]
fn row_7_the_best_copy_that_is_left_begins_anew_once_and_only_as_the_one_that_was_chosen() {
    let recover = |cluster_id: &str, member_id: &str| {
        ApiAnswer::Known(Ticket::Recover {
            epoch: 2,
            token: "t-2".to_owned(),
            initial_cluster: Vec::new(),
            cluster_id: cluster_id.to_owned(),
            member_id: member_id.to_owned(),
            raise_to: 1_000,
            even_if_fenced: false,
        })
    };
    let (valid, own) = (found(DataState::Valid), identity());
    let chosen = recover(&own.cluster_id, &own.member_id);
    let recorded = ApiAnswer::Known(own.clone());
    assert!(matches!(start(&valid, &chosen, &recorded), Start::Recover { epoch: 2, raise_to: 1_000, .. }));
    let waits = Start::Wait(WaitFor::Replacement);
    assert_eq!(start(&valid, &recover(&own.cluster_id, "another"), &recorded), waits, "another copy was chosen");
    assert_eq!(start(&valid, &recover("another", &own.member_id), &recorded), waits);
    assert_eq!(start(&found(DataState::Empty), &chosen, &recorded), waits, "it is gone too");
    assert_eq!(start(&found(DataState::Damaged), &chosen, &recorded), waits);
    let farther = ApiAnswer::Known(Identity { last_index: own.last_index + 1, ..own.clone() });
    assert_eq!(start(&valid, &chosen, &farther), Start::Refuse(Refusal::RolledBack));
    let begun = ApiAnswer::Known(Identity { epoch: 2, cluster_id: "new".to_owned(), ..own });
    assert!(matches!(start(&valid, &chosen, &begun), Start::Refuse(_)), "it has begun, and its volume went back");
    assert_eq!(start(&valid, &chosen, &ApiAnswer::Unreachable), Start::Wait(WaitFor::KubernetesApi));
}

#[test]
fn row_8_a_following_member_without_data_and_quorum_waits_and_then_joins() {
    let recorded = ApiAnswer::Known(identity());
    assert_eq!(start(&found(DataState::Empty), &bootstrap(1), &recorded), Start::Wait(WaitFor::Replacement));
    assert!(matches!(start(&found(DataState::Empty), &join(), &recorded), Start::Join { .. }));
}

#[test]
fn a_ticket_to_join_is_good_for_one_start_of_the_member_that_it_names() {
    let own = |last_index| Identity { member_id: "successor".to_owned(), boot_count: 1, last_index, ..identity() };
    let empty = found(DataState::Empty);
    let begun = ApiAnswer::Known(own(0));
    assert_eq!(start(&empty, &join(), &begun), Start::Wait(WaitFor::Replacement), "it was wiped after it began");
    let prepared = Found { prepared: Some(own(0)), ..empty.clone() };
    assert_eq!(start(&prepared, &join(), &begun), joined(), "it never began");
    assert_eq!(start(&prepared, &join(), &ApiAnswer::Known(own(7))), Start::Wait(WaitFor::Replacement));
    assert_eq!(start(&empty, &join(), &ApiAnswer::Unreachable), Start::Wait(WaitFor::KubernetesApi));
    assert_eq!(start(&empty, &join(), &ApiAnswer::Refused), Start::Wait(WaitFor::KubernetesApiAccess));
    let damaged = found(DataState::Damaged);
    assert_eq!(start(&damaged, &join(), &begun), Start::Wait(WaitFor::Replacement), "the damage is its own");
}

#[test]
fn whatever_was_here_before_is_put_aside_for_the_member_that_joins() {
    let before = ApiAnswer::Known(identity());
    for (state, why) in [
        (DataState::Valid, Unusable::Replaced),
        (DataState::Damaged, Unusable::Damaged),
        (DataState::Foreign, Unusable::Foreign),
    ] {
        assert_eq!(start(&found(state), &join(), &before), Start::Quarantine(why));
        assert_ne!(start(&found(state), &join(), &ApiAnswer::Unreachable), Start::Quarantine(why), "nobody is sure");
    }
    assert_eq!(start(&found(DataState::Unreadable), &join(), &before), Start::Wait(WaitFor::ReadableVolume));
}

#[test]
fn the_lease_of_whoever_was_here_before_does_not_keep_a_member_from_joining() {
    let Some(ticket) = join().known().cloned() else { panic!() };
    let lease =
        |holder: &str| Heartbeat { member_id: Some(holder.to_owned()), boot_count: Some(3), ..Heartbeat::default() };
    assert_eq!(in_force(ticket.clone(), None, &lease("m")), ticket);
    assert_eq!(in_force(ticket, None, &lease("successor")), Ticket::Resume { epoch: 1 });
}

#[test]
fn a_wiped_member_never_starts_new_in_an_epoch_it_has_run_in() {
    let recorded = ApiAnswer::Known(identity());
    assert_eq!(start(&found(DataState::Empty), &bootstrap(1), &recorded), Start::Wait(WaitFor::Replacement));
    assert_eq!(start(&found(DataState::Empty), &bootstrap(2), &recorded), new(2));
    let unknown = start(&found(DataState::Empty), &bootstrap(1), &ApiAnswer::Unreachable);
    assert_eq!(unknown, Start::Wait(WaitFor::KubernetesApi));
}

#[test]
fn a_lease_alone_remembers_that_a_member_has_started() {
    let ApiAnswer::Known(ticket) = bootstrap(1) else { panic!() };
    let never = Heartbeat::default();
    let once = Heartbeat { boot_count: Some(1), ..Heartbeat::default() };
    assert_eq!(in_force(ticket.clone(), None, &never), ticket);
    assert_eq!(in_force(ticket.clone(), Some(&identity()), &once), ticket, "the record itself tells, and by its epoch");
    let lost = in_force(ticket, None, &once);
    assert_eq!(lost, Ticket::Resume { epoch: 1 });
    let empty = found(DataState::Empty);
    assert_eq!(start(&empty, &ApiAnswer::Known(lost), &ApiAnswer::Nothing), Start::Wait(WaitFor::Replacement));
}

#[test]
fn an_empty_member_never_starts_while_the_api_is_out_of_reach() {
    let waiting = start(&found(DataState::Empty), &ApiAnswer::Unreachable, &ApiAnswer::Unreachable);
    assert_eq!(waiting, Start::Wait(WaitFor::KubernetesApi));
}

#[test]
fn a_volume_that_was_rolled_back_is_fenced() {
    for older in [
        Identity { boot_count: 2, ..identity() },
        Identity { last_index: 99, ..identity() },
        Identity { boot_count: 9, last_index: 99, ..identity() },
    ] {
        let found = Found { state: DataState::Valid, identity: Some(older), prepared: None };
        let answer = start(&found, &resume(1), &ApiAnswer::Known(identity()));
        assert_eq!(answer, Start::Refuse(Refusal::RolledBack), "{found:?}");
    }
    let newer = Identity { boot_count: 4, last_index: 101, ..identity() };
    let found = Found { state: DataState::Valid, identity: Some(newer), prepared: None };
    assert_eq!(start(&found, &resume(1), &ApiAnswer::Known(identity())), Start::Resume);
}

#[test]
fn data_of_others_is_refused_and_left_alone() {
    for ticket in [bootstrap(1), resume(1), restore(2), hold(), ApiAnswer::Nothing, ApiAnswer::Unreachable] {
        let answer = start(&found(DataState::Foreign), &ticket, &ApiAnswer::Nothing);
        assert_eq!(answer, Start::Refuse(Refusal::ForeignData));
    }
    for other in [
        Identity { member_id: "other".to_owned(), ..identity() },
        Identity { cluster_id: "other".to_owned(), ..identity() },
    ] {
        let found = Found { state: DataState::Valid, identity: Some(other), prepared: None };
        let answer = start(&found, &resume(1), &ApiAnswer::Known(identity()));
        assert_eq!(answer, Start::Refuse(Refusal::IdentityChanged));
    }
}

#[test]
fn data_of_another_epoch_does_not_start() {
    let earlier = start(&found(DataState::Valid), &resume(2), &ApiAnswer::Nothing);
    assert_eq!(earlier, Start::Wait(WaitFor::Replacement));
    let replaced = start(&found(DataState::Valid), &restore(2), &ApiAnswer::Nothing);
    assert_eq!(replaced, Start::Quarantine(Unusable::EarlierEpoch));
    assert_eq!(start(&found(DataState::Valid), &resume(0), &ApiAnswer::Nothing), Start::Refuse(Refusal::LaterEpoch));
}

#[test]
fn unusable_data_is_not_moved_aside_before_a_ticket_needs_the_room() {
    for ticket in [hold(), resume(1), bootstrap(1), ApiAnswer::Nothing, ApiAnswer::Unreachable] {
        let answer = start(&found(DataState::Damaged), &ticket, &ApiAnswer::Nothing);
        assert!(matches!(answer, Start::Wait(_)), "{ticket:?}: {answer:?}");
    }
}

#[test]
fn a_member_that_was_about_to_begin_and_did_not_may_begin_and_one_that_was_wiped_may_not() {
    let mark = Identity { boot_count: 1, last_index: 0, ..identity() };
    let recorded = ApiAnswer::Known(mark.clone());
    let about_to = |own: &Identity| Found { prepared: Some(own.clone()), ..found(DataState::Empty) };
    assert!(matches!(start(&about_to(&mark), &bootstrap(1), &recorded), Start::New { .. }));
    let replaced = Start::Wait(WaitFor::Replacement);
    assert_eq!(start(&found(DataState::Empty), &bootstrap(1), &recorded), replaced, "its volume was wiped since");
    let other = Identity { member_id: "another".to_owned(), ..mark.clone() };
    assert_eq!(start(&about_to(&other), &bootstrap(1), &recorded), replaced);
    let ran = ApiAnswer::Known(Identity { last_index: 7, ..mark.clone() });
    assert_eq!(start(&about_to(&mark), &bootstrap(1), &ran), replaced, "it has run, whatever the volume says");
}

#[test]
fn a_fence_keeps_the_member_that_it_names_from_starting_and_nobody_else() {
    let fence = |member_id: &str, epoch| {
        let reason = "it differs".to_owned();
        ApiAnswer::Known(Ticket::Fence { epoch, member_id: member_id.to_owned(), reason })
    };
    let recorded = ApiAnswer::Known(identity());
    let valid = found(DataState::Valid);
    assert_eq!(start(&valid, &fence("m", 1), &recorded), Start::Refuse(Refusal::Diverged));
    assert_eq!(start(&valid, &fence("m", 1), &ApiAnswer::Nothing), Start::Refuse(Refusal::Diverged));
    assert_eq!(start(&valid, &fence("predecessor", 1), &recorded), Start::Resume);
    assert_eq!(start(&valid, &fence("m", 0), &recorded), Start::Refuse(Refusal::LaterEpoch));
    let emptied = start(&found(DataState::Empty), &fence("m", 1), &recorded);
    assert_eq!(emptied, Start::Wait(WaitFor::Replacement), "a wiped volume is no way out of it");
}
