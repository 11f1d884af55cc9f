//! The objects as they are applied.

use crate::sim::World;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use quorate_api::maintenance::Spread;
use quorate_api::storage::{Ephemeral, EphemeralMedium};
use quorate_api::tls::TlsMode;
use quorate_core::{Effect, Object};

use crate::common::decision;

fn stateful_set(change: impl FnOnce(&mut World)) -> StatefulSet {
    let mut world = World::new(3);
    change(&mut world);
    let set = decision(&world).actions.into_iter().find_map(|action| match action.effect {
        Effect::Apply { object, .. } => match *object {
            Object::StatefulSet(set) => Some(set.into_inner()),
            _ => None,
        },
        _ => None,
    });
    set.unwrap()
}

fn pod(set: &StatefulSet) -> PodSpec {
    set.spec.as_ref().unwrap().template.spec.clone().unwrap()
}

fn containers(pod: &PodSpec) -> Vec<Container> {
    pod.init_containers.iter().flatten().chain(&pod.containers).cloned().collect()
}

fn etcd_variable(limit: Option<&str>) -> Option<String> {
    let set = stateful_set(|world| {
        let limits = limit.map(|limit| [("cpu".to_owned(), Quantity(limit.to_owned()))].into());
        let resources = ResourceRequirements { limits, ..Default::default() };
        world.cluster.spec.pod_template.resources.etcd = Some(resources);
    });
    pod(&set).containers[0].env.as_ref()?.iter().find(|var| var.name == "GOMAXPROCS")?.value.clone()
}

#[test]
fn the_objects_of_a_default_cluster() {
    let world = World::new(3);
    let applied = decision(&world).actions.into_iter().filter_map(|action| match action.effect {
        Effect::Apply { object, .. } => Some(*object),
        _ => None,
    });
    // One member and one Lease stand for all.
    let shown = applied.filter(|object| !object.name().ends_with("-1") && !object.name().ends_with("-2"));
    let mut shown = shown.collect::<Vec<_>>();
    for object in &mut shown {
        // The spec is in there as a text, and digests depend on everything.
        object.metadata_mut().annotations = None;
    }
    insta::assert_json_snapshot!(shown);
}

#[test]
fn the_cpu_limit_sets_gomaxprocs() {
    assert_eq!(etcd_variable(Some("200m")).as_deref(), Some("1"));
    assert_eq!(etcd_variable(Some("2500m")).as_deref(), Some("2"));
    assert_eq!(etcd_variable(Some("4")).as_deref(), Some("4"));
    assert_eq!(etcd_variable(None), None);
}

/// What the containers of a pod ask for, and what they are held to, as `request` or `request<limit`.
fn asked_for(set: &StatefulSet) -> Vec<String> {
    let amounts = |container: Container| {
        let resources = container.resources.unwrap();
        let (requests, limits) = (resources.requests.unwrap(), resources.limits.unwrap_or_default());
        ["cpu", "memory"].map(|resource| {
            let text = |amount: Option<&Quantity>| amount.map(|amount| amount.0.clone()).unwrap_or_default();
            let limit = limits.get(resource).map(|limit| format!("<{}", limit.0)).unwrap_or_default();
            format!("{} {resource} {}{limit}", container.name, text(requests.get(resource)))
        })
    };
    containers(&pod(set)).into_iter().flat_map(amounts).collect()
}

#[test]
fn every_container_asks_for_something_so_that_members_are_not_the_first_to_be_evicted() {
    let asked = asked_for(&stateful_set(|_| ()));
    assert_eq!(asked, ["agent cpu 10m", "agent memory 32Mi", "etcd cpu 100m", "etcd memory 256Mi"]);
}

#[test]
fn what_the_user_asks_for_wins_for_each_resource_and_a_limit_is_never_below_a_request_of_ours() {
    let one = |name: &str, amount: &str| Some([(name.to_owned(), Quantity(amount.to_owned()))].into());
    let asked = asked_for(&stateful_set(|world| {
        let resources = &mut world.cluster.spec.pod_template.resources;
        resources.agent = Some(ResourceRequirements { requests: one("cpu", "20m"), ..Default::default() });
        resources.etcd = Some(ResourceRequirements { limits: one("memory", "128Mi"), ..Default::default() });
    }));
    assert_eq!(asked, ["agent cpu 20m", "agent memory 32Mi", "etcd cpu 100m", "etcd memory <128Mi"]);
}

#[test]
fn the_priority_that_the_user_names_is_that_of_the_pods() {
    assert_eq!(pod(&stateful_set(|_| ())).priority_class_name, None);
    let class = "system-node-critical";
    let set = stateful_set(|world| world.cluster.spec.pod_template.priority_class_name = Some(class.to_owned()));
    assert_eq!(pod(&set).priority_class_name.as_deref(), Some(class));
}

#[test]
fn every_container_meets_the_restricted_standard() {
    let pod = pod(&stateful_set(|_| ()));
    let security = pod.security_context.clone().unwrap();
    assert_eq!(security.run_as_non_root, Some(true));
    assert_eq!(security.seccomp_profile.unwrap().type_, "RuntimeDefault");
    assert_eq!(pod.automount_service_account_token, Some(false));
    for container in containers(&pod) {
        let security = container.security_context.unwrap();
        assert_eq!(security.allow_privilege_escalation, Some(false), "{}", container.name);
        assert_eq!(security.read_only_root_filesystem, Some(true), "{}", container.name);
        assert_eq!(security.capabilities.unwrap().drop, Some(vec!["ALL".to_owned()]), "{}", container.name);
    }
}

#[test]
fn only_the_agent_has_a_token_and_only_etcd_the_server_keys() {
    for container in containers(&pod(&stateful_set(|_| ()))) {
        let mounts = container.volume_mounts.unwrap().into_iter().map(|mount| mount.name).collect::<Vec<_>>();
        assert_eq!(mounts.contains(&"token".to_owned()), container.name == "agent", "{mounts:?}");
        assert_eq!(mounts.contains(&"tls-server".to_owned()), container.name == "etcd", "{mounts:?}");
    }
}

#[test]
fn the_image_follows_the_version_and_the_repository_the_spec() {
    let image = |set: &StatefulSet| pod(set).containers[0].image.clone().unwrap();
    assert_eq!(image(&stateful_set(|_| ())), "quay.io/coreos/etcd:v3.6.16");
    let mirrored = stateful_set(|world| {
        world.cluster.spec.image = Some("registry.example.com:5000/etcd".to_owned());
        world.cluster.spec.version = "3.5.35".to_owned();
    });
    assert_eq!(image(&mirrored), "registry.example.com:5000/etcd:v3.5.35");
}

#[test]
fn with_ephemeral_storage_there_are_no_claims_and_a_directory_goes_with_the_pod() {
    let ephemeral = |medium, size_limit: Option<&str>| {
        let size_limit = size_limit.map(str::to_owned);
        stateful_set(|world| world.cluster.spec.storage.ephemeral = Some(Ephemeral { medium, size_limit }))
    };
    let directory = |set: &StatefulSet| {
        assert_eq!(set.spec.as_ref().unwrap().volume_claim_templates, None);
        let volumes = pod(set).volumes.unwrap();
        volumes.into_iter().find(|volume| volume.name == "data").unwrap().empty_dir.unwrap()
    };
    let on_disk = directory(&ephemeral(EphemeralMedium::Disk, None));
    assert_eq!((on_disk.medium, on_disk.size_limit), (None, None));
    let in_memory = directory(&ephemeral(EphemeralMedium::Memory, Some("2Gi")));
    assert_eq!((in_memory.medium.as_deref(), in_memory.size_limit.unwrap().0.as_str()), (Some("Memory"), "2Gi"));
}

#[test]
fn claims_have_no_owner_and_carry_the_label() {
    let set = stateful_set(|_| ());
    let claim = &set.spec.as_ref().unwrap().volume_claim_templates.as_ref().unwrap()[0];
    assert_eq!(claim.metadata.owner_references, None);
    assert_eq!(claim.metadata.labels.as_ref().unwrap()["quorate.dev/cluster"], "etcd");
}

#[test]
fn spread_is_even_and_dead_nodes_do_not_count() {
    let constraints = |spread| {
        let pod = pod(&stateful_set(|world| world.cluster.spec.spread = spread));
        let all = pod.topology_spread_constraints.unwrap_or_default();
        assert!(all.iter().all(|one| one.max_skew == 1 && one.node_taints_policy.as_deref() == Some("Honor")));
        all.into_iter().map(|one| (one.topology_key, one.when_unsatisfiable)).collect::<Vec<_>>()
    };
    let pair = |key: &str, strictness: &str| (key.to_owned(), strictness.to_owned());
    let (host, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
    assert_eq!(constraints(Spread::Node), [pair(host, "DoNotSchedule"), pair(zone, "ScheduleAnyway")]);
    assert_eq!(constraints(Spread::Zone), [pair(host, "DoNotSchedule"), pair(zone, "DoNotSchedule")]);
    assert_eq!(constraints(Spread::None), []);
}

#[test]
fn what_a_user_says_of_the_same_nodes_takes_the_place_of_our_spread_because_two_of_a_kind_are_refused() {
    let theirs = TopologySpreadConstraint {
        max_skew: 2,
        topology_key: "kubernetes.io/hostname".to_owned(),
        when_unsatisfiable: "DoNotSchedule".to_owned(),
        ..TopologySpreadConstraint::default()
    };
    let set = stateful_set(|world| world.cluster.spec.pod_template.topology_spread_constraints = vec![theirs.clone()]);
    let all = pod(&set).topology_spread_constraints.unwrap();
    assert_eq!(all.iter().filter(|one| one.topology_key == theirs.topology_key).collect::<Vec<_>>(), [&theirs]);
    assert_eq!(all.len(), 2, "and the zones stay");
}

#[test]
fn without_tls_nothing_of_it_is_mounted_and_peers_speak_http() {
    let set = stateful_set(|world| world.cluster.spec.tls.mode = TlsMode::Disabled);
    assert!(!serde_json::to_string(&pod(&set)).unwrap().contains("tls-"));
}

#[test]
fn users_add_labels_and_annotations_and_never_replace_ours() {
    let set = stateful_set(|world| {
        let template = &mut world.cluster.spec.pod_template;
        template.labels.insert("team".to_owned(), "db".to_owned());
        template.annotations.insert("prometheus.io/scrape".to_owned(), "true".to_owned());
    });
    let metadata = set.spec.unwrap().template.metadata.unwrap();
    let labels = metadata.labels.unwrap();
    assert_eq!((labels["team"].as_str(), labels["quorate.dev/cluster"].as_str()), ("db", "etcd"));
    assert_eq!(metadata.annotations.unwrap()["prometheus.io/scrape"], "true");
}
