//! Go programs from pinned modules: which, from what, and with which flags.

use std::path::{Path, PathBuf};

use super::{Cache, Progress};
use crate::{
    command::{command, find_program, run},
    error::{Error, Result, While, create_dir, write_file},
};

/// A Go module of ours that names, by version and checksum, everything it is built from.
#[derive(Debug, Clone, Copy)]
pub struct Component {
    pub name: &'static str,
    /// For people: what it is, in which version.
    pub title: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// Go package to build, and the name of the program it becomes.
    programs: &'static [(&'static str, &'static str)],
    ldflags: &'static str,
}

macro_rules! module_files {
    ($dir:literal, $($file:literal),+) => {
        &[$(($file, include_str!(concat!("../../components/", $dir, "/", $file)))),+]
    };
}

pub const KUBE: Component = Component {
    name: "kube",
    title: "Kubernetes v1.35.4",
    files: module_files!("kube", "go.mod", "go.sum", "main.go"),
    programs: &[(".", "kube")],
    // Nodes and clients read the version from here; without it the server calls itself v0.0.0.
    ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.35.4 \
              -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35 \
              -X k8s.io/client-go/pkg/version.gitVersion=v1.35.4",
};

pub const COREDNS: Component = Component {
    name: "coredns",
    title: "CoreDNS v1.14.7",
    files: module_files!("coredns", "go.mod", "go.sum", "main.go"),
    programs: &[(".", "coredns")],
    ldflags: "-s -w",
};

const ETCD_PROGRAMS: &[(&str, &str)] = &[
    ("go.etcd.io/etcd/server/v3", "etcd"),
    ("go.etcd.io/etcd/etcdctl/v3", "etcdctl"),
    ("go.etcd.io/etcd/etcdutl/v3", "etcdutl"),
];

const ETCD_3_5: Component = Component {
    name: "etcd-3.5",
    title: "etcd v3.5.35",
    files: module_files!("etcd-3.5", "go.mod", "go.sum"),
    programs: ETCD_PROGRAMS,
    ldflags: "-s -w",
};

const ETCD_3_6: Component = Component {
    name: "etcd-3.6",
    title: "etcd v3.6.16",
    files: module_files!("etcd-3.6", "go.mod", "go.sum"),
    ..ETCD_3_5
};

const ETCD_3_7: Component = Component {
    name: "etcd-3.7",
    title: "etcd v3.7.3",
    files: module_files!("etcd-3.7", "go.mod", "go.sum"),
    ..ETCD_3_5
};

/// Every supported minor release, in its newest version.
pub const ETCD: [Component; 3] = [ETCD_3_5, ETCD_3_6, ETCD_3_7];

/// What a cluster gets that names no release, and what a bed's own API server keeps its objects in.
pub const DEFAULT_ETCD: Component = ETCD_3_6;

/// An S3 server for tests of backups.
pub const S3: Component = Component {
    name: "s3",
    title: "VersityGW v1.8.0",
    files: module_files!("s3", "go.mod", "go.sum"),
    programs: &[("github.com/versity/versitygw/cmd/versitygw", "versitygw")],
    ldflags: "-s -w",
};

pub const ALL: [Component; 6] = [KUBE, COREDNS, ETCD_3_5, ETCD_3_6, ETCD_3_7, S3];

impl Component {
    /// The release, without the project's name: `v3.6.16`.
    pub fn version(&self) -> &'static str {
        self.title.rsplit(' ').next().unwrap_or(self.title)
    }

    fn inputs<'a>(&self, go: &'a Go) -> Vec<&'a [u8]> {
        let mut inputs = vec![go.version.as_bytes(), self.ldflags.as_bytes()];
        inputs.extend(self.files.iter().flat_map(|(name, content)| [name.as_bytes(), content.as_bytes()]));
        inputs
    }
}

/// Builds a component unless the cache has it, and returns the directory with its programs.
pub fn build(component: &Component, cache: &Cache) -> Result<PathBuf> {
    let go = Go::find()?;
    cache.get(component.name, &component.inputs(&go), |dir| compile(component, &go.program, cache, dir))
}

/// The directory with a component's programs, if they were built.
pub(super) fn built(component: &Component, cache: &Cache) -> Result<Option<PathBuf>> {
    Ok(cache.find(component.name, &component.inputs(&Go::find()?)))
}

/// The compiler.
struct Go {
    program: PathBuf,
    version: String,
}

impl Go {
    fn find() -> Result<Self> {
        let program = find_program("go").ok_or_else(|| {
            Error::refused("Go is not installed", "install Go 1.26 or newer and put `go` on the PATH")
        })?;
        let version = run(command([&program]).args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local"))?;
        require_go(&version)?;
        Ok(Go { program, version })
    }
}

/// The oldest Go that the pinned modules accept.
const OLDEST_GO: (u32, u32) = (1, 26);

fn require_go(version: &str) -> Result<()> {
    let mut numbers = version.trim_start_matches("go").split(['.', '-', ' ']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= OLDEST_GO => Ok(()),
        _ => Err(Error::refused(
            format!("this Go calls itself {version}"),
            format!("install Go {}.{} or newer and put `go` on the PATH", OLDEST_GO.0, OLDEST_GO.1),
        )),
    }
}

fn compile(component: &Component, go: &Path, cache: &Cache, dir: &Path) -> Result<()> {
    require_space(cache.dir())?;
    let source = tempfile::tempdir().while_(|| "creating a directory for sources".to_owned())?;
    for (name, content) in component.files {
        write_file(&source.path().join(name), content)?;
    }
    create_dir(dir)?;
    let what = format!("building {}", component.title);
    let progress = Progress::begin(what, cache.last_time(component.name));
    for (package, program) in component.programs {
        let mut go = command([go]);
        // Without debugging information, which the linker leaves out anyway, compiling is a sixth cheaper.
        go.args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-gcflags=all=-dwarf=false"])
            .args(["-ldflags", component.ldflags, "-o"])
            .args([dir.join(program).as_os_str(), package.as_ref()])
            .current_dir(source.path())
            .env("CGO_ENABLED", "0")
            .env("GOTOOLCHAIN", "local")
            .env_remove("GOFLAGS");
        run(&mut go).map_err(|error| explain(component, error))?;
    }
    cache.remember_time(component.name, progress.done())
}

/// Sources, compiler cache and results of all components together stay below this.
const SPACE_FOR_BUILDS: u64 = 8 << 30;

fn require_space(dir: &Path) -> Result<()> {
    let file_system = rustix::fs::statvfs(dir).while_(|| format!("looking at {}", dir.display()))?;
    let free = file_system.f_bavail.saturating_mul(file_system.f_frsize);
    if free >= SPACE_FOR_BUILDS {
        return Ok(());
    }
    Err(Error::refused(
        format!("only {} MiB are free at {}, building takes {} MiB", free >> 20, dir.display(), SPACE_FOR_BUILDS >> 20),
        "make room, or set QUORATE_CACHE (and GOCACHE, GOMODCACHE) to a larger disk",
    ))
}

/// Go's words for the common outside causes, turned into ours.
fn explain(component: &Component, error: Error) -> Error {
    let Error::Command { output, .. } = &error else { return error };
    let says = |words: &[&str]| words.iter().any(|word| output.contains(word));
    if says(&["no space left on device"]) {
        return Error::refused(
            format!("the disk filled up while building {}", component.title),
            "make room, or set QUORATE_CACHE, GOCACHE and GOMODCACHE to a larger disk, and run again",
        );
    }
    if says(&["dial tcp", "no such host", "i/o timeout", "connection refused", "TLS handshake timeout"]) {
        let line = output.lines().rfind(|line| line.contains("dial tcp") || line.contains("timeout"));
        return Error::refused(
            format!("the Go module proxy cannot be reached ({})", line.unwrap_or_default().trim()),
            "check the network or set GOPROXY, and run again: what was built is kept",
        );
    }
    if says(&["checksum mismatch"]) {
        return Error::refused(
            format!("a module of {} is not the one that was pinned: {output}", component.title),
            "somebody changed a release or your proxy; do not build until that is understood",
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_pins_the_release_its_title_promises() {
        for component in ALL {
            let (_, go_mod) = component.files.iter().find(|(name, _)| *name == "go.mod").unwrap();
            assert!(go_mod.contains(component.version()), "{}: {}", component.name, component.title);
        }
    }

    #[test]
    fn an_old_go_is_refused_and_a_new_one_is_not() {
        for version in ["go1.26.0", "go1.26.8", "go1.30", "go2.0"] {
            assert!(require_go(version).is_ok(), "{version}");
        }
        for version in ["go1.25.9", "go1.9", "devel", ""] {
            assert!(require_go(version).is_err(), "{version}");
        }
    }

    #[test]
    fn an_unreachable_proxy_is_named_with_the_next_step() {
        let output = "go: k8s.io/api@v0.35.4: Get \"https://x\": dial tcp: lookup x: no such host".to_owned();
        let said = explain(&KUBE, Error::Command { command: "go build".to_owned(), output }).to_string();
        assert!(said.contains("module proxy cannot be reached") && said.contains("GOPROXY"), "{said}");
    }
}
