//! How many members Kubernetes may take away at a time.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quorate_api::names;

use super::{metadata, selector};
use crate::context::Context;

/// One at a time, and none while another is not ready. A single member may be moved, or no node could ever be drained.
pub(super) fn disruption_budget(context: &Context<'_>) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: metadata(context, names::disruption_budget(context.name)),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(selector(context)),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
