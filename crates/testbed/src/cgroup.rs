//! A bed's processes are those in its cgroup: found, ended and counted there, whoever their parents were.
//!
//! Works on version 1 (one hierarchy per controller), version 2 and the hybrid of both. A path here is relative to
//! each hierarchy's root.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::{Error, Result, While, read_file};

/// The roots of all mounted hierarchies.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = read_file(Path::new("/proc/self/mountinfo"))?;
    let roots = roots_in(&mounts);
    if roots.is_empty() {
        return Err(Error::refused(
            "no cgroup hierarchy is mounted on this machine",
            "mount one (`mount -t cgroup2 none /sys/fs/cgroup`)",
        ));
    }
    Ok(roots)
}

/// `ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAGS...] - TYPE SOURCE OPTIONS`, see proc(5).
fn roots_in(mountinfo: &str) -> Vec<PathBuf> {
    let cgroup_mount = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let kind = kind.split(' ').next()?;
        let mount_point = place.split(' ').nth(4)?;
        matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(mount_point))
    };
    let unique: BTreeSet<_> = mountinfo.lines().filter_map(cgroup_mount).collect();
    unique.into_iter().collect()
}

/// Creates the cgroup in every hierarchy, ready to take processes and pods.
pub fn create(path: &Path) -> Result<()> {
    for root in hierarchies()? {
        let mut parent = root;
        for part in path {
            let child = parent.join(part);
            match fs::create_dir(&child) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    Err(error).while_(|| format!("creating cgroup {}", child.display()))?;
                }
                _ => {}
            }
            pass_down(&parent, &child)?;
            parent = child;
        }
    }
    Ok(())
}

/// A new cgroup can use nothing until its parent's share was passed down: processors and memory nodes in version 1,
/// controllers in version 2.
fn pass_down(parent: &Path, child: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (parent.join(file), child.join(file));
        if from.exists() && to.exists() && !is_version_2(parent) {
            let value = read_file(&from)?;
            fs::write(&to, value.trim()).while_(|| format!("writing {}", to.display()))?;
        }
    }
    if is_version_2(parent) {
        let controllers = read_file(&parent.join("cgroup.controllers"))?;
        let switch = parent.join("cgroup.subtree_control");
        for controller in controllers.split_whitespace() {
            let enabled = fs::write(&switch, format!("+{controller}"));
            // The kubelet insists on these three; the others may be refused.
            if enabled.is_err() && ["cpu", "memory", "pids"].contains(&controller) {
                return Err(Error::refused(
                    format!("the {controller} controller cannot be enabled in {}", switch.display()),
                    "in a container, move its processes out of the root cgroup first (systemd or a nested init does)",
                ));
            }
        }
    }
    Ok(())
}

fn is_version_2(cgroup: &Path) -> bool {
    cgroup.join("cgroup.controllers").exists()
}

/// Moves the calling process, and so all its future children, into an existing cgroup.
pub fn join(path: &Path) -> Result<()> {
    for root in hierarchies()? {
        let file = root.join(path).join("cgroup.procs");
        fs::write(&file, "0").while_(|| format!("entering {}", file.display()))?;
    }
    Ok(())
}

/// Every process in the cgroup and below it, by the pid the caller would use.
pub fn processes(path: &Path) -> Result<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    for root in hierarchies()? {
        visit(&root.join(path), &mut |cgroup| {
            let listed = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
            found.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
        });
    }
    Ok(found)
}

/// The first process of the innermost pid namespace among those in the cgroup: a node's or a bed's init.
pub fn init_process(path: &Path) -> Result<Option<i32>> {
    let is_init = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let namespaced = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let pids: Vec<_> = namespaced.split_whitespace().collect();
        pids.len() > 1 && pids.last() == Some(&"1")
    };
    Ok(processes(path)?.into_iter().find(is_init))
}

/// Memory charged to the cgroup, without page cache that could be dropped.
pub fn working_set(path: &Path) -> Result<u64> {
    for root in hierarchies()? {
        let cgroup = root.join(path);
        for (usage, inactive) in
            [("memory.usage_in_bytes", "total_inactive_file "), ("memory.current", "inactive_file ")]
        {
            let Ok(used) = fs::read_to_string(cgroup.join(usage)) else { continue };
            let statistics = read_file(&cgroup.join("memory.stat"))?;
            let droppable = statistics.lines().find_map(|line| line.strip_prefix(inactive)?.trim().parse().ok());
            let used: u64 = used.trim().parse().unwrap_or_default();
            return Ok(used.saturating_sub(droppable.unwrap_or(0)));
        }
    }
    Ok(0)
}

/// Ends every process in the cgroup and waits until the last one is gone.
pub fn kill_all(path: &Path, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let alive = processes(path)?;
        if alive.is_empty() {
            return Ok(());
        }
        for pid in &alive {
            kill(*pid, path);
        }
        if Instant::now() > deadline {
            return Err(Error::refused(
                format!("processes {alive:?} of {} do not end", path.display()),
                "look at them with `ps -o pid,stat,wchan,args -p PID` and run `testbed down` again",
            ));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A pid may be reused between reading and killing: the descriptor pins the process, then the cgroup is checked again.
fn kill(pid: i32, path: &Path) {
    let Some(process) = Pid::from_raw(pid) else { return };
    let Ok(pinned) = pidfd_open(process, PidfdFlags::empty()) else { return };
    let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let ours = format!("/{}/", path.display());
    if membership.lines().any(|line| format!("{line}/").contains(&ours)) {
        // Gone in the meantime is as good as killed.
        let _ = pidfd_send_signal(pinned, Signal::KILL);
    }
}

/// Removes the cgroup and those below it, and the parent directory if this was the last one.
pub fn remove(path: &Path, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    for root in hierarchies()? {
        let top = root.join(path);
        loop {
            // Whoever was on the way in when the last process ended.
            kill_all(path, patience)?;
            let mut below = Vec::new();
            visit(&top, &mut |cgroup| below.push(cgroup.to_owned()));
            // Deepest first; a cgroup stays busy for a moment after its last process was reaped.
            below.iter().rev().for_each(|cgroup| drop(fs::remove_dir(cgroup)));
            if !top.exists() {
                break;
            }
            if Instant::now() > deadline {
                return Err(Error::refused(
                    format!("cgroup {} stays busy", top.display()),
                    "run `testbed down` again in a moment",
                ));
            }
            thread::sleep(Duration::from_millis(10));
        }
        if let Some(parent) = path.parent().filter(|parent| parent.components().next().is_some()) {
            let _ = fs::remove_dir(root.join(parent));
        }
    }
    Ok(())
}

/// Calls back for the directory and all below it, parents first. What vanishes meanwhile is passed over.
fn visit(cgroup: &Path, found: &mut dyn FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(cgroup) else { return };
    found(cgroup);
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            visit(&entry.path(), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found_once() {
        let mountinfo = "\
22 1 0:21 / /proc rw - proc proc rw
30 29 0:26 / /sys/fs/cgroup/pids rw,nosuid shared:9 - cgroup cgroup rw,pids
31 29 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 29 0:26 / /sys/fs/cgroup/pids rw,nosuid - cgroup cgroup rw,pids";
        assert_eq!(
            roots_in(mountinfo),
            [PathBuf::from("/sys/fs/cgroup/pids"), PathBuf::from("/sys/fs/cgroup/unified")]
        );
    }
}
