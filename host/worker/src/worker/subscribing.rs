//! The application's fan-out consumer, as long as this worker runs.

use std::sync::Arc;

use shardmill_core::stream::FanOutConsumer;
use tokio::task::{JoinError, JoinSet};

use super::ports::Ports;
use super::run::Run;
use crate::fan_out::{ConsumerKeeper, FanOutView};
use crate::options::{InvalidOptions, WorkerOptions};
use crate::status::StatusBoard;

/// Maintains the consumer, if shards are to be subscribed to.
pub(super) struct Subscribing {
    run: Arc<Run>,
    /// The keeper, until it begins.
    keeper: Option<ConsumerKeeper>,
    task: JoinSet<()>,
}

impl Subscribing {
    pub(super) fn new(run: Arc<Run>, keeper: Option<ConsumerKeeper>) -> Self {
        Self {
            run,
            keeper,
            task: JoinSet::new(),
        }
    }

    pub(super) fn begin(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            self.task.spawn(self.run.guard(keeper.run()));
        }
    }

    /// How the task ended, which only a bug makes it; `None` if there is none. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Option<Result<(), JoinError>> {
        self.task.join_next().await
    }

    pub(super) fn stop(&mut self) {
        self.task.abort_all();
    }

    /// Deregisters the consumer if this is the last host of the application and is configured to.
    ///
    /// A host that starts at this moment registers the consumer again, as it does whenever it finds
    /// none.
    pub(super) async fn deregister(&self) {
        let Some(subscriptions) = &self.run.ports.subscriptions else {
            return;
        };
        let Some(FanOutConsumer::Named(name)) = self.consumer_to_deregister() else {
            return;
        };
        if !self.is_last_host().await {
            return;
        }
        match subscriptions.remove_consumer(name).await {
            Ok(()) => {
                tracing::info!(consumer = %name, "last host of the application, fan-out consumer \
                    deregistered");
            }
            Err(error) => {
                tracing::warn!(
                    consumer = %name,
                    %error,
                    code = "consumer-left",
                    "the fan-out consumer was left behind, and is billed"
                );
            }
        }
    }

    fn consumer_to_deregister(&self) -> Option<&FanOutConsumer> {
        let fan_out = self.run.options.retrieval.fan_out()?;
        fan_out.deregister_on_exit.then_some(&fan_out.consumer)
    }

    /// Others may be dead and still listed, and so may this one: in doubt, the consumer stays.
    async fn is_last_host(&self) -> bool {
        let fleet = self.run.ports.coordinator.fleet().await;
        fleet.is_ok_and(|fleet| {
            let mut workers = fleet.workers.iter();
            workers.all(|row| row.worker == *self.run.me())
        })
    }
}

/// The keeper of the consumer and the readers' view of it, if shards are to be subscribed to.
pub(super) fn fan_out(
    ports: &Ports,
    options: &WorkerOptions,
    status: &StatusBoard,
) -> Result<Option<(ConsumerKeeper, FanOutView)>, InvalidOptions> {
    let Some(wanted) = options.retrieval.fan_out() else {
        return Ok(None);
    };
    let Some(subscriptions) = &ports.subscriptions else {
        return Err(InvalidOptions {
            setting: "reads.retrieval",
            problem: "enhanced fan-out needs a port for subscriptions".to_owned(),
        });
    };
    Ok(Some(ConsumerKeeper::new(
        Arc::clone(subscriptions),
        wanted.consumer.clone(),
        &options.plugin,
        status.clone(),
    )))
}
