//! What bounds the work of one call, and what a run that must be the same everywhere sees of time
//! and chance.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wasmtime::Store;
use wasmtime_wasi::random::Deterministic;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

/// What bounds the work of one call into a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Metering {
    /// Wall time: the deadlines of `GuestLimits`. Costs a tenth to a third of a guest's speed.
    #[default]
    Deadline,
    /// Fuel, about a unit an instruction; a call that takes more ends as one that takes too long
    /// does. Deadlines count for waits in the host only. Clocks and random numbers are the same in
    /// each run. Slower by a third to a half, and the same on every machine: for tests.
    Fuel {
        /// Units in one call.
        per_call: u64,
        /// Where the wall clock of an instance starts, in milliseconds since the Unix epoch.
        wall_ms: u64,
    },
}

impl Metering {
    /// 2000-01-01T00:00:00Z, for the wall clock of a run that repeats no other: so that a time in
    /// its output is seen to be no real one.
    pub const NO_REAL_TIME_MS: u64 = 946_684_800_000;

    /// Grants the next call its share.
    pub(crate) fn refill<T>(self, store: &mut Store<T>, epochs: u64) -> wasmtime::Result<()> {
        match self {
            Self::Deadline => {
                store.set_epoch_deadline(epochs);
                Ok(())
            }
            Self::Fuel { per_call, .. } => store.set_fuel(per_call),
        }
    }

    /// What the call took of it; 0 where fuel is not counted.
    pub(crate) fn fuel_used<T>(self, store: &Store<T>) -> u64 {
        match self {
            Self::Deadline => 0,
            Self::Fuel { per_call, .. } => {
                per_call.saturating_sub(store.get_fuel().unwrap_or(per_call))
            }
        }
    }

    /// Sets what a guest sees of time and chance.
    pub(crate) fn prepare(self, wasi: &mut WasiCtxBuilder) {
        let Self::Fuel { wall_ms, .. } = self else {
            return;
        };
        wasi.secure_random(Deterministic::new(SEED.to_vec()))
            .insecure_random(Deterministic::new(SEED.to_vec()))
            .insecure_random_seed(u128::from_le_bytes(SEED))
            .wall_clock(SteppingClock::at(Duration::from_millis(wall_ms)))
            .monotonic_clock(SteppingClock::at(Duration::ZERO));
    }
}

/// Random bytes repeat after these: any will do, as long as they are the same.
const SEED: [u8; 16] = *b"shardmill random";
/// How far each reading moves a clock, so that a guest that waits for time to pass makes progress.
const STEP: Duration = Duration::from_nanos(STEP_NANOS);
const STEP_NANOS: u64 = 1_000;

/// Goes on by each look at it.
struct SteppingClock {
    start: Duration,
    looks: AtomicU64,
}

impl SteppingClock {
    fn at(start: Duration) -> Self {
        Self {
            start,
            looks: AtomicU64::new(0),
        }
    }

    fn look(&self) -> Duration {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        self.start + Duration::from_nanos(looks.saturating_mul(STEP_NANOS))
    }
}

impl HostWallClock for SteppingClock {
    fn resolution(&self) -> Duration {
        STEP
    }

    fn now(&self) -> Duration {
        self.look()
    }
}

impl HostMonotonicClock for SteppingClock {
    fn resolution(&self) -> u64 {
        STEP_NANOS
    }

    fn now(&self) -> u64 {
        u64::try_from(self.look().as_nanos()).unwrap_or(u64::MAX)
    }
}
