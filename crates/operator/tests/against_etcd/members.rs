//! Real etcd servers with the certificates that the core asks for, under the names that Kubernetes gives to members.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use jiff::Timestamp;
use quorate_api::names::secrets;
use quorate_api::{EtcdCluster, EtcdClusterSpec};
use quorate_core::build::certificates::{CertificateRequest, Purpose};
use quorate_core::read::Endpoint;
use quorate_core::view::{Platform, SecretsSeen};
use quorate_core::{Effect, View, decide};
use quorate_operator::etcd::Target;
use quorate_operator::pki::{self, Authority, Issued};
use serde_json::{Value, json};

use crate::etcd_process::binary;

pub(crate) const CLUSTER: &str = "etcd";
pub(crate) const NAMESPACE: &str = "default";
pub(crate) const UID: &str = "cluster-uid";

/// Address and name of each member.
pub(crate) fn hosts(count: usize) -> Vec<(String, String)> {
    (0..count).map(|ordinal| (address(ordinal), host(ordinal))).collect()
}

fn address(ordinal: usize) -> String {
    format!("10.0.1.{ordinal}")
}

/// A member as the operator finds it: by the address of its pod.
pub(crate) fn endpoint(ordinal: usize) -> Endpoint {
    Endpoint { member: format!("{CLUSTER}-{ordinal}"), address: address(ordinal) }
}

pub(crate) fn target(members: &[Endpoint]) -> Target<'_> {
    Target { namespace: NAMESPACE, cluster: CLUSTER, cluster_uid: UID, members, client_port: 2379, encrypted: true }
}

fn host(ordinal: usize) -> String {
    format!("{CLUSTER}-{ordinal}.{CLUSTER}-peer.{NAMESPACE}.svc")
}

pub(crate) fn client_url(ordinal: usize) -> String {
    format!("https://{}:2379", host(ordinal))
}

pub(crate) fn peer_url(ordinal: usize) -> String {
    format!("https://{}:2380", host(ordinal))
}

/// What a new cluster needs, as the core asks for it.
pub(crate) fn requests() -> Vec<CertificateRequest> {
    let mut cluster = EtcdCluster::new(CLUSTER, EtcdClusterSpec::default());
    cluster.metadata.namespace = Some(NAMESPACE.to_owned());
    cluster.metadata.uid = Some(UID.to_owned());
    let mut view = View::new(cluster, Platform::default()).unwrap();
    view.secrets = SecretsSeen::Read;
    let decision = decide(&view, Timestamp::now());
    let requests = decision.actions.into_iter().filter_map(|action| match action.effect {
        Effect::IssueCertificate(request) => Some(request),
        _ => None,
    });
    requests.collect()
}

/// All certificates of one cluster, as the pods would have them: one directory per Secret.
#[derive(Debug)]
pub(crate) struct Certificates {
    dir: PathBuf,
    issued: Vec<(CertificateRequest, Issued)>,
}

impl Certificates {
    pub(crate) fn issue(dir: &Path, requests: Vec<CertificateRequest>) -> Self {
        let mut all = Self { dir: dir.to_owned(), issued: Vec::new() };
        for request in requests {
            all.issue_one(request);
        }
        all
    }

    /// Issues one, or issues it anew.
    pub(crate) fn issue_one(&mut self, request: CertificateRequest) {
        let authority = request.issuer.as_deref().map(|issuer| Authority {
            secret: issuer,
            certificate_pem: &self.get(issuer).certificate_pem,
            key_pem: &self.get(issuer).key_pem,
            issued: Some(self.get(issuer).issued),
        });
        let issued = pki::issue(&request, authority.as_ref(), Timestamp::now()).unwrap();
        if request.purpose != Purpose::Authority {
            let dir = self.dir.join(format!("{}-{}", request.secret, issued.serial));
            fs::create_dir_all(&dir).unwrap();
            let files =
                [("tls.crt", &issued.certificate_pem), ("tls.key", &issued.key_pem), ("ca.crt", &issued.authority_pem)];
            for (file, content) in files {
                fs::write(dir.join(file), content).unwrap();
            }
            // All files at once, as the kubelet does it.
            let link = self.dir.join("link");
            symlink(&dir, &link).unwrap();
            fs::rename(link, self.dir.join(&request.secret)).unwrap();
        }
        self.issued.retain(|(known, _)| known.secret != request.secret);
        self.issued.push((request, issued));
    }

    pub(crate) fn get(&self, secret: &str) -> &Issued {
        &self.issued.iter().find(|(request, _)| request.secret == secret).unwrap().1
    }

    fn file(&self, secret: &str, file: &str) -> PathBuf {
        self.dir.join(secret).join(file)
    }

    /// As the agent writes it.
    fn mutual_tls(&self, secret: &str) -> Value {
        json!({
            "cert-file": self.file(secret, "tls.crt"),
            "key-file": self.file(secret, "tls.key"),
            "trusted-ca-file": self.file(secret, "ca.crt"),
            "client-cert-auth": true,
        })
    }
}

/// A member that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    child: Child,
    log: PathBuf,
}

impl Member {
    /// One of the founders.
    pub(crate) fn start(version: &str, dir: &Path, certificates: &Certificates, ordinal: usize, count: usize) -> Self {
        Self::launch(version, dir, certificates, ordinal, count, "new")
    }

    /// One that was added to those with lower ordinals.
    pub(crate) fn join(version: &str, dir: &Path, certificates: &Certificates, ordinal: usize) -> Self {
        Self::launch(version, dir, certificates, ordinal, ordinal + 1, "existing")
    }

    fn launch(
        version: &str,
        dir: &Path,
        certificates: &Certificates,
        ordinal: usize,
        count: usize,
        state: &str,
    ) -> Self {
        let peers = (0..count).map(|peer| format!("{CLUSTER}-{peer}={}", peer_url(peer)));
        let mut config = json!({
            "name": format!("{CLUSTER}-{ordinal}"),
            "data-dir": dir.join(format!("data-{ordinal}")),
            "listen-client-urls": format!("https://{}:2379", address(ordinal)),
            "listen-peer-urls": format!("https://{}:2380", address(ordinal)),
            "advertise-client-urls": client_url(ordinal),
            "initial-advertise-peer-urls": peer_url(ordinal),
            "initial-cluster": peers.collect::<Vec<_>>().join(","),
            "initial-cluster-state": state,
            "client-transport-security": certificates.mutual_tls(&secrets::server(CLUSTER)),
            "peer-transport-security": certificates.mutual_tls(&secrets::peer(CLUSTER)),
        });
        let dialling = secrets::peer_client(CLUSTER);
        config["peer-transport-security"]["client-cert-file"] = json!(certificates.file(&dialling, "tls.crt"));
        config["peer-transport-security"]["client-key-file"] = json!(certificates.file(&dialling, "tls.key"));
        let file = dir.join(format!("{ordinal}.yaml"));
        fs::write(&file, config.to_string()).unwrap();
        let log = dir.join(format!("{ordinal}.log"));
        let output = File::create(&log).unwrap();
        let child = Command::new(binary(version, "etcd"))
            .arg("--config-file")
            .arg(&file)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
