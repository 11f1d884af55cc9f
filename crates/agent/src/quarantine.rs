//! Making room on a volume: what is in the way of a member that begins goes aside, and nothing is deleted here.
//!
//! Everything moves by renaming, into a directory of its own on the same volume. What is in the way of being judged anew
//! goes last: the data, and then the file that says whose volume it is, if that is somebody else's. So whoever dies between
//! two renames leaves a volume that is judged as it was before, and the next one moves what is left. Only the last rename
//! makes the volume an empty one.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::PathBuf,
};

use jiff::Timestamp;
use quorate_core::quarantine::PREFIX;

use crate::{
    error::{Error, Result, While},
    identity::{self, VolumeIdentity},
    inspect::{Volume, is_empty},
};

/// The name of a directory for what is put aside, which tells when.
pub(crate) fn aside_name(now: Timestamp) -> String {
    format!("{PREFIX}{}", now.strftime("%Y%m%dT%H%M%S%.3fZ"))
}

impl Volume {
    /// Makes room for a member that begins on a volume that holds nothing but remains.
    pub(crate) fn clear_remains(&self, now: Timestamp) -> Result<()> {
        if is_empty(&self.data)? { Ok(()) } else { self.quarantine(now).map(drop) }
    }

    /// Moves aside what is in the way, under a name that tells when. What was put aside before stays where it is, and so
    /// does the reserve.
    pub(crate) fn quarantine(&self, now: Timestamp) -> Result<PathBuf> {
        let refuse = |kind: io::ErrorKind, why: &str| {
            Err(Error::Io { what: format!("{} {why}", self.root.display()), source: kind.into() })
        };
        if self.is_in_use() {
            return refuse(io::ErrorKind::ResourceBusy, "is in use by a running etcd; end it first");
        }
        let owner = VolumeIdentity::read(&self.root)?;
        let leaves = owner.as_ref().is_some_and(|owner| !self.is_own(owner));
        let in_the_way = self.in_the_way(leaves)?;
        if in_the_way.is_empty() {
            return refuse(io::ErrorKind::NotFound, "holds nothing that could be moved aside");
        }
        let aside = self.root.join(aside_name(now));
        fs::create_dir(&aside).doing(|| format!("making {}", aside.display()))?;
        if owner.is_some() && !leaves {
            // The next member writes its own in its place. What is put aside would not tell whose it is.
            let (from, to) = (self.root.join(identity::FILE), aside.join(identity::FILE));
            fs::copy(&from, &to).doing(|| format!("copying {} to {}", from.display(), to.display()))?;
        }
        for name in in_the_way {
            let (from, to) = (self.root.join(&name), aside.join(&name));
            fs::rename(&from, &to).doing(|| format!("moving {} to {}", from.display(), to.display()))?;
        }
        for dir in [&aside, &self.root] {
            let lasts = File::open(dir).and_then(|dir| dir.sync_all());
            lasts.doing(|| format!("making what was moved on {} last", dir.display()))?;
        }
        Ok(aside)
    }

    /// The names of what makes the volume look used, in the order in which they go.
    fn in_the_way(&self, owner_leaves: bool) -> Result<Vec<OsString>> {
        let mut names = self.strangers()?;
        if !is_empty(&self.data).is_ok_and(|empty| empty) {
            names.extend(self.data.file_name().map(OsString::from));
        }
        names.extend(owner_leaves.then(|| identity::FILE.into()));
        Ok(names)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{collections::BTreeMap, path::Path};

    use quorate_api::member::DataState;
    use quorate_core::record::VolumeRecord;

    use super::*;
    use crate::soundness::KnownDamage;

    pub(crate) fn volume(root: &Path) -> Volume {
        Volume {
            root: root.to_owned(),
            data: root.join("data"),
            namespace: "default".to_owned(),
            cluster: "db".to_owned(),
            member: "db-0".to_owned(),
            damage: KnownDamage::default(),
        }
    }

    /// Everything that can be in the way at once, beside what is not.
    pub(crate) fn fill(root: &Path, owner: &str) {
        for dir in ["data/member/wal", "photos/2019", "lost+found", "quarantine-20260101T000000.000Z"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        for file in ["data/member/wal/0.wal", "photos/2019/beach", "notes", "quorate.reserve", "lost+found/inode"] {
            fs::write(root.join(file), file).unwrap();
        }
        let identity = VolumeIdentity {
            namespace: "default".to_owned(),
            cluster: "db".to_owned(),
            member: owner.to_owned(),
            cluster_id: "cafe".to_owned(),
            member_id: "beef".to_owned(),
            epoch: 1,
            boot_count: 3,
            record: VolumeRecord { reached_index: 7, ..VolumeRecord::default() },
            recovered: None,
            successor: None,
            doubted: false,
        };
        identity.write(root).unwrap();
    }

    /// All files below, by path, without the name of the directory that they were put aside in.
    fn files(root: &Path, below: &str, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(root.join(below)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            if root.join(&path).is_dir() {
                files(root, &path, found);
            } else {
                let place = path.strip_prefix("quarantine-").and_then(|rest| rest.split_once('/'));
                found.insert(
                    place.map_or(path.as_str(), |(_, place)| place).to_owned(),
                    fs::read(root.join(path)).unwrap(),
                );
            }
        }
    }

    fn all_files(root: &Path) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        files(root, "", &mut found);
        found
    }

    fn state(volume: &Volume) -> DataState {
        volume.inspect().unwrap().inspection.found.state
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_name_of_what_is_put_aside_is_one_that_is_known_when_it_is_to_go() {
        for second in [0, 1, 1_900_000_000] {
            assert!(quorate_core::quarantine::is_aside(&aside_name(at(second))));
        }
    }

    #[test]
    fn every_byte_of_somebody_elses_volume_is_put_aside_and_what_is_ours_stays() {
        let root = tempfile::tempdir().unwrap();
        fill(root.path(), "another-0");
        let before = all_files(root.path());
        let aside = volume(root.path()).quarantine(at(1)).unwrap();
        assert_eq!(all_files(root.path()), before);
        assert_eq!(state(&volume(root.path())), DataState::Empty);
        for stays in ["quorate.reserve", "lost+found/inode", "quarantine-20260101T000000.000Z"] {
            assert!(root.path().join(stays).exists(), "{stays}");
        }
        for moved in ["data", "notes", "photos", "quorate.json"] {
            assert!(aside.join(moved).exists() && !root.path().join(moved).exists(), "{moved}");
        }
    }

    #[test]
    fn what_the_member_before_left_is_put_aside_with_its_name_and_its_record_stays_until_the_next_begins() {
        let root = tempfile::tempdir().unwrap();
        let volume = volume(root.path());
        fill(root.path(), &volume.member);
        let owner = VolumeIdentity::read(root.path()).unwrap();
        let aside = volume.quarantine(at(1)).unwrap();
        assert!(aside.join("data/member/wal/0.wal").exists());
        assert_eq!(VolumeIdentity::read(&aside).unwrap(), owner);
        assert_eq!(VolumeIdentity::read(root.path()).unwrap(), owner);
        assert_eq!(state(&volume), DataState::Empty);
    }

    /// As if the agent had died after each of the renames.
    #[test]
    fn a_quarantine_that_was_cut_short_is_judged_as_before_and_ends_in_the_same() {
        for owner in ["db-0", "another-0"] {
            for died_after in 0.. {
                let root = tempfile::tempdir().unwrap();
                let volume = volume(root.path());
                fill(root.path(), owner);
                let (before, judged) = (all_files(root.path()), state(&volume));
                let order = volume.in_the_way(owner != volume.member).unwrap();
                let aside = root.path().join("quarantine-1");
                fs::create_dir(&aside).unwrap();
                for name in order.iter().take(died_after) {
                    fs::rename(root.path().join(name), aside.join(name)).unwrap();
                }
                if died_after == order.len() {
                    assert_eq!(state(&volume), DataState::Empty, "{owner}");
                    break;
                }
                assert_eq!(state(&volume), judged, "{owner} after {died_after} of {order:?}");
                volume.quarantine(at(1)).unwrap();
                assert_eq!(state(&volume), DataState::Empty, "{owner} after {died_after} of {order:?}");
                assert_eq!(all_files(root.path()), before, "{owner} after {died_after} of {order:?}");
            }
        }
    }

    #[test]
    fn files_that_nobody_knows_are_moved_alone() {
        let root = tempfile::tempdir().unwrap();
        let volume = volume(root.path());
        fs::create_dir(root.path().join("data")).unwrap();
        fs::write(root.path().join("notes"), "theirs").unwrap();
        assert_eq!(state(&volume), DataState::Foreign);
        let aside = volume.quarantine(at(1)).unwrap();
        let names = fs::read_dir(&aside).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        assert_eq!(names, ["notes"]);
        assert!(root.path().join("data").exists());
        assert_eq!(state(&volume), DataState::Empty);
    }

    #[test]
    fn an_empty_volume_has_nothing_to_be_moved() {
        let root = tempfile::tempdir().unwrap();
        assert!(volume(root.path()).quarantine(at(1)).is_err());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
