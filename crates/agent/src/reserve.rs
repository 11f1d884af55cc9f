//! The room on the volume: measured, and some of it held back in a file for the day on which there is none.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::PathBuf,
};

use quorate_core::{
    quarantine::told,
    start::Start,
    volume::{self, Reserve, Room, Use},
};
use quorate_runtime::error::chain;
use rustix::fs::{FallocateFlags, fallocate, statfs, statvfs};

use crate::{
    error::{Error, Result, While},
    identity::VolumeIdentity,
    inspect::Volume,
    supervisor::MemberSupervisor,
};

/// What `statfs` calls a file system in memory.
const IN_MEMORY: i64 = 0x0102_1994;

impl MemberSupervisor {
    /// Sees to the reserve, and to what the next report says about the room. Without the reserve a member still does all that it did.
    pub(crate) async fn tend_volume(&self, used: Use) -> Result<()> {
        let reservable = self.reservable.get();
        match self.volume.on(move |volume| volume.tend_reserve(used, reservable)).await? {
            Ok(room) => {
                // Tried once and not again: that costs the disk more than it is worth.
                self.reservable.set(room.reservable);
                let before = self.room.borrow().as_ref().map(|report| report.state);
                let report = volume::report(&room, before);
                *self.room.borrow_mut() = Some(told(report, &self.asides.borrow().left));
            }
            Err(error) => tracing::warn!(error = chain(&error), "the room on the volume could not be seen to"),
        }
        Ok(())
    }

    /// A volume that cannot be written to still does not start what it must not. Whether it was written.
    pub(crate) async fn keep(&self, identity: VolumeIdentity) -> bool {
        is_kept(&self.volume.on(move |volume| identity.write(&volume.root)).await.flatten())
    }

    /// The same where no etcd runs, or is about to be ended: if there is no room, the reserve is given for it.
    pub(crate) async fn keep_by_all_means(&self, identity: VolumeIdentity) -> bool {
        is_kept(&self.volume.on(move |volume| volume.write_from_reserve(&identity)).await.flatten())
    }
}

fn is_kept(written: &Result<()>) -> bool {
    if let Err(error) = written {
        tracing::error!(error = chain(error), "what must last could not be written to the volume");
    }
    written.is_ok()
}

/// What etcd is about to do on a volume that it does not run on.
pub(crate) fn use_by(start: &Start) -> Use {
    match start {
        // What is in the way is moved aside for a start, and that takes a little room too.
        Start::Resume
        | Start::New { .. }
        | Start::Join { .. }
        | Start::Restore { .. }
        | Start::Recover { .. }
        | Start::Quarantine(_) => Use::Starting,
        Start::Wait(_) | Start::Refuse(_) => Use::None,
    }
}

impl Volume {
    /// The name begins like those of all that is ours on a volume: nobody else's file is taken for it, and removed.
    fn reserve(&self) -> PathBuf {
        self.root.join("quorate.reserve")
    }

    /// Does what the core says, and tells what room there is then.
    fn tend_reserve(&self, used: Use, reservable: bool) -> Result<Room> {
        let room = self.room()?;
        let room = Room { reservable: room.reservable && reservable, ..room };
        match volume::reserve(&room, used) {
            Reserve::Keep => Ok(room),
            Reserve::Make { bytes } => self.make_reserve(bytes),
            Reserve::Release => {
                self.release_reserve()?;
                tracing::warn!(free = room.free, "the volume is full; the reserve is released so that etcd can start");
                self.room()
            }
        }
    }

    fn release_reserve(&self) -> Result<()> {
        let path = self.reserve();
        fs::remove_file(&path).doing(|| format!("removing {}", path.display()))
    }

    /// Writes what others are about to rely on, and gives the reserve for it where there is no room. Else a member that waits on
    /// a full volume could never say that it has heard what it waits for.
    pub(crate) fn write_from_reserve(&self, identity: &VolumeIdentity) -> Result<()> {
        match identity.write(&self.root) {
            Err(Error::Io { source, .. }) if is_want_of_room(&source) && self.reserve().exists() => {
                self.release_reserve()?;
                tracing::warn!("the volume is full; the reserve is released for what must last");
                identity.write(&self.root)
            }
            written => written,
        }
    }

    fn make_reserve(&self, bytes: i64) -> Result<Room> {
        let path = self.reserve();
        let made = File::options().create(true).append(true).open(&path).and_then(|file| allocate(&file, bytes));
        let room = self.room()?;
        if made.is_ok() && room.reserve >= bytes {
            tracing::info!(bytes, "room is held in reserve on the volume");
            return Ok(room);
        }
        // Half of it would help nobody.
        let _ = fs::remove_file(&path);
        match made {
            Err(source) if source.kind() != io::ErrorKind::Unsupported => {
                Err(Error::Io { what: format!("holding room back in {}", path.display()), source })
            }
            // A file system that cannot promise room, or does not hold what it promised.
            _ => {
                tracing::debug!("this file system cannot hold room back");
                Ok(Room { reservable: false, ..self.room()? })
            }
        }
    }

    pub(crate) fn room(&self) -> Result<Room> {
        let measuring = || format!("measuring the room on {}", self.root.display());
        let figures = statvfs(&self.root).map_err(io::Error::from).doing(measuring)?;
        let kind = statfs(&self.root).map_err(io::Error::from).doing(measuring)?.f_type;
        let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(figures.f_frsize)).unwrap_or(i64::MAX);
        // What is allocated counts, and not what the file's length promises: copies of a volume may leave holes.
        let reserve = match fs::metadata(self.reserve()) {
            Ok(metadata) => i64::try_from(metadata.blocks().saturating_mul(512)).unwrap_or(i64::MAX),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(source) => return Err(Error::Io { what: measuring(), source }),
        };
        Ok(Room {
            size: bytes(figures.f_blocks),
            free: bytes(figures.f_bavail),
            reserve,
            reservable: kind != IN_MEMORY,
        })
    }
}

fn is_want_of_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn allocate(file: &File, bytes: i64) -> io::Result<()> {
    fallocate(file, FallocateFlags::empty(), 0, bytes.unsigned_abs())?;
    file.sync_all()
}
