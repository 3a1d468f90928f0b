//! The CPU time and memory of processes and of those that they have started.

use std::fs;
use std::time::Duration;

use crate::client::Fault;

/// The CPU time of these processes and their descendants so far.
pub(crate) fn cpu(processes: &[u32]) -> Result<Duration, Fault> {
    let mut nanoseconds = 0;
    for process in family(processes) {
        for task in fs::read_dir(format!("/proc/{process}/task"))? {
            // A thread may have ended since the folder was read.
            let Ok(schedstat) = fs::read_to_string(task?.path().join("schedstat")) else {
                continue;
            };
            // "Time spent on the cpu (in nanoseconds)". `stat` counts in steps of 10 ms.
            nanoseconds += schedstat.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Their resident memory, in KiB.
pub(crate) fn resident(processes: &[u32]) -> Result<u64, Fault> {
    let mut sum = 0;
    for process in family(processes) {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        sum += kib.ok_or_else(|| format!("process {process} has no memory"))?.parse::<u64>()?;
    }
    Ok(sum)
}

fn family(processes: &[u32]) -> Vec<u32> {
    let mut all = processes.to_vec();
    let mut at = 0;
    while let Some(process) = all.get(at) {
        at += 1;
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        let children = tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<_> = children.collect();
        all.extend(
            children.iter().flat_map(|ids| ids.split_whitespace()).flat_map(str::parse::<u32>),
        );
    }
    all
}
