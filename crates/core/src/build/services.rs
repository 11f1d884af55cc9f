//! Services: how members find each other, and how clients find them.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quorate_api::names::{self, labels};

use super::{metadata, selector_labels, serving_label};
use crate::context::Context;
use crate::object::Object;

/// Headless. Members must find each other before they are ready, or they never would be.
pub(super) fn peer(context: &Context<'_>) -> Service {
    let etcd = context.desired.etcd();
    Service {
        metadata: metadata(context, names::peer_service(context.name)),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(selector_labels(context)),
            ports: Some(vec![port("client", etcd.client_port), port("peer", etcd.peer_port)]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// What no pod has: clients are cut off, and members still find each other.
const NOBODY: &str = "cut-off";

/// Leads to ready members only, and to none that the operator has hidden.
pub(super) fn client(context: &Context<'_>) -> Service {
    let mut selected = selector_labels(context);
    selected.extend(serving_label());
    if !context.is_formed() {
        selected.insert(labels::SERVING.to_owned(), NOBODY.to_owned());
    }
    Service {
        metadata: metadata(context, names::client_service(context.name)),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            // Said, though it is the default, so that a hand that changes it is noticed.
            publish_not_ready_addresses: Some(false),
            selector: Some(selected),
            ports: Some(vec![port("client", context.desired.etcd().client_port)]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Whether it leads nowhere, though it is there.
pub(crate) fn is_cut_off(service: &Object) -> bool {
    let Object::Service(service) = service else { return false };
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.and_then(|selector| selector.get(labels::SERVING)).is_some_and(|serving| serving == NOBODY)
}

fn port(name: &str, number: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: number,
        target_port: Some(IntOrString::String(name.to_owned())),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}
