//! Managed TLS: every certificate exists before anything that mounts it.
//!
//! The operator may read Secrets only where an EtcdCluster is, so its right to do so comes before all else.
//!
//! Members trust the authority that they started with until they are restarted. A new one beside them would part those who
//! read their files again from those who do not, so once members may have started no authority is made any more.

use std::ops::ControlFlow;

use super::Plan;
use crate::action::{Action, Effect, Guard};
use crate::build;
use crate::build::certificates::{self, CertificateRequest, Purpose};
use crate::context::{Context, MemberFacts};
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
        let effect = Effect::Apply { object: Box::new(binding), guard: Guard::None };
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
    let trusted = context.latch().is_some() || context.members.iter().any(MemberFacts::is_running);
    let (lost, missing): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|request| trusted && request.purpose == Purpose::Authority);
    note(plan, Reason::AuthorityLost, &lost);
    let (edited, _): (Vec<_>, Vec<_>) = present.into_iter().partition(|request| is_edited(context, request));
    let (changed, edited): (Vec<_>, Vec<_>) =
        edited.into_iter().partition(|request| request.purpose == Purpose::Authority);
    note(plan, Reason::AuthorityChanged, &changed);
    let cannot_sign =
        taken.iter().chain(&lost).chain(&changed).map(|request| request.secret.clone()).collect::<Vec<_>>();
    let missing = missing.into_iter().map(|request| (Reason::CertificateMissing, request));
    let edited = edited.into_iter().map(|request| CertificateRequest { replace: true, ..request });
    let edited = edited.map(|request| (Reason::CertificateEdited, request));
    let issued = missing
        .chain(edited)
        .filter(|(_, request)| request.issuer.as_ref().is_none_or(|issuer| !cannot_sign.contains(issuer)))
        .map(|(reason, request)| Action::new(reason, Effect::IssueCertificate(request)));
    plan.actions.extend(issued);
    ControlFlow::Continue(())
}

/// Pods without certificates would only wait. Those that run have theirs, and the rest of the cluster is seen to.
fn without_secrets(context: &Context<'_>) -> ControlFlow<()> {
    if context.latch().is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
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
