//! Under which names members and Services are reached.
//!
//! Names end in `.svc`: the search path of a pod adds the domain, which differs between Kubernetes clusters and would
//! otherwise be written into etcd's membership for ever.

use quorate_api::names;

use crate::context::Context;

pub(crate) fn peer_domain(context: &Context<'_>) -> String {
    format!("{}.{}.svc", names::peer_service(context.name), context.namespace)
}

pub(crate) fn client_domain(context: &Context<'_>) -> String {
    format!("{}.{}.svc", names::client_service(context.name), context.namespace)
}

pub(crate) fn peer_url(context: &Context<'_>, member: &str) -> String {
    let scheme = if context.desired.encrypted { "https" } else { "http" };
    format!("{scheme}://{member}.{}:{}", peer_domain(context), context.desired.etcd().peer_port)
}
