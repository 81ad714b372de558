//! Signals: the first asks for a drain, the second exits at once. SIGHUP has a service read its
//! configuration again.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use shardmill_core::control::Asked;
use shardmill_core::ports::Clock;
use shardmill_worker::{HostBell, Wish};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::BootClock;

/// The exit code after a second signal: 128 and SIGINT, as shells count it.
const EXIT_SECOND_SIGNAL: i32 = 130;

/// Whether SIGHUP has this process read its configuration again. Then it stops nothing, not even a
/// command that the console runs meanwhile.
static IS_HANG_UP_A_RELOAD: AtomicBool = AtomicBool::new(false);

/// Cancels the token on SIGTERM, ctrl-c, or SIGHUP, which a closed terminal or ssh session sends;
/// exits the process on the next one. Stops listening when dropped.
pub struct Signals {
    stop: CancellationToken,
    listeners: JoinSet<()>,
    /// Of a service: what arrives before [`Signals::reload_on_hang_up`] waits here.
    hang_up: Option<Signal>,
}

impl Signals {
    /// Starts listening; must run inside the runtime.
    pub fn listen() -> std::io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        // It kills a process that nobody else listens in. A write beyond the limit of file sizes
        // then fails, and is shown and tried again as on a full disk.
        drop(signal(SignalKind::from_raw(
            rustix::process::Signal::XFSZ.as_raw(),
        ))?);
        let stop = CancellationToken::new();
        let asked = stop.clone();
        let mut listeners = JoinSet::new();
        listeners.spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                    _ = hang_up.recv() => {
                        if IS_HANG_UP_A_RELOAD.load(Ordering::Relaxed) {
                            continue;
                        }
                    }
                }
                if asked.is_cancelled() {
                    tracing::warn!(
                        code = "second-signal",
                        "second signal, exiting at once; leases will expire and records repeat"
                    );
                    crate::telemetry::flush();
                    std::process::exit(EXIT_SECOND_SIGNAL);
                }
                tracing::info!("signal received, draining; a second one exits at once");
                asked.cancel();
            }
        });
        Ok(Self {
            stop,
            listeners,
            hang_up: None,
        })
    }

    /// The same; SIGHUP stops nothing from now on, if this process is a service. In a terminal it
    /// goes on to stop the process: the terminal was closed, and nobody would stop it later.
    pub fn listen_as_service() -> std::io::Result<Self> {
        let mut signals = Self::listen()?;
        if !std::io::stdin().is_terminal() && !std::io::stderr().is_terminal() {
            signals.hang_up = Some(signal(SignalKind::hangup())?);
            IS_HANG_UP_A_RELOAD.store(true, Ordering::Relaxed);
        }
        Ok(signals)
    }

    /// Has SIGHUP ring from now on, if this process is a service. One that came before rings now.
    pub fn reload_on_hang_up(&mut self, bell: HostBell) {
        let Some(mut hang_up) = self.hang_up.take() else {
            return;
        };
        self.listeners.spawn(async move {
            while hang_up.recv().await.is_some() {
                let asked = Asked {
                    by: "SIGHUP".to_owned(),
                    why: String::new(),
                    at_ms: BootClock.wall_ms(),
                };
                // The log says what came of it.
                bell.ring(Wish::Reload, asked, |_| {});
            }
        });
    }

    /// Cancelled by the first signal.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}
