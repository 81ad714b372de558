//! Fan-out with a bug.

use std::sync::Arc;

use shardmill_core::ports::{
    ConsumerState, PortFuture, ShardEvent, SubscribeError, Subscription, Subscriptions,
};
use shardmill_core::stream::{ConsumerArn, ConsumerName, FanOutConsumer, ReadFrom, ShardId};

use super::PortBug;

/// The decorator.
pub struct WrongSubscriptions {
    subscriptions: Arc<dyn Subscriptions>,
    bug: PortBug,
}

/// A subscription of it.
struct WrongSubscription {
    subscription: Box<dyn Subscription>,
    bug: PortBug,
}

impl WrongSubscriptions {
    /// `subscriptions` with `bug`.
    pub fn new(subscriptions: Arc<dyn Subscriptions>, bug: PortBug) -> Self {
        Self { subscriptions, bug }
    }
}

impl Subscriptions for WrongSubscriptions {
    fn ensure_consumer<'a>(
        &'a self,
        consumer: &'a FanOutConsumer,
    ) -> PortFuture<'a, Result<ConsumerState, SubscribeError>> {
        self.subscriptions.ensure_consumer(consumer)
    }

    fn remove_consumer<'a>(
        &'a self,
        name: &'a ConsumerName,
    ) -> PortFuture<'a, Result<(), SubscribeError>> {
        self.subscriptions.remove_consumer(name)
    }

    fn subscribe<'a>(
        &'a self,
        consumer: &'a ConsumerArn,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<Box<dyn Subscription>, SubscribeError>> {
        Box::pin(async move {
            let subscription = self.subscriptions.subscribe(consumer, shard, from).await?;
            let wrong: Box<dyn Subscription> = Box::new(WrongSubscription {
                subscription,
                bug: self.bug,
            });
            Ok(wrong)
        })
    }
}

impl WrongSubscription {
    fn wrong(&self, mut event: ShardEvent) -> ShardEvent {
        match self.bug {
            PortBug::EventLacksFirst if !event.records.is_empty() => drop(event.records.remove(0)),
            PortBug::EmptyEventEnds if event.records.is_empty() => event.next = None,
            _ => {}
        }
        event
    }
}

impl Subscription for WrongSubscription {
    fn next(&mut self) -> PortFuture<'_, Result<Option<ShardEvent>, SubscribeError>> {
        Box::pin(async move {
            Ok(self
                .subscription
                .next()
                .await?
                .map(|event| self.wrong(event)))
        })
    }
}
