//! With authentication on, etcd refuses some answers to an agent that has no user. It serves all the same.

use quorate_etcd::client::{Client, Code, Options};

use crate::pod::{Pod, eventually};

const MINORS: [&str; 3] = ["3.5", "3.6", "3.7"];

fn enable_authentication(pod: &Pod) {
    for arguments in [&["user", "add", "root:secret"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
    {
        pod.etcdctl(arguments);
    }
}

/// To a caller with the same certificate as the agent, or without any.
fn status_is_refused(pod: &Pod) -> bool {
    !pod.try_etcdctl(&["endpoint", "status"]).status.success()
}

/// The Lease is renewed again and again, and the member stays ready.
fn is_alive(pod: &Pod, what: &str) {
    for _ in 0..2 {
        let before = pod.api.lease().renewed;
        eventually(what, || pod.api.lease().renewed > before);
        assert_eq!(pod.probe("/readyz"), Some(200), "{what}");
    }
}

#[test]
fn a_member_stays_ready_and_alive_when_authentication_is_enabled() {
    for minor in MINORS {
        for pod in [Pod::new(minor), Pod::with_tls(minor)] {
            let mut pod = pod.run();
            let before = pod.api.report();
            let what = format!("{minor}, TLS {}", pod.settings.tls);
            enable_authentication(&pod);
            // A certificate is a name, if not a user, and from these releases on any name will do.
            assert_eq!(status_is_refused(&pod), !pod.settings.tls, "{what}: else this shows nothing");
            is_alive(&pod, &what);
            // An agent that has never been told anything by this etcd.
            pod.kill_agent();
            pod.start_agent();
            eventually("the new agent finds etcd serving", || pod.probe("/readyz") == Some(200));
            is_alive(&pod, &what);
            let after = pod.api.report();
            assert_eq!(after.data, before.data, "{what}");
            assert_eq!(after.etcd.unwrap().member_id, before.etcd.unwrap().member_id, "{what}");
        }
    }
}

#[test]
fn a_server_that_knows_no_leader_says_so_to_callers_without_rights_too() {
    for minor in MINORS {
        let pod = Pod::running(minor);
        pod.etcdctl(&["member", "add", "nobody", "--peer-urls=http://127.0.0.1:1"]);
        // Two members and one of them never comes: what follows needs no quorum, and there is none.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::new(Options::new(pod.client_url())).unwrap().requiring_leader();
            loop {
                match client.status().await {
                    Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
                    Err(error) => break assert_eq!(error.code(), Some(Code::Unavailable), "{minor}: {error}"),
                }
            }
        });
    }
}
