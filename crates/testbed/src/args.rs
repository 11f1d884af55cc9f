//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{
    bed::{Bed, DEFAULT_NAME, MAX_NODES},
    build,
    control::NodeAction,
    ip::IpFamilies,
};

/// A real Kubernetes on one machine, whose nodes are Linux namespaces
#[derive(Debug, Parser)]
#[command(name = "testbed", version, max_term_width = 100)]
pub struct Arguments {
    /// Which bed; beds with different names share nothing
    #[arg(long, global = true, default_value = DEFAULT_NAME, env = "QUORATE_TESTBED")]
    pub name: Bed,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Start a bed, or repair or rejoin the one that is there
    Up {
        /// How many nodes, each in a zone of its own [default: 3]
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_NODES)))]
        nodes: Option<u8>,
        /// What addresses nodes, pods and Services have [default: ipv4]
        #[arg(long)]
        ip_family: Option<IpFamilies>,
        /// Port of the API server on the host's loopback [default: any free one]
        #[arg(long)]
        port: Option<u16>,
    },
    /// Remove a bed and all it holds
    Down,
    /// What runs, and how well
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// All beds of this machine
    List,
    /// Print the path of the bed's kubeconfig
    Kubeconfig,
    /// Run kubectl against the bed
    #[command(disable_help_flag = true)]
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Make an image archive from files, without a registry or a container engine; prints its digest
    Image {
        /// The archive to write
        archive: PathBuf,
        /// Full name with host and tag, such as docker.io/quorate/operator:dev
        #[arg(long)]
        reference: String,
        /// PATH=SOURCE: a program of the image and the file it is made from; the first is the entry point
        #[arg(long, required = true, value_parser = program)]
        program: Vec<(String, PathBuf)>,
    },
    /// Load an image archive (`docker save`, OCI layout) into every node
    LoadImage { archive: PathBuf },
    /// Faults: a power cut, a pulled cable, and their repair
    Node {
        action: NodeAction,
        /// 1 is node1
        number: u8,
    },
    /// Stop or start a part of the control plane
    Component {
        #[arg(value_parser = ["start", "stop"])]
        action: String,
        /// As `testbed status` names it
        component: String,
    },
    /// Run a command in the bed's network, or a node's
    Exec {
        /// 1 is node1; the control plane's network if not given
        #[arg(long)]
        node: Option<u8>,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Show the log of a component
    Logs {
        /// Such as kube-apiserver or node1-kubelet; all names if not given
        component: Option<String>,
        /// Go on as it grows
        #[arg(long, short)]
        follow: bool,
    },
    /// Build everything a bed can hold, without starting one
    Build {
        /// Only this
        #[arg(value_parser = build::ALL.map(|component| component.name))]
        component: Option<String>,
    },
    /// Print the directory with etcd, etcdctl and etcdutl of each supported minor release
    EtcdBinaries,
    /// Print the directory with the stores that tests of backups run against: an S3 server and, from npm, Azurite
    StoreServers,
    /// First stage of a bed: enter its cgroup, then its namespaces
    #[command(hide = true)]
    EnterBed,
    /// First process of a bed
    #[command(hide = true)]
    RunBed,
    /// First process of a node
    #[command(hide = true)]
    RunNode { number: u8 },
}

fn program(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((path, source)) if path.starts_with('/') && !source.is_empty() => Ok((path.to_owned(), source.into())),
        _ => Err("expected /PATH=SOURCE, such as /agent=target/release/agent".to_owned()),
    }
}
