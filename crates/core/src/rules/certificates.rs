//! Managed TLS: every certificate exists before anything that mounts it.

use std::ops::ControlFlow;

use super::Plan;
use crate::action::{Action, Effect};
use crate::build::certificates;
use crate::context::Context;
use crate::reason::Reason;

pub(super) fn rule(context: &Context<'_>, plan: &mut Plan) -> ControlFlow<()> {
    if context.desired.encrypted {
        let missing = certificates::wanted(context)
            .into_iter()
            .filter(|request| !context.view.certificates.contains_key(&request.secret))
            .map(|request| Action::new(Reason::CertificateMissing, Effect::IssueCertificate(request)));
        plan.actions.extend(missing);
    }
    ControlFlow::Continue(())
}
