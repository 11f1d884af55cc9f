//! The configuration files of a node's daemons.

use serde_json::{Value, json};

use crate::{
    bed::{Bed, DNS_DOMAIN, Node, Plan},
    build::PAUSE_IMAGE,
    error::{Result, write_file},
    ip::IpFamilies,
};

pub(super) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

pub(super) fn write(node: &Node, plan: &Plan) -> Result<()> {
    let (dir, families) = (node.dir(), plan.ip_families);
    let pretty = |value: Value| format!("{value:#}\n");
    write_file(&dir.join("cni/10-testbed.conflist"), pretty(cni(node, families)))?;
    write_file(&dir.join("containerd.toml"), containerd(node, plan))?;
    write_file(&dir.join("kubelet.json"), pretty(kubelet(node, families)))?;
    write_file(&dir.join("kube-proxy.json"), pretty(kube_proxy(node, families)))?;
    write_file(
        &dir.join("resolv.conf"),
        families.each(|family| format!("nameserver {}\n", family.control_plane)).concat(),
    )
}

/// Point-to-point links: with a bridge, traffic of a pod to itself through a Service would need `br_netfilter`.
fn cni(node: &Node, families: IpFamilies) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "testbed",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-addresses",
                    "ranges": families.each(|family| json!([{"subnet": family.pods_of_node(node.number)}])),
                    "routes": families.each(|family| json!({"dst": family.everywhere})),
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
        ],
    })
}

/// `restrict_oom_score_adj` and `oom_score = 0`: root in a container or sandbox often lacks `CAP_SYS_RESOURCE`.
fn containerd(node: &Node, plan: &Plan) -> String {
    let dir = node.dir();
    format!(
        r#"version = 2
root = "{dir}/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
enable_selinux = false
restrict_oom_score_adj = true
sandbox_image = "{PAUSE_IMAGE}"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni}"
conf_dir = "{dir}/cni"
"#,
        dir = dir.display(),
        cni = plan.cni_plugins.display(),
    )
}

/// Short periods make faults show in seconds; `enforceNodeAllocatable` is empty because the node is not alone on its
/// hardware; `volumePluginDir` and the root directory keep the kubelet out of the host's directories.
fn kubelet(node: &Node, families: IpFamilies) -> Value {
    let bed: &Bed = &node.bed;
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": bed.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", node.cgroup().display()),
        "clusterDNS": families.each(|family| family.control_plane),
        "clusterDomain": DNS_DOMAIN,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "enforceNodeAllocatable": [],
        "eventRecordQPS": 0,
        "evictionHard": {"imagefs.available": "1Mi", "memory.available": "10Mi", "nodefs.available": "1Mi"},
        "failCgroupV1": false,
        "failSwapOn": false,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeLeaseDurationSeconds": 10,
        "nodeStatusReportFrequency": "3s",
        "nodeStatusUpdateFrequency": "2s",
        "registryPullQPS": 0,
        "resolvConf": node.dir().join("resolv.conf"),
        "serializeImagePulls": false,
        "syncFrequency": "10s",
        "tlsCertFile": bed.pki(&format!("{}.crt", node.name())),
        "tlsPrivateKeyFile": bed.pki(&format!("{}.key", node.name())),
        "volumePluginDir": node.dir().join("volume-plugins"),
    })
}

/// `maxPerCore: 0` leaves the machine's connection tracking limits alone.
fn kube_proxy(node: &Node, families: IpFamilies) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": node.bed.inner_kubeconfig("kube-proxy")},
        "clusterCIDR": families.each(|family| family.pods).join(","),
        "conntrack": {"maxPerCore": 0, "min": 0},
        "hostnameOverride": node.name(),
        "mode": "nftables",
        "nftables": {"minSyncPeriod": "200ms", "syncPeriod": "30s"},
    })
}
