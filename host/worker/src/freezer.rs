//! Stops all tasks of a host at once, as SIGSTOP does, while the clocks go on: the seam that lets a
//! simulator pause one host among several in a process. In production it is absent and costs
//! nothing.

use std::pin::pin;

use tokio::sync::watch;

/// Guards the futures of one host. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Freezer(Option<watch::Receiver<bool>>);

impl Freezer {
    /// A freezer that never stops anything, as in production.
    pub fn never() -> Self {
        Self(None)
    }

    /// Stops everything while `is_frozen` holds true.
    pub fn by(is_frozen: watch::Receiver<bool>) -> Self {
        Self(Some(is_frozen))
    }

    /// Runs `future`, but never polls it while frozen.
    pub async fn guard<F: Future>(self, future: F) -> F::Output {
        let Some(mut is_frozen) = self.0 else {
            return future.await;
        };
        let mut future = pin!(future);
        loop {
            while *is_frozen.borrow_and_update() {
                // The sender is gone: the host stays frozen, as a stopped process would.
                if is_frozen.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            tokio::select! {
                biased;
                Ok(()) = is_frozen.changed() => {}
                output = &mut future => return output,
            }
        }
    }
}
