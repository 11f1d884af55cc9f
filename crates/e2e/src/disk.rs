//! Disks that take their time over a sync, or fail it.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Cluster, eventually, faults};

const FOR_LETTING_GO: Duration = Duration::from_secs(3);

/// What a sync comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    Slow { milliseconds: u32 },
    Fails,
}

/// What happens to all syncs of one etcd until it is mended, or the test ends.
#[derive(Debug)]
#[must_use]
pub struct BadDisk {
    strace: Child,
    log: PathBuf,
}

/// Of the etcd that runs now. One that is started later has a good disk.
pub async fn of(cluster: &Cluster, ordinal: i32, sync: Sync) -> BadDisk {
    let etcd = faults::process(cluster, ordinal, faults::Program::Etcd).await.expect("etcd runs");
    let log = std::env::temp_dir().join(format!("quorate-strace-{}-{}", std::process::id(), etcd.as_raw_nonzero()));
    let what = match sync {
        Sync::Slow { milliseconds } => format!("delay_enter={}", milliseconds * 1000),
        Sync::Fails => "error=EIO".to_owned(),
    };
    let strace = Command::new("strace")
        .args(["--follow-forks", "--quiet=all", "--trace=fdatasync"])
        .arg(format!("--inject=fdatasync:{what}"))
        .arg(format!("--output={}", log.display()))
        .arg(format!("--attach={}", etcd.as_raw_nonzero()))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("strace can be run; apt-get install strace brings it");
    let disk = BadDisk { strace, log };
    eventually("a sync has met the bad disk", async || {
        let seen = fs::read_to_string(&disk.log).unwrap_or_default();
        (seen.contains("(DELAYED)") || seen.contains("(INJECTED)")).then_some(())
    })
    .await;
    disk
}

impl BadDisk {
    pub fn mend(self) {
        drop(self);
    }
}

impl Drop for BadDisk {
    /// Asked to end, it lets go of etcd first. If that dies at the same moment, it may wait for it for ever.
    fn drop(&mut self) {
        if let Some(strace) = i32::try_from(self.strace.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(strace, Signal::TERM);
        }
        let deadline = Instant::now() + FOR_LETTING_GO;
        while self.strace.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > deadline {
                let _ = self.strace.kill();
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = fs::remove_file(&self.log);
    }
}
