//! A small file system of its own in the place of a volume, for as long as the test lasts; and copies of volumes.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) struct Mount {
    at: PathBuf,
}

impl Mount {
    pub(crate) fn new(image: &Path, at: &Path, mebibytes: u64) -> Self {
        File::create(image).unwrap().set_len(mebibytes << 20).unwrap();
        // Nothing is kept for root, which these tests run as and members do not.
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0", "-O", "^has_journal"]).arg(image));
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(at));
        Mount { at: at.to_owned() }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily, because a process that was killed may still be going. The loop device goes with the last user.
        let _ = Command::new("umount").arg("--lazy").arg(&self.at).status();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
