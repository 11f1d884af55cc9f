//! What an upload that died may leave behind: never an object by the name it was to have, but sometimes one by a name that
//! begins with a dot and appears in no listing of ours.
//!
//! Parts that were never completed are the store's to clear away: Azure does so after a week, S3 and Google by a rule of the
//! bucket's life cycle.

use std::path::{Path, PathBuf};

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use object_store::ObjectStore;

use crate::classify::Asked;
use crate::create::Mark;
use crate::store::modified;
use crate::{Error, ErrorKind, Provider, Result, Store};

const PARKED: &str = ".quorate-parked-";
const PROBE: &str = ".quorate-probe-";

pub(crate) fn parked_name(mark: &Mark) -> String {
    format!("{PARKED}{}", mark.as_str())
}

pub(crate) fn probe_name(mark: &Mark) -> String {
    format!("{PROBE}{}", mark.as_str())
}

fn is_leftover(file_name: &str) -> bool {
    file_name.starts_with(PARKED) || file_name.starts_with(PROBE)
}

impl Store {
    /// Removes what was left behind before this time, and returns how many there were. The time has to be so long ago that
    /// no upload can still be under way.
    pub async fn clear_leftovers(&self, before: Timestamp) -> Result<usize> {
        if self.settings().provider == Provider::File {
            return self.clear_directory(before).await;
        }
        let client = self.client();
        let doing = "looking for what uploads left behind";
        let path = self.path("");
        let mut objects =
            client.objects.list(Some(&path)).map_err(|error| self.error(&error, Asked::Reading, doing)).boxed();
        let mut cleared = 0;
        while let Some(object) = objects.try_next().await? {
            let name = object.location.as_ref().strip_prefix(self.prefix().as_str()).filter(|name| is_leftover(name));
            if let Some(name) = name
                && modified(&object) < before
            {
                self.remove(&client, name).await?;
                cleared += 1;
            }
        }
        Ok(cleared)
    }

    /// The client below does not list the file that an upload is collected in, so it is looked for on the disk.
    async fn clear_directory(&self, before: Timestamp) -> Result<usize> {
        let directory = PathBuf::from(&self.settings().bucket).join(self.prefix().as_str());
        let cleared = tokio::task::spawn_blocking(move || clear(&directory, before)).await;
        let failed = |cause: String| {
            Error::new(ErrorKind::Unreachable, self.location(), "looking for what uploads left behind", cause)
        };
        cleared.map_err(|_| failed("the task has ended".to_owned()))?.map_err(|error| failed(error.to_string()))
    }
}

fn clear(directory: &Path, before: Timestamp) -> std::io::Result<usize> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut cleared = 0;
    for entry in entries {
        let entry = entry?;
        let found = entry.metadata()?;
        let old = Timestamp::try_from(found.modified()?).is_ok_and(|modified| modified < before);
        if found.is_file() && old && is_leftover(&entry.file_name().to_string_lossy()) {
            std::fs::remove_file(entry.path())?;
            cleared += 1;
        }
    }
    Ok(cleared)
}
