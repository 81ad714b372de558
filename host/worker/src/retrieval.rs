//! How records are read: asked for, or pushed.

use shardmill_core::stream::FanOutConsumer;

/// How a worker reads its shards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Retrieval {
    /// `GetRecords`: costs nothing beyond the shards, and shares 2 MB/s and 5 calls/s a shard with
    /// all pollers.
    #[default]
    Polling,
    /// Enhanced fan-out, which AWS bills by consumer, shard and byte: 2 MB/s a shard for this
    /// consumer alone, pushed. Shards are polled while it cannot be had.
    FanOut(FanOut),
    /// Enhanced fan-out if the host allows its costs, otherwise polling.
    Auto {
        /// Whether the host allows it.
        is_fan_out_allowed: bool,
        /// How, if it does.
        fan_out: FanOut,
    },
}

/// Which consumer to subscribe with, and what happens to it at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanOut {
    /// The registered consumer, by name or by ARN.
    pub consumer: FanOutConsumer,
    /// Whether the last worker of the application that leaves deregisters a consumer that is given
    /// by name.
    pub deregister_on_exit: bool,
}

impl Retrieval {
    /// What to subscribe with, if shards are subscribed to at all.
    pub fn fan_out(&self) -> Option<&FanOut> {
        match self {
            Self::FanOut(fan_out)
            | Self::Auto {
                is_fan_out_allowed: true,
                fan_out,
            } => Some(fan_out),
            Self::Polling
            | Self::Auto {
                is_fan_out_allowed: false,
                ..
            } => None,
        }
    }
}
