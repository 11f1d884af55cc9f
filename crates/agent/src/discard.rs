//! What was put aside goes: when somebody asks for it, or when its room is needed. The core says what.
//!
//! A directory is renamed before anything in it is removed. So what has its own name is whole, and whoever finds the other
//! name goes on where somebody was cut short.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use kube::ResourceExt;
use quorate_api::{member::VolumeState, names::annotations};
use quorate_core::quarantine::{Aside, Need, discarded, is_aside, is_half_removed, removing};
use quorate_runtime::error::chain;
use tokio::task::JoinHandle;

use crate::{
    error::{Result, While},
    identity::{self, VolumeIdentity},
    inspect::Volume,
    supervisor::MemberSupervisor,
};

/// What is known of what was put aside, and a removal that may be under way.
#[derive(Debug, Default)]
pub(crate) struct Asides {
    pub(crate) left: Vec<Aside>,
    under_way: Option<JoinHandle<Result<Result<Vec<Aside>>>>>,
}

/// Why something would go, as the agent knows it.
#[derive(Clone, Debug)]
struct Why {
    asked: String,
    before: Option<VolumeState>,
    voter: bool,
}

impl MemberSupervisor {
    /// Begins to remove what is to go, and never waits for that: it may be large, and the disk slow.
    pub(crate) async fn tend_asides(&self, voter: bool) {
        let under_way = self.asides.borrow_mut().under_way.take();
        match under_way {
            Some(removal) if !removal.is_finished() => {
                self.asides.borrow_mut().under_way = Some(removal);
                return;
            }
            Some(removal) => match removal.await.map_err(io::Error::other).doing(|| "tidying up".to_owned()) {
                Ok(Ok(Ok(left))) => self.asides.borrow_mut().left = left,
                Ok(Ok(Err(error)) | Err(error)) | Err(error) => {
                    tracing::warn!(error = chain(&error), "what was put aside could not be seen to");
                }
            },
            None => {}
        }
        let asked = self
            .changes
            .borrow()
            .as_ref()
            .and_then(|member| member.annotations().get(annotations::DISCARD_QUARANTINE).cloned());
        let before = self.room.borrow().as_ref().map(|report| report.state);
        let why = Why { asked: asked.unwrap_or_default(), before, voter };
        let volume = self.volume.clone();
        let removal = async move { volume.on(move |volume| volume.discard(&why)).await };
        self.asides.borrow_mut().under_way = Some(tokio::spawn(removal));
    }
}

impl Volume {
    /// Removes what is to go. What is left then.
    fn discard(&self, why: &Why) -> Result<Vec<Aside>> {
        for name in self.directories(is_half_removed)? {
            self.remove(&name)?;
        }
        let present = VolumeIdentity::read(&self.root)?;
        let in_the_making = present.as_ref().and_then(|own| own.successor.as_ref()).map(|next| next.aside.as_str());
        let mut asides = Vec::new();
        for name in self.directories(is_aside)? {
            let bytes = size(&self.root.join(&name));
            let superseded = present.as_ref().is_some_and(|own| self.is_superseded(&name, own));
            asides.push(Aside { name, bytes, superseded });
        }
        let Why { asked, before, voter } = why;
        let need = Need { asked, in_the_making, room: self.room()?, before: *before, voter: *voter };
        for name in discarded(&asides, &need) {
            let is_asked = asked.contains(&name);
            tracing::warn!(name, is_asked, "what was put aside is removed");
            let (from, to) = (self.root.join(&name), removing(&name));
            let renamed = fs::rename(&from, self.root.join(&to)).and_then(|()| File::open(&self.root)?.sync_all());
            renamed.doing(|| format!("renaming {} before it is removed", from.display()))?;
            self.remove(&to)?;
            asides.retain(|aside| aside.name != name);
        }
        Ok(asides)
    }

    /// Directories right on the volume with such a name, oldest first. A link to one is none.
    fn directories(&self, is_wanted: fn(&str) -> bool) -> Result<Vec<String>> {
        let reading = || format!("reading {}", self.root.display());
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.root).doing(reading)? {
            let entry = entry.doing(reading)?;
            let name = entry.file_name().into_string().ok().filter(|name| is_wanted(name));
            if let Some(name) = name
                && entry.file_type().doing(reading)?.is_dir()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Follows no links.
    fn remove(&self, name: &str) -> Result<()> {
        let path = self.root.join(name);
        let removed = fs::remove_dir_all(&path).and_then(|()| File::open(&self.root)?.sync_all());
        removed.doing(|| format!("removing {}", path.display()))?;
        tracing::info!(name, "removed");
        Ok(())
    }

    /// Whether it says that it is of this member and of the present incarnation, and holds nothing besides.
    fn is_superseded(&self, name: &str, own: &VolumeIdentity) -> bool {
        let aside = self.root.join(name);
        let owner = VolumeIdentity::read(&aside).ok().flatten();
        let is_ours = owner.is_some_and(|owner| self.is_own(&owner) && owner.cluster_id == own.cluster_id);
        let is_known = |entry: io::Result<fs::DirEntry>| {
            entry.is_ok_and(|entry| {
                Some(entry.file_name().as_os_str()) == self.data.file_name() || entry.file_name() == identity::FILE
            })
        };
        is_ours && self.is_own(own) && fs::read_dir(&aside).is_ok_and(|mut entries| entries.all(is_known))
    }
}

/// What all files below take of the volume, as far as it can be told.
fn size(root: &Path) -> i64 {
    let mut dirs = vec![root.to_owned()];
    let mut blocks = 0_u64;
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            // Of a link, not of what it leads to.
            let Ok(metadata) = entry.metadata() else { continue };
            blocks = blocks.saturating_add(metadata.blocks());
            dirs.extend(metadata.is_dir().then(|| entry.path()));
        }
    }
    i64::try_from(blocks.saturating_mul(512)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        identity::Successor,
        quarantine::tests::{fill, volume},
    };
    use quorate_api::member::LogEnd;

    const NAMES: [&str; 2] = ["quarantine-20260101T000000.000Z", "quarantine-20260201T000000.000Z"];

    fn asked(names: &str) -> Why {
        Why { asked: names.to_owned(), before: None, voter: false }
    }

    /// A member's volume on which things were put aside, of the member itself.
    fn with_asides(root: &Path) -> Volume {
        let volume = volume(root);
        fill(root, &volume.member);
        for name in NAMES {
            let aside = root.join(name);
            fs::create_dir_all(aside.join("data/member/wal")).unwrap();
            fs::write(aside.join("data/member/wal/0.wal"), [7; 9000]).unwrap();
            VolumeIdentity::read(root).unwrap().unwrap().write(&aside).unwrap();
        }
        volume
    }

    fn names(root: &Path) -> Vec<String> {
        let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names = entries.collect::<Vec<_>>();
        names.sort();
        names
    }

    #[test]
    fn what_is_asked_for_goes_and_nothing_besides() {
        let root = tempfile::tempdir().unwrap();
        let volume = with_asides(root.path());
        let before = names(root.path());
        let left = volume.discard(&asked("all, data, lost+found")).unwrap();
        assert_eq!((left.len(), names(root.path())), (2, before.clone()));
        assert!(left.iter().all(|aside| aside.superseded && aside.bytes >= 9000), "{left:?}");
        let left = volume.discard(&asked(NAMES[0])).unwrap();
        assert_eq!(left.iter().map(|aside| aside.name.as_str()).collect::<Vec<_>>(), [NAMES[1]]);
        let rest = before.into_iter().filter(|name| name != NAMES[0]).collect::<Vec<_>>();
        assert_eq!(names(root.path()), rest);
    }

    /// As if the agent had died after the rename, and after a part of what follows.
    #[test]
    fn a_removal_that_was_cut_short_is_finished_by_the_next_one() {
        for emptied in [false, true] {
            let root = tempfile::tempdir().unwrap();
            let volume = with_asides(root.path());
            let half = root.path().join(removing(NAMES[0]));
            fs::rename(root.path().join(NAMES[0]), &half).unwrap();
            if emptied {
                fs::remove_file(half.join("quorate.json")).unwrap();
                fs::remove_dir_all(half.join("data/member/wal")).unwrap();
            }
            assert_eq!(volume.strangers().unwrap(), ["notes", "photos"], "half of it is not taken for somebody's");
            let left = volume.discard(&asked("")).unwrap();
            assert_eq!(left.len(), 1);
            assert!(!half.exists());
        }
    }

    #[test]
    fn links_are_neither_followed_nor_taken_for_what_they_lead_to() {
        let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let volume = with_asides(root.path());
        fs::write(elsewhere.path().join("precious"), "kept").unwrap();
        let link = "quarantine-20260301T000000.000Z";
        for link in [link.to_owned(), removing(link), format!("{}/data/link", NAMES[0])] {
            std::os::unix::fs::symlink(elsewhere.path(), root.path().join(link)).unwrap();
        }
        volume.discard(&asked(&format!("{link} {}", NAMES[0]))).unwrap();
        assert!(!root.path().join(NAMES[0]).exists());
        assert!(root.path().join(link).is_symlink() && root.path().join(removing(link)).is_symlink());
        assert_eq!(fs::read(elsewhere.path().join("precious")).unwrap(), b"kept");
    }

    #[test]
    fn only_what_is_wholly_of_this_member_and_this_incarnation_is_superseded() {
        let root = tempfile::tempdir().unwrap();
        let volume = with_asides(root.path());
        let own = VolumeIdentity::read(root.path()).unwrap().unwrap();
        let aside = root.path().join(NAMES[0]);
        let earlier = VolumeIdentity { cluster_id: "of an earlier epoch".to_owned(), ..own.clone() };
        let others = VolumeIdentity { member: "another-0".to_owned(), ..own.clone() };
        for owner in [&earlier, &others] {
            owner.write(&aside).unwrap();
            assert!(!volume.is_superseded(NAMES[0], &own), "{owner:?}");
        }
        own.write(&aside).unwrap();
        assert!(volume.is_superseded(NAMES[0], &own));
        fs::write(aside.join("notes"), "theirs").unwrap();
        assert!(!volume.is_superseded(NAMES[0], &own), "there is more in it");
        fs::remove_file(aside.join("notes")).unwrap();
        fs::remove_file(aside.join("quorate.json")).unwrap();
        assert!(!volume.is_superseded(NAMES[0], &own), "nobody knows whose it is");
    }

    #[test]
    fn the_place_of_a_successor_in_the_making_stays_though_it_is_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let volume = with_asides(root.path());
        let own = VolumeIdentity::read(root.path()).unwrap().unwrap();
        let successor = Successor {
            cluster_id: "feed".to_owned(),
            member_id: "f00d".to_owned(),
            epoch: 2,
            log_end: LogEnd { term: 3, index: 9 },
            aside: NAMES[0].to_owned(),
            recovered: None,
        };
        VolumeIdentity { successor: Some(successor), ..own }.write(root.path()).unwrap();
        volume.discard(&asked(NAMES[0])).unwrap();
        assert!(root.path().join(NAMES[0]).exists());
    }
}
