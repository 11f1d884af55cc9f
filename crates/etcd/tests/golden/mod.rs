//! Snapshots that real servers wrote, with what those servers said about them.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use quorate_etcd::membership::InitialCluster;
use quorate_etcd::restore::{Restore, RestoreError, Restored};

pub(crate) struct Golden {
    pub(crate) version: &'static str,
    pub(crate) packed: &'static [u8],
    /// What `etcdutl snapshot status` printed.
    pub(crate) status: u32,
    /// What `HashKV` answered at the head, revision 38, and at revision 25; both compacted at 9.
    pub(crate) head: u32,
    pub(crate) at_25: u32,
}

pub(crate) const REVISION: i64 = 38;
pub(crate) const COMPACTED: i64 = 9;

pub(crate) const ALL: [Golden; 3] = [
    Golden {
        version: "3.5",
        packed: include_bytes!("3.5.db.gz"),
        status: 872_947_101,
        head: 930_296_490,
        at_25: 2_415_218_010,
    },
    Golden {
        version: "3.6",
        packed: include_bytes!("3.6.db.gz"),
        status: 1_754_734_154,
        head: 1_658_072_157,
        at_25: 1_221_999_661,
    },
    Golden {
        version: "3.7",
        packed: include_bytes!("3.7.db.gz"),
        status: 60_794_917,
        head: 1_862_778_926,
        at_25: 368_420_669,
    },
];

impl Golden {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        GzDecoder::new(self.packed).read_to_end(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn write_to(&self, dir: &Path) -> PathBuf {
        let path = dir.join(format!("{}.db", self.version));
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }
}

/// Restores a single-member directory, with `change` applied to the plainest of requests.
pub(crate) fn restore(
    snapshot: &Path,
    data_dir: &Path,
    change: impl FnOnce(&mut Restore<'_>),
) -> Result<Restored, RestoreError> {
    let url = "http://localhost:2380".to_owned();
    let cluster = InitialCluster::parse(&format!("default={url}"), "etcd-cluster").unwrap();
    let member = cluster.own_member("default", &[url]).unwrap();
    let mut restore = Restore::new(snapshot, data_dir, &cluster, member);
    change(&mut restore);
    restore.run(None)
}
