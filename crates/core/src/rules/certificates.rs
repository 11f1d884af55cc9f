//! Managed TLS: every certificate exists before anything that mounts it.
//!
//! Members trust the authority that they started with until they are restarted. A new one beside them would part those who
//! read their files again from those who do not, so once members may have started no authority is made any more.

use std::ops::ControlFlow;

use super::Plan;
use crate::action::{Action, Effect};
use crate::build::certificates::{self, CertificateRequest, Purpose};
use crate::context::{Context, MemberFacts};
use crate::reason::Reason;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if !context.desired.encrypted {
        return ControlFlow::Continue(());
    }
    let wanted = certificates::wanted(context);
    let missing = wanted.into_iter().filter(|request| !context.view.certificates.contains_key(&request.secret));
    let (taken, missing): (Vec<_>, Vec<_>) =
        missing.partition(|request| context.view.taken_secrets.contains(&request.secret));
    note(plan, Reason::SecretTaken, &taken);
    let trusted = context.latch().is_some() || context.members.iter().any(MemberFacts::is_running);
    let (lost, missing): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|request| trusted && request.purpose == Purpose::Authority);
    note(plan, Reason::AuthorityLost, &lost);
    let cannot_sign = taken.iter().chain(&lost).map(|request| request.secret.clone()).collect::<Vec<_>>();
    let issued = missing
        .into_iter()
        .filter(|request| request.issuer.as_ref().is_none_or(|issuer| !cannot_sign.contains(issuer)))
        .map(|request| Action::new(Reason::CertificateMissing, Effect::IssueCertificate(request)));
    plan.actions.extend(issued);
    ControlFlow::Continue(())
}

fn note(plan: &mut Plan, reason: Reason, requests: &[CertificateRequest]) {
    if !requests.is_empty() {
        let names = requests.iter().map(|request| request.secret.as_str()).collect::<Vec<_>>().join(", ");
        plan.note(reason, format!("{names}: {}", reason.sentence()));
    }
}
