//! The images every node of a bed has from the start.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Cache, DEFAULT_ETCD, ETCD,
    busybox::busybox,
    component::{build, built},
};
use crate::{
    command::{command, run},
    error::{Error, Result, While},
    image::{Image, Layer},
};

pub const PAUSE_IMAGE: &str = "docker.io/testbed/pause:1";
/// For test pods: one static binary and a link per command.
pub const BUSYBOX_IMAGE: &str = "docker.io/library/busybox:1";

/// Archives of the pause image (first), busybox, and etcd: the release a cluster gets by default, and those of the others
/// that were built before. A newcomer need not wait for all of them.
pub fn standard_images(cache: &Cache) -> Result<Vec<PathBuf>> {
    let mut archives = vec![pause(cache)?, busybox_image(cache)?];
    build(&DEFAULT_ETCD, cache)?;
    for component in ETCD {
        if let Some(programs) = built(&component, cache)? {
            archives.push(etcd_image(component.version(), &programs, cache)?);
        }
    }
    Ok(archives)
}

/// The etcd image as upstream publishes it: three static programs, no shell.
pub fn etcd_image(version: &str, programs: &Path, cache: &Cache) -> Result<PathBuf> {
    let layer = ["etcd", "etcdctl", "etcdutl"].into_iter().fold(Layer::new(), |layer, program| {
        layer.file(format!("/usr/local/bin/{program}"), programs.join(program), 0o755)
    });
    let image = Image::new(format!("quay.io/coreos/etcd:{version}"))
        .layer(Layer::new().directory("/tmp", 0o1777))
        .layer(layer)
        .entrypoint(["/usr/local/bin/etcd"]);
    archive(cache, &format!("image-etcd-{version}"), &[programs.as_os_str().as_encoded_bytes()], &image)
}

/// The program that holds a pod's namespaces; it is built beside this one.
fn pause(cache: &Cache) -> Result<PathBuf> {
    let own = std::env::current_exe().while_(|| "finding this program".to_owned())?;
    let program = own.with_file_name("pause");
    let content = fs::read(&program).map_err(|_| {
        Error::refused(
            format!("{} is missing", program.display()),
            "build the whole package: cargo build --release -p quorate-testbed",
        )
    })?;
    let image = Image::new(PAUSE_IMAGE).layer(Layer::new().bytes("/pause", content.as_slice(), 0o755));
    archive(cache, "image-pause", &[&content], &image.entrypoint(["/pause"]).user("65535"))
}

fn busybox_image(cache: &Cache) -> Result<PathBuf> {
    let program = busybox(cache)?;
    let commands = run(&mut command([program.as_os_str(), "--list".as_ref()]))?;
    let layer = Layer::new().file("/bin/busybox", &program, 0o755).directory("/tmp", 0o1777);
    let layer = commands
        .lines()
        .filter(|name| *name != "busybox")
        .fold(layer, |layer, name| layer.link(format!("/bin/{name}"), "busybox"));
    let image = Image::new(BUSYBOX_IMAGE).layer(layer).entrypoint(["/bin/sh"]);
    archive(cache, "image-busybox", &[program.as_os_str().as_encoded_bytes(), commands.as_bytes()], &image)
}

fn archive(cache: &Cache, name: &str, inputs: &[&[u8]], image: &Image) -> Result<PathBuf> {
    let dir = cache.get(name, inputs, |dir| image.write(&dir.join("image.tar")).map(drop))?;
    Ok(dir.join("image.tar"))
}
