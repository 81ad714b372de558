//! The time by which plugins are called because time has passed.

use std::sync::Arc;

use shardmill_core::ports::Clock;
use tokio::sync::watch;

/// See the module's description. It is the host's clock, but in a dry run, which lets time pass by
/// steps. Cheap to clone.
#[derive(Clone)]
pub struct TickClock {
    clock: Arc<dyn Clock>,
    /// Changes with each step.
    steps: Option<watch::Receiver<u64>>,
}

impl TickClock {
    /// A clock that goes by itself.
    pub fn of(clock: Arc<dyn Clock>) -> Self {
        Self { clock, steps: None }
    }

    /// A clock that is also set forward; `steps` changes whenever it is.
    pub fn stepped(clock: Arc<dyn Clock>, steps: watch::Receiver<u64>) -> Self {
        Self {
            clock,
            steps: Some(steps),
        }
    }

    /// What the clock shows.
    pub(crate) fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// Returns once the clock was set forward after this call. Cancel-safe.
    pub(crate) fn next_step(&self) -> impl Future<Output = ()> + use<> {
        let mut steps = self.steps.clone();
        if let Some(steps) = &mut steps {
            steps.mark_unchanged();
        }
        async move {
            let Some(mut steps) = steps else {
                return std::future::pending().await;
            };
            if steps.changed().await.is_err() {
                // Nobody is left who could set it forward.
                std::future::pending::<()>().await;
            }
        }
    }
}
