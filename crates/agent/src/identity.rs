//! Whose volume this is: a small file beside the data that says what etcd's own files do not.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use quorate_api::member::{LogEnd, RecoveredFrom};
use quorate_core::{record::VolumeRecord, start::Identity};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, While};

/// Its name on the volume.
pub(crate) const FILE: &str = "quorate.json";

/// Written before etcd starts for the first time, and again before each start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeIdentity {
    pub(crate) namespace: String,
    pub(crate) cluster: String,
    pub(crate) member: String,
    #[serde(rename = "clusterID")]
    pub(crate) cluster_id: String,
    #[serde(rename = "memberID")]
    pub(crate) member_id: String,
    pub(crate) epoch: i64,
    /// How often etcd was let start on this volume.
    pub(crate) boot_count: i64,
    /// What is known about it from outside.
    #[serde(default)]
    pub(crate) record: VolumeRecord,
    /// What the incarnation began from, if it was recovered on this volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recovered: Option<RecoveredFrom>,
    /// The next incarnation, while it is made of this one's data. From here on the data must not run any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) successor: Option<Successor>,
    /// Whether the whole database was read once and found damaged: a quick look does not see that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) doubted: bool,
}

/// An incarnation in the making. Its data takes the place of the data that it is made of in one step, and this file cannot
/// change in the same one: until it does, the log tells whose data lies there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Successor {
    #[serde(rename = "clusterID")]
    pub(crate) cluster_id: String,
    #[serde(rename = "memberID")]
    pub(crate) member_id: String,
    pub(crate) epoch: i64,
    /// Where the log ended that it is made of. What etcd writes behind that while it applies it, no other member ever had.
    pub(crate) log_end: LogEnd,
    /// The directory on the volume that it is made in, and that the data goes to whose place it takes.
    pub(crate) aside: String,
    /// What it was made from, once it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recovered: Option<RecoveredFrom>,
}

impl VolumeIdentity {
    fn path(volume: &Path) -> PathBuf {
        volume.join(FILE)
    }

    /// Nothing if the volume was never used. An unreadable file is an error: it may be somebody's.
    pub(crate) fn read(volume: &Path) -> Result<Option<Self>> {
        let path = Self::path(volume);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            content => {
                let parsed = content.and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
                parsed.map(Some).doing(|| format!("reading {}", path.display()))
            }
        }
    }

    /// An etcd that runs on the volume, as far as it is known to have got.
    pub(crate) fn running(&self, last_index: i64) -> Identity {
        Identity {
            cluster_id: self.cluster_id.clone(),
            member_id: self.member_id.clone(),
            epoch: self.epoch,
            boot_count: self.boot_count,
            last_index,
        }
    }

    /// Whose volume it is, given the cluster and the member that the log is of.
    pub(crate) fn with_log_of(self, cluster: &str, member: &str) -> Self {
        match self.successor {
            Some(Successor { cluster_id, member_id, epoch, recovered: Some(recovered), .. })
                if cluster_id == cluster && member_id == member =>
            {
                VolumeIdentity {
                    cluster_id,
                    member_id,
                    epoch,
                    boot_count: 0,
                    record: VolumeRecord::default(),
                    recovered: Some(recovered),
                    successor: None,
                    doubted: false,
                    ..self
                }
            }
            successor => VolumeIdentity { successor, ..self },
        }
    }

    /// Whether etcd may have been let start, and is not known to have got anywhere.
    pub(crate) fn has_not_begun(&self) -> bool {
        self.boot_count <= 1 && self.record.reached_index == 0
    }

    /// Durable when it returns.
    pub(crate) fn write(&self, volume: &Path) -> Result<()> {
        let path = Self::path(volume);
        let unfinished = path.with_extension("part");
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        let write = |text: Vec<u8>| {
            let mut file = File::create(&unfinished)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            File::open(volume)?.sync_all()
        };
        text.and_then(write).map_err(|source| Error::Io { what: format!("writing {}", path.display()), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_core::start::Refusal;

    fn identity() -> VolumeIdentity {
        VolumeIdentity {
            namespace: "default".to_owned(),
            cluster: "etcd".to_owned(),
            member: "etcd-0".to_owned(),
            cluster_id: "cafe".to_owned(),
            member_id: "beef".to_owned(),
            epoch: 1,
            boot_count: 3,
            record: VolumeRecord { fence: Some(Refusal::RolledBack), reached_index: 7, ..VolumeRecord::default() },
            recovered: None,
            successor: None,
            doubted: false,
        }
    }

    fn with_successor(recovered: Option<RecoveredFrom>) -> VolumeIdentity {
        let successor = Successor {
            cluster_id: "feed".to_owned(),
            member_id: "f00d".to_owned(),
            epoch: 2,
            log_end: LogEnd { term: 3, index: 9 },
            aside: "quarantine-1".to_owned(),
            recovered,
        };
        VolumeIdentity { successor: Some(successor), ..identity() }
    }

    #[test]
    fn an_identity_survives_being_written() {
        let volume = tempfile::tempdir().unwrap();
        assert_eq!(VolumeIdentity::read(volume.path()).unwrap(), None);
        identity().write(volume.path()).unwrap();
        assert_eq!(VolumeIdentity::read(volume.path()).unwrap(), Some(identity()));
    }

    #[test]
    fn the_log_tells_whether_the_successor_has_taken_the_place() {
        let recovered = RecoveredFrom { epoch: 2, revision: 5, raised_to: 1000 };
        let made = with_successor(Some(recovered.clone()));
        assert_eq!(made.clone().with_log_of("cafe", "beef"), made);
        let next = made.with_log_of("feed", "f00d");
        assert_eq!((next.cluster_id.as_str(), next.member_id.as_str(), next.epoch), ("feed", "f00d", 2));
        assert_eq!((next.boot_count, next.record, next.successor), (0, VolumeRecord::default(), None));
        assert_eq!(next.recovered, Some(recovered));
        let unfinished = with_successor(None);
        assert_eq!(unfinished.clone().with_log_of("feed", "f00d"), unfinished, "it was never put into place");
    }

    #[test]
    fn a_successor_survives_being_written() {
        let volume = tempfile::tempdir().unwrap();
        let written = with_successor(Some(RecoveredFrom { epoch: 2, revision: 5, raised_to: 1000 }));
        written.write(volume.path()).unwrap();
        assert_eq!(VolumeIdentity::read(volume.path()).unwrap(), Some(written));
    }

    #[test]
    fn a_volume_from_before_there_were_records_on_it_is_understood() {
        let volume = tempfile::tempdir().unwrap();
        let text = r#"{"namespace":"default","cluster":"etcd","member":"etcd-0","clusterID":"cafe","memberID":"beef","epoch":1,"bootCount":3}"#;
        fs::write(volume.path().join("quorate.json"), text).unwrap();
        let expected = VolumeIdentity { record: VolumeRecord::default(), ..identity() };
        assert_eq!(VolumeIdentity::read(volume.path()).unwrap(), Some(expected));
    }

    #[test]
    fn a_file_that_cannot_be_understood_is_not_taken_for_an_empty_volume() {
        let volume = tempfile::tempdir().unwrap();
        fs::write(volume.path().join("quorate.json"), "{").unwrap();
        let error = VolumeIdentity::read(volume.path()).unwrap_err();
        assert!(error.to_string().contains("quorate.json"), "{error}");
    }
}
