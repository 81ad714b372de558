//! Calls of the plugin: how each went, and those that run beside each other with parallel keys.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Processed, RecordProcessor};
use shardmill_core::stream::{Batch, Record};
use tokio::task::JoinSet;

use super::traces::TracedCall;
use crate::timer::Stopwatch;

/// What came of a call.
pub(super) struct Called {
    pub(super) result: Result<Processed, ProcessorError>,
    pub(super) notes: CallNotes,
}

/// How a call went, apart from its result.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallNotes {
    pub(super) took: Duration,
    /// Whether another call was held against the version while this one was under way.
    pub(super) is_overtaken: bool,
}

/// A call that runs beside those of other strands.
pub(super) struct Flight {
    pub(super) batch: Batch,
    pub(super) started: Stopwatch,
    /// Whether another call was held against the version meanwhile.
    pub(super) is_overtaken: bool,
    /// Its span, if the batch is traced.
    pub(super) traced: Option<Box<TracedCall>>,
}

/// A call that is to run beside those of other strands.
pub(super) struct Call {
    pub(super) processor: Box<dyn RecordProcessor>,
    pub(super) batch: Batch,
    pub(super) deadline: Duration,
}

/// How such a call came back.
pub(super) struct Landed {
    /// `None` if it did not, within its deadline: dropped in the middle of the call.
    pub(super) back: Option<(Box<dyn RecordProcessor>, Result<Processed, ProcessorError>)>,
    pub(super) took: Duration,
}

/// A call that has ended.
pub(super) struct Ended {
    pub(super) records: Arc<Vec<Record>>,
    pub(super) called: Called,
    /// Its span, if the batch is traced.
    pub(super) traced: Option<Box<TracedCall>>,
}

impl Call {
    /// Calls the plugin, for at most its deadline: a call that never comes back must not keep the
    /// shard for ever.
    pub(super) async fn run(mut self) -> Landed {
        let started = Stopwatch::start();
        let call = self.processor.process(self.batch);
        let result = tokio::time::timeout(self.deadline, call).await;
        Landed {
            back: result.ok().map(|result| (self.processor, result)),
            took: started.elapsed(),
        }
    }
}

/// The calls of a shard that run beside each other, each in a task.
#[derive(Default)]
pub(super) struct Calls {
    // Aborts them when it is dropped.
    tasks: JoinSet<Returned>,
}

/// A call of a strand that has ended.
pub(super) struct Returned {
    /// The strand.
    pub(super) at: usize,
    pub(super) landed: Landed,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Runs `call`, of the strand `at`.
    pub(super) fn begin(&mut self, at: usize, call: impl Future<Output = Landed> + Send + 'static) {
        self.tasks.spawn(async move {
            Returned {
                at,
                landed: call.await,
            }
        });
    }

    /// The next call that ends; never if none is under way. Cancel-safe.
    pub(super) async fn next(&mut self) -> Returned {
        match self.tasks.join_next().await {
            Some(Ok(returned)) => returned,
            // A mistake of the host, as it is in a call that is alone.
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Some(Err(_)) | None => std::future::pending().await,
        }
    }
}
