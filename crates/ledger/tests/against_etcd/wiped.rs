//! What etcd does with a member whose volume is empty: it ends, whatever it is told to be, until somebody replaces it.

use std::fs;

use quorate_ledger::{Ledger, Load};

use crate::members::Members;
use crate::{on_each_version, writes_go_on};

/// A start that comes to nothing, on an empty volume. What the member says.
fn ends(members: &mut Members, n: usize) -> String {
    let data = &members.servers[n].data_dir;
    if data.exists() {
        fs::remove_dir_all(data).unwrap();
    }
    let (_, started) = members.try_run(&[n]).remove(0);
    started.err().unwrap_or_else(|| panic!("m{n} serves"))
}

#[test]
fn a_wiped_member_ends_as_a_new_one_and_as_one_that_exists_and_the_others_keep_every_write() {
    on_each_version(|version| async move {
        let dir = tempfile::tempdir().unwrap();
        let mut members = Members::start(version, dir.path());
        let ledger = Ledger::start(members.endpoints(), Load::default());
        writes_go_on(&ledger, 60);
        // Whoever leads remembers how far the others had got, and insists on it.
        let (leader, _) = members.leader().await;
        let (wiped, other) = ((leader + 1) % 3, (leader + 2) % 3);
        members.kill(wiped);
        members.show(&[leader, other]);
        let as_new = ends(&mut members, wiped);
        assert!(as_new.contains("has already been bootstrapped"), "{version}: {as_new}");
        members.servers[wiped].extra = vec!["--initial-cluster-state=existing".to_owned()];
        let as_one_of_them = ends(&mut members, wiped);
        let panicked = as_one_of_them.contains("tocommit(") && as_one_of_them.contains("is out of range [lastIndex(");
        assert!(panicked, "{version}: {as_one_of_them}");
        writes_go_on(&ledger, 60);
        let verdict = ledger.stop().await;
        println!("{version}: {verdict}");
        assert!(verdict.is_clean() && verdict.history.finals.len() == 2, "{version}: {verdict}");
    });
}
