//! The data of a new incarnation, made of the present one's, on the same volume.
//!
//! It is written where the present data will go, in the quarantine, and then both change places in one step: at no instant is
//! there no data, and nothing is ever deleted but what was written here and never used. Where the file system cannot do that in
//! one step it takes three, and whoever finds less than all of them done goes back to what was, or to the end.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use quorate_etcd::{
    data_dir::DataDir,
    membership::{InitialCluster, Member, hex_id},
    restore::Restore,
    snapshot::{DigestPolicy, Snapshot},
    wal::read_metadata,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::{
    error::{Error, Result, While},
    identity::{Successor, VolumeIdentity},
    inspect::Volume,
};

/// No client has seen so many revisions behind those that are left: a cluster takes months for them.
const LEAST_RAISE: i64 = 1_000_000_000;

/// Of the database before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Revisions {
    pub(crate) before: i64,
    pub(crate) after: i64,
}

impl Successor {
    /// Where its data is made, and where the data goes then whose place it takes.
    fn place(&self, volume: &Volume) -> PathBuf {
        volume.root.join(&self.aside).join("data")
    }

    /// Where the data lies meanwhile if that takes several steps. At no other time is there anything.
    fn meanwhile(&self, volume: &Volume) -> PathBuf {
        volume.root.join(&self.aside).join("before")
    }

    /// The renames that come to the same as an exchange. After each of them, what is left to be done can be told.
    fn renames(&self, volume: &Volume) -> [(PathBuf, PathBuf); 3] {
        let (place, meanwhile, data) = (self.place(volume), self.meanwhile(volume), volume.data.clone());
        [(data.clone(), meanwhile.clone()), (place.clone(), data), (meanwhile, place)]
    }
}

impl Volume {
    /// How far the database that lies there was applied.
    pub(crate) fn applied_index(&self) -> Result<u64> {
        Ok(Snapshot::open(&DataDir::new(&self.data).db())?.schema.consistent_index)
    }

    /// Writes the successor's data, which no etcd sees yet, at this revision at least.
    pub(crate) fn write_successor(
        &self,
        identity: &VolumeIdentity,
        successor: &Successor,
        cluster: &InitialCluster,
        member: &Member,
        raise_to: i64,
    ) -> Result<Revisions> {
        let place = successor.place(self);
        let aside = self.root.join(&successor.aside);
        match fs::create_dir(&aside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.doing(|| format!("making {}", aside.display()))?,
        }
        // What is put aside says whose it is.
        VolumeIdentity { successor: None, ..identity.clone() }.write(&aside)?;
        clear(&place, identity)?;
        let database = DataDir::new(&self.data).db();
        let before = Snapshot::open(&database)?.schema.revision();
        let restore = Restore {
            digest: DigestPolicy::IfPresent,
            bump_revision: Some(raise_to.saturating_sub(before).max(LEAST_RAISE)),
            ..Restore::new(&database, &place, cluster, member)
        };
        Ok(Revisions { before, after: restore.run(None)?.revision })
    }

    /// How much of the successor's data is written, and how much there is.
    pub(crate) fn written(&self, aside: &str) -> (u64, u64) {
        let length = |database: PathBuf| fs::metadata(database).map_or(0, |metadata| metadata.len());
        let unfinished = self.root.join(aside).join("data.part");
        (length(DataDir::new(unfinished).db()), length(DataDir::new(&self.data).db()))
    }

    /// Puts the successor into the place of the data that it was made of, for good.
    pub(crate) fn put_into_place(&self, successor: &Successor) -> Result<()> {
        self.put_into_place_by(exchange, successor)
    }

    fn put_into_place_by(&self, exchange: Exchange, successor: &Successor) -> Result<()> {
        let place = successor.place(self);
        match exchange(&place, &self.data) {
            // Over a network, many file systems cannot.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
                successor.renames(self).iter().try_for_each(|(from, to)| self.put(successor, from, to))
            }
            exchanged => {
                exchanged.doing(|| format!("exchanging {} for {}", self.data.display(), place.display()))?;
                self.make_last(successor)
            }
        }
    }

    /// Goes back to what was if somebody died before the successor was in its place, and to the end if after. Before that is
    /// done, the volume looks as if its data were gone.
    pub(crate) fn settle_exchange(&self, successor: &Successor) -> Result<()> {
        let (place, meanwhile) = (successor.place(self), successor.meanwhile(self));
        let looking = |path: &Path| format!("looking for {}", path.display());
        if !meanwhile.try_exists().doing(|| looking(&meanwhile))? {
            return Ok(());
        }
        let is_in_place = self.data.try_exists().doing(|| looking(&self.data))?;
        let to = if is_in_place { &place } else { &self.data };
        tracing::warn!(to = %to.display(), "an exchange was cut short, and the data goes where it belongs");
        self.put(successor, &meanwhile, to)
    }

    fn put(&self, successor: &Successor, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).doing(|| format!("moving {} to {}", from.display(), to.display()))?;
        self.make_last(successor)
    }

    fn make_last(&self, successor: &Successor) -> Result<()> {
        for dir in [self.root.join(&successor.aside), self.root.clone()] {
            let lasts = File::open(&dir).and_then(|dir| dir.sync_all());
            lasts.doing(|| format!("making what was exchanged on {} last", dir.display()))?;
        }
        Ok(())
    }
}

/// Makes two directories change places in one step.
type Exchange = fn(&Path, &Path) -> io::Result<()>;

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// Removes what an earlier attempt has written and did not get to use. What that is, its log says.
fn clear(place: &Path, identity: &VolumeIdentity) -> Result<()> {
    if !place.exists() {
        return Ok(());
    }
    let owner = read_metadata(&DataDir::new(place).wal()).ok();
    let owner = owner.and_then(|log| log.cluster_id).map(hex_id);
    if owner.is_none_or(|cluster| cluster == identity.cluster_id) {
        let what = format!("{} is in the way and was not written here; move it away", place.display());
        return Err(Error::Io { what, source: io::ErrorKind::AlreadyExists.into() });
    }
    fs::remove_dir_all(place).doing(|| format!("removing {}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_api::member::{LogEnd, RecoveredFrom};
    use quorate_core::record::VolumeRecord;
    use quorate_etcd::wal::{SegmentName, bootstrap_segment};

    use crate::quarantine::tests::volume;

    fn identity(cluster: &InitialCluster) -> VolumeIdentity {
        VolumeIdentity {
            namespace: "default".to_owned(),
            cluster: "db".to_owned(),
            member: "db-0".to_owned(),
            cluster_id: hex_id(cluster.cluster_id()),
            member_id: cluster.members()[0].hex_id(),
            epoch: 1,
            boot_count: 1,
            record: VolumeRecord::default(),
            recovered: None,
            successor: None,
            doubted: false,
        }
    }

    fn data_of(cluster: &InitialCluster, place: &Path) {
        let wal = DataDir::new(place).wal();
        fs::create_dir_all(&wal).unwrap();
        let segment = bootstrap_segment(cluster.members()[0].id, cluster.cluster_id(), cluster.members()).unwrap();
        fs::write(wal.join(SegmentName::FIRST.to_string()), segment).unwrap();
    }

    fn clusters() -> [InitialCluster; 2] {
        ["first", "second"].map(|token| InitialCluster::parse("db-0=http://db-0:2380", token).unwrap())
    }

    /// A volume whose successor is made and not yet in its place.
    fn made(root: &Path) -> (Volume, Successor) {
        let [old, new] = clusters();
        let successor = Successor {
            cluster_id: hex_id(new.cluster_id()),
            member_id: new.members()[0].hex_id(),
            epoch: 2,
            log_end: LogEnd { term: 1, index: 1 },
            aside: "quarantine-20260101T000000.000Z".to_owned(),
            recovered: Some(RecoveredFrom { epoch: 2, revision: 5, raised_to: 1000 }),
        };
        let volume = volume(root);
        data_of(&old, &volume.data);
        data_of(&new, &successor.place(&volume));
        VolumeIdentity { successor: Some(successor.clone()), ..identity(&old) }.write(root).unwrap();
        (volume, successor)
    }

    fn owner(place: &Path) -> Option<String> {
        read_metadata(&DataDir::new(place).wal()).ok()?.cluster_id.map(hex_id)
    }

    fn cannot(_: &Path, _: &Path) -> io::Result<()> {
        Err(rustix::io::Errno::INVAL.into())
    }

    #[test]
    fn both_ways_of_an_exchange_end_in_the_same_and_a_disk_that_fails_is_not_taken_for_one_that_cannot() {
        let [old, new] = clusters().map(|cluster| hex_id(cluster.cluster_id()));
        for way in [exchange as Exchange, cannot] {
            let root = tempfile::tempdir().unwrap();
            let (volume, successor) = made(root.path());
            volume.put_into_place_by(way, &successor).unwrap();
            let places = [&volume.data, &successor.place(&volume)].map(|place| owner(place));
            assert_eq!(places, [Some(new.clone()), Some(old.clone())]);
            assert!(!successor.meanwhile(&volume).exists());
        }
        let root = tempfile::tempdir().unwrap();
        let (volume, successor) = made(root.path());
        assert!(volume.put_into_place_by(|_, _| Err(rustix::io::Errno::IO.into()), &successor).is_err());
        assert_eq!(owner(&volume.data), Some(old));
    }

    /// As if the agent had died after each of the renames.
    #[test]
    fn an_exchange_that_was_cut_short_is_undone_or_ended_before_anybody_judges_the_volume() {
        let [old, new] = clusters().map(|cluster| hex_id(cluster.cluster_id()));
        for died_after in 0..=3 {
            let root = tempfile::tempdir().unwrap();
            let (volume, successor) = made(root.path());
            for (from, to) in successor.renames(&volume).iter().take(died_after) {
                fs::rename(from, to).unwrap();
            }
            let is_in_place = died_after >= 2;
            let identity = volume.inspect().unwrap().identity.unwrap();
            let (here, aside) = if is_in_place { (&new, &old) } else { (&old, &new) };
            assert_eq!((&identity.cluster_id, identity.successor.is_none()), (here, is_in_place), "{died_after}");
            let places = [&volume.data, &successor.place(&volume)].map(|place| owner(place));
            assert_eq!(places, [Some(here.clone()), Some(aside.clone())], "{died_after}");
            assert!(!successor.meanwhile(&volume).exists(), "{died_after}");
            // And once more from there.
            if !is_in_place {
                volume.put_into_place_by(cannot, &successor).unwrap();
                assert_eq!(owner(&volume.data).as_ref(), Some(&new), "{died_after}");
            }
        }
    }

    #[test]
    fn a_volume_on_which_an_exchange_cannot_be_settled_is_not_taken_for_an_empty_one() {
        let root = tempfile::tempdir().unwrap();
        let (volume, successor) = made(root.path());
        for (from, to) in successor.renames(&volume).iter().take(1) {
            fs::rename(from, to).unwrap();
        }
        // Something that nobody has put there.
        fs::write(&volume.data, "").unwrap();
        let looked = volume.inspect().unwrap();
        assert_eq!(looked.inspection.found.state, quorate_api::member::DataState::Unreadable);
        assert_eq!(owner(&successor.meanwhile(&volume)), Some(hex_id(clusters()[0].cluster_id())));
    }

    #[test]
    fn only_what_is_known_to_be_an_unused_successor_is_ever_removed() {
        let [old, new] = clusters();
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("data");
        clear(&place, &identity(&old)).unwrap();
        data_of(&new, &place);
        clear(&place, &identity(&old)).unwrap();
        assert!(!place.exists());
        data_of(&old, &place);
        assert!(clear(&place, &identity(&old)).is_err(), "the data that it is made of");
        fs::remove_dir_all(&place).unwrap();
        fs::create_dir(&place).unwrap();
        assert!(clear(&place, &identity(&old)).is_err(), "nobody knows what that was");
        assert!(place.exists());
    }
}
