//! A bed's name and all that follows from it: paths, node names.
//!
//! Nothing about a bed is remembered that could be derived from its name, so a bed that crashed half-way can be removed
//! by a program that knows the name and nothing else.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{error::Error, ip::IpFamilies};

/// Where beds live, unless the environment says otherwise.
const BEDS: &str = "/var/lib/quorate-testbed";
const BEDS_VARIABLE: &str = "QUORATE_TESTBED_DIR";

pub const DEFAULT_NAME: &str = "quorate";
pub const MAX_NODES: u8 = 9;

pub const API_PORT: u16 = 6443;
/// Not the usual one, so that nobody takes that for granted.
pub const DNS_DOMAIN: &str = "quorate.test";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bed {
    name: String,
}

impl FromStr for Bed {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let well_formed = name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-');
        // 20 characters keep the control socket's path below the kernel's limit of 107 bytes.
        if well_formed && name.len() <= 20 && name.chars().all(allowed) {
            return Ok(Bed { name: name.to_owned() });
        }
        Err(Error::refused(
            format!("`{name}` cannot name a bed"),
            "use 1 to 20 lower-case letters, digits and dashes, beginning with a letter",
        ))
    }
}

impl fmt::Display for Bed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Bed {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory that holds all beds of this machine.
    pub fn beds_dir() -> PathBuf {
        std::env::var_os(BEDS_VARIABLE).filter(|value| !value.is_empty()).map_or_else(|| BEDS.into(), PathBuf::from)
    }

    /// Directories are removed as a whole and named in the files of other programs, so only a plain path will do.
    pub fn check_beds_dir() -> Result<(), Error> {
        let dir = Self::beds_dir();
        let existing = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        let plain = dir.is_absolute()
            && !dir.to_string_lossy().contains(char::is_whitespace)
            && existing.canonicalize().is_ok_and(|real| real == existing);
        if plain {
            return Ok(());
        }
        Err(Error::refused(
            format!("{BEDS_VARIABLE}={} cannot hold beds", dir.display()),
            "name an absolute path without blanks and symbolic links, or unset it",
        ))
    }

    pub fn dir(&self) -> PathBuf {
        Self::beds_dir().join(&self.name)
    }

    /// Held while a bed is being started or removed. Beside the bed's directory, because `down` removes that.
    pub fn lock_file(&self) -> PathBuf {
        Self::beds_dir().join(format!(".{}.lock", self.name))
    }

    /// Says that the directory is a bed's and may be removed as one.
    pub fn marker_file(&self) -> PathBuf {
        self.dir().join(".testbed")
    }

    /// What the bed was started with.
    pub fn plan_file(&self) -> PathBuf {
        self.dir().join("plan.json")
    }

    /// Written when the bed was complete for the first time: from then on its state is worth keeping.
    pub fn complete_file(&self) -> PathBuf {
        self.dir().join("complete")
    }

    /// Present from the moment the API server served for the first time since the bed was started.
    pub fn api_served_file(&self) -> PathBuf {
        self.dir().join("api-served")
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    /// The kubeconfig of one of the bed's own users, for use inside the bed.
    pub fn inner_kubeconfig(&self, user: &str) -> PathBuf {
        self.dir().join("kubeconfigs").join(user)
    }

    pub fn control_socket(&self) -> PathBuf {
        self.dir().join("control.sock")
    }

    pub fn pki(&self, file: &str) -> PathBuf {
        self.dir().join("pki").join(file)
    }

    pub fn log(&self, component: &str) -> PathBuf {
        self.dir().join("logs").join(format!("{component}.log"))
    }

    pub fn logs_dir(&self) -> PathBuf {
        self.dir().join("logs")
    }

    /// Where an archive waits until it has proved to be an image.
    pub fn incoming_dir(&self) -> PathBuf {
        self.dir().join("incoming")
    }

    pub fn images_dir(&self) -> PathBuf {
        self.dir().join("images")
    }

    pub fn volumes_dir(&self) -> PathBuf {
        self.dir().join("volumes")
    }

    /// The bed's own copy of this program: a rebuild must not pull it from under a running bed.
    pub fn program(&self) -> PathBuf {
        self.dir().join("bin/testbed")
    }

    /// The cgroup, relative to each hierarchy's root, that holds every process of the bed.
    pub fn cgroup(&self) -> PathBuf {
        let dir = Self::beds_dir();
        let place = if dir == Path::new(BEDS) { String::new() } else { format!("-{}", short_digest(&dir)) };
        PathBuf::from(format!("quorate-testbed{place}")).join(&self.name)
    }

    pub fn supervisor_cgroup(&self) -> PathBuf {
        self.cgroup().join("supervisor")
    }

    pub fn node(&self, number: u8) -> Node {
        Node { bed: self.clone(), number }
    }
}

/// Beds of one name in two places are two beds.
fn short_digest(path: &Path) -> String {
    crate::image::hex(&Sha256::digest(path.as_os_str().as_encoded_bytes())).chars().take(8).collect()
}

/// One node of a bed: a machine as far as Kubernetes can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub bed: Bed,
    pub number: u8,
}

impl Node {
    pub fn name(&self) -> String {
        format!("node{}", self.number)
    }

    pub fn zone(&self) -> String {
        format!("zone-{}", self.number)
    }

    /// The bed's end of the cable to this node.
    pub fn link(&self) -> String {
        self.name()
    }

    pub fn dir(&self) -> PathBuf {
        self.bed.dir().join("nodes").join(self.name())
    }

    pub fn log(&self, component: &str) -> PathBuf {
        self.bed.log(&format!("{}-{component}", self.name()))
    }

    /// Present from the moment all images are there until the next boot begins.
    pub fn images_loaded_file(&self) -> PathBuf {
        self.dir().join("images-loaded")
    }

    pub fn cgroup(&self) -> PathBuf {
        self.bed.cgroup().join(self.name())
    }

    /// Where the node's own daemons run; pods get cgroups beside it.
    pub fn system_cgroup(&self) -> PathBuf {
        self.cgroup().join("system")
    }
}

/// What a bed is made of, decided once by `up` and kept for repairs and reboots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub nodes: u8,
    /// What beds had before they could choose is the default.
    #[serde(default)]
    pub ip_families: IpFamilies,
    /// Where the host finds the API server: 127.0.0.1 and this port.
    pub port: u16,
    pub kube: PathBuf,
    pub etcd: PathBuf,
    pub coredns: PathBuf,
    pub containerd: PathBuf,
    pub ctr: PathBuf,
    pub cni_plugins: PathBuf,
    /// Image archives that every node loads when it boots; the first is the pause image.
    pub images: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_escape_a_path_or_a_socket_are_refused() {
        for name in ["", "..", "a/b", "A", "1a", "a-", "-a", "a b", "abcdefghijklmnopqrstu"] {
            assert!(name.parse::<Bed>().is_err(), "{name:?} was accepted");
        }
        for name in ["a", "quorate", "test-2", "abcdefghijklmnopqrst"] {
            assert!(name.parse::<Bed>().is_ok(), "{name:?} was refused");
        }
    }
}
