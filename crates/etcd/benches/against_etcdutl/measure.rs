//! Time, processor time and peak memory of a child process, from outside and the same way for everyone.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_mib: f64,
}

pub(crate) fn run(command: &mut Command) -> Cost {
    let started = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let proc = format!("/proc/{}", child.id());
    let mut peak_kib = 0;
    // The exit is noticed without collecting it: until then its accounts can be read.
    while waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
        .unwrap()
        .is_none()
    {
        peak_kib = peak_kib.max(high_water_kib(&proc).unwrap_or_default());
        std::thread::sleep(Duration::from_millis(3));
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = cpu_ticks(&proc).unwrap() / 100.0;
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
    assert!(child.wait().unwrap().success(), "{command:?}: {stderr}");
    Cost { seconds, cpu_seconds, peak_mib: f64::from(peak_kib) / 1024.0 }
}

fn high_water_kib(proc: &str) -> Option<u32> {
    let status = std::fs::read_to_string(format!("{proc}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

/// User and system time in hundredths of a second, which Linux has shown to processes since its beginnings.
fn cpu_ticks(proc: &str) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("{proc}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
}

pub(crate) fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let middle = costs[costs.len() / 2];
    Cost { peak_mib: costs.iter().map(|cost| cost.peak_mib).fold(0.0, f64::max), ..middle }
}
