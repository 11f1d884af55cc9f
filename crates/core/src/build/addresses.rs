//! Under which names members and Services are reached.
//!
//! Names end in `.svc`: the search path of a pod adds the domain, which differs between Kubernetes clusters and would
//! otherwise be written into etcd's membership for ever.

use quorate_api::names;

use crate::context::Context;

/// Under which each member has a name of its own: `<member>.<domain>`.
fn members_domain(cluster: &str, namespace: &str) -> String {
    format!("{}.{namespace}.svc", names::peer_service(cluster))
}

/// The name of one member, which its server certificate holds.
pub fn member_name(cluster: &str, namespace: &str, member: &str) -> String {
    format!("{member}.{}", members_domain(cluster, namespace))
}

/// Where whoever has this address answers clients.
pub fn client_url(address: &str, port: i32, encrypted: bool) -> String {
    let scheme = scheme(encrypted);
    if address.contains(':') {
        format!("{scheme}://[{address}]:{port}")
    } else {
        format!("{scheme}://{address}:{port}")
    }
}

pub(crate) fn peer_domain(context: &Context<'_>) -> String {
    members_domain(context.name, context.namespace)
}

pub(crate) fn client_domain(context: &Context<'_>) -> String {
    format!("{}.{}.svc", names::client_service(context.name), context.namespace)
}

pub(crate) fn peer_url(context: &Context<'_>, member: &str) -> String {
    let scheme = scheme(context.desired.encrypted);
    format!("{scheme}://{member}.{}:{}", peer_domain(context), context.desired.etcd().peer_port)
}

fn scheme(encrypted: bool) -> &'static str {
    if encrypted { "https" } else { "http" }
}
