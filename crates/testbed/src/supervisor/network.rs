//! The bed's network: a bridge with a cable to each node, and no way out.

use std::{fs, path::Path, thread, time::Duration};

use crate::{
    bed::{CONTROL_PLANE, NODE_NETWORK_BITS, Node},
    command::sh,
    error::{Error, Result, While},
};

const BRIDGE: &str = "bridge";

/// The supervisor starts in an empty network namespace of its own.
pub(super) fn make() -> Result<()> {
    sh("ip link set lo up")?;
    sh(&format!("ip link add {BRIDGE} type bridge"))?;
    sh(&format!("ip address add {CONTROL_PLANE}/{NODE_NETWORK_BITS} dev {BRIDGE}"))?;
    sh(&format!("ip link set {BRIDGE} up"))?;
    // There is nothing behind this namespace; saying so at once is kinder than a timeout.
    sh("ip route add unreachable default")?;
    let forwarding = Path::new("/proc/sys/net/ipv4/ip_forward");
    fs::write(forwarding, "1").while_(|| format!("writing {}", forwarding.display()))
}

/// Lays a cable from the bridge into the network namespace of the process `pid`, a node that is just booting.
pub(super) fn plug_in(node: &Node, pid: u32) -> Result<()> {
    wait_for_own_network(pid)?;
    // The cable of a node that died hangs on until the kernel has taken its namespace down.
    let _ = sh(&format!("ip link delete {}", node.link()));
    sh(&format!("ip link add {} type veth peer name eth0 netns {pid}", node.link()))?;
    sh(&format!("ip link set {} master {BRIDGE} up", node.link()))?;
    sh(&format!("ip route replace {} via {}", node.pod_network(), node.address())).map(drop)
}

pub(super) fn connect(node: &Node, connected: bool) -> Result<()> {
    let state = if connected { "up" } else { "down" };
    sh(&format!("ip link set {} {state}", node.link())).map(drop)
}

pub(super) fn is_connected(node: &Node) -> bool {
    sh(&format!("ip -brief link show {} up", node.link())).is_ok_and(|shown| !shown.is_empty())
}

fn wait_for_own_network(pid: u32) -> Result<()> {
    let namespace = |who: &str| fs::read_link(format!("/proc/{who}/ns/net"));
    let own = namespace("self").while_(|| "reading the supervisor's network namespace".to_owned())?;
    for _ in 0..2000 {
        match namespace(&pid.to_string()) {
            Ok(other) if other != own => return Ok(()),
            Ok(_) => thread::sleep(Duration::from_millis(1)),
            Err(source) => return Err(Error::Io { what: format!("the booting node (process {pid}) is gone"), source }),
        }
    }
    Err(Error::refused(format!("process {pid} got no network namespace of its own"), "look at `testbed logs`"))
}
