//! kill -9 of the agent at every step of a start: the member comes up all the same, once, and with what it had.

use crate::pod::{Pod, eventually};

pub(crate) type Step = (&'static str, fn(&Pod) -> bool);

/// What can be seen from outside on the way of a start, in its order.
pub(crate) const STEPS: [Step; 8] = [
    ("the agent listens", |pod| pod.path("run/agent.sock").exists()),
    ("it has asked", |pod| pod.api.asked() > 0),
    ("it has reported", |pod| pod.api.report().data.is_some()),
    ("the volume is marked", |pod| pod.path("volume/quorate.json").exists()),
    ("etcd is configured", |pod| pod.path("run/etcd.yaml").exists()),
    ("etcd is started", |pod| pod.etcd().is_some()),
    ("there is a log", |pod| pod.path("volume/data/member/wal").exists()),
    ("etcd serves", |pod| pod.probe("/readyz") == Some(200)),
];

#[test]
fn a_new_member_survives_the_death_of_its_agent_at_every_step() {
    for (what, reached) in STEPS {
        let mut pod = Pod::new("3.6");
        pod.start_launcher();
        pod.start_agent();
        eventually(what, || reached(&pod));
        pod.kill_agent();
        pod.start_agent();
        eventually("the member is settled", || {
            pod.restart_ended_launcher();
            pod.api.lease().last_index.is_some() && pod.probe("/readyz") == Some(200)
        });
        let data = pod.api.report().data.unwrap();
        let etcd = pod.api.report().etcd.unwrap();
        assert_eq!((data.cluster_id, data.member_id.as_ref()), (etcd.cluster_id, etcd.member_id.as_ref()), "{what}");
        assert_eq!(data.boot_count, Some(1), "{what}: it started once");
    }
}

#[test]
fn a_member_with_data_survives_the_death_of_its_agent_at_every_step() {
    let mut pod = Pod::running("3.6");
    pod.put("kept");
    // Of what lies there already, only what is new shows a step.
    for (boots, (what, reached)) in (2..).zip([STEPS[0], STEPS[5], STEPS[7]]) {
        pod.stop();
        std::fs::remove_file(pod.path("run/agent.sock")).unwrap();
        pod.start_launcher();
        pod.start_agent();
        eventually(what, || reached(&pod));
        pod.kill_agent();
        pod.start_agent();
        eventually("the start is on record", || {
            pod.restart_ended_launcher();
            pod.api.lease().boot_count == Some(boots) && pod.probe("/readyz") == Some(200)
        });
        assert_eq!(pod.etcdctl(&["get", "key", "--print-value-only"]).trim(), "kept", "{what}");
    }
}

#[test]
fn an_agent_that_takes_over_never_lowers_the_record() {
    let mut pod = Pod::running("3.6");
    pod.put("kept");
    let before = pod.api.lease();
    pod.kill_agent();
    pod.start_agent();
    eventually("the new agent has renewed", || pod.api.lease().renewed > before.renewed);
    assert!(pod.api.lease().last_index >= before.last_index, "{:?} after {before:?}", pod.api.lease());
}

#[test]
fn an_etcd_that_dies_is_started_again_from_its_data() {
    let mut pod = Pod::running("3.6");
    pod.put("kept");
    assert_eq!(pod.kill_etcd(), Some(128 + 9));
    eventually("the agent has noticed", || pod.probe("/readyz") == Some(503));
    pod.start_launcher();
    eventually("the start is on record", || pod.api.lease().boot_count == Some(2));
    assert_eq!(pod.etcdctl(&["get", "key", "--print-value-only"]).trim(), "kept");
    let report = pod.api.report();
    let listed = report.etcd.unwrap().members;
    assert_eq!(listed, report.data.unwrap().members, "the data and etcd list the same members");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].peer_urls, [format!("http://127.0.0.1:{}", pod.settings.peer_port)]);
}
