//! The member that is there already: a plain etcd of the test's own, beside the pod and of the same authority.

use std::{
    fs::File,
    net::Ipv4Addr,
    process::{Child, Command, Stdio},
};

use quorate_api::member::{Peer, Ticket};
use quorate_core::lease::Heartbeat;
use serde_json::Value;

use crate::pod::{MEMBER, Pod, binary, eventually, free_port};

pub(crate) struct Neighbour {
    etcd: Child,
    name: &'static str,
    client_url: String,
    peer_url: String,
    /// More arguments for etcdctl.
    pub(crate) user: Option<&'static str>,
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

impl Neighbour {
    /// Serves when it returns.
    pub(crate) fn of(pod: &Pod, arguments: &[&str]) -> Self {
        Self::at(Ipv4Addr::LOCALHOST, pod, arguments)
    }

    /// Other members reach it at this address of the machine.
    pub(crate) fn at(address: Ipv4Addr, pod: &Pod, arguments: &[&str]) -> Self {
        let scheme = if pod.settings.tls { "https" } else { "http" };
        let [client_url, peer_url] =
            [Ipv4Addr::LOCALHOST, address].map(|at| format!("{scheme}://{at}:{}", free_port()));
        let name = "neighbour";
        let log = File::create(pod.path("neighbour.log")).unwrap();
        let file = |whose: &str, name: &str| pod.path("tls").join(whose).join(name).display().to_string();
        let tls = [("", "server"), ("peer-", "peer")].into_iter().flat_map(|(prefix, whose)| {
            [
                format!("--{prefix}cert-file={}", file(whose, "tls.crt")),
                format!("--{prefix}key-file={}", file(whose, "tls.key")),
                format!("--{prefix}trusted-ca-file={}", file(whose, "ca.crt")),
                format!("--{prefix}client-cert-auth"),
            ]
        });
        let etcd = Command::new(binary(pod.minor, "etcd"))
            .arg(format!("--name={name}"))
            .arg(format!("--data-dir={}", pod.path("neighbour").display()))
            .arg(format!("--listen-client-urls={client_url}"))
            .arg(format!("--advertise-client-urls={client_url}"))
            .arg(format!("--listen-peer-urls={peer_url}"))
            .arg(format!("--initial-advertise-peer-urls={peer_url}"))
            .arg(format!("--initial-cluster={name}={peer_url}"))
            .args(tls.filter(|_| pod.settings.tls))
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let neighbour = Self { etcd, name, client_url, peer_url, user: None };
        eventually("the neighbour serves", || neighbour.try_etcdctl(pod, &["endpoint", "health"]));
        neighbour
    }

    pub(crate) fn peer_url(&self) -> &str {
        &self.peer_url
    }

    pub(crate) fn client_url(&self) -> &str {
        &self.client_url
    }

    fn try_etcdctl(&self, pod: &Pod, arguments: &[&str]) -> bool {
        let arguments = [self.user.as_slice(), arguments].concat();
        pod.try_etcdctl_at(&self.client_url, &arguments).status.success()
    }

    pub(crate) fn etcdctl(&self, pod: &Pod, arguments: &[&str]) -> String {
        pod.etcdctl_at(&self.client_url, &[self.user.as_slice(), arguments].concat())
    }

    /// Adds a learner with the pod's address, and gives the pod the ticket to join as that.
    pub(crate) fn invite(&self, pod: &Pod) -> String {
        let ticket = self.add_learner(pod, 1);
        pod.api.set_ticket(&ticket);
        let Ticket::Join { member_id, .. } = ticket else { panic!() };
        member_id
    }

    pub(crate) fn add_learner(&self, pod: &Pod, epoch: i64) -> Ticket {
        let scheme = if pod.settings.tls { "https" } else { "http" };
        let own = format!("{scheme}://127.0.0.1:{}", pod.settings.peer_port);
        let urls = format!("--peer-urls={own}");
        let mut added = Value::Null;
        // An identifier is made from the address and the second, and one that was removed is refused.
        eventually("a learner is added", || {
            let add = ["member", "add", MEMBER, "--learner", &urls, "--write-out=json"];
            let output = pod.try_etcdctl_at(&self.client_url, &[self.user.as_slice(), &add].concat());
            added = serde_json::from_slice(&output.stdout).unwrap_or_default();
            output.status.success()
        });
        let hex = |value: &Value| format!("{:x}", value.as_u64().unwrap());
        let peer = |name: &str, url: &str| Peer { name: name.to_owned(), url: url.to_owned() };
        Ticket::Join {
            epoch,
            cluster_id: hex(&added["header"]["cluster_id"]),
            member_id: hex(&added["member"]["ID"]),
            initial_cluster: vec![peer(self.name, &self.peer_url), peer(MEMBER, &own)],
        }
    }

    /// etcd refuses until it has been in touch with all voters for a while.
    pub(crate) fn remove(&self, pod: &Pod, id: &str) {
        eventually("the member can be removed", || self.try_etcdctl(pod, &["member", "remove", id]));
    }

    /// etcd refuses until the learner has caught up.
    pub(crate) fn promote(&self, pod: &Pod, id: &str) {
        eventually("the learner can be promoted", || self.try_etcdctl(pod, &["member", "promote", id]));
    }
}

/// Waits until the pod's member renews its Lease as this learner, and reports it.
#[track_caller]
pub(crate) fn is_learning(pod: &mut Pod, id: &str) -> Heartbeat {
    eventually("the learner renews its Lease", || {
        pod.restart_ended_launcher();
        let told = pod.api.report().etcd.and_then(|etcd| etcd.member_id);
        pod.api.lease().member_id.as_deref() == Some(id) && told.as_deref() == Some(id)
    });
    pod.api.lease()
}

/// What a learner says to whoever does not insist on the newest.
pub(crate) fn value_on(pod: &Pod) -> String {
    pod.etcdctl(&["get", "key", "--consistency=s", "--print-value-only"]).trim().to_owned()
}
