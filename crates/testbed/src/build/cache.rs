//! Results of builds by the content of their inputs, outside any source tree.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result, While, create_dir, write_file};

const VARIABLE: &str = "QUORATE_CACHE";

#[derive(Debug, Clone)]
pub struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// `$QUORATE_CACHE`, else `quorate` in the user's cache directory.
    pub fn open() -> Result<Self> {
        let from = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        let dir = from(VARIABLE)
            .or_else(|| Some(from("XDG_CACHE_HOME")?.join("quorate")))
            .or_else(|| Some(from("HOME")?.join(".cache/quorate")))
            .ok_or_else(|| Error::refused("there is no place for a cache", format!("set {VARIABLE} to a directory")))?;
        create_dir(&dir)?;
        let dir = dir.canonicalize().while_(|| format!("finding {}", dir.display()))?;
        Ok(Cache { dir })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory for `name` made from `inputs`, if it was made.
    pub fn find(&self, name: &str, inputs: &[&[u8]]) -> Option<PathBuf> {
        Some(self.place(name, inputs)).filter(|place| place.is_dir())
    }

    fn place(&self, name: &str, inputs: &[&[u8]]) -> PathBuf {
        self.dir.join(format!("{name}-{}", fingerprint(inputs)))
    }

    /// The directory for `name` made from `inputs`; `make` fills it if it is not there yet. Whoever comes second waits
    /// for the first; a build that was interrupted leaves nothing that could be taken for a result.
    pub fn get(&self, name: &str, inputs: &[&[u8]], make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let wanted = self.place(name, inputs);
        if wanted.is_dir() {
            return Ok(wanted);
        }
        let _held = self.lock(name)?;
        if wanted.is_dir() {
            return Ok(wanted);
        }
        let unfinished = self.dir.join(format!("{name}.part"));
        remove_if_there(&unfinished)?;
        create_dir(&unfinished)?;
        make(&unfinished)?;
        fs::rename(&unfinished, &wanted).while_(|| format!("keeping {}", wanted.display()))?;
        Ok(wanted)
    }

    fn lock(&self, name: &str) -> Result<File> {
        let path = self.dir.join(format!("{name}.lock"));
        let file = File::create(&path).while_(|| format!("creating {}", path.display()))?;
        file.lock().while_(|| format!("waiting for {}", path.display()))?;
        Ok(file)
    }

    /// How long `name` took when it was last made on this machine.
    pub fn last_time(&self, name: &str) -> Option<Duration> {
        let seconds = fs::read_to_string(self.timing_file(name)).ok()?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds))
    }

    pub fn remember_time(&self, name: &str, took: Duration) -> Result<()> {
        write_file(&self.timing_file(name), took.as_secs().to_string())
    }

    fn timing_file(&self, name: &str) -> PathBuf {
        self.dir.join("timings").join(name)
    }
}

fn remove_if_there(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).while_(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Twelve hexadecimal digits. Each input is preceded by its length, so that moving a byte from one to the next shows.
fn fingerprint(inputs: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for input in inputs {
        hash.update((input.len() as u64).to_le_bytes());
        hash.update(input);
    }
    crate::image::hex(&hash.finalize()).chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache { dir: dir.path().to_owned() };
        (dir, cache)
    }

    #[test]
    fn a_result_is_made_once_for_the_same_inputs_and_again_for_others() {
        let (_dir, cache) = cache();
        let made = |text: &'static str| move |dir: &Path| write_file(&dir.join("result"), text);
        assert_eq!(cache.find("thing", &[b"a"]), None);
        let first = cache.get("thing", &[b"a"], made("one")).unwrap();
        assert_eq!(cache.find("thing", &[b"a"]).as_ref(), Some(&first));
        let again = cache.get("thing", &[b"a"], made("two")).unwrap();
        let other = cache.get("thing", &[b"b"], made("three")).unwrap();
        assert_eq!(fs::read_to_string(again.join("result")).unwrap(), "one");
        assert_eq!(fs::read_to_string(other.join("result")).unwrap(), "three");
        assert_ne!(first, other);
    }

    #[test]
    fn an_interrupted_build_is_never_taken_for_a_result() {
        let (_dir, cache) = cache();
        let interrupted = cache.get("thing", &[], |dir| {
            write_file(&dir.join("result"), "half")?;
            Err(Error::refused("stopped", "go on"))
        });
        assert!(interrupted.is_err());
        let whole = cache.get("thing", &[], |dir| write_file(&dir.join("other"), "whole")).unwrap();
        assert!(!whole.join("result").exists(), "the interrupted build's files were kept");
        assert!(whole.join("other").exists());
    }

    #[test]
    fn a_byte_moved_from_one_input_to_the_next_is_another_input() {
        assert_ne!(fingerprint(&[b"ab", b"c"]), fingerprint(&[b"a", b"bc"]));
    }
}
