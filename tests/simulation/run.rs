//! One seed on one fresh thread.

use std::panic::resume_unwind;

use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::bugs::Bug;
use crate::driver;
use crate::report::SeedReport;
use crate::schedule::Scope;
use crate::system;
use crate::trace_file::{HostLog, TraceFile};

const STACK_BYTES: usize = 16 << 20;

/// Runs `seed` as `scope` has it, with `bug` in its hosts if given, and writes down what happens to
/// `file` if given.
///
/// A separate thread, so that hash maps, dice and caches that live in threads begin afresh. For
/// the same run down to the last byte the *process* must be fresh too, because tokio seeds each
/// runtime's dice from a counter of the process: see [`crate::lanes`].
pub fn run(seed: u64, scope: Scope, bug: Option<Bug>, file: Option<TraceFile>) -> SeedReport {
    let thread = std::thread::Builder::new()
        .name(format!("seed-{seed}"))
        .stack_size(STACK_BYTES);
    HostLog(file.clone()).install();
    let running = thread.spawn(move || {
        system::enter(seed);
        #[cfg(debug_assertions)]
        shardmill_core::seeded_bug::switch_on(bug.and_then(Bug::decision));
        #[cfg(not(debug_assertions))]
        assert!(
            bug.and_then(Bug::decision).is_none(),
            "a release build has no seeded bugs"
        );
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let report = runtime.block_on(async {
            system::follow(Instant::now());
            Box::pin(driver::run(
                seed,
                scope,
                bug.and_then(Bug::port),
                file.clone(),
            ))
            .await
        });
        if let Some(file) = file {
            file.flush();
        }
        system::leave();
        // The process ends with the run: nobody needs the memory of what is left of it.
        std::mem::forget(runtime);
        report
    });
    running
        .expect("a thread")
        .join()
        .unwrap_or_else(|panic| resume_unwind(panic))
}
