//! Signs the list of standalone hosts for as long as a worker serves, if its host is one.

use std::sync::Arc;

use shardmill_core::ports::StoreError;
use tokio::task::JoinSet;

use super::run::Run;

/// The part of a worker that is standalone, if it is.
pub(super) struct Signing {
    run: Arc<Run>,
    task: JoinSet<()>,
}

impl Signing {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            task: JoinSet::new(),
        }
    }

    /// Signs the list of standalone hosts, if this is one.
    pub(super) async fn begin(&self) -> Result<(), StoreError> {
        match &self.run.ports.standalone {
            Some(standalone) => {
                let clock = self.run.ports.clock.as_ref();
                standalone.begin(self.run.me(), clock).await
            }
            None => Ok(()),
        }
    }

    /// Keeps the entry fresh, and removes what others left, for as long as this lives.
    pub(super) fn keep(&mut self) {
        if let Some(standalone) = &self.run.ports.standalone {
            let clock = Arc::clone(&self.run.ports.clock);
            let keeping = standalone.clone().keep(self.run.me().clone(), clock);
            self.task.spawn(self.run.guard(keeping));
        }
    }
}
