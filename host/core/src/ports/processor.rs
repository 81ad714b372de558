use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::PortFuture;
use crate::fleet::ApplicationStart;
use crate::lease::{Checkpoint, LeaseCounter, WorkerId};
use crate::plugin::{GuestLimits, Lack, Permissions, PluginDigest, PluginName, ProcessorError};
use crate::stream::{Batch, Emitted, Position, ReadFrom, SequenceNumber, ShardId, StreamName};

/// One version of a plugin, validated and compiled: makes instances.
pub trait ProcessorFactory: Send + Sync {
    /// The SHA-256 of the component, which names the version.
    fn digest(&self) -> &PluginDigest;

    /// Whether its instances can save their state, and load what another instance saved.
    fn saves_state(&self) -> bool {
        false
    }

    /// Whether its instances want to be called when time has passed.
    fn ticks(&self) -> bool {
        false
    }

    /// The version of the contract that it was built against, such as `0.1.0`; `None` for a
    /// processor that is not a component.
    fn contract(&self) -> Option<&str> {
        None
    }

    /// Makes an instance for one shard, runs its `init`, and has it load `state`, if there is any.
    fn instantiate(
        &self,
        context: Arc<InstanceContext>,
        state: Option<Bytes>,
    ) -> PortFuture<'_, Result<Box<dyn RecordProcessor>, ProcessorError>>;
}

/// One instance, serving one shard under one holding of its lease. Called by one task, one call at
/// a time.
pub trait RecordProcessor: Send {
    /// Delivers a batch. The outcome is checked: see [`Outcome`]. After an error whose fate is
    /// dead, the instance must be dropped.
    ///
    /// Not cancel-safe: dropping the future before it is ready leaves the instance unusable.
    fn process(&mut self, batch: Batch) -> PortFuture<'_, Result<Processed, ProcessorError>>;

    /// The state that the next instance is to start from. Only called between deliveries, for a
    /// version that saves its state. After an error whose fate is dead, the instance must be
    /// dropped.
    ///
    /// Not cancel-safe, as `process`.
    fn save(&mut self) -> PortFuture<'_, Result<Bytes, ProcessorError>> {
        Box::pin(std::future::ready(Err(ProcessorError::State {
            message: "this version saves no state".to_owned(),
        })))
    }

    /// Calls it because time has passed. Only called between deliveries, for a version that ticks.
    /// After an error whose fate is dead, the instance must be dropped.
    ///
    /// Not cancel-safe, as `process`.
    fn tick(&mut self, time: TickTime) -> PortFuture<'_, Result<Ticked, ProcessorError>> {
        let message = format!(
            "this version takes no ticks, not even that of {}",
            time.now_ms
        );
        Box::pin(std::future::ready(Err(ProcessorError::Host { message })))
    }

    /// Ready when the host lacks memory and this instance could give some back. One that never
    /// could is never ready.
    fn asked_for_room(&self) -> PortFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    /// Whether to close this instance now and make another when it is needed. Asked between
    /// batches; after `true` the caller must close it.
    fn gives_room(&mut self) -> bool {
        false
    }

    /// Memory that the instance holds now, in bytes. An instance never returns memory, so this is
    /// also the most so far. 0 if that is not known, and once the instance is dead.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// Closes the instance; returns what it emitted last.
    fn close(
        self: Box<Self>,
        reason: CloseReason,
    ) -> PortFuture<'static, Result<LastOutput, ProcessorError>>;
}

/// The identity of an instance, for the imports `context` and `wasi:config/store`.
#[derive(Debug, Clone)]
pub struct InstanceContext {
    /// The name of the plugin that it runs.
    pub plugin: PluginName,
    /// The application: the name that leases and checkpoints are kept under.
    pub application: String,
    /// The stream that the shard belongs to.
    pub stream: StreamName,
    /// The shard whose records it gets.
    pub shard: ShardId,
    /// The id of the worker that holds the lease.
    pub worker: WorkerId,
    /// The epoch of the holding: the lease counter at the take. Rises whenever the owner changes.
    pub epoch: LeaseCounter,
    /// Names of the sinks that `emit` may use.
    pub destinations: Vec<String>,
    /// The plugin's own configuration values.
    pub config: Vec<(String, String)>,
    /// Limits of the instance; `None` for the engine's own.
    pub limits: Option<GuestLimits>,
    /// What it may use beyond computing.
    pub permissions: Arc<Permissions>,
    /// Where its records begin.
    pub start: StartPosition,
}

/// Where the records of an instance begin. What comes before was settled, or is not for the
/// application. Of what comes after, some may have been settled before as well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StartPosition {
    /// At the oldest record that the shard has.
    #[default]
    Oldest,
    /// At the first record that arrived at this time or later, in milliseconds since the Unix
    /// epoch.
    Time(u64),
    /// At the record with this number, or the oldest one after it.
    At(SequenceNumber),
    /// After this record, up to which everything is settled.
    After(Position),
}

impl StartPosition {
    /// Where the records after `checkpoint` begin, of an application that began at `start`.
    pub fn after(checkpoint: &Checkpoint, start: &ApplicationStart) -> Self {
        if let Checkpoint::At(position) = checkpoint {
            return Self::After(position.clone());
        }
        match checkpoint.read_from(start) {
            Some(ReadFrom::AtTimestamp(ms)) => Self::Time(ms),
            Some(ReadFrom::AtSequenceNumber(number) | ReadFrom::AfterSequenceNumber(number)) => {
                Self::At(number)
            }
            Some(ReadFrom::TrimHorizon | ReadFrom::Latest) | None => Self::Oldest,
        }
    }
}

/// What an instance emitted when it was closed. The instance is gone, but this takes memory until
/// it is stored, however long a sink is down.
#[derive(Default)]
pub struct LastOutput {
    /// The pieces, in order.
    pub emitted: Vec<Emitted>,
    /// What they take of the memory of all instances, to be held until they are stored.
    pub charges: Vec<Charge>,
}

/// A part of a budget, which is given back when this is dropped.
pub type Charge = Box<dyn Send>;

impl LastOutput {
    /// Adds what another instance emitted.
    pub fn add(&mut self, other: Self) {
        self.emitted.extend(other.emitted);
        self.charges.extend(other.charges);
    }
}

/// The result of a successful call of `process`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processed {
    /// What the guest reported.
    pub outcome: Outcome,
    /// What it emitted during the call, in order.
    pub emitted: Vec<Emitted>,
}

/// What the guest reports about a batch. It comes from untrusted code: an implementation of
/// [`RecordProcessor`] checks it by [`check_outcome`](crate::pipeline::check_outcome), and returns
/// none that makes no sense.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Records that failed; normally empty. Indexes rise strictly, and are below the batch's
    /// length.
    pub failures: Vec<RecordFailure>,
    /// How far the batch may be committed; `None` means all of it. Records after it have not
    /// failed: the guest holds them back (a window still open, say).
    pub commit: Option<Commit>,
    /// How long to wait before the failed records are delivered again, as the guest wishes; `None`
    /// leaves it to the host.
    pub retry_after: Option<Duration>,
}

/// What a tick says of time, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TickTime {
    /// The host's wall clock; never less than at the tick before.
    pub now_ms: u64,
    /// All records that had reached the shard by then were delivered, and none of them waits to be
    /// tried again; `None` if more are waiting, or if that is not known. By the host's wall clock,
    /// as of the last reply of Kinesis.
    pub delivered_until_ms: Option<u64>,
}

/// The result of a successful tick.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ticked {
    /// What becomes of the records that the guest holds back.
    pub held_back: HeldBack,
    /// What it emitted during the call, in order.
    pub emitted: Vec<Emitted>,
}

/// What becomes of the records that a guest holds back when time has passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HeldBack {
    /// They stay held back.
    #[default]
    Keep,
    /// All of them may be committed.
    Commit,
}

/// How far a batch may be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// None of it yet.
    Nothing,
    /// Up to and including this index.
    Through(u32),
}

/// A record of the batch that was not processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFailure {
    /// Its index in the batch, from 0.
    pub index: u32,
    /// Whether a retry may help.
    pub kind: FailureKind,
    /// Why it failed, in the plugin's words.
    pub message: String,
}

/// Whether a failed record is worth another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Transient: deliver it again.
    Retry,
    /// It will never work.
    Reject,
    /// Not the record's fault: the plugin's configuration is wrong. Only the host reports this.
    Misconfigured,
}

impl FailureKind {
    /// What the plugin lacked, if that is why the record failed.
    pub fn lack(self) -> Option<Lack> {
        match self {
            Self::Retry | Self::Reject => None,
            Self::Misconfigured => Some(Lack::Configuration),
        }
    }
}

/// Why an instance is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// Another host has the shard now; nothing the instance emits is kept.
    LeaseLost,
    /// The shard has ended and all its records were delivered.
    ShardEnded,
    /// The host is going down.
    Shutdown,
    /// A new version of the plugin takes over, the plugin was removed, or the host needs the memory
    /// for others.
    Reload,
}

impl CloseReason {
    /// The word used in the contract.
    pub fn code(self) -> &'static str {
        match self {
            Self::LeaseLost => "lease-lost",
            Self::ShardEnded => "shard-ended",
            Self::Shutdown => "shutdown",
            Self::Reload => "reload",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version that tells no more than it must.
    struct Plain(PluginDigest);

    impl ProcessorFactory for Plain {
        fn digest(&self) -> &PluginDigest {
            &self.0
        }

        fn instantiate(
            &self,
            _: Arc<InstanceContext>,
            _: Option<Bytes>,
        ) -> PortFuture<'_, Result<Box<dyn RecordProcessor>, ProcessorError>> {
            Box::pin(std::future::ready(Ok(
                Box::new(PlainInstance) as Box<dyn RecordProcessor>
            )))
        }
    }

    struct PlainInstance;

    impl RecordProcessor for PlainInstance {
        fn process(&mut self, _: Batch) -> PortFuture<'_, Result<Processed, ProcessorError>> {
            Box::pin(std::future::ready(Ok(Processed::default())))
        }

        fn close(
            self: Box<Self>,
            _: CloseReason,
        ) -> PortFuture<'static, Result<LastOutput, ProcessorError>> {
            Box::pin(std::future::ready(Ok(LastOutput::default())))
        }
    }

    #[test]
    fn a_processor_that_does_not_say_so_has_no_state_no_contract_and_no_memory_to_give() {
        let factory = Plain(PluginDigest::from_hex(&"7".repeat(64)).unwrap());
        assert!(!factory.saves_state() && !factory.ticks());
        assert_eq!(factory.contract(), None);
        let mut instance = PlainInstance;
        assert!(!instance.gives_room());
        assert_eq!(instance.memory_bytes(), 0);
    }

    #[test]
    fn what_several_instances_emitted_last_comes_in_order_and_with_all_that_it_takes() {
        let of = |data: &'static str| LastOutput {
            emitted: vec![Emitted {
                destination: "out".to_owned(),
                key: String::new(),
                data: Bytes::from_static(data.as_bytes()),
            }],
            charges: vec![Box::new(data)],
        };
        let mut all = LastOutput::default();
        all.add(of("first"));
        all.add(of("second"));
        let data: Vec<&[u8]> = all.emitted.iter().map(|piece| &piece.data[..]).collect();
        assert_eq!(data, [b"first" as &[u8], b"second"]);
        assert_eq!(all.charges.len(), 2);
    }

    #[test]
    fn why_an_instance_is_closed_has_the_word_of_the_contract() {
        let all = [
            CloseReason::LeaseLost,
            CloseReason::ShardEnded,
            CloseReason::Shutdown,
            CloseReason::Reload,
        ];
        assert_eq!(
            all.map(CloseReason::code),
            ["lease-lost", "shard-ended", "shutdown", "reload"]
        );
    }
}
