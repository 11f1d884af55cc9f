//! What etcd does to acknowledged writes without an error, when it is given volumes that have gone back in time.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use quorate_ledger::{Ledger, Load, Rule, Verdict};

use crate::etcd_process::copy_dir;
use crate::members::Members;
use crate::{on_each_version, writes_go_on};

/// Some watches wait for revisions that will not come.
fn impatient() -> Load {
    Load { settle_timeout: Duration::from_secs(6), ..Load::default() }
}

fn has_broken(verdict: &Verdict, rules: &[Rule]) {
    let broken: BTreeSet<Rule> = verdict.violations.iter().map(|violation| violation.rule).collect();
    assert!(verdict.void.is_none() && rules.iter().all(|rule| broken.contains(rule)), "{broken:?}: {verdict}");
}

#[test]
fn two_of_three_members_that_start_anew_on_wiped_volumes_are_found_out() {
    on_each_version(|version| async move {
        let dir = tempfile::tempdir().unwrap();
        let mut members = Members::start(version, dir.path());
        let ledger = Ledger::start(members.endpoints(), impatient());
        writes_go_on(&ledger, 60);
        (0..3).for_each(|n| members.kill(n));
        for n in [1, 2] {
            fs::remove_dir_all(&members.servers[n].data_dir).unwrap();
        }
        // Same names, same token, and so the same cluster ID.
        members.run(&[1, 2]);
        writes_go_on(&ledger, 80);
        let third = members.try_run(&[0]);
        writes_go_on(&ledger, 20);
        // A member that does not even start would be found by everybody.
        members.show(if third[0].1.is_ok() { &[0, 1, 2] } else { &[1, 2] });
        let verdict = ledger.stop().await;
        println!("{version}: {verdict}");
        has_broken(&verdict, &[Rule::NothingLost, Rule::OneWritePerRevision, Rule::RealTimeOrder]);
        let clusters: BTreeSet<u64> = verdict.history.reads.iter().map(|read| read.at.cluster).collect();
        assert_eq!(clusters.len(), 1, "{version}");
    });
}

#[test]
fn a_rolled_back_volume_beside_a_member_that_lagged_is_found_out() {
    on_each_version(|version| async move {
        let dir = tempfile::tempdir().unwrap();
        let mut members = Members::start(version, dir.path());
        let ledger = Ledger::start(members.endpoints(), impatient());
        writes_go_on(&ledger, 60);
        members.kill(1);
        let (volume, copy) = (members.servers[1].data_dir.clone(), dir.path().join("copy"));
        copy_dir(&volume, &copy);
        members.run(&[1]);
        members.kill(2);
        writes_go_on(&ledger, 60);
        members.kill(0);
        members.kill(1);
        fs::remove_dir_all(&volume).unwrap();
        fs::rename(&copy, &volume).unwrap();
        members.show(&[1, 2]);
        members.run(&[1, 2]);
        writes_go_on(&ledger, 60);
        let verdict = ledger.stop().await;
        println!("{version}: {verdict}");
        has_broken(&verdict, &[Rule::NothingLost, Rule::OneWritePerRevision, Rule::RealTimeOrder]);
        assert_eq!(verdict.history.finals.len(), 2, "{version}: both members are content");
    });
}
