//! The bed's network: a bridge with a cable to each node, and no way out.

use std::{fs, thread, time::Duration};

use crate::{
    bed::Node,
    command::sh,
    error::{Error, Result, While},
    ip::IpFamilies,
};

const BRIDGE: &str = "bridge";
/// The control plane's network card. A bridge without an address of its own takes the lowest of its cables: it would change
/// when that node dies, and all others would send to nobody until they ask again.
const BRIDGE_CARD: &str = "02:90:00:00:00:01";

/// The supervisor starts in an empty network namespace of its own.
pub(super) fn make(families: IpFamilies) -> Result<()> {
    sh("ip link set lo up")?;
    sh(&format!("ip link add {BRIDGE} address {BRIDGE_CARD} type bridge"))?;
    for family in families.all() {
        family.join_node_network(family.control_plane, BRIDGE)?;
    }
    sh(&format!("ip link set {BRIDGE} up"))?;
    // There is nothing behind this namespace; saying so at once is kinder than a timeout.
    for family in IpFamilies::Dual.all() {
        sh(&format!("{} route add unreachable default", family.ip))?;
    }
    Ok(())
}

/// Lays a cable from the bridge into the network namespace of the process `pid`, a node that is just booting.
pub(super) fn plug_in(node: &Node, families: IpFamilies, pid: u32) -> Result<()> {
    wait_for_own_network(pid)?;
    // The cable of a node that died hangs on until the kernel has taken its namespace down.
    let _ = sh(&format!("ip link delete {}", node.link()));
    sh(&format!("ip link add {} type veth peer name eth0 netns {pid}", node.link()))?;
    sh(&format!("ip link set {} master {BRIDGE} up", node.link()))?;
    for family in families.all() {
        let (pods, address) = (family.pods_of_node(node.number), family.node(node.number));
        sh(&format!("{} route replace {pods} via {address}", family.ip))?;
    }
    Ok(())
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
