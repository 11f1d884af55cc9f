//! What a decision wants to know for certain before it is acted on.
//!
//! A view comes from caches, which may be old or hold only a part. Where that matters the core names what is to be read
//! live; the operator reads it, puts it into the view, and asks again. It ends because nothing is asked for twice.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::object::ObjectKey;

/// One thing to be read live.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Read {
    /// The EtcdCluster itself.
    Cluster,
    /// What is under a name that the cluster needs. The caches do not have it: it may be missing, or belong to somebody
    /// else, or our own write has not come back yet.
    Object(ObjectKey),
    /// The pod and the Lease of a member. A watch that has died silently looks just like bad news.
    Member(String),
    /// The Secrets that hold the cluster's certificates: what is known about them, never their content.
    Secrets,
    /// etcd's list of members, confirmed by a quorum of them.
    MemberList(Endpoints),
    /// A node, by name. Nodes are not watched.
    Node(String),
    /// Where the volume of a claim can be used.
    Reach(String),
    /// A hash over the data of each of these members, all at one revision.
    Hashes(Endpoints),
}

/// Where members answer clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Endpoints {
    /// The most promising first.
    pub members: Vec<Endpoint>,
    pub client_port: i32,
    pub encrypted: bool,
}

/// One member, by its pod's address: the question must not depend on DNS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Endpoint {
    pub member: String,
    pub address: String,
}

/// What has been read for a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadsDone {
    done: BTreeSet<Read>,
}

impl ReadsDone {
    pub fn contains(&self, read: &Read) -> bool {
        self.done.contains(read)
    }

    pub fn insert(&mut self, read: Read) {
        self.done.insert(read);
    }
}
