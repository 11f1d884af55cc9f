//! Certificates do not end: leaves are issued anew in time, and whatever is going to end is named.

use crate::sim::World;
use jiff::{SignedDuration, Timestamp};
use quorate_api::conditions::ConditionType::Degraded;
use quorate_core::view::CertificateFact;
use quorate_core::{Action, Decision, Effect, Reason};

use crate::common::{condition, decision, running, says, settle};

const LEAVES: [&str; 6] = [
    "etcd-peer-tls",
    "etcd-peerclient-tls",
    "etcd-server-tls",
    "etcd-agent-tls",
    "etcd-operator-tls",
    "etcd-client-tls",
];
const YEAR: i64 = 365;

fn days(count: i64) -> SignedDuration {
    SignedDuration::from_hours(count * 24)
}

fn issued(decision: &Decision) -> Vec<(Reason, &str)> {
    let issue = |action: &'_ Action| matches!(action.effect, Effect::IssueCertificate(_));
    let issued = decision.actions.iter().filter(|action| issue(action));
    issued.map(|action| (action.reason, secret(action))).collect()
}

fn secret(action: &Action) -> &str {
    let Effect::IssueCertificate(request) = &action.effect else { panic!("{action:?}") };
    &request.secret
}

/// Takes what the decision says about certificates, and nothing else.
fn issue(world: &mut World, decision: &Decision) {
    for action in decision.actions.iter().filter(|action| matches!(action.effect, Effect::IssueCertificate(_))) {
        world.act(action);
    }
}

fn is_due(world: &World) -> bool {
    !issued(&decision(world)).is_empty()
}

fn degraded(decision: &Decision) -> String {
    condition(&decision.status, Degraded).message.clone()
}

#[test]
fn leaves_are_issued_anew_when_two_thirds_of_their_life_are_over() {
    let mut world = running(3);
    let made = world.now;
    let (serials, end) = (world.certificates.clone(), decision(&world).status.certificates.unwrap().not_after);
    world.now = made + days(YEAR * 2 / 3 - YEAR / 24 - 2);
    assert!(!is_due(&world), "nor earlier, however early the cluster's turn is");
    world.now = made + days(YEAR * 2 / 3 + 1);
    let due = decision(&world);
    assert_eq!(issued(&due), LEAVES.map(|secret| (Reason::CertificateRenewed, secret)), "and no authority");
    issue(&mut world, &due);
    let after = decision(&world);
    assert_eq!(issued(&after), [], "once");
    assert!(after.status.certificates.unwrap().not_after > end);
    for secret in LEAVES {
        assert_ne!(world.certificates[secret].serial, serials[secret].serial, "{secret}");
    }
}

#[test]
fn what_is_replaced_is_exactly_the_certificate_that_was_seen() {
    let mut world = running(1);
    world.now += days(YEAR * 2 / 3 + 1);
    for action in decision(&world).actions {
        if let Effect::IssueCertificate(request) = action.effect {
            assert_eq!(request.replaces.unwrap().serial, world.certificates[&request.secret].serial);
        }
    }
}

#[test]
fn a_settled_cluster_is_looked_at_often_enough_to_renew_in_time() {
    let world = running(3);
    assert!(decision(&world).requeue <= SignedDuration::from_mins(5));
    assert!(decision(&world).rest <= SignedDuration::from_mins(5));
}

#[test]
fn clusters_that_were_made_together_renew_apart() {
    let clusters = (0..64).map(|number| {
        let mut world = World::new(1);
        world.cluster.metadata.uid = Some(format!("uid-{number}"));
        settle(&mut world);
        world
    });
    let mut clusters = clusters.collect::<Vec<_>>();
    let made = clusters[0].now;
    let (begin, end) = (days(YEAR * 2 / 3 - YEAR / 24 - 2), days(YEAR * 2 / 3 + 1));
    let counts = [0, 1, 2, 3, 4].map(|quarter| {
        let moment = made + begin + (end - begin) * quarter / 4;
        clusters
            .iter_mut()
            .filter_map(|world| {
                world.now = moment;
                is_due(world).then_some(())
            })
            .count()
    });
    assert_eq!((counts[0], counts[4]), (0, 64));
    for step in counts.windows(2) {
        assert!((4..32).contains(&(step[1] - step[0])), "{counts:?}");
    }
}

#[test]
fn another_cluster_domain_is_another_server_certificate_and_nothing_else() {
    let mut world = running(3);
    world.platform.cluster_domain = "k8s.example.com".to_owned();
    let changed = decision(&world);
    assert_eq!(issued(&changed), [(Reason::CertificateOutdated, "etcd-server-tls")], "peers do without it");
    let Effect::IssueCertificate(request) = &changed.actions[0].effect else { panic!() };
    for name in ["etcd-client.default.svc", "etcd-client.default.svc.k8s.example.com", "*.etcd-peer.default.svc"] {
        assert!(request.dns_names.iter().any(|known| known == name), "{name}: {:?}", request.dns_names);
    }
    issue(&mut world, &changed);
    assert!(!is_due(&world), "once");
}

#[test]
fn an_operator_that_does_not_know_the_domain_takes_no_name_away() {
    let mut world = running(3);
    world.platform.cluster_domain = "k8s.example.com".to_owned();
    let changed = decision(&world);
    issue(&mut world, &changed);
    world.platform.cluster_domain = "cluster.local".to_owned();
    world.platform.is_domain_assumed = true;
    assert!(!is_due(&world));
    world.now += days(YEAR * 2 / 3 + 1);
    assert_eq!(issued(&decision(&world)).len(), LEAVES.len(), "and yet none ends");
}

#[test]
fn a_certificate_that_is_due_and_cannot_be_signed_is_named() {
    let mut world = running(3);
    world.certificates.remove("etcd-client-ca");
    assert!(!degraded(&decision(&world)).contains("etcd-server-tls"), "it is not due");
    world.now += days(YEAR * 2 / 3 + 1);
    let due = decision(&world);
    assert_eq!(
        issued(&due).iter().map(|(_, secret)| *secret).collect::<Vec<_>>(),
        ["etcd-peer-tls", "etcd-peerclient-tls"]
    );
    let said = degraded(&due);
    assert!(said.contains(Reason::AuthorityLost.sentence()), "{said}");
    assert!(said.contains(Reason::CertificateNotIssued.sentence()) && said.contains("etcd-server-tls"), "{said}");
}

#[test]
fn whatever_ends_within_thirty_days_is_named() {
    let mut world = running(3);
    let authority = |world: &mut World, end: Timestamp| {
        world.certificates.get_mut("etcd-peer-ca").unwrap().not_after = Some(end);
    };
    let soon = world.now + days(30);
    authority(&mut world, soon + SignedDuration::from_secs(1));
    says(&decision(&world).status, Degraded, "False", "AsExpected");
    authority(&mut world, soon);
    let named = decision(&world);
    says(&named.status, Degraded, "True", "AuthorityEndsSoon");
    assert!(degraded(&named).contains(&format!("etcd-peer-ca ({soon})")), "{}", degraded(&named));
    assert_eq!(issued(&named), [], "no authority is replaced");
    world.cluster.spec.maintenance.paused = true;
    assert!(degraded(&decision(&world)).contains("etcd-peer-ca"), "a pause does not stop the clock");
}

#[test]
fn a_leaf_that_could_not_be_renewed_is_named_before_and_after_its_end() {
    let mut world = running(3);
    world.certificates.get_mut("etcd-client-ca").unwrap().edited = true;
    let end = world.certificates["etcd-server-tls"].not_after.unwrap();
    for now in [end - days(30), end, end + days(1)] {
        world.now = now;
        let said = degraded(&decision(&world));
        assert!(said.contains(Reason::CertificateEndsSoon.sentence()), "{now}: {said}");
        assert!(said.contains(&format!("etcd-server-tls ({end})")), "{now}: {said}");
    }
}

#[test]
fn an_end_that_nobody_knows_is_said_and_the_rest_still_counts() {
    for secret in ["etcd-client-ca", "etcd-server-tls"] {
        let mut world = running(3);
        let known = world.certificates["etcd-agent-tls"].not_after.unwrap();
        let fact = world.certificates.get_mut(secret).unwrap();
        (fact.issued, fact.not_after, fact.subject) = (None, None, None);
        let unknown = decision(&world);
        says(&unknown.status, Degraded, "True", "CertificateAnnotationsEdited");
        assert!(degraded(&unknown).contains(secret), "{}", degraded(&unknown));
        assert_eq!(issued(&unknown), [], "what nobody knows is left as it is");
        assert!(unknown.status.certificates.unwrap().not_after.0 <= known);
    }
}

#[test]
fn a_leaf_of_which_not_all_is_known_is_named_long_before_it_ends() {
    let edits: [fn(&mut CertificateFact); 3] =
        [|fact| fact.issued = None, |fact| fact.subject = None, |fact| fact.not_after = None];
    for edit in edits {
        let mut world = running(1);
        edit(world.certificates.get_mut("etcd-server-tls").unwrap());
        let named = decision(&world);
        says(&named.status, Degraded, "True", "CertificateAnnotationsEdited");
        assert!(degraded(&named).starts_with("etcd-server-tls: "), "{}", degraded(&named));
    }
}

#[test]
fn a_clock_that_jumps_renews_once_and_one_that_falls_back_renews_nothing() {
    let mut world = running(3);
    let made = world.now;
    world.now = made + days(100 * YEAR);
    let ahead = decision(&world);
    assert_eq!(issued(&ahead).len(), LEAVES.len());
    issue(&mut world, &ahead);
    assert!(!is_due(&world));
    world.now = made;
    assert!(!is_due(&world), "valid from before, so nothing has to be done");
    world.now = made - days(100 * YEAR);
    assert!(!is_due(&world));
}

#[test]
fn dates_that_make_no_sense_are_put_right() {
    let mut world = running(1);
    let fact = world.certificates.get_mut("etcd-server-tls").unwrap();
    fact.not_after = fact.issued.map(|issued| issued - days(1));
    let due = decision(&world);
    assert_eq!(issued(&due), [(Reason::CertificateRenewed, "etcd-server-tls")]);
    issue(&mut world, &due);
    assert!(!is_due(&world));
}
