//! The addresses inside a bed, in each IP family, and how a network namespace gets them. Beds share no network, so they can
//! share addresses.

use std::{fmt, fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    command::sh,
    error::{Result, While},
};

/// Which families nodes, pods and Services have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum IpFamilies {
    #[default]
    Ipv4,
    /// No IPv4 but on loopback devices
    Ipv6,
    /// Both; a Service that does not ask gets IPv4
    Dual,
}

#[derive(Debug, PartialEq, Eq)]
pub struct IpFamily {
    /// The control plane, in every bed.
    pub control_plane: &'static str,
    pub pods: &'static str,
    pub services: &'static str,
    /// The API server's own Service.
    pub first_service: &'static str,
    pub everywhere: &'static str,
    /// The command for addresses and routes.
    pub ip: &'static str,
    nodes: &'static str,
    pods_of_node: [&'static str; 2],
    bits_and_flags: &'static str,
    /// Below /proc/sys/net: what makes a router of a network namespace.
    settings: [(&'static str, &'static str); 3],
}

const V4: IpFamily = IpFamily {
    control_plane: "10.90.0.1",
    pods: "10.244.0.0/16",
    services: "10.96.0.0/16",
    first_service: "10.96.0.1",
    everywhere: "0.0.0.0/0",
    ip: "ip -4",
    nodes: "10.90.0.",
    pods_of_node: ["10.244.", ".0/24"],
    bits_and_flags: "24",
    settings: [("ipv4/ip_forward", "1"), ("ipv4/conf/all/rp_filter", "0"), ("ipv4/conf/default/rp_filter", "0")],
};

/// Whether somebody has an address already is not asked: nobody has, and the kernel takes a second for it.
const V6: IpFamily = IpFamily {
    control_plane: "fd00:90::1",
    pods: "fd00:244::/48",
    services: "fd00:96::/112",
    first_service: "fd00:96::1",
    everywhere: "::/0",
    ip: "ip -6",
    nodes: "fd00:90::",
    pods_of_node: ["fd00:244:0:", "::/64"],
    bits_and_flags: "64 nodad",
    settings: [
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv6/conf/all/accept_dad", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
    ],
};

impl fmt::Display for IpFamilies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IpFamilies::Ipv4 => "IPv4",
            IpFamilies::Ipv6 => "IPv6",
            IpFamilies::Dual => "IPv4 and IPv6",
        })
    }
}

impl IpFamilies {
    /// The primary one first.
    pub fn all(self) -> &'static [&'static IpFamily] {
        match self {
            IpFamilies::Ipv4 => &[&V4],
            IpFamilies::Ipv6 => &[&V6],
            IpFamilies::Dual => &[&V4, &V6],
        }
    }

    /// What the control plane is known by.
    pub fn primary(self) -> &'static IpFamily {
        match self {
            IpFamilies::Ipv4 | IpFamilies::Dual => &V4,
            IpFamilies::Ipv6 => &V6,
        }
    }

    pub fn each<T>(self, of: impl Fn(&'static IpFamily) -> T) -> Vec<T> {
        self.all().iter().map(|family| of(family)).collect()
    }
}

impl IpFamily {
    /// A port of the control plane, as addresses with ports are written.
    pub fn at_control_plane(&self, port: u16) -> String {
        let address = self.control_plane;
        if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
    }

    pub fn node(&self, number: u8) -> String {
        format!("{}{}", self.nodes, 10 + number)
    }

    pub fn pods_of_node(&self, number: u8) -> String {
        self.pods_of_node.join(&number.to_string())
    }

    /// Makes the caller's network namespace a router, and gives a device in it an address of the node network.
    pub fn join_node_network(&self, address: &str, device: &str) -> Result<()> {
        for (setting, value) in self.settings {
            let path = Path::new("/proc/sys/net").join(setting);
            fs::write(&path, value).while_(|| format!("writing {}", path.display()))?;
        }
        sh(&format!("{} address add dev {device} {address}/{}", self.ip, self.bits_and_flags)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_bed_of_one_family_holds_no_address_of_the_other() {
        let is_ipv6 = |address: &str| address.parse::<IpAddr>().unwrap().is_ipv6();
        for (families, meant) in [(IpFamilies::Ipv4, false), (IpFamilies::Ipv6, true)] {
            let of = |family: &IpFamily| {
                let networks = [family.pods, family.services, family.everywhere, &family.pods_of_node(9)];
                let first = networks.map(|network| network.split_once('/').unwrap().0.to_owned());
                let others = [family.control_plane.to_owned(), family.first_service.to_owned(), family.node(9)];
                [first.to_vec(), others.to_vec()].concat()
            };
            for address in families.each(of).concat() {
                assert_eq!(is_ipv6(&address), meant, "{families:?} has {address}");
            }
        }
    }

    #[test]
    fn the_primary_family_comes_first() {
        for families in [IpFamilies::Ipv4, IpFamilies::Ipv6, IpFamilies::Dual] {
            assert_eq!(families.all()[0], families.primary());
        }
    }
}
