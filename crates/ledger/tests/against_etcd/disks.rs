//! Disks that take their time over a sync, or fail it: writes wait or are refused, and nothing that was acknowledged is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quorate_ledger::{Ledger, Load};

use crate::members::Members;
use crate::{eventually, on_each_version, writes_go_on};

const SLOW: &str = "delay_enter=150000";
const VERY_SLOW: &str = "delay_enter=1000000";
const FAILS: &str = "error=EIO";
const FOR_LETTING_GO: Duration = Duration::from_secs(3);

/// What happens to every sync of a server's data, until it is mended.
struct Fault {
    strace: Child,
    log: PathBuf,
}

impl Fault {
    fn of(process: u32, what: &str, log: &Path) -> Self {
        let strace = Command::new("strace")
            .args(["--follow-forks", "--quiet=all", "--trace=fdatasync"])
            .arg(format!("--inject=fdatasync:{what}"))
            .arg("--output")
            .arg(log)
            .arg(format!("--attach={process}"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("strace cannot be run: {error}; install it (apt-get install strace)"));
        Self { strace, log: log.to_owned() }
    }

    /// Waits until a sync has met it.
    fn is_felt(&self) {
        eventually("a sync has met the fault", || {
            let seen = fs::read_to_string(&self.log).unwrap_or_default();
            seen.contains("(DELAYED)") || seen.contains("(INJECTED)")
        });
    }

    fn mend(self) {
        drop(self);
    }
}

impl Drop for Fault {
    /// Asked to end, it lets go of the server first. If that dies at the same moment, it may wait for it for ever.
    fn drop(&mut self) {
        let _ = Command::new("kill").arg("-TERM").arg(self.strace.id().to_string()).stderr(Stdio::null()).status();
        let deadline = Instant::now() + FOR_LETTING_GO;
        while self.strace.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > deadline {
                let _ = self.strace.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn inflict(members: &Members, which: &[usize], what: &str, dir: &Path) -> Vec<Fault> {
    let faults = which.iter().map(|n| Fault::of(members.process(*n), what, &dir.join(format!("{n}.strace"))));
    faults.collect()
}

#[test]
fn disks_that_are_slow_to_sync_on_all_members_or_on_the_leader_cost_time_and_nothing_else() {
    on_each_version(|version| async move {
        let dir = tempfile::tempdir().unwrap();
        let members = Members::start(version, dir.path());
        let ledger = Ledger::start(members.endpoints(), Load::default());
        writes_go_on(&ledger, 60);
        let (leader, _) = members.leader().await;
        for (which, what) in [(&[0, 1, 2][..], SLOW), (&[leader][..], VERY_SLOW)] {
            let faults = inflict(&members, which, what, dir.path());
            faults.iter().for_each(Fault::is_felt);
            writes_go_on(&ledger, 40);
            faults.into_iter().for_each(Fault::mend);
            writes_go_on(&ledger, 40);
        }
        let verdict = ledger.stop().await;
        println!("{version}: {verdict}");
        assert!(verdict.is_clean() && verdict.history.finals.len() == 3, "{version}: {verdict}");
    });
}

#[test]
fn a_sync_that_fails_ends_the_member_and_nothing_that_was_acknowledged_is_lost() {
    on_each_version(|version| async move {
        let dir = tempfile::tempdir().unwrap();
        let mut members = Members::start(version, dir.path());
        let ledger = Ledger::start(members.endpoints(), Load::default());
        writes_go_on(&ledger, 60);
        let (leader, _) = members.leader().await;
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        let faults = inflict(&members, &[leader], FAILS, dir.path());
        eventually("the leader has ended", || members.has_ended(leader));
        faults.into_iter().for_each(Fault::mend);
        members.show(&others);
        writes_go_on(&ledger, 60);
        members.run(&[leader]);
        members.show(&[0, 1, 2]);
        writes_go_on(&ledger, 40);

        let faults = inflict(&members, &[0, 1, 2], FAILS, dir.path());
        // One that is left alone has nothing to write any more.
        eventually("no quorum is left", || (0..3).filter(|n| members.has_ended(*n)).count() >= 2);
        faults.into_iter().for_each(Fault::mend);
        (0..3).for_each(|n| members.kill(n));
        members.run(&[0, 1, 2]);
        writes_go_on(&ledger, 60);
        let verdict = ledger.stop().await;
        println!("{version}: {verdict}");
        assert!(verdict.is_clean() && verdict.history.finals.len() == 3, "{version}: {verdict}");
    });
}
