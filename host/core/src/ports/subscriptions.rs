use super::{Fetched, PortFuture, ReadError};
use crate::stream::{ConsumerArn, ConsumerName, FanOutConsumer, ReadFrom, SequenceNumber, ShardId};

/// Enhanced fan-out on one stream: consumers, and subscriptions to shards, which push what polling
/// would have to ask for.
pub trait Subscriptions: Send + Sync {
    /// Looks for the consumer; registers it if it is given by name and there is none. Registering
    /// one costs money for as long as it exists. Any number of hosts may ask at once.
    fn ensure_consumer<'a>(
        &'a self,
        consumer: &'a FanOutConsumer,
    ) -> PortFuture<'a, Result<ConsumerState, SubscribeError>>;

    /// Deregisters a consumer; a missing one is not an error.
    fn remove_consumer<'a>(
        &'a self,
        name: &'a ConsumerName,
    ) -> PortFuture<'a, Result<(), SubscribeError>>;

    /// Subscribes to `shard`, once for each consumer and shard (AWS): another subscription 5 s or
    /// more later takes over.
    fn subscribe<'a>(
        &'a self,
        consumer: &'a ConsumerArn,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<Box<dyn Subscription>, SubscribeError>>;
}

/// A subscription to one shard. Dropping it ends it.
pub trait Subscription: Send {
    /// The next event, [in order](Fetched::in_order); `None` once Kinesis has ended the
    /// subscription, as it does after five minutes. Only this call takes anything off the wire.
    /// After an error there are no more events.
    fn next(&mut self) -> PortFuture<'_, Result<Option<ShardEvent>, SubscribeError>>;
}

/// What Kinesis pushes, and the sequence number to subscribe at again, which is not always a
/// record's. While there is nothing new, it sends one without records every few seconds.
pub type ShardEvent = Fetched<SequenceNumber>;

/// A consumer, as Kinesis has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsumerState {
    /// Ready to subscribe with.
    Active(ConsumerArn),
    /// Being made, which takes some seconds; ask again.
    Creating,
    /// Being deleted; ask again.
    Deleting,
}

/// Why there is no subscription, or no longer one. None of these is ever the end of a shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// Another subscription with this consumer was made less than 5 s ago, or has taken this one
    /// over.
    #[error("the shard is subscribed to elsewhere with the same consumer: {message}")]
    InUse {
        /// Kinesis' message.
        message: String,
    },
    /// The consumer is not registered, or is being deleted.
    #[error("the fan-out consumer is not registered: {message}")]
    ConsumerNotFound {
        /// Kinesis' message.
        message: String,
    },
    /// The stream has as many consumers as it may have, or too many are being made.
    #[error(
        "the stream takes no more fan-out consumers: {message} (AWS allows 20 for each stream, \
            and 5 being created at once): remove an unused one, see `shardmill consumers STREAM`, \
            or ask AWS for more"
    )]
    ConsumerLimit {
        /// Kinesis' message.
        message: String,
    },
    /// A rate was exceeded.
    #[error("kinesis throttled the request: {message}")]
    Throttled {
        /// Kinesis' message.
        message: String,
    },
    /// Stream or shard is unknown; possibly only for a moment.
    #[error("kinesis does not know the stream or shard: {message}")]
    NotFound {
        /// Kinesis' message.
        message: String,
    },
    /// Rights or keys are missing, or Kinesis rejects the request; an operator must act.
    #[error("kinesis refused the request: {message}")]
    Refused {
        /// Kinesis' message.
        message: String,
    },
    /// Anything else: timeouts, cut connections, 5xx, events that cannot be read.
    #[error("kinesis is unavailable: {message}")]
    Unavailable {
        /// What happened.
        message: String,
    },
}

/// What a failed read means for a subscription, which is made again or gives way to polling.
impl From<ReadError> for SubscribeError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Throttled { message } => Self::Throttled { message },
            ReadError::NotFound { message } => Self::NotFound { message },
            // Polling, which follows, is what waits for the key.
            ReadError::Refused { message } | ReadError::KeyUnusable { message } => {
                Self::Refused { message }
            }
            ReadError::Unavailable { message } => Self::Unavailable { message },
            ReadError::ExpiredIterator => Self::Unavailable {
                message: error.to_string(),
            },
        }
    }
}
