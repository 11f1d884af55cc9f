//! Whose volume this is: a small file beside the data that says what etcd's own files do not.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, While};

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
}

impl VolumeIdentity {
    fn path(volume: &Path) -> PathBuf {
        volume.join("quorate.json")
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

    fn identity() -> VolumeIdentity {
        VolumeIdentity {
            namespace: "default".to_owned(),
            cluster: "etcd".to_owned(),
            member: "etcd-0".to_owned(),
            cluster_id: "cafe".to_owned(),
            member_id: "beef".to_owned(),
            epoch: 1,
            boot_count: 3,
        }
    }

    #[test]
    fn an_identity_survives_being_written() {
        let volume = tempfile::tempdir().unwrap();
        assert_eq!(VolumeIdentity::read(volume.path()).unwrap(), None);
        identity().write(volume.path()).unwrap();
        assert_eq!(VolumeIdentity::read(volume.path()).unwrap(), Some(identity()));
    }

    #[test]
    fn a_file_that_cannot_be_understood_is_not_taken_for_an_empty_volume() {
        let volume = tempfile::tempdir().unwrap();
        fs::write(volume.path().join("quorate.json"), "{").unwrap();
        let error = VolumeIdentity::read(volume.path()).unwrap_err();
        assert!(error.to_string().contains("quorate.json"), "{error}");
    }
}
