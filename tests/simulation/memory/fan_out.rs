//! Enhanced fan-out behind the network.

use std::sync::Arc;

use shardmill_core::ports::{
    ConsumerState, PortFuture, ShardEvent, SubscribeError, Subscription, Subscriptions,
};
use shardmill_core::stream::{ConsumerArn, ConsumerName, FanOutConsumer, ReadFrom, ShardId};
use shardmill_fakes::fake_fan_out::FakeSubscription;
use tokio::sync::mpsc;

use super::net::{Answer, Ask, Failed, Net};
use super::stream::{MemoryStream, memory};
use crate::events::{Connection, Fare};
use crate::network::RequestKind;
use crate::weather::Service;

/// Events on their way to a host that does not read: more than that, and Kinesis waits.
const IN_FLIGHT_MAX: usize = 4;

type Pushed = Result<Option<ShardEvent>, SubscribeError>;

/// The adapter.
#[derive(Clone)]
pub struct NetFanOut(Net);

/// The host's end of a subscription.
struct Received(mpsc::Receiver<Pushed>);

impl NetFanOut {
    /// The consumers of the run's stream, as `net`'s host reaches them.
    pub fn new(net: Net) -> Self {
        Self(net)
    }

    async fn ask<T: Send + 'static>(
        &self,
        operation: &'static str,
        about: &str,
        serve: impl Fn(&MemoryStream) -> T + Send + Sync + 'static,
    ) -> Result<T, Failed> {
        let world = Arc::clone(&self.0.world);
        let action = if operation == "subscribe" {
            "SubscribeToShard"
        } else {
            "DescribeStreamConsumer"
        };
        let ask = Ask {
            service: Service::Kinesis,
            kind: RequestKind::Other,
            operation,
            action,
            about,
        };
        self.0
            .call(ask, move || Answer::of(Ok(serve(memory(&world)))))
            .await
    }

    async fn ensure(&self, consumer: &FanOutConsumer) -> Result<ConsumerState, SubscribeError> {
        let wanted = consumer.clone();
        let (state, is_new) = self
            .ask("ensure_consumer", "", move |memory| {
                let before = memory.fan_out.consumers().len();
                let state = memory.fan_out.ensure(&wanted);
                (state, memory.fan_out.consumers().len() > before)
            })
            .await?;
        if is_new {
            self.0.world.count("reached: consumer registered");
        }
        state
    }

    async fn subscribe(
        &self,
        consumer: &ConsumerArn,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<Box<dyn Subscription>, SubscribeError> {
        let (asked_for, of, from) = (consumer.clone(), shard.clone(), from.clone());
        let opened = self.ask("subscribe", shard.as_str(), move |memory| {
            memory.fan_out.open(&asked_for, &of, &from)
        });
        let world = &self.0.world;
        match opened.await? {
            Ok(subscription) => {
                world.count("reached: subscription made");
                let (sender, receiver) = mpsc::channel(IN_FLIGHT_MAX);
                let lifetime = world.stream.subscription_lasts();
                let connection = Connection {
                    world: Arc::clone(world),
                    host: Arc::clone(&self.0.host),
                    path: Arc::clone(&self.0.path),
                    shard: shard.to_string(),
                    is_doomed: false,
                    lifetime,
                };
                // Of the world's: what is on its way arrives, whatever becomes of the host.
                world
                    .flights
                    .clone()
                    .spawn(push(connection, subscription, sender));
                Ok(Box::new(Received(receiver)))
            }
            Err(error) => {
                if matches!(error, SubscribeError::InUse { .. }) {
                    world.count("reached: subscription refused, another is too young");
                }
                Err(error)
            }
        }
    }
}

/// Sends what `subscription` has to the host, as long as the connection is good.
async fn push(
    connection: Connection,
    mut subscription: FakeSubscription,
    sender: mpsc::Sender<Pushed>,
) {
    let ends_at = connection.ends_at();
    loop {
        let event = tokio::select! {
            biased;
            // As Kinesis ends each, in order, though after five minutes.
            () = tokio::time::sleep_until(ends_at) => return connection.ended(),
            // The host let go of it, or is gone.
            () = sender.closed() => return,
            event = subscription.next() => event,
        };
        connection.travel().await;
        match connection.fare() {
            Fare::Arrives => {}
            Fare::Breaks => {
                let cut = SubscribeError::Unavailable {
                    message: "connection reset by peer".to_owned(),
                };
                let _gone = sender.send(Err(cut)).await;
                return;
            }
            Fare::Silence => return sender.closed().await,
        }
        let is_end = matches!(&event, Ok(Some(event)) if event.next.is_none());
        let is_last = !matches!(event, Ok(Some(_)));
        if matches!(event, Err(SubscribeError::InUse { .. })) {
            connection.world.count("reached: subscription taken over");
        }
        if sender.send(event).await.is_ok() && is_end {
            connection.said_end();
        }
        if is_last {
            return;
        }
    }
}

impl Subscription for Received {
    fn next(&mut self) -> PortFuture<'_, Pushed> {
        Box::pin(async move { self.0.recv().await.unwrap_or(Ok(None)) })
    }
}

impl Subscriptions for NetFanOut {
    fn ensure_consumer<'a>(
        &'a self,
        consumer: &'a FanOutConsumer,
    ) -> PortFuture<'a, Result<ConsumerState, SubscribeError>> {
        Box::pin(self.ensure(consumer))
    }

    fn remove_consumer<'a>(
        &'a self,
        name: &'a ConsumerName,
    ) -> PortFuture<'a, Result<(), SubscribeError>> {
        let asked = name.clone();
        Box::pin(async move {
            self.ask("remove_consumer", name.as_str(), move |memory| {
                memory.fan_out.deregister(asked.as_str());
            })
            .await?;
            self.0
                .world
                .count("reached: consumer deregistered by the last host");
            Ok(())
        })
    }

    fn subscribe<'a>(
        &'a self,
        consumer: &'a ConsumerArn,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<Box<dyn Subscription>, SubscribeError>> {
        Box::pin(self.subscribe(consumer, shard, from))
    }
}
