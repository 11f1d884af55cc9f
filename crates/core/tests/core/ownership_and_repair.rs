//! What belongs to the cluster is put right; what belongs to others is left alone; a pause stops both.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use quorate_api::EtcdMember;
use quorate_api::conditions::ConditionType::{Degraded, Progressing, Ready};
use quorate_api::status::{ClusterPhase, MemberRole};
use quorate_core::view::{Account, SecretsSeen};
use quorate_core::{Action, Effect, Kind, Object, ObjectKey, Reason};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::common::{decision, deeds, running, says, seconds, settle, status, without_heartbeat_from};
use crate::sim::World;

#[test]
fn every_object_that_is_deleted_by_hand_comes_back() {
    let world = running(3);
    for key in world.objects.keys().cloned().collect::<Vec<_>>() {
        let mut world = world.clone();
        world.delete(&key);
        let actions = decision(&world).actions;
        assert!(actions.iter().any(|action| action.target() == key.to_string()), "{key}: {actions:#?}");
        settle(&mut world);
        assert!(world.objects.contains_key(&key), "{key}");
        assert_eq!((status(&world).phase, world.starts.len()), (Some(ClusterPhase::Running), 3), "{key}");
    }
}

#[test]
fn every_object_that_is_edited_by_hand_is_put_right() {
    let world = running(3);
    for key in world.objects.keys().cloned().collect::<Vec<_>>() {
        let mut world = world.clone();
        let object = world.objects.get_mut(&key).unwrap();
        object.metadata_mut().labels.get_or_insert_default().insert("quorate.dev/cluster".into(), "other".into());
        let actions = decision(&world).actions;
        let [action] = &actions[..] else { panic!("{key}: {actions:#?}") };
        assert_eq!((action.reason, action.target()), (Reason::ObjectChanged, key.to_string()));
    }
}

#[test]
fn no_word_of_any_object_can_be_changed_or_taken_away_unnoticed() {
    let world = running(3);
    let mut fresh = world.clone();
    fresh.objects.clear();
    fresh.pods.clear();
    let applied = decision(&fresh).actions.into_iter().filter_map(|action| match action.effect {
        Effect::Apply { object, .. } => Some(*object),
        _ => None,
    });
    let applied = applied.collect::<Vec<_>>();
    assert_eq!(applied.iter().map(Object::key).collect::<BTreeSet<_>>(), world.objects.keys().cloned().collect());
    for object in applied {
        let said = serde_json::to_value(&object).unwrap();
        for path in words(&said, String::new()) {
            // These are what the object is found by, and whose it is.
            let is_key = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"].contains(&path.as_str());
            if is_key || path.starts_with("/metadata/ownerReferences") {
                continue;
            }
            let actual = serde_json::to_value(&world.objects[&object.key()]).unwrap();
            for changed in other_than(actual.pointer(&path).unwrap()) {
                let mut edited = actual.clone();
                *edited.pointer_mut(&path).unwrap() = changed;
                // What cannot be, the API server refuses.
                let Some(edited) = read_as(object.kind(), edited) else { continue };
                let mut world = world.clone();
                world.objects.insert(object.key(), edited);
                let targets = decision(&world).actions.iter().map(Action::target).collect::<Vec<_>>();
                assert!(targets.contains(&object.key().to_string()), "{}: {path}", object.key());
            }
        }
    }
}

/// The paths of all that is neither a map nor a list.
fn words(value: &Value, path: String) -> Vec<String> {
    match value {
        Value::Object(map) => {
            let step = |key: &String| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
            map.iter().flat_map(|(key, value)| words(value, step(key))).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(n, value)| words(value, format!("{path}/{n}"))).collect()
        }
        Value::Null => Vec::new(),
        _ => vec![path],
    }
}

/// Another word, or none. Kubernetes does not keep all that is false.
fn other_than(word: &Value) -> Vec<Value> {
    match word {
        Value::Bool(false) => vec![json!(true)],
        Value::Bool(true) => vec![json!(false), Value::Null],
        Value::Number(number) => vec![json!(number.as_i64().unwrap() + 1), Value::Null],
        _ => vec![json!("another"), Value::Null],
    }
}

fn read_as(kind: Kind, value: Value) -> Option<Object> {
    fn read<K: DeserializeOwned + Into<Object>>(value: Value) -> Option<Object> {
        serde_json::from_value::<K>(value).ok().map(Into::into)
    }
    match kind {
        Kind::ServiceAccount => read::<ServiceAccount>(value),
        Kind::Role => read::<Role>(value),
        Kind::RoleBinding => read::<RoleBinding>(value),
        Kind::Service => read::<Service>(value),
        Kind::Lease => read::<Lease>(value),
        Kind::EtcdMember => read::<EtcdMember>(value),
        Kind::StatefulSet => read::<StatefulSet>(value),
        Kind::PodDisruptionBudget => read::<PodDisruptionBudget>(value),
    }
}

#[test]
fn what_others_add_is_not_fought_over() {
    let mut world = running(3);
    for object in world.objects.values_mut() {
        object.metadata_mut().labels.get_or_insert_default().insert("team".into(), "db".into());
        object.metadata_mut().annotations.get_or_insert_default().insert("tool".into(), "x".into());
    }
    assert_eq!(decision(&world).actions, []);
}

#[test]
fn an_object_of_somebody_else_is_never_touched() {
    let mut world = running(3);
    let key = ObjectKey::new(Kind::Service, "etcd-client");
    let service = world.objects.get_mut(&key).unwrap();
    service.metadata_mut().owner_references.as_mut().unwrap()[0].uid = "somebody".to_owned();
    world.objects.remove(&ObjectKey::new(Kind::Service, "etcd-peer"));
    let decision = decision(&world);
    assert_eq!(decision.actions, []);
    says(&decision.status, Degraded, "True", "NameTaken");
    says(&decision.status, Ready, "True", "Quorate");
    assert!(decision.status.message.unwrap().contains("Service etcd-client"));
}

#[test]
fn an_object_on_its_way_out_is_waited_for() {
    let mut world = running(1);
    let key = ObjectKey::new(Kind::Service, "etcd-peer");
    let service = world.objects.get_mut(&key).unwrap();
    service.metadata_mut().deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    service.metadata_mut().labels = None;
    assert_eq!(decision(&world).actions, []);
}

#[test]
fn a_pause_stops_actions_and_not_the_status() {
    let mut world = running(3);
    world.cluster.spec.maintenance.paused = true;
    world.objects.remove(&ObjectKey::new(Kind::Service, "etcd-peer"));
    without_heartbeat_from(&mut world, &["etcd-1"], seconds(11));
    let decision = world.operate(None);
    assert_eq!(decision.actions, []);
    assert_eq!(decision.status.phase, Some(ClusterPhase::Degraded));
    says(&decision.status, Degraded, "True", "Paused");
    world.cluster.spec.maintenance.paused = false;
    world.frozen.clear();
    settle(&mut world);
    says(status(&world), Degraded, "False", "AsExpected");
    says(status(&world), Progressing, "False", "Settled");
}

#[test]
fn a_paused_cluster_is_not_formed() {
    let mut world = crate::sim::World::new(3);
    world.operate(None);
    world.cluster.spec.maintenance.paused = true;
    settle(&mut world);
    assert_eq!((world.latch_state(), world.starts.len()), (None, 0));
}

#[test]
fn certificates_come_before_what_mounts_them_and_no_key_is_in_a_decision() {
    let world = crate::sim::World::new(3);
    let actions = decision(&world).actions;
    let certificates = actions.iter().take_while(|action| action.reason == Reason::CertificateMissing).count();
    assert_eq!(certificates, 8);
    assert!(!serde_json::to_string(&actions).unwrap().contains("PRIVATE"));
    let mut plain = world.clone();
    plain.cluster.spec.tls.mode = quorate_api::tls::TlsMode::Disabled;
    assert!(decision(&plain).actions.iter().all(|action| action.reason == Reason::ObjectMissing));
}

#[test]
fn what_a_hand_adds_to_selectors_bindings_and_templates_is_put_right() {
    let world = running(3);
    let edit = |kind, name: &str, change: fn(&mut Object)| {
        let mut world = world.clone();
        let key = ObjectKey::new(kind, name);
        change(world.objects.get_mut(&key).unwrap());
        let actions = decision(&world).actions;
        let [action] = &actions[..] else { panic!("{key}: {actions:#?}") };
        assert_eq!((action.reason, action.target()), (Reason::ObjectChanged, key.to_string()));
    };
    edit(Kind::Service, "etcd-client", |object| {
        let Object::Service(service) = object else { panic!() };
        service.spec.as_mut().unwrap().selector.as_mut().unwrap().insert("x".to_owned(), "y".to_owned());
    });
    edit(Kind::Service, "etcd-client", |object| {
        let Object::Service(service) = object else { panic!() };
        service.spec.as_mut().unwrap().publish_not_ready_addresses = Some(true);
    });
    edit(Kind::RoleBinding, "etcd-member", |object| {
        let Object::RoleBinding(binding) = object else { panic!() };
        let subjects = binding.subjects.as_mut().unwrap();
        let another = k8s_openapi::api::rbac::v1::Subject { name: "another".to_owned(), ..subjects[0].clone() };
        subjects.push(another);
    });
    edit(Kind::StatefulSet, "etcd", |object| {
        let Object::StatefulSet(set) = object else { panic!() };
        let pod = set.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
        let mut another = pod.containers[0].clone();
        another.name = "another".to_owned();
        pod.containers.push(another);
    });
    edit(Kind::StatefulSet, "etcd", |object| {
        let Object::StatefulSet(set) = object else { panic!() };
        set.spec.as_mut().unwrap().template.spec.as_mut().unwrap().host_network = Some(true);
    });
}

#[test]
fn a_client_service_that_is_away_has_its_own_reason_and_nobody_is_told_that_all_is_ready() {
    let mut world = running(3);
    world.cluster.spec.maintenance.paused = true;
    world.objects.remove(&ObjectKey::new(Kind::Service, "etcd-client"));
    let decision = world.operate(None);
    says(&decision.status, Ready, "False", "ServiceMissing");
    assert_eq!(decision.status.phase, Some(ClusterPhase::Degraded));
    assert!(decision.status.message.unwrap().contains("Service for clients"));
    world.cluster.spec.maintenance.paused = false;
    settle(&mut world);
    says(status(&world), Ready, "True", "Quorate");
}

#[test]
fn a_taken_secret_is_stated_and_holds_nothing_else_up() {
    let mut world = crate::sim::World::new(3);
    world.taken_secrets.insert("etcd-peer-ca".to_owned());
    let decision = decision(&world);
    says(&decision.status, Degraded, "True", "SecretTaken");
    let message = decision.status.message.unwrap();
    assert!(message.contains("etcd-peer-ca"), "{message}");
    let targets = decision.actions.iter().map(quorate_core::Action::target).collect::<Vec<_>>();
    assert!(targets.contains(&"StatefulSet etcd".to_owned()) && targets.contains(&"Secret etcd-client-ca".to_owned()));
    for unwanted in ["Secret etcd-peer-ca", "Secret etcd-peer-tls"] {
        assert!(!targets.contains(&unwanted.to_owned()), "{targets:?}");
    }
    assert!(decision.requeue <= seconds(2), "it may be gone in a moment");
}

#[test]
fn the_authority_of_a_formed_cluster_is_never_made_anew() {
    let mut world = running(3);
    world.certificates.clear();
    let decision = decision(&world);
    assert_eq!(decision.actions, [], "nor anything that would need it");
    says(&decision.status, Degraded, "True", "AuthorityLost");
    let mut world = running(3);
    world.certificates.remove("etcd-client-tls");
    settle(&mut world);
    assert!(world.certificates.contains_key("etcd-client-tls"), "a leaf is");
}

#[test]
fn an_alarm_of_etcd_needs_attention_and_passing_complaints_do_not() {
    let mut world = running(3);
    let alarm = |world: &mut crate::sim::World, text: &str| {
        let member = world.objects.get_mut(&ObjectKey::new(Kind::EtcdMember, "etcd-1")).unwrap();
        let Object::EtcdMember(member) = member else { panic!() };
        let etcd = member.status.as_mut().unwrap().etcd.as_mut().unwrap();
        etcd.alarms = vec![text.to_owned()];
    };
    alarm(&mut world, "etcdserver: no leader");
    says(&decision(&world).status, Degraded, "False", "AsExpected");
    alarm(&mut world, "memberID:8 alarm:NOSPACE ");
    let status = decision(&world).status;
    says(&status, Degraded, "True", "AlarmRaised");
    assert!(status.message.unwrap().contains("NOSPACE (told by etcd-1)"));
}

#[test]
fn a_member_that_cannot_be_read_is_stated_and_left_alone() {
    let mut world = running(3);
    world.objects.remove(&ObjectKey::new(Kind::EtcdMember, "etcd-1"));
    world.unreadable_members.insert("etcd-1".to_owned(), "unknown ticket".to_owned());
    let decision = decision(&world);
    assert_eq!(decision.actions, []);
    says(&decision.status, Degraded, "True", "MemberUnreadable");
    says(&decision.status, Ready, "True", "Quorate");
    assert!(decision.status.message.unwrap().contains("unknown ticket"));
}

#[test]
fn an_identical_apply_is_not_repeated_after_the_api_server_filled_in_defaults() {
    let mut world = running(3);
    let Some(Object::StatefulSet(set)) = world.objects.get_mut(&ObjectKey::new(Kind::StatefulSet, "etcd")) else {
        panic!()
    };
    let pod = set.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
    pod.dns_policy = Some("ClusterFirst".to_owned());
    pod.containers[0].termination_message_path = Some("/dev/termination-log".to_owned());
    set.spec.as_mut().unwrap().revision_history_limit = Some(10);
    assert_eq!(decision(&world).actions, []);
}

#[test]
fn a_deleted_stateful_set_comes_back_when_its_pods_are_gone_and_not_before() {
    let mut world = running(3);
    let key = ObjectKey::new(Kind::StatefulSet, "etcd");
    world.objects.remove(&key);
    assert_eq!(decision(&world).actions, [], "the garbage collector has not looked yet");
    let due = world.now + seconds(30);
    world.pods.values_mut().for_each(|pod| pod.terminating = Some(due));
    let waits = decision(&world);
    assert_eq!(deeds(&waits), [], "they are on their way out");
    says(&waits.status, Progressing, "True", "WaitingForOldPods");
    assert_eq!(waits.requeue, seconds(40), "they may take a little longer than they should");
    world.pods.clear();
    assert!(decision(&world).actions.iter().any(|action| action.target() == key.to_string()));
}

#[test]
fn a_pod_that_cannot_go_does_not_keep_the_others_away() {
    let mut world = running(3);
    let key = ObjectKey::new(Kind::StatefulSet, "etcd");
    world.objects.remove(&key);
    world.pods.retain(|name, _| name == "etcd-1");
    world.pods.get_mut("etcd-1").unwrap().terminating = Some(world.now);
    let waits = decision(&world);
    assert_eq!((deeds(&waits).len(), waits.requeue), (0, seconds(10)));
    world.advance(seconds(10));
    assert!(decision(&world).actions.iter().any(|action| action.target() == key.to_string()));
}

#[test]
fn pods_that_were_orphaned_by_hand_are_taken_over_at_once() {
    let mut world = running(3);
    let key = ObjectKey::new(Kind::StatefulSet, "etcd");
    world.objects.remove(&key);
    world.pods.values_mut().for_each(|pod| pod.controlled = false);
    assert!(decision(&world).actions.iter().any(|action| action.target() == key.to_string()));
}

/// The account is deleted and made again a second later, so that no pod's token is good any more.
fn with_new_account(replicas: i32) -> World {
    let mut world = running(replicas);
    world.objects.remove(&ObjectKey::new(Kind::ServiceAccount, "etcd-member"));
    world.advance(seconds(1));
    world.operate(None);
    world
}

#[test]
fn pods_whose_account_was_made_anew_are_replaced_one_at_a_time_and_the_leader_last() {
    let mut world = with_new_account(3);
    let leads = |member: &&quorate_api::status::MemberStatus| member.role == Some(MemberRole::Leader);
    let leader = status(&world).members.iter().find(leads).unwrap().name.clone();
    let mut replaced = Vec::new();
    // Nobody has been heard since, so all of this happens in silence.
    world.advance(seconds(20));
    for _ in 0..3 {
        let mut decision = world.operate(None);
        if decision.actions.iter().any(|action| action.reason == Reason::MemberHidden) {
            // Those who are back speak against the one that is still silent.
            decision = world.operate(None);
        }
        let [action] = &deeds(&decision)[..] else { panic!("{:#?}", decision.actions) };
        assert_eq!(action.reason, Reason::AccountRenewed);
        let name = action.target().trim_start_matches("Pod ").to_owned();
        assert_eq!(deeds(&world.operate(None)), [], "its pod is gone");
        world.schedule();
        assert_eq!(deeds(&world.operate(None)), [], "its pod has not started yet");
        world.run_agent(&name);
        world.pods.get_mut(&name).unwrap().ready = true;
        let restarts = |action: &Action| action.reason == Reason::AccountRenewed;
        assert!(!world.operate(None).actions.iter().any(restarts), "ready says the kubelet, and it was not heard yet");
        world.run_etcd();
        replaced.push(name);
    }
    assert_eq!(replaced.len(), 3);
    assert_eq!(replaced.last(), Some(&leader));
    settle(&mut world);
    assert_eq!(decision(&world).actions, []);
    assert_eq!((status(&world).phase, world.starts.len()), (Some(ClusterPhase::Running), 3));
}

#[test]
fn an_account_that_was_made_anew_while_forming_does_not_stop_it() {
    let mut world = World::new(3);
    world.operate(None);
    world.schedule();
    world.objects.remove(&ObjectKey::new(Kind::ServiceAccount, "etcd-member"));
    world.advance(seconds(1));
    world.operate(None);
    let decision = world.operate(None);
    assert_eq!(decision.actions.iter().map(|action| action.reason).collect::<Vec<_>>(), [Reason::AccountRenewed]);
    for _ in 0..3 {
        settle(&mut world);
    }
    assert_eq!((status(&world).phase, world.starts.len()), (Some(ClusterPhase::Running), 3));
}

#[test]
fn a_member_that_serves_is_not_stopped_beside_one_that_does_not_though_a_quorum_would_stay() {
    let mut world = with_new_account(5);
    assert_eq!(deeds(&decision(&world)).len(), 1);
    let now = world.now;
    // It has its new pod already, which is not ready yet.
    let pod = world.pods.get_mut("etcd-4").unwrap();
    (pod.ready, pod.created) = (false, Some(now));
    assert_eq!(deeds(&decision(&world)), []);
}

#[test]
fn no_pod_is_replaced_for_its_account_if_the_quorum_would_go() {
    let mut world = with_new_account(3);
    world.pods.get_mut("etcd-2").unwrap().ready = false;
    let restarted = |world: &World| deeds(&decision(world)).iter().map(Action::target).collect::<Vec<_>>();
    assert_eq!(restarted(&world), ["Pod etcd-2"], "only the one that does not serve anyway");
    world.pods.get_mut("etcd-1").unwrap().ready = false;
    assert_eq!(restarted(&world), ["Pod etcd-1"], "without a quorum there is none to lose, and still one at a time");
    let mut single = with_new_account(1);
    assert_eq!(single.operate(None).actions.len(), 1, "one that is alone is always replaced at the price of a pause");
}

/// A world whose operator sees to its own rights.
fn with_account(replicas: i32) -> World {
    let account = Account { namespace: "quorate-system".to_owned(), name: "quorate-operator".to_owned() };
    let mut world = World::new(replicas);
    world.platform.account = Some(account);
    world
}

#[test]
fn the_right_to_read_secrets_comes_first_and_comes_back() {
    let key = ObjectKey::new(Kind::RoleBinding, "etcd-quorate-secrets");
    let mut world = with_account(3);
    let first = world.operate(None);
    assert_eq!(first.actions.iter().map(Action::target).collect::<Vec<_>>(), [key.to_string()]);
    settle(&mut world);
    assert_eq!(status(&world).phase, Some(ClusterPhase::Running));
    let Some(Object::RoleBinding(binding)) = world.objects.get_mut(&key) else { panic!() };
    binding.subjects = None;
    world.secrets = SecretsSeen::Refused;
    world.objects.remove(&ObjectKey::new(Kind::Service, "etcd-peer"));
    let decision = decision(&world);
    let targets = decision.actions.iter().map(Action::target).collect::<Vec<_>>();
    assert_eq!(targets, [key.to_string(), "Service etcd-peer".to_owned()], "and holds nothing else up");
    says(&decision.status, Degraded, "True", "SecretsOutOfReach");
    assert_eq!(decision.status.certificates, status(&world).certificates, "what was known stays known");
}

#[test]
fn an_operator_that_may_not_read_secrets_says_so_and_makes_none() {
    let mut new = with_account(1);
    new.secrets = SecretsSeen::Refused;
    new.operate(None);
    let decision = new.operate(None);
    assert_eq!(decision.actions, [], "nothing would start without certificates");
    says(&decision.status, Degraded, "True", "SecretsOutOfReach");
    let mut formed = running(1);
    formed.secrets = SecretsSeen::Refused;
    formed.certificates.clear();
    formed.objects.remove(&ObjectKey::new(Kind::Service, "etcd-peer"));
    let decision = formed.operate(None);
    let targets = decision.actions.iter().map(Action::target).collect::<Vec<_>>();
    assert_eq!(targets, ["Service etcd-peer"], "what needs no Secret is repaired");
    says(&decision.status, Ready, "True", "Quorate");
}

#[test]
fn an_edited_certificate_is_issued_anew_and_an_edited_authority_is_not() {
    let mut world = running(3);
    for secret in ["etcd-client-tls", "etcd-client-ca"] {
        world.certificates.get_mut(secret).unwrap().edited = true;
    }
    let decision = world.operate(None);
    assert_eq!(decision.actions, [], "nothing is signed by an authority that nobody trusts");
    says(&decision.status, Degraded, "True", "AuthorityChanged");
    world.certificates.get_mut("etcd-client-ca").unwrap().edited = false;
    let decision = world.operate(None);
    let [action] = &decision.actions[..] else { panic!("{:#?}", decision.actions) };
    assert_eq!((action.reason, action.target()), (Reason::CertificateEdited, "Secret etcd-client-tls".to_owned()));
    let Effect::IssueCertificate(request) = &action.effect else { panic!() };
    assert!(request.replaces.is_some());
}
