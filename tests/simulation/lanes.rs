//! Many seeds, each in a process forked for it, so that no run sees what an earlier one left
//! behind.

#![allow(unsafe_code, reason = "fork, poll and the ends of a pipe")]

use std::fs::File;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::{Duration, Instant};

use crate::report::SeedReport;

/// Real time for one run: far above any healthy one; more means that simulated time stands still.
const RUN_MAX: Duration = Duration::from_mins(4);
/// By how much a run's heap grows at a time.
#[cfg(target_env = "gnu")]
const HEAP_STEP: i32 = 16 << 20;

/// A run under way.
struct Lane {
    seed: u64,
    pid: libc::pid_t,
    pipe: File,
    began: Instant,
}

/// Runs `job` for every seed, in at most `lanes` processes at once, and hands each result to `each`
/// until that breaks.
///
/// The calling process must have one thread only.
pub fn run_all(
    seeds: impl IntoIterator<Item = u64>,
    lanes: usize,
    job: &dyn Fn(u64) -> SeedReport,
    mut each: impl FnMut(u64, Result<SeedReport, String>) -> ControlFlow<()>,
) {
    use_one_heap();
    let mut seeds = seeds.into_iter();
    let mut running: Vec<Lane> = Vec::new();
    loop {
        while running.len() < lanes.max(1) {
            let Some(seed) = seeds.next() else { break };
            running.push(start(seed, job));
        }
        if running.is_empty() {
            return;
        }
        let ready = wait(&running);
        let lane = running.swap_remove(ready);
        let seed = lane.seed;
        if each(seed, finish(lane)).is_break() {
            for lane in running {
                kill(lane.pid);
                let _partial = finish(lane);
            }
            return;
        }
    }
}

/// One heap for all threads, grown in large steps and never given back: a run lives for some
/// milliseconds, on a thread whose own heap the allocator would grow by a system call every 128
/// KiB.
fn use_one_heap() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_TOP_PAD, HEAP_STEP),
        (libc::M_TRIM_THRESHOLD, i32::MAX),
    ] {
        // SAFETY: the process has one thread, and these parameters are only numbers.
        unsafe { libc::mallopt(parameter, value) };
    }
}

fn start(seed: u64, job: &dyn Fn(u64) -> SeedReport) -> Lane {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both ends.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0, "a pipe");
    // SAFETY: nobody else has the two descriptors.
    let (pipe, mut writer) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: this process has one thread, so the child finds no lock taken.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "a fork");
    if pid == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(seed)));
        let status = match result.map(|report| serde_json::to_vec(&report)) {
            Ok(Ok(bytes)) if writer.write_all(&bytes).is_ok() => 0,
            _ => 1,
        };
        // SAFETY: ends the child at once; what the parent has buffered must not be written twice.
        unsafe { libc::_exit(status) };
    }
    Lane {
        seed,
        pid,
        pipe,
        began: Instant::now(),
    }
}

/// The index of a lane that has something to say or took too long.
fn wait(running: &[Lane]) -> usize {
    loop {
        let mut polled: Vec<libc::pollfd> = running
            .iter()
            .map(|lane| libc::pollfd {
                fd: lane.pipe.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let count = libc::nfds_t::try_from(polled.len()).unwrap_or(1);
        // SAFETY: the slice has `count` entries.
        unsafe { libc::poll(polled.as_mut_ptr(), count, 1_000) };
        if let Some(ready) = polled.iter().position(|lane| lane.revents != 0) {
            return ready;
        }
        if let Some(late) = running
            .iter()
            .position(|lane| lane.began.elapsed() > RUN_MAX)
        {
            kill(running[late].pid);
            return late;
        }
    }
}

fn kill(pid: libc::pid_t) {
    // SAFETY: a child of this process that was not waited for.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

fn finish(mut lane: Lane) -> Result<SeedReport, String> {
    let mut bytes = Vec::new();
    let read = lane.pipe.read_to_end(&mut bytes);
    let mut status = 0;
    // SAFETY: waits for a child of this process, once.
    unsafe { libc::waitpid(lane.pid, &raw mut status, 0) };
    read.map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|_| {
        let took = lane.began.elapsed();
        format!(
            "the run panicked or was killed after {took:.1?} (wait status {status}); replay \
            it to see why"
        )
    })
}
