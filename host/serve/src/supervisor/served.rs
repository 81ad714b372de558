//! Runs the workers for one stream of a plugin, one after the other.

use std::time::Duration;

use shardmill_config::StreamConfig;
use shardmill_worker::{Ports, StatusBoard, Worker, WorkerError, WorkerOptions};
use tokio_util::sync::CancellationToken;

use super::keep_serving::{End, Listener, keep_serving};
use crate::host_status::HostStatus;

/// A stream of a plugin, and what each worker for it is made of.
pub(super) struct Served {
    pub(super) stream: StreamConfig,
    pub(super) ports: Ports,
    pub(super) options: WorkerOptions,
    pub(super) status: HostStatus,
    pub(super) stop: CancellationToken,
    pub(super) drain_limit: Duration,
}

// === impl Served ===

impl Served {
    pub(super) async fn run(self) -> End {
        let stop = self.stop.clone();
        Box::pin(keep_serving(
            self.stream.label.as_str(),
            &self,
            &stop,
            || self.worker(),
        ))
        .await
    }

    /// A worker that has not run yet.
    fn worker(&self) -> impl Future<Output = Result<(), WorkerError>> + Send + use<> {
        let board = StatusBoard::default();
        self.status
            .serving(self.stream.label.as_str(), board.clone());
        let worker = Worker::new(self.ports.clone(), self.options.clone(), board);
        let (stop, drain_limit) = (self.stop.clone(), self.drain_limit);
        async move { Box::pin(worker?.run(stop, drain_limit)).await }
    }
}

impl Listener for Served {
    fn not_served(&self, reason: &str) {
        self.status.not_served(self.stream.label.as_str(), reason);
    }
}
