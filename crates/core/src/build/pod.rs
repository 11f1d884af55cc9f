//! A member pod: the launcher is copied in, the agent runs beside, etcd runs from its own unchanged image.

use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource, ExecAction, HTTPGetAction,
    Lifecycle, LifecycleHandler, ObjectFieldSelector, PodSecurityContext, PodSpec, Probe, ResourceRequirements,
    SeccompProfile, SecretVolumeSource, SecurityContext, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quorate_api::cluster::ImagePullPolicy;
use quorate_api::defaults;
use quorate_api::maintenance::Spread;
use quorate_api::names::{DATA_VOLUME, member_account, secrets};
use quorate_api::quantity::Quantity;
use quorate_api::settings::{self, MemberSettings, paths};
use quorate_api::storage::EphemeralMedium;

use super::{addresses, selector};
use crate::context::Context;
use crate::validate::Storage;

const RUN_VOLUME: &str = "run";
const TOKEN_VOLUME: &str = "token";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Nobody in particular; the same for all containers, so that they share files.
const USER: i64 = 65_532;

pub(super) fn spec(context: &Context<'_>) -> PodSpec {
    let template = context.desired.pod_template();
    let spec = &context.desired.spec;
    PodSpec {
        service_account_name: Some(member_account(context.name)),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        // Said, though they are the defaults, so that a hand that changes them is noticed.
        host_network: Some(false),
        host_pid: Some(false),
        host_ipc: Some(false),
        security_context: Some(pod_security(template.security_context.clone())),
        init_containers: Some(vec![agent(context)]),
        containers: vec![etcd(context)],
        volumes: Some(volumes(context)),
        image_pull_secrets: (!spec.image_pull_secrets.is_empty()).then(|| spec.image_pull_secrets.clone()),
        affinity: template.affinity.clone(),
        tolerations: (!template.tolerations.is_empty()).then(|| template.tolerations.clone()),
        node_selector: (!template.node_selector.is_empty()).then(|| template.node_selector.clone()),
        topology_spread_constraints: Some(spread(context)).filter(|all| !all.is_empty()),
        priority_class_name: template.priority_class_name.clone(),
        termination_grace_period_seconds: Some(30),
        ..PodSpec::default()
    }
}

/// A native sidecar: it starts before etcd and stops after it. Its image brings the launcher, because the etcd image has no
/// shell and stays as it is. The hook copies it to where the etcd container finds it, and etcd's container is not made before
/// the hook has ended; a container of its own for the copy would cost every start half a second.
fn agent(context: &Context<'_>) -> Container {
    let mut mounts =
        vec![mount(RUN_VOLUME, paths::RUN), mount(DATA_VOLUME, paths::VOLUME), mount(TOKEN_VOLUME, TOKEN_PATH)];
    if context.desired.encrypted {
        mounts.push(mount("tls-agent", paths::TLS_AGENT));
    }
    Container {
        name: "agent".to_owned(),
        image: Some(context.view.platform.agent_image.clone()),
        image_pull_policy: Some(pull_policy(context)),
        restart_policy: Some("Always".to_owned()),
        args: Some(vec!["run".to_owned()]),
        lifecycle: Some(Lifecycle {
            post_start: Some(LifecycleHandler {
                exec: Some(ExecAction {
                    command: Some(vec!["/agent".to_owned(), "install".to_owned(), paths::LAUNCH.to_owned()]),
                }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        env: Some(vec![
            from_field("QUORATE_MEMBER", "metadata.name"),
            EnvVar {
                name: settings::VARIABLE.to_owned(),
                value: serde_json::to_string(&member_settings(context)).ok(),
                value_from: None,
            },
        ]),
        ports: Some(vec![port("agent", defaults::AGENT_PORT)]),
        // Local facts only. A problem of the whole cluster must never take a healthy member out of it, and nothing but
        // a dead agent gets the agent killed.
        readiness_probe: Some(Probe { period_seconds: Some(1), failure_threshold: Some(3), ..probe("/readyz") }),
        liveness_probe: Some(Probe { period_seconds: Some(10), failure_threshold: Some(6), ..probe("/healthz") }),
        resources: Some(requesting(context.desired.pod_template().resources.agent.clone(), &defaults::AGENT_REQUESTS)),
        volume_mounts: Some(mounts),
        security_context: Some(container_security()),
        ..Container::default()
    }
}

/// No probes of its own: etcd exits when it cannot go on, and whether it serves is the agent's to say.
fn etcd(context: &Context<'_>) -> Container {
    let etcd = context.desired.etcd();
    let resources = requesting(context.desired.pod_template().resources.etcd.clone(), &defaults::ETCD_REQUESTS);
    let mut mounts = vec![mount(RUN_VOLUME, paths::RUN), mount(DATA_VOLUME, paths::VOLUME)];
    if context.desired.encrypted {
        mounts.extend([
            mount("tls-peer", paths::TLS_PEER),
            mount("tls-peer-client", paths::TLS_PEER_CLIENT),
            mount("tls-server", paths::TLS_SERVER),
        ]);
    }
    Container {
        name: "etcd".to_owned(),
        image: Some(image(context)),
        image_pull_policy: Some(pull_policy(context)),
        command: Some(vec![paths::LAUNCH.to_owned()]),
        env: go_max_procs(&resources).map(|procs| {
            vec![EnvVar { name: "GOMAXPROCS".to_owned(), value: Some(procs.to_string()), value_from: None }]
        }),
        ports: Some(vec![port("client", etcd.client_port), port("peer", etcd.peer_port)]),
        resources: Some(resources),
        volume_mounts: Some(mounts),
        security_context: Some(container_security()),
        ..Container::default()
    }
}

fn image(context: &Context<'_>) -> String {
    let repository = context.desired.spec.image.as_ref().unwrap_or(&context.view.platform.etcd_repository);
    format!("{repository}:v{}", context.desired.version)
}

fn pull_policy(context: &Context<'_>) -> String {
    let policy = match context.desired.spec.image_pull_policy {
        ImagePullPolicy::IfNotPresent => "IfNotPresent",
        ImagePullPolicy::Always => "Always",
        ImagePullPolicy::Never => "Never",
    };
    policy.to_owned()
}

/// Whole CPUs of the limit, at least one. Without it Go counts the CPUs of the node and is throttled.
fn go_max_procs(resources: &ResourceRequirements) -> Option<i64> {
    let limit = resources.limits.as_ref()?.get("cpu")?;
    Quantity::parse(&limit.0).and_then(Quantity::whole).map(|cpus| cpus.max(1))
}

/// What the user says, and requests for what the user says nothing about. A limit alone says something: Kubernetes takes it
/// for the request as well, and ours might be above it.
fn requesting(custom: Option<ResourceRequirements>, defaults: &[(&str, &str)]) -> ResourceRequirements {
    let mut resources = custom.unwrap_or_default();
    let limits = resources.limits.clone().unwrap_or_default();
    let requests = resources.requests.get_or_insert_default();
    for (resource, amount) in defaults.iter().filter(|(resource, _)| !limits.contains_key(*resource)) {
        requests.entry((*resource).to_owned()).or_insert_with(|| QuantityText((*amount).to_owned()));
    }
    resources
}

fn member_settings(context: &Context<'_>) -> MemberSettings {
    let etcd = context.desired.etcd();
    MemberSettings {
        cluster: context.name.to_owned(),
        namespace: context.namespace.to_owned(),
        version: context.desired.version.to_string(),
        peer_domain: addresses::peer_domain(context),
        client_domain: addresses::client_domain(context),
        client_port: etcd.client_port,
        peer_port: etcd.peer_port,
        agent_port: defaults::AGENT_PORT,
        tls: context.desired.encrypted,
        quota_bytes: context.desired.quota_bytes,
        metrics: etcd.metrics,
        compaction_mode: etcd.auto_compaction.mode,
        compaction_retention: etcd.auto_compaction.retention.clone(),
        snapshot_count: etcd.snapshot_count,
        heartbeat_milliseconds: etcd.heartbeat_milliseconds,
        election_milliseconds: etcd.election_milliseconds,
    }
}

fn volumes(context: &Context<'_>) -> Vec<Volume> {
    let empty_dir = |name: &str, medium: Option<&str>, limit: Option<&str>| Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: medium.map(str::to_owned),
            size_limit: limit.map(|limit| QuantityText(limit.to_owned())),
        }),
        ..Volume::default()
    };
    let mut volumes = vec![empty_dir(RUN_VOLUME, None, None), token_volume()];
    if let Storage::Ephemeral { medium, limit } = &context.desired.storage {
        let medium = (*medium == EphemeralMedium::Memory).then_some("Memory");
        volumes.push(empty_dir(DATA_VOLUME, medium, limit.as_deref()));
    }
    if context.desired.encrypted {
        let secret = |volume: &str, secret: String| Volume {
            name: volume.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(secret),
                default_mode: Some(0o440),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        };
        volumes.extend([
            secret("tls-peer", secrets::peer(context.name)),
            secret("tls-peer-client", secrets::peer_client(context.name)),
            secret("tls-server", secrets::server(context.name)),
            secret("tls-agent", secrets::agent(context.name)),
        ]);
    }
    volumes
}

/// The token that Kubernetes would mount everywhere, for the agent alone. It is bound to the pod, which is how the
/// admission policy knows which member is speaking.
fn token_volume() -> Volume {
    let projected = serde_json::json!({
        "name": TOKEN_VOLUME,
        "projected": {
            "defaultMode": 0o440,
            "sources": [
                { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [{
                    "path": "namespace",
                    "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" },
                }] } },
            ],
        },
    });
    serde_json::from_value(projected).unwrap_or_default()
}

/// The restricted Pod Security Standard, with what the user says on top.
fn pod_security(custom: Option<PodSecurityContext>) -> PodSecurityContext {
    let custom = custom.unwrap_or_default();
    PodSecurityContext {
        run_as_non_root: custom.run_as_non_root.or(Some(true)),
        run_as_user: custom.run_as_user.or(Some(USER)),
        run_as_group: custom.run_as_group.or(Some(USER)),
        fs_group: custom.fs_group.or(Some(USER)),
        fs_group_change_policy: custom.fs_group_change_policy.or(Some("OnRootMismatch".to_owned())),
        seccomp_profile: custom
            .seccomp_profile
            .or(Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None })),
        ..custom
    }
}

fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        ..SecurityContext::default()
    }
}

/// Evenly, with at most one member more on one node or zone than on another, so that it works with few nodes too. Nodes
/// that take no pods are not counted: a dead one must not keep its member from coming back elsewhere. What the user says of
/// the same nodes or zones takes the place of ours: Kubernetes refuses two of a kind.
fn spread(context: &Context<'_>) -> Vec<TopologySpreadConstraint> {
    let over = |key: &str, strict: bool| TopologySpreadConstraint {
        topology_key: key.to_owned(),
        max_skew: 1,
        when_unsatisfiable: if strict { "DoNotSchedule" } else { "ScheduleAnyway" }.to_owned(),
        label_selector: Some(selector(context)),
        node_taints_policy: Some("Honor".to_owned()),
        ..TopologySpreadConstraint::default()
    };
    let mut all = match context.desired.spread() {
        Spread::Node => vec![over("kubernetes.io/hostname", true), over("topology.kubernetes.io/zone", false)],
        Spread::Zone => vec![over("kubernetes.io/hostname", true), over("topology.kubernetes.io/zone", true)],
        Spread::None => Vec::new(),
    };
    let of_user = &context.desired.pod_template().topology_spread_constraints;
    let alike = |one: &TopologySpreadConstraint, other: &TopologySpreadConstraint| {
        one.topology_key == other.topology_key && one.when_unsatisfiable == other.when_unsatisfiable
    };
    all.retain(|ours| !of_user.iter().any(|theirs| alike(ours, theirs)));
    all.extend(of_user.iter().cloned());
    all
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(defaults::AGENT_PORT),
            ..HTTPGetAction::default()
        }),
        timeout_seconds: Some(2),
        ..Probe::default()
    }
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount { name: volume.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

fn from_field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { api_version: Some("v1".to_owned()), field_path: path.to_owned() }),
            ..EnvVarSource::default()
        }),
        value: None,
    }
}
