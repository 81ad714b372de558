//! What this process uses, under the usual metric names. Each value is read when the page is
//! written; those that the system does not provide are left out.

use std::fmt::{Display, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// As series, with their types.
pub(crate) fn as_metrics(started_at: SystemTime) -> String {
    let mut page = String::new();
    show(
        &mut page,
        "process_cpu_seconds_total",
        "counter",
        "processor time used",
        Some(cpu_seconds()),
    );
    let since_epoch = started_at
        .duration_since(UNIX_EPOCH)
        .ok()
        .map(|since| since.as_secs_f64());
    show(
        &mut page,
        "process_start_time_seconds",
        "gauge",
        "when it started, since the Unix epoch",
        since_epoch,
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    show(
        &mut page,
        "process_resident_memory_bytes",
        "gauge",
        "resident memory",
        bytes_of(&status, "VmRSS:"),
    );
    show(
        &mut page,
        "process_virtual_memory_bytes",
        "gauge",
        "address space",
        bytes_of(&status, "VmSize:"),
    );
    show(
        &mut page,
        "process_open_fds",
        "gauge",
        "open file descriptors",
        open_fds(),
    );
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    show(
        &mut page,
        "process_max_fds",
        "gauge",
        "maximum number of open file descriptors",
        max_fds(&limits),
    );
    page
}

fn show(page: &mut String, name: &str, kind: &str, help: &str, value: Option<impl Display>) {
    if let Some(value) = value {
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
        );
    }
}

fn cpu_seconds() -> f64 {
    cpu_time().as_secs_f64()
}

/// The processor time that this process has used, over all threads.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}

/// A line such as `VmRSS:     1024 kB`.
fn bytes_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

fn open_fds() -> Option<usize> {
    // One of them is the folder that is read.
    Some(
        std::fs::read_dir("/proc/self/fd")
            .ok()?
            .count()
            .saturating_sub(1),
    )
}

/// The soft limit: the first number in its line, if there is one.
fn max_fds(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_shows_what_it_uses_and_leaves_out_what_it_cannot_know() {
        assert_eq!(
            bytes_of("Name:\tx\nVmRSS:\t    1024 kB\n", "VmRSS:"),
            Some(1 << 20)
        );
        assert_eq!(bytes_of("Name:\tx\n", "VmRSS:"), None);
        assert_eq!(
            max_fds("Max open files            1024                 4096                 files\n"),
            Some(1_024)
        );
        assert_eq!(
            max_fds("Max open files            unlimited            unlimited            files\n"),
            None
        );
        let page = as_metrics(UNIX_EPOCH + std::time::Duration::from_millis(1_500));
        assert!(
            page.contains("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total "),
            "{page}"
        );
        assert!(
            page.contains("\nprocess_start_time_seconds 1.5\n"),
            "{page}"
        );
        if cfg!(target_os = "linux") {
            for name in ["resident_memory_bytes", "open_fds", "max_fds"] {
                let value = page
                    .lines()
                    .find_map(|line| line.strip_prefix(&format!("process_{name} ")));
                assert!(
                    value.is_some_and(|value| value.parse::<u64>().is_ok_and(|value| value > 0)),
                    "{name}: {page}"
                );
            }
        }
    }
}
