//! What a volume is made of: a sparse file with an XFS in it, mounted through a loop device.
//!
//! Mounts are made in the bed's mount namespace, from where they reach every node. The loop device frees itself when
//! the last mount is gone.

use std::{
    fs::{self, File},
    path::PathBuf,
};

use crate::{
    bed::Bed,
    command::{command, run},
    error::{Result, While, create_dir},
};

/// The smallest XFS that `mkfs.xfs` makes.
const SMALLEST: u64 = 300 << 20;

#[derive(Debug)]
pub(super) struct Backing {
    file: PathBuf,
    mount_point: PathBuf,
}

impl Backing {
    pub(super) fn of(bed: &Bed, volume: &str) -> Self {
        Backing {
            file: bed.volumes_dir().join("files").join(volume),
            mount_point: bed.volumes_dir().join("mounted").join(volume),
        }
    }

    pub(super) fn mount_point(&self) -> PathBuf {
        self.mount_point.clone()
    }

    /// The size a volume gets when `wanted` bytes are asked for.
    pub(super) fn size_for(wanted: u64) -> u64 {
        wanted.max(SMALLEST)
    }

    /// Makes the volume unless it is there; interrupted and repeated it comes to the same.
    pub(super) fn ensure(&self, size: u64) -> Result<()> {
        if self.is_mounted() {
            return Ok(());
        }
        if !self.file.exists() {
            let unfinished = self.file.with_extension("part");
            create_dir(unfinished.parent().unwrap_or(&unfinished))?;
            let sparse = || File::create(&unfinished)?.set_len(size);
            sparse().while_(|| format!("creating {}", unfinished.display()))?;
            run(command(["mkfs.xfs", "-q", "-K"]).arg(&unfinished))?;
            fs::rename(&unfinished, &self.file).while_(|| format!("keeping {}", self.file.display()))?;
        }
        self.mount()
    }

    fn mount(&self) -> Result<()> {
        create_dir(&self.mount_point)?;
        run(command(["mount", "-t", "xfs", "-o", "loop"]).args([&self.file, &self.mount_point])).map(drop)
    }

    /// Grows the file, the device and the file system, all in use.
    pub(super) fn grow(&self, size: u64) -> Result<()> {
        let file = File::options().write(true).open(&self.file);
        let file = file.while_(|| format!("opening {}", self.file.display()))?;
        let now = file.metadata().while_(|| format!("looking at {}", self.file.display()))?.len();
        if now < size {
            file.set_len(size).while_(|| format!("growing {}", self.file.display()))?;
        }
        let device = run(command(["findmnt", "-n", "-o", "SOURCE", "--mountpoint"]).arg(&self.mount_point))?;
        run(&mut command(["losetup", "--set-capacity", &device]))?;
        run(command(["xfs_growfs"]).arg(&self.mount_point)).map(drop)
    }

    pub(super) fn delete(&self) -> Result<()> {
        if self.is_mounted() {
            // A node may still be taking a pod down; the mount leaves the tree now and the device follows.
            run(command(["umount", "--lazy"]).arg(&self.mount_point))?;
        }
        let _ = fs::remove_dir(&self.mount_point);
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).while_(|| format!("removing {}", self.file.display()))
            }
            _ => Ok(()),
        }
    }

    fn is_mounted(&self) -> bool {
        run(command(["mountpoint", "-q"]).arg(&self.mount_point)).is_ok()
    }
}

/// Mounts the volumes of a bed that was running before: after a crash or a reboot they are the users' data.
pub fn mount_existing(bed: &Bed) -> Result<()> {
    create_dir(&bed.volumes_dir())?;
    let files = fs::read_dir(bed.volumes_dir().join("files")).into_iter().flatten().flatten();
    for name in files.filter_map(|file| file.file_name().into_string().ok()) {
        // Volumes are named pvc-UID, so a dot marks what was never finished.
        if !name.contains('.') {
            Backing::of(bed, &name).mount()?;
        }
    }
    Ok(())
}
