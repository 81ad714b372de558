//! Signals: the first asks for a drain, the second exits at once.

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The exit code after a second signal: 128 and SIGINT, as shells count it.
const EXIT_SECOND_SIGNAL: i32 = 130;

/// Cancels the token on SIGTERM, ctrl-c, or SIGHUP, which a closed terminal or ssh session sends;
/// exits the process on the next one. Stops listening when dropped.
pub struct Signals {
    stop: CancellationToken,
    _listener: JoinSet<()>,
}

impl Signals {
    /// Starts listening; must run inside the runtime.
    pub fn listen() -> std::io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        // It kills a process that nobody else listens in. A write beyond the limit of file sizes
        // then fails, and is shown and tried again as on a full disk.
        drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
        let stop = CancellationToken::new();
        let asked = stop.clone();
        let mut listener = JoinSet::new();
        listener.spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                    _ = hang_up.recv() => {}
                }
                if asked.is_cancelled() {
                    tracing::warn!(
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
            _listener: listener,
        })
    }

    /// Cancelled by the first signal.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}
