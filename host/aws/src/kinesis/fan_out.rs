//! Enhanced fan-out on one stream through `RegisterStreamConsumer` and `SubscribeToShard`.

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::StalledStreamProtectionConfig;
use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::operation::describe_stream_consumer::DescribeStreamConsumerOutput;
use aws_sdk_kinesis::operation::register_stream_consumer::RegisterStreamConsumerError;
use aws_sdk_kinesis::types::{self as sdk, ConsumerStatus, StartingPosition};
use shardmill_core::ports::{
    ConsumerState, PortFuture, SubscribeError, Subscription, Subscriptions,
};
use shardmill_core::stream::{
    ConsumerArn, ConsumerName, FanOutConsumer, ReadFrom, ShardId, StreamRef,
};
use shardmill_wire::Format;

use super::errors::subscribe_error;
use super::start::Start;
use super::subscription::KinesisSubscription;
use super::wire::{self, Inbox, Wire};
use crate::transport::http_client;

/// Consumers of one page (AWS limit: 100); a stream has 20, or 50 by agreement.
const PAGE_CONSUMERS: i32 = 100;
/// A thousand consumers are more than any stream may have: then the paging goes in circles.
const PAGES_MAX: usize = 10;

/// Enhanced fan-out on one stream.
#[derive(Debug, Clone)]
pub struct KinesisFanOut {
    client: Client,
    stream: StreamRef,
    connections: Connections,
    wire: Wire,
}

/// The connections that subscriptions use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connections {
    /// A connection for this subscription only. Subscriptions that share an HTTP/2 connection share
    /// its flow-control window: a few shards whose plugin is stuck would block all the others.
    Own,
    /// The client's, as a simulator needs it.
    Shared,
}

/// A consumer as `ListStreamConsumers` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerDescription {
    /// The name it was registered under, unique on its stream.
    pub name: String,
    /// The consumer's ARN, which differs between two registrations of one name.
    pub arn: String,
    /// `ACTIVE`, `CREATING` or `DELETING`.
    pub status: String,
    /// When it was registered, in seconds since the Unix epoch.
    pub created_at: i64,
}

impl KinesisFanOut {
    /// Subscribes to shards of `stream` through `client`, which must be of the region in its ARN;
    /// each on its own connection.
    pub fn new(client: Client, stream: impl Into<StreamRef>) -> Self {
        Self {
            client,
            stream: stream.into(),
            connections: Connections::Own,
            wire: Wire::default(),
        }
    }

    /// Speaks as `wire` says and shares what it learns; without it, as the default says.
    #[must_use]
    pub fn speaking(self, wire: Wire) -> Self {
        Self { wire, ..self }
    }

    /// Subscribes on the client's own connections. For transports that are not the network.
    #[must_use]
    pub fn on_shared_connections(self) -> Self {
        Self {
            connections: Connections::Shared,
            ..self
        }
    }

    /// All consumers of the stream.
    pub async fn consumers(&self) -> Result<Vec<ConsumerDescription>, SubscribeError> {
        let stream_arn = self.stream_arn().await?;
        let request = self
            .client
            .list_stream_consumers()
            .stream_arn(&stream_arn)
            .max_results(PAGE_CONSUMERS);
        let mut consumers = Vec::new();
        let mut token = None;
        for _ in 0..PAGES_MAX {
            let page = request.clone().set_next_token(token).send().await;
            let page = page.map_err(|error| subscribe_error(&error))?;
            consumers.extend(
                page.consumers
                    .unwrap_or_default()
                    .into_iter()
                    .map(described),
            );
            token = page.next_token.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(consumers);
            }
        }
        Err(SubscribeError::Unavailable {
            message: format!("the list of consumers has more than {PAGES_MAX} pages"),
        })
    }

    async fn stream_arn(&self) -> Result<String, SubscribeError> {
        if let Some(arn) = self.stream.arn() {
            return Ok(arn.to_owned());
        }
        let reply = self
            .client
            .describe_stream_summary()
            .stream_name(self.stream.name().as_str())
            .send()
            .await;
        let reply = reply.map_err(|error| subscribe_error(&error))?;
        let summary = reply.stream_description_summary;
        summary
            .map(|summary| summary.stream_arn)
            .ok_or_else(|| unreadable("no description of the stream"))
    }

    /// The consumer as it is now; `None` if it does not exist. Registers nothing.
    pub async fn look(
        &self,
        consumer: &FanOutConsumer,
    ) -> Result<Option<ConsumerState>, SubscribeError> {
        match consumer {
            FanOutConsumer::Named(name) => self.named(&self.stream_arn().await?, name).await,
            FanOutConsumer::Given(arn) => match self.look_for(arn).await {
                Err(SubscribeError::ConsumerNotFound { .. }) => Ok(None),
                found => found.map(Some),
            },
        }
    }

    async fn ensure_named(&self, name: &ConsumerName) -> Result<ConsumerState, SubscribeError> {
        let stream_arn = self.stream_arn().await?;
        match self.named(&stream_arn, name).await? {
            Some(state) => Ok(state),
            None => self.register(&stream_arn, name).await,
        }
    }

    async fn named(
        &self,
        stream_arn: &str,
        name: &ConsumerName,
    ) -> Result<Option<ConsumerState>, SubscribeError> {
        let request = self
            .client
            .describe_stream_consumer()
            .stream_arn(stream_arn)
            .consumer_name(name.as_str());
        match request.send().await {
            Ok(reply) => consumer_state(reply).map(Some),
            Err(error) => match subscribe_error(&error) {
                SubscribeError::NotFound { .. } => Ok(None),
                other => Err(other),
            },
        }
    }

    async fn register(
        &self,
        stream_arn: &str,
        name: &ConsumerName,
    ) -> Result<ConsumerState, SubscribeError> {
        let request = self
            .client
            .register_stream_consumer()
            .stream_arn(stream_arn)
            .consumer_name(name.as_str());
        match request.send().await {
            Ok(reply) => {
                let made = reply
                    .consumer
                    .ok_or_else(|| unreadable("no description of the consumer"))?;
                tracing::info!(consumer = made.consumer_arn, "fan-out consumer registered");
                state(&made.consumer_arn, &made.consumer_status)
            }
            Err(error) => register_failed(&error),
        }
    }

    async fn look_for(&self, arn: &ConsumerArn) -> Result<ConsumerState, SubscribeError> {
        let request = self
            .client
            .describe_stream_consumer()
            .consumer_arn(arn.as_str());
        let reply = request.send().await;
        let reply = reply.map_err(|error| match subscribe_error(&error) {
            SubscribeError::NotFound { message } => SubscribeError::ConsumerNotFound { message },
            other => other,
        })?;
        consumer_state(reply)
    }

    async fn open(
        &self,
        consumer: &ConsumerArn,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<Box<dyn Subscription>, SubscribeError> {
        let format = self.wire.format();
        let mut opened = self.ask(consumer, shard, from, format).await;
        if opened.is_err() && self.wire.has_left(format) {
            opened = self.ask(consumer, shard, from, self.wire.format()).await;
        }
        match opened {
            Ok(subscription) => Ok(Box::new(subscription)),
            Err(error) => Err(self.explain(consumer, error).await),
        }
    }

    async fn ask(
        &self,
        consumer: &ConsumerArn,
        shard: &ShardId,
        from: &ReadFrom,
        format: Format,
    ) -> Result<KinesisSubscription, SubscribeError> {
        let inbox = Inbox::default();
        // The reader watches for silence itself, and is silent itself while the host has no room.
        let mut config = wire::config(&self.wire, format, &inbox)
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        if self.connections == Connections::Own {
            config = config.http_client(http_client());
        }
        let request = self
            .client
            .subscribe_to_shard()
            .consumer_arn(consumer.as_str())
            .shard_id(shard.as_str())
            .starting_position(starting_position(from)?);
        let reply = request.customize().config_override(config).send().await;
        let reply = reply.map_err(|error| subscribe_error(&error))?;
        Ok(KinesisSubscription::new(reply.event_stream, inbox))
    }

    /// "Resource not found" may mean the consumer, the stream or the shard: registering helps only
    /// with the first.
    async fn explain(&self, consumer: &ConsumerArn, error: SubscribeError) -> SubscribeError {
        let SubscribeError::NotFound { message } = error else {
            return error;
        };
        match self.look_for(consumer).await {
            Err(SubscribeError::ConsumerNotFound { .. }) | Ok(ConsumerState::Deleting) => {
                SubscribeError::ConsumerNotFound { message }
            }
            Ok(ConsumerState::Active(_) | ConsumerState::Creating) | Err(_) => {
                SubscribeError::NotFound { message }
            }
        }
    }
}

impl Subscriptions for KinesisFanOut {
    fn ensure_consumer<'a>(
        &'a self,
        consumer: &'a FanOutConsumer,
    ) -> PortFuture<'a, Result<ConsumerState, SubscribeError>> {
        Box::pin(async move {
            match consumer {
                FanOutConsumer::Named(name) => self.ensure_named(name).await,
                FanOutConsumer::Given(arn) => self.look_for(arn).await,
            }
        })
    }

    fn remove_consumer<'a>(
        &'a self,
        name: &'a ConsumerName,
    ) -> PortFuture<'a, Result<(), SubscribeError>> {
        Box::pin(async move {
            let stream_arn = self.stream_arn().await?;
            let request = self
                .client
                .deregister_stream_consumer()
                .stream_arn(stream_arn)
                .consumer_name(name.as_str());
            let Err(error) = request.send().await else {
                return Ok(());
            };
            match subscribe_error(&error) {
                SubscribeError::NotFound { .. } => Ok(()),
                other => Err(other),
            }
        })
    }

    fn subscribe<'a>(
        &'a self,
        consumer: &'a ConsumerArn,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<Box<dyn Subscription>, SubscribeError>> {
        Box::pin(self.open(consumer, shard, from))
    }
}

fn described(consumer: sdk::Consumer) -> ConsumerDescription {
    ConsumerDescription {
        name: consumer.consumer_name,
        arn: consumer.consumer_arn,
        status: consumer.consumer_status.as_str().to_owned(),
        created_at: consumer.consumer_creation_timestamp.secs(),
    }
}

fn register_failed<R: std::fmt::Debug + 'static>(
    error: &SdkError<RegisterStreamConsumerError, R>,
) -> Result<ConsumerState, SubscribeError> {
    match error.as_service_error() {
        // Another host was faster, or the stream is changing: the next look shows which.
        Some(RegisterStreamConsumerError::ResourceInUseException(_)) => Ok(ConsumerState::Creating),
        Some(RegisterStreamConsumerError::LimitExceededException(limit)) => {
            Err(SubscribeError::ConsumerLimit {
                message: limit
                    .message()
                    .unwrap_or("LimitExceededException")
                    .to_owned(),
            })
        }
        Some(_) | None => Err(subscribe_error(error)),
    }
}

fn consumer_state(reply: DescribeStreamConsumerOutput) -> Result<ConsumerState, SubscribeError> {
    let found = reply
        .consumer_description
        .ok_or_else(|| unreadable("no description of the consumer"))?;
    state(&found.consumer_arn, &found.consumer_status)
}

fn state(arn: &str, status: &ConsumerStatus) -> Result<ConsumerState, SubscribeError> {
    match status {
        ConsumerStatus::Active => ConsumerArn::new(arn)
            .map(ConsumerState::Active)
            .map_err(|error| unreadable(&error)),
        ConsumerStatus::Creating => Ok(ConsumerState::Creating),
        ConsumerStatus::Deleting => Ok(ConsumerState::Deleting),
        other => Err(unreadable(format_args!("consumer status {other}"))),
    }
}

fn starting_position(from: &ReadFrom) -> Result<StartingPosition, SubscribeError> {
    let start = Start::from(from);
    StartingPosition::builder()
        .r#type(start.kind)
        .set_timestamp(start.timestamp)
        .set_sequence_number(start.sequence_number)
        .build()
        .map_err(|error| SubscribeError::Refused {
            message: error.to_string(),
        })
}

fn unreadable(problem: impl std::fmt::Display) -> SubscribeError {
    SubscribeError::Unavailable {
        message: format!("unreadable reply: {problem}"),
    }
}
