//! A static busybox for test pods, taken out of its Debian package without installing it: installing would replace
//! the machine's own busybox.

use std::{fs, path::PathBuf};

use super::Cache;
use crate::{
    command::{command, run},
    error::{Error, Result, While},
};

/// The program, wherever this release of the package keeps it.
pub fn busybox(cache: &Cache) -> Result<PathBuf> {
    let dir = cache.get("busybox", &[], |dir| {
        let download = || run(command(["apt-get", "download", "-qq", "busybox-static"]).current_dir(dir));
        if download().is_err() {
            run(&mut command(["apt-get", "update", "-qq"]))?;
            download()?;
        }
        let entries = fs::read_dir(dir).while_(|| format!("reading {}", dir.display()))?;
        let package = entries.flatten().map(|entry| entry.path()).find(|path| path.extension() == Some("deb".as_ref()));
        let package = package.ok_or_else(|| {
            Error::refused("apt-get downloaded no busybox-static", "check the machine's package sources")
        })?;
        run(&mut command(["dpkg-deb".as_ref(), "-x".as_ref(), package.as_os_str(), dir.as_os_str()]))?;
        Ok(())
    })?;
    let places = ["bin/busybox", "usr/bin/busybox"].map(|place| dir.join(place));
    places.into_iter().find(|place| place.is_file()).ok_or_else(|| {
        Error::refused(format!("{} holds no busybox", dir.display()), "remove that directory and run again")
    })
}
