//! What the core needs from outside. Adapters such as `aws`, `wasm` and `sinks` implement these
//! ports; `worker` calls them.

mod clock;
mod coordinator;
mod dead_letters;
mod guest_lines;
mod lease_store;
mod processor;
mod recorder;
mod sink;
mod standalone_hosts;
mod stream_reader;
mod subscriptions;
mod tracer;

use std::pin::Pin;

pub use clock::Clock;
pub use coordinator::{CachedShards, Coordinator, Raced};
pub use dead_letters::{DeadLetter, DeadLetters};
pub use guest_lines::GuestLines;
pub use lease_store::{
    BadRow, CheckpointWrite, Created, Deleted, Directing, LeaseListing, LeaseStore, ObeyState,
    ObeyWrite, Progress, SavedState, ShardEndWrite, StoreError, Took, WriteResult, Written,
};
pub use processor::{
    Charge, CloseReason, Commit, FailureKind, HeldBack, InstanceContext, LastOutput, Outcome,
    Processed, ProcessorFactory, RecordFailure, RecordProcessor, StartPosition, TickTime, Ticked,
};
pub use recorder::Recorder;
pub use sink::{Origin, Sink, SinkError};
pub use standalone_hosts::{Extent, StandaloneHosts};
pub use stream_reader::{
    Fetched, PacedBy, REPLY_BYTES_MAX, REPLY_RECORDS_MAX, ReadError, ShardIterator, StreamReader,
};
pub use subscriptions::{ConsumerState, ShardEvent, SubscribeError, Subscription, Subscriptions};
pub use tracer::Tracer;

/// A port's answer, boxed so that ports can be used behind `dyn`.
pub type PortFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
