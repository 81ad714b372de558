//! How a call into a processor can fail.

use std::time::Duration;

/// Whether an instance can be called again after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceFate {
    /// The guest returned an error in good order.
    Usable,
    /// The instance must be replaced (a trapped component cannot be entered again).
    Dead,
}

/// What a plugin lacked that no record can give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Something it needs is away for now, such as a service.
    Service,
    /// Its configuration is missing or wrong, until an operator fixes it.
    Configuration,
}

/// A failed `init`, `process` or `close`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessorError {
    /// The guest returned an error.
    #[error("the plugin reported an error: {message}")]
    Reported {
        /// What it said, cut to a sane length.
        message: String,
    },
    /// The guest returned an error that it says is not its own: a service that is away, a setting
    /// that is missing.
    #[error("the plugin reported an error: {message}")]
    NotReady {
        /// What it lacks.
        lack: Lack,
        /// What it said, cut to a sane length.
        message: String,
    },
    /// A call failed in which the guest emitted to a destination that does not exist.
    #[error(
        "the plugin emitted to {name:?}, which is not one of its destinations ({known}): name one \
            of them in its configuration, or give it a sink of that name ({said})"
    )]
    UnknownDestination {
        /// The first such destination of the call.
        name: String,
        /// Those that there are, separated by commas.
        known: String,
        /// How the call failed.
        said: String,
        /// What became of the instance.
        fate: InstanceFate,
    },
    /// The guest trapped or panicked.
    #[error("the plugin trapped: {message}")]
    Trapped {
        /// The trap and, where known, the frames.
        message: String,
    },
    /// The guest did not return in time.
    #[error("the plugin did not return from {call} within {limit:?}")]
    DeadlineExceeded {
        /// Which call.
        call: &'static str,
        /// The limit that it exceeded.
        limit: Duration,
    },
    /// The guest asked for more than it may have.
    #[error("the plugin exceeded its limit of {limit} on {what}")]
    LimitExceeded {
        /// Such as "memory bytes".
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The guest returned something that makes no sense, such as a failure index beyond the batch.
    #[error("the plugin returned an invalid outcome: {message}")]
    InvalidOutcome {
        /// What was wrong with it.
        message: String,
    },
    /// An instance held records back that is one of several for its shard.
    #[error(
        "the plugin holds records back, which an instance may not that is one of several for a \
            shard: set parallelism = 1, or have it handle each record in the call that brings it"
    )]
    HoldsBack,
    /// A version wants ticks that would be one of several instances for its shard.
    #[error(
        "this version exports ticker, but a tick is about all records of a shard, and here several \
            instances share them: set parallelism = 1, or use a version without ticker"
    )]
    TicksBesideOthers,
    /// The state of a shard cannot be saved or taken up: it is too large, refused, or not that of
    /// the checkpoint.
    #[error("the plugin's state: {message}")]
    State {
        /// What is wrong with it, and how to fix it.
        message: String,
    },
    /// The guest needed memory that the host has not left, though its own limit would have allowed
    /// it.
    #[error(
        "the host's memory for all instances, {limit} bytes, is used up: the call is repeated \
            once other instances release some; raise host.instances-memory, or give batches fewer bytes"
    )]
    HostMemory {
        /// All that the instances of this host may have together, in bytes.
        limit: u64,
    },
    /// The host could not run the call at all.
    #[error("the host could not run the plugin: {message}")]
    Host {
        /// What went wrong.
        message: String,
    },
}

impl ProcessorError {
    /// Whether it is the host's trouble, which says nothing of the plugin or the records.
    pub fn is_hosts(&self) -> bool {
        matches!(self, Self::Host { .. } | Self::HostMemory { .. })
    }

    /// What the plugin lacked, if that is what failed: it says nothing of the records.
    pub fn lack(&self) -> Option<Lack> {
        match self {
            Self::NotReady { lack, .. } => Some(*lack),
            Self::UnknownDestination { .. } | Self::HoldsBack | Self::TicksBesideOthers => {
                Some(Lack::Configuration)
            }
            _ => None,
        }
    }

    /// The same, where the call emitted to the destination `name`, which is none of the `known`
    /// ones: whatever the guest made of that, it is not the fault of a record. What the host failed
    /// at stays its own.
    #[must_use]
    pub fn after_unknown_destination(self, name: String, known: String) -> Self {
        if self.is_hosts() {
            return self;
        }
        Self::UnknownDestination {
            name,
            known,
            said: self.to_string(),
            fate: self.fate(),
        }
    }

    /// Whether the instance survived.
    pub fn fate(&self) -> InstanceFate {
        match self {
            Self::Reported { .. }
            | Self::NotReady { .. }
            | Self::InvalidOutcome { .. }
            | Self::State { .. } => InstanceFate::Usable,
            Self::UnknownDestination { fate, .. } => *fate,
            // One that lacks memory gives back what it has: others may finish with it.
            Self::Trapped { .. }
            // Nothing of the call is kept, so the instance must not keep it either.
            | Self::HoldsBack
            | Self::TicksBesideOthers
            | Self::DeadlineExceeded { .. }
            | Self::LimitExceeded { .. }
            | Self::HostMemory { .. }
            | Self::Host { .. } => InstanceFate::Dead,
        }
    }

    /// A short, stable word for metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Reported { .. } => "reported",
            Self::NotReady {
                lack: Lack::Service,
                ..
            } => "unavailable",
            Self::NotReady {
                lack: Lack::Configuration,
                ..
            }
            | Self::UnknownDestination { .. }
            | Self::HoldsBack
            | Self::TicksBesideOthers => "misconfigured",
            Self::Trapped { .. } => "trapped",
            Self::DeadlineExceeded { .. } => "deadline",
            Self::LimitExceeded { .. } => "limit",
            Self::InvalidOutcome { .. } => "invalid_outcome",
            Self::State { .. } => "state",
            Self::HostMemory { .. } => "host_memory",
            Self::Host { .. } => "host",
        }
    }
}
