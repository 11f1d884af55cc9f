//! Managed TLS: every certificate exists before anything that mounts it.
//!
//! The operator may read Secrets only where an EtcdCluster is, so its right to do so comes before all else.
//!
//! Members trust the authority that they started with until they are restarted. A new one beside them would part those who
//! read their files again from those who do not, so once members may have started no authority is made any more.

use std::ops::ControlFlow;

use super::{Plan, renewal};
use crate::action::{Action, ApplyMode, Effect};
use crate::build;
use crate::build::certificates::{self, CertificateRequest, Purpose, Replaced};
use crate::context::Context;
use crate::guard::Guard;
use crate::reason::Reason;
use crate::view::SecretsSeen;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if !context.desired.encrypted {
        return ControlFlow::Continue(());
    }
    if let Some(binding) = build::missing_operator_binding(context) {
        if context.latch().is_some() {
            plan.note(Reason::SecretsOutOfReach, Reason::SecretsOutOfReach.sentence());
            return ControlFlow::Continue(());
        }
        let effect = Effect::Apply { object: Box::new(binding), how: ApplyMode::Create, guard: Guard::None };
        plan.actions.push(Action::new(Reason::ObjectMissing, effect));
        plan.note(Reason::WaitingForRights, Reason::WaitingForRights.sentence());
        return ControlFlow::Break(());
    }
    match context.view.secrets {
        SecretsSeen::Read => {}
        SecretsSeen::NotAsked => return without_secrets(context),
        SecretsSeen::Refused => {
            plan.note(Reason::SecretsOutOfReach, Reason::SecretsOutOfReach.sentence());
            return without_secrets(context);
        }
    }
    let (present, missing): (Vec<_>, Vec<_>) = certificates::wanted(context)
        .into_iter()
        .partition(|request| context.view.certificates.contains_key(&request.secret));
    let (taken, missing): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|request| context.view.taken_secrets.contains(&request.secret));
    note(plan, Reason::SecretTaken, &taken);
    let trusted = context.latch().is_some() || context.members.iter().any(|member| member.is_running());
    let (lost, missing): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|request| trusted && request.purpose == Purpose::Authority);
    note(plan, Reason::AuthorityLost, &lost);
    let (authorities, leaves): (Vec<_>, Vec<_>) =
        present.into_iter().partition(|request| request.purpose == Purpose::Authority);
    let changed = authorities.into_iter().filter(|request| is_edited(context, request)).collect::<Vec<_>>();
    note(plan, Reason::AuthorityChanged, &changed);
    let cannot_sign =
        taken.iter().chain(&lost).chain(&changed).map(|request| request.secret.clone()).collect::<Vec<_>>();
    let missing = missing.into_iter().map(|request| (Reason::CertificateMissing, request));
    let anew = leaves.into_iter().filter_map(|request| issued_anew(context, request));
    let (issued, unsigned): (Vec<_>, Vec<_>) = missing
        .chain(anew)
        .partition(|(_, request)| request.issuer.as_ref().is_none_or(|issuer| !cannot_sign.contains(issuer)));
    note(plan, Reason::CertificateNotIssued, &unsigned.into_iter().map(|(_, request)| request).collect::<Vec<_>>());
    let issued = issued.into_iter().map(|(reason, request)| Action::new(reason, Effect::IssueCertificate(request)));
    plan.actions.extend(issued);
    ControlFlow::Continue(())
}

/// Pods without certificates would only wait. Those that run have theirs, and the rest of the cluster is seen to.
fn without_secrets(context: &Context<'_>) -> ControlFlow<()> {
    if context.latch().is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// A leaf that takes the place of the one that is there, and why.
fn issued_anew(context: &Context<'_>, request: CertificateRequest) -> Option<(Reason, CertificateRequest)> {
    let fact = context.view.certificates.get(&request.secret)?;
    let reason =
        if fact.edited { Reason::CertificateEdited } else { renewal::reason_to_renew(context, &request, fact)? };
    let replaces = Some(Replaced { serial: fact.serial.clone() });
    Some((reason, CertificateRequest { replaces, ..request }))
}

fn is_edited(context: &Context<'_>, request: &CertificateRequest) -> bool {
    context.view.certificates.get(&request.secret).is_some_and(|fact| fact.edited)
}

fn note(plan: &mut Plan, reason: Reason, requests: &[CertificateRequest]) {
    if !requests.is_empty() {
        let names = requests.iter().map(|request| request.secret.as_str()).collect::<Vec<_>>().join(", ");
        plan.note(reason, format!("{names}: {}", reason.sentence()));
    }
}
