//! Time and randomness of a simulation's thread, where code asks the system for them.
//!
//! An emulator stamps records with the system's time, hash maps take their keys from `getrandom`.
//! So this module defines both C functions for the whole program: on a thread that has entered a
//! simulation they follow it; everywhere else they make the real system call.

#![allow(unsafe_code, reason = "two C functions are defined for this program")]

use std::cell::Cell;
use std::time::Duration;

use libc::{c_int, c_long, c_uint, clockid_t, size_t, ssize_t, timespec};
use tokio::time::Instant;

/// The wall clock at the beginning of every run: 2026-01-01T00:00:00Z.
pub const EPOCH: Duration = Duration::from_hours(490_896);

thread_local! {
    static SIMULATED: Cell<Option<Simulated>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Simulated {
    /// The state of a SplitMix64 sequence.
    random: u64,
    /// When the run began; before the runtime exists time stands still.
    origin: Option<Instant>,
}

/// From here on this thread's randomness comes from `seed`, and its time stands at [`EPOCH`].
pub fn enter(seed: u64) {
    SIMULATED.set(Some(Simulated {
        random: seed,
        origin: None,
    }));
    fastrand::seed(seed);
}

/// From here on this thread's time is [`EPOCH`] plus what the runtime's clock says since `origin`.
pub fn follow(origin: Instant) {
    if let Some(simulated) = SIMULATED.get() {
        SIMULATED.set(Some(Simulated {
            origin: Some(origin),
            ..simulated
        }));
    }
}

/// From here on this thread's time stands again; to be called before the runtime goes.
pub fn leave() {
    SIMULATED.set(None);
}

/// Since [`EPOCH`]; `None` outside of a simulation.
fn elapsed() -> Option<Duration> {
    // Taken out meanwhile, so that the runtime's own look at the system's clock, should it need
    // one, is not answered by asking the runtime.
    let simulated = SIMULATED.take()?;
    let elapsed = simulated.origin.map_or(Duration::ZERO, |origin| {
        Instant::now().saturating_duration_since(origin)
    });
    SIMULATED.set(Some(simulated));
    Some(elapsed)
}

/// The C library's function, for this program.
///
/// # Safety
///
/// `time` must be valid for a write, as for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let Some(elapsed) = elapsed() else {
        // SAFETY: the arguments are passed on as they came.
        let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
        return if result == 0 { 0 } else { -1 };
    };
    let now = EPOCH + elapsed;
    let tv_sec = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    // SAFETY: the caller promises that it can be written.
    unsafe {
        time.write(timespec {
            tv_sec,
            tv_nsec: c_long::from(now.subsec_nanos()),
        });
    };
    0
}

/// The C library's function, for this program.
///
/// # Safety
///
/// `buffer` must be valid for `length` bytes, as for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, length: size_t, flags: c_uint) -> ssize_t {
    let Some(mut simulated) = SIMULATED.take() else {
        // SAFETY: the arguments are passed on as they came.
        let result = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return ssize_t::try_from(result).unwrap_or(-1);
    };
    for at in 0..length {
        let [byte, ..] = split_mix(&mut simulated.random).to_le_bytes();
        // SAFETY: `at` is below the length that the caller promises.
        unsafe { buffer.add(at).write(byte) };
    }
    SIMULATED.set(Some(simulated));
    ssize_t::try_from(length).unwrap_or(-1)
}

/// One step of SplitMix64.
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
