//! What the core needs from outside. Adapters such as `aws`, `wasm` and `sinks` implement these
//! ports; `worker` calls them.

mod clock;
mod coordinator;
mod dead_letters;
mod lease_store;
mod processor;
mod sink;
mod stream_reader;
mod subscriptions;

use std::pin::Pin;

pub use clock::Clock;
pub use coordinator::{CachedShards, Coordinator, Raced};
pub use dead_letters::{DeadLetter, DeadLetters};
pub use lease_store::{
    BadRow, CheckpointWrite, Created, Deleted, LeaseListing, LeaseStore, Progress, SavedState,
    ShardEndWrite, StoreError, WriteResult, Written,
};
pub use processor::{
    CloseReason, Commit, FailureKind, InstanceContext, Outcome, Processed, ProcessorFactory,
    RecordFailure, RecordProcessor,
};
pub use sink::{Origin, Sink, SinkError};
pub use stream_reader::{
    Fetched, PacedBy, REPLY_BYTES_MAX, REPLY_RECORDS_MAX, ReadError, ShardIterator, StreamReader,
};
pub use subscriptions::{ConsumerState, ShardEvent, SubscribeError, Subscription, Subscriptions};

/// A port's answer, boxed so that ports can be used behind `dyn`.
pub type PortFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
