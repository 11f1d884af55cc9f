//! The control plane's command lines.

use std::{fs::File, path::Path, process::Stdio};

use tokio::process::{Child, Command};

use super::process::{AfterExit, Process};
use crate::{
    bed::{Bed, DNS_DOMAIN, Plan},
    error::{Result, While, create_dir, write_file},
    ip::IpFamilies,
};

/// All components, of which only the API server and its store run yet. The others work through the API: started before
/// it serves, they would take processor time from it and then sit out their own back-off.
pub(super) fn start(bed: &Bed, plan: &Plan) -> Result<Vec<Process>> {
    write_file(&bed.dir().join("audit-policy.yaml"), include_str!("manifests/audit-policy.yaml"))?;
    write_file(&bed.dir().join("Corefile"), corefile(bed, plan.ip_families))?;
    create_dir(&bed.dir().join("tmp"))?;
    let components = [
        ("etcd", plan.etcd.as_path(), etcd(bed)),
        ("kube-apiserver", plan.kube.as_path(), api_server(bed, plan.ip_families)),
        ("kube-controller-manager", plan.kube.as_path(), controller_manager(bed)),
        ("kube-scheduler", plan.kube.as_path(), scheduler(bed)),
        ("coredns", plan.coredns.as_path(), vec!["-conf".to_owned(), shown(&bed.dir().join("Corefile"))]),
    ];
    let keep = |(name, program, arguments): (&'static str, &Path, Vec<String>)| {
        let (bed, program) = (bed.clone(), program.to_owned());
        Process::keep(name, AfterExit::Restart, move || spawn(&bed, name, &program, &arguments))
    };
    let components: Vec<_> = components.into_iter().map(keep).collect();
    components
        .iter()
        .filter(|component| ["etcd", "kube-apiserver"].contains(&component.name()))
        .for_each(Process::start);
    Ok(components)
}

fn spawn(bed: &Bed, name: &str, program: &Path, arguments: &[String]) -> Result<Child> {
    let path = bed.log(name);
    let log = File::options().create(true).append(true).open(&path);
    let log = log.while_(|| format!("opening {}", path.display()))?;
    let errors = log.try_clone().while_(|| format!("opening {}", path.display()))?;
    Command::new(program)
        .args(arguments)
        .env("TMPDIR", bed.dir().join("tmp"))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .kill_on_drop(true)
        .spawn()
        .while_(|| format!("starting {name}"))
}

fn etcd(bed: &Bed) -> Vec<String> {
    vec![
        format!("--data-dir={}", shown(&bed.dir().join("etcd"))),
        "--listen-client-urls=http://127.0.0.1:2379".into(),
        "--advertise-client-urls=http://127.0.0.1:2379".into(),
        "--listen-peer-urls=http://127.0.0.1:2380".into(),
        "--log-level=warn".into(),
        // A bed is not worth a disk's patience; its own etcd is not what is under test.
        "--unsafe-no-fsync".into(),
    ]
}

fn api_server(bed: &Bed, families: IpFamilies) -> Vec<String> {
    let pki = |file: &str| shown(&bed.pki(file));
    vec![
        "kube-apiserver".into(),
        "--etcd-servers=http://127.0.0.1:2379".into(),
        format!("--advertise-address={}", families.primary().control_plane),
        format!("--service-cluster-ip-range={}", families.each(|family| family.services).join(",")),
        format!("--tls-cert-file={}", pki("kube-apiserver.crt")),
        format!("--tls-private-key-file={}", pki("kube-apiserver.key")),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--kubelet-certificate-authority={}", pki("ca.crt")),
        format!("--kubelet-client-certificate={}", pki("apiserver-kubelet-client.crt")),
        format!("--kubelet-client-key={}", pki("apiserver-kubelet-client.key")),
        // Without it exec and logs look node names up in DNS.
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", pki("service-accounts.pub")),
        format!("--service-account-signing-key-file={}", pki("service-accounts.key")),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged=true".into(),
        "--profiling=false".into(),
        format!("--audit-policy-file={}", shown(&bed.dir().join("audit-policy.yaml"))),
        format!("--audit-log-path={}", shown(&bed.log("audit"))),
    ]
}

fn controller_manager(bed: &Bed) -> Vec<String> {
    let pki = |file: &str| shown(&bed.pki(file));
    vec![
        "kube-controller-manager".into(),
        format!("--kubeconfig={}", shown(&bed.inner_kubeconfig("kube-controller-manager"))),
        format!("--service-account-private-key-file={}", pki("service-accounts.key")),
        format!("--root-ca-file={}", pki("ca.crt")),
        format!("--cluster-signing-cert-file={}", pki("ca.crt")),
        format!("--cluster-signing-key-file={}", pki("ca.key")),
        "--use-service-account-credentials".into(),
        "--leader-elect=false".into(),
        // The default is a directory of the host's.
        format!("--flex-volume-plugin-dir={}", shown(&bed.dir().join("volume-plugins"))),
        // A dead node shows after 12 seconds instead of 50.
        "--node-monitor-period=2s".into(),
        "--node-monitor-grace-period=12s".into(),
    ]
}

fn scheduler(bed: &Bed) -> Vec<String> {
    vec![
        "kube-scheduler".into(),
        format!("--kubeconfig={}", shown(&bed.inner_kubeconfig("kube-scheduler"))),
        "--leader-elect=false".into(),
    ]
}

/// No cache and short lifetimes: a moved pod should be found at its new address at once.
/// Names have addresses, and addresses have no names: many clusters have no reverse DNS, and nothing may depend on it.
fn corefile(bed: &Bed, families: IpFamilies) -> String {
    let addresses = families.each(|family| family.control_plane).join(" ");
    format!(
        "{DNS_DOMAIN}:53 {{\n    bind {addresses}\n    errors\n    \
         kubernetes {DNS_DOMAIN} {{\n        kubeconfig {}\n        pods insecure\n        ttl 2\n    }}\n}}\n",
        shown(&bed.inner_kubeconfig("coredns"))
    )
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
