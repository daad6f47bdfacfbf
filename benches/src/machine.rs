//! The machine: its cores, its disk, and what it is.

use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Result;

/// Kinds of filesystems by their magic number (`statfs(2)`).
const FILESYSTEMS: &[(i64, &str)] = &[
    (0xEF53, "ext4"),
    (0x0102_1994, "tmpfs: NOT a disk, durability costs nothing here"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x794C_7630, "overlayfs"),
    (0x2FC1_2FC1, "zfs"),
];

/// The cores this thread may use.
///
/// # Errors
/// When the kernel does not say.
pub fn cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Binds the calling thread, and whatever it starts from now on, to `cores`.
///
/// # Errors
/// When the kernel refuses.
pub fn pin(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// What `directory` lies on.
///
/// # Errors
/// When it does not exist.
pub fn filesystem(directory: &Path) -> Result<String> {
    let magic = rustix::fs::statfs(directory)?.f_type;
    let known = FILESYSTEMS.iter().find(|(number, _)| *number == magic);
    Ok(known.map_or_else(
        || format!("filesystem {magic:#x}"),
        |(_, name)| (*name).to_owned(),
    ))
}

/// Processor time of the whole machine so far, in nanoseconds, without idling and waiting.
///
/// # Errors
/// When the kernel does not say.
pub fn busy_ns() -> Result<u64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    // user nice system idle iowait irq softirq steal
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<u64> = fields.map(|field| field.parse().unwrap_or_default()).collect();
    let busy = [0, 1, 2, 5, 6, 7]
        .iter()
        .filter_map(|index| ticks.get(*index))
        .sum::<u64>();
    Ok(busy * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

/// Processor, memory and kernel in one line.
pub fn describe() -> String {
    let field = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
            .to_owned();
        line.split_once(':')
            .map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    };
    let memory = field("/proc/meminfo", "MemTotal")
        .trim_end_matches(" kB")
        .parse::<u64>()
        .unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{} cores of {}, {:.0} GiB, Linux {}",
        cores().map_or(0, |cores| cores.len()),
        field("/proc/cpuinfo", "model name"),
        memory as f64 / 1_048_576.0,
        kernel.trim()
    )
}
