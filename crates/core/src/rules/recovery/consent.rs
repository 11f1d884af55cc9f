//! What a user has agreed to, and when that is not enough.
//!
//! Who was told that no copy is left may be putting volumes back, one after the other. That all was lost is therefore kept in
//! the status, with what the annotation said then: it was not said about what comes back after that.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::names::annotations;
use quorate_api::recovery::QuorumLossPolicy;
use quorate_api::status::CopiesLost;

use super::Plan;
use crate::context::Context;
use crate::reason::Reason;

/// Longer than anything that means something.
const MOST_SAID: usize = 100;

/// What a user has asked for: `EPOCH`, or `EPOCH:MEMBER`.
pub(super) struct Consent {
    /// The member whose copy is to be used.
    pub(super) copy: Option<String>,
    /// Whether it was given since no copy was left, if that ever was so.
    is_news: bool,
}

impl Consent {
    pub(super) fn of(context: &Context<'_>, epoch: i64) -> Option<Self> {
        let said = said(context)?;
        let (number, copy) = said.split_once(':').map_or((said.as_str(), None), |(number, copy)| (number, Some(copy)));
        let copy = copy.map(str::trim).filter(|copy| !copy.is_empty()).map(str::to_owned);
        let is_news = copies_lost(context).is_none_or(|lost| lost.said.as_ref() != Some(&said));
        (number.trim().parse() == Ok(epoch)).then_some(Self { copy, is_news })
    }
}

fn said(context: &Context<'_>) -> Option<String> {
    let said = context.view.cluster.metadata.annotations.as_ref()?.get(annotations::RECOVER_QUORUM)?;
    Some(said.chars().take(MOST_SAID).collect())
}

fn copies_lost<'a>(context: &Context<'a>) -> Option<&'a CopiesLost> {
    context.status()?.copies_lost.as_ref()
}

/// Whether somebody still has to agree, and why.
pub(super) fn is_missing(context: &Context<'_>, consent: Option<&Consent>) -> Option<Reason> {
    if copies_lost(context).is_some() {
        return consent.is_none_or(|consent| !consent.is_news).then_some(Reason::CopyCameBack);
    }
    let is_manual = context.desired.spec.recovery.quorum_loss == Some(QuorumLossPolicy::Manual);
    (is_manual && consent.is_none()).then_some(Reason::RecoveryNeedsConsent)
}

/// What has been said up to now is not about what comes back from now on. Whoever names a copy means that one, also if it is
/// still on its way.
pub(super) fn forget(context: &Context<'_>, plan: &mut Plan) {
    let (before, said) = (copies_lost(context), said(context));
    let names_copy = said.as_ref().is_some_and(|said| said.contains(':'));
    plan.copies_lost = Some(match before {
        Some(before) if names_copy => before.clone(),
        Some(before) => CopiesLost { said, ..before.clone() },
        None => CopiesLost { since: Time(context.now), said },
    });
}

/// How to agree, in a command. What was said before does not count again.
pub(super) fn command(context: &Context<'_>, epoch: i64) -> String {
    let key = annotations::RECOVER_QUORUM;
    let command = format!("kubectl annotate etcd {} {key}={epoch} --overwrite", context.name);
    let is_said = said(context).is_some_and(|said| said.trim() == epoch.to_string());
    if is_said { format!("{command}, once the annotation that is there was taken away") } else { command }
}
