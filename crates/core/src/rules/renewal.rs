//! When certificates are issued anew, and what is said about those that end.
//!
//! A pass comes at least every few minutes, so no timer is needed for what is due in months. etcd reads certificates and
//! keys from its files at every handshake, so nothing is restarted for a new one; the authority it reads only at its start.

use std::ops::ControlFlow;

use jiff::{SignedDuration, Timestamp};

use super::Plan;
use crate::build;
use crate::build::certificates::{self, CertificateRequest, Purpose};
use crate::context::Context;
use crate::drift::short_digest;
use crate::read::Read;
use crate::reason::Reason;
use crate::view::{CertificateFact, SecretsSeen};

/// How long before its end a certificate is named.
const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Clusters that were made together renew at different times within this part of a certificate's life.
const SPREAD: i64 = 24;

/// Asks for what is known about certificates, and says what ends soon. Also while the cluster is paused: a certificate ends
/// all the same.
pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    let may_ask = context.desired.encrypted && build::missing_operator_binding(context).is_none();
    if may_ask && context.view.secrets == SecretsSeen::NotAsked {
        plan.reads.insert(Read::Secrets);
    }
    if context.desired.encrypted && context.view.secrets == SecretsSeen::Read {
        let known = certificates::wanted(context).into_iter().filter_map(|request| {
            let fact = context.view.certificates.get(&request.secret)?;
            Some((request, fact))
        });
        let (authorities, leaves): (Vec<_>, Vec<_>) =
            known.partition(|(request, _)| request.purpose == Purpose::Authority);
        note_ends(context, plan, Reason::AuthorityEndsSoon, &authorities);
        note_ends(context, plan, Reason::CertificateEndsSoon, &leaves);
        let unknown = authorities.iter().chain(&leaves).filter(|(request, fact)| !is_described(request, fact));
        note(plan, Reason::CertificateAnnotationsEdited, unknown.map(|(request, _)| request.secret.clone()));
    }
    ControlFlow::Continue(())
}

/// Whether all that is needed to know about it is known. Authorities are not issued anew.
fn is_described(request: &CertificateRequest, fact: &CertificateFact) -> bool {
    let renewable = fact.issued.is_some() && fact.subject.is_some();
    fact.not_after.is_some() && (renewable || request.purpose == Purpose::Authority)
}

fn note_ends(
    context: &Context<'_>,
    plan: &mut Plan,
    reason: Reason,
    certificates: &[(CertificateRequest, &CertificateFact)],
) {
    let ending = certificates.iter().filter_map(|(request, fact)| {
        let end = fact.not_after.filter(|end| end.duration_since(context.now) <= SOON)?;
        Some(format!("{} ({end})", request.secret))
    });
    note(plan, reason, ending);
}

fn note(plan: &mut Plan, reason: Reason, secrets: impl Iterator<Item = String>) {
    let secrets = secrets.collect::<Vec<_>>();
    if !secrets.is_empty() {
        plan.note(reason, format!("{}: {}", secrets.join(", "), reason.sentence()));
    }
}

/// Why a leaf that nobody has edited is issued anew, if it is.
pub(super) fn reason_to_renew(
    context: &Context<'_>,
    request: &CertificateRequest,
    fact: &CertificateFact,
) -> Option<Reason> {
    // An operator that does not know the domain must not take the names away that one that knew it has given.
    let is_known = !context.view.platform.is_domain_assumed;
    if is_known && fact.subject.as_ref().is_some_and(|subject| *subject != request.subject()) {
        return Some(Reason::CertificateOutdated);
    }
    renewal(fact, context.uid).filter(|&moment| context.now >= moment).map(|_| Reason::CertificateRenewed)
}

/// When two thirds of its life are over, or a little earlier: a thousand clusters must not renew in the same minute.
fn renewal(fact: &CertificateFact, cluster_uid: &str) -> Option<Timestamp> {
    let (issued, end) = (fact.issued?, fact.not_after?);
    let life = end.duration_since(issued).as_secs();
    let earlier = (life / SPREAD).saturating_mul(share(cluster_uid)) / SHARES;
    issued.checked_add(SignedDuration::from_secs((life / 3).saturating_mul(2).saturating_sub(earlier))).ok()
}

pub(super) const SHARES: i64 = 1 << 16;

/// The cluster's own place among its like, the same in every pass.
pub(super) fn share(cluster_uid: &str) -> i64 {
    let digest = short_digest(cluster_uid.as_bytes());
    digest.get(..4).and_then(|digits| i64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}
