//! The thread that writes what was gathered.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use shardmill_config::EmfConfig;
use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::ports::Clock;
use shardmill_worker::{Gathered, Meters};

use super::document::{Style, lines};
use super::metrics::{count_lines, count_values_dropped};
use super::target::Target;
use crate::clock::BootClock;

/// How long the end of a host waits for its last lines: as long as for those of the log.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(1);

/// Writes the KCL's metrics until it is dropped, and what is left then.
pub(crate) struct Emf {
    meters: Meters,
    is_over: Arc<AtomicBool>,
    wake: SyncSender<()>,
    ended: Receiver<()>,
}

/// What the thread works with.
struct Work {
    meters: Meters,
    style: Style,
    target: Target,
    every: Duration,
    is_over: Arc<AtomicBool>,
    failures: u64,
}

impl Emf {
    /// Starts the thread, if metrics are wanted. A host that cannot have it runs as well without.
    pub(crate) fn start(config: Option<&EmfConfig>) -> Option<Self> {
        match Self::with(config?) {
            Ok(emf) => Some(emf),
            Err(error) => {
                tracing::warn!(
                    %error,
                    code = "emf-off",
                    "the thread that writes the KCL's metrics does not start"
                );
                None
            }
        }
    }

    fn with(config: &EmfConfig) -> io::Result<Self> {
        // One wake-up that waits is as good as many.
        let (wake, woken) = sync_channel(1);
        let ring = wake.clone();
        // Full means that the thread will look anyway.
        let meters = Meters::gathering(config.level, move || {
            let _ = ring.try_send(());
        });
        let target = Target::of(&config.target);
        let is_over = Arc::new(AtomicBool::new(false));
        let work = Work {
            meters: meters.clone(),
            style: Style {
                namespace: config.namespace.clone(),
                log_group: config.log_group.clone(),
                line_bytes_max: target.line_bytes_max(),
            },
            target,
            every: config.every,
            is_over: Arc::clone(&is_over),
            failures: 0,
        };
        let (end, ended) = sync_channel(1);
        std::thread::Builder::new()
            .name("emf".to_owned())
            .spawn(move || {
                work.run(&woken);
                // Nobody may wait for it any more.
                let _ = end.send(());
            })?;
        Ok(Self {
            meters,
            is_over,
            wake,
            ended,
        })
    }

    /// Where workers are to note what happens.
    pub(crate) fn meters(&self) -> Meters {
        self.meters.clone()
    }
}

impl Drop for Emf {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let _ = self.wake.try_send(());
        let _ = self.ended.recv_timeout(LAST_LINES_WITHIN);
    }
}

impl Work {
    fn run(mut self, woken: &Receiver<()>) {
        let mut due = Instant::now() + self.every;
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            let is_early = match woken.recv_timeout(wait) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let is_over = self.is_over.load(Ordering::Acquire);
            self.write();
            if is_over {
                return;
            }
            if !is_early {
                due = (due + self.every).max(Instant::now());
            }
        }
    }

    fn write(&mut self) {
        let Gathered { values, left_out } = self.meters.take();
        if left_out > 0 {
            count_values_dropped(left_out);
        }
        let lines = lines(&values, &self.style, BootClock.wall_ms());
        if lines.is_empty() {
            return;
        }
        let (written, error) = self.target.write(&lines);
        count_lines(written as u64, (lines.len() - written) as u64);
        match error {
            None => self.failures = 0,
            Some(error) => self.report(&error, lines.len() - written),
        }
    }

    /// Says it the first time, and then more and more rarely.
    fn report(&mut self, error: &io::Error, lines: usize) {
        self.failures += 1;
        if is_worth_a_line(self.failures) {
            tracing::warn!(
                %error,
                lines,
                failures = self.failures,
                code = "emf-failed",
                "the KCL's metrics cannot be written where emf.target says, and are dropped; \
                    records go on"
            );
        }
    }
}
